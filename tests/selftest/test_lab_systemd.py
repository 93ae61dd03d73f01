# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the files of a guest with systemd, and a guest's disk."""

from __future__ import annotations

import configparser
import io
import tarfile
from pathlib import Path

import pytest

from lab import disk, installed_host, systemd_boot
from lab.problem import LabProblem

pytestmark = pytest.mark.selftest

CHECKOUT = Path(__file__).resolve().parents[2]


def test_the_kernel_refuses_hca_drivers_that_udev_would_load() -> None:
    arguments = systemd_boot.kernel_arguments("hv1").split()
    assert "systemd.hostname=hv1" in arguments
    settings = dict(argument.split("=", 1) for argument in arguments)
    for name in ("module_blacklist", "modprobe.blacklist"):
        assert {"mlx4_core", "mlx5_core", "ib_qib"} <= set(settings[name].split(","))
    # The drivers that the lab itself loads.
    for name in ("rdma_rxe", "ib_ipoib", "virtio_net"):
        assert name not in settings["module_blacklist"].split(",")


def test_the_default_target_and_the_agent_are_where_systemd_looks() -> None:
    files = systemd_boot.files()
    assert {path.partition("/")[0] for path in files} == {"systemd"}
    units = "systemd/always/run/systemd/system"
    agent = configparser.RawConfigParser(strict=False)
    agent.read_string(files[f"{units}/lab-agent.service"].decode())
    assert agent["Service"]["ExecStart"].endswith("/run/lab/agent.py")
    target = files[f"{units}/lab.target"].decode()
    assert "Requires=lab-agent.service" in target
    arguments = systemd_boot.kernel_arguments("hv1").split()
    assert "systemd.unit=lab.target" in arguments


def test_an_image_is_made_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[str] = []

    def mkfs(layer: Path, program: str, name: str, *arguments: str) -> None:
        assert (layer, program, name) == (Path("/l"), "usr/sbin/mke2fs", "mkfs.ext4")
        image = Path(arguments[-1])
        assert image.stat().st_size == disk.SIZE
        made.append(arguments[-1])

    monkeypatch.setattr(disk, "run_from", mkfs)
    path = tmp_path / "hv1.img"
    disk.make_disk(path, Path("/l"))
    disk.make_disk(path, Path("/l"))
    assert len(made) == 1
    assert path.stat().st_blocks == 0
    assert list(tmp_path.iterdir()) == [path]


def test_half_an_image_is_not_left(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def mkfs(*_: object) -> None:
        raise LabProblem("mkfs.ext4 failed: no")

    monkeypatch.setattr(disk, "run_from", mkfs)
    with pytest.raises(LabProblem, match=r"mkfs\.ext4 failed"):
        disk.make_disk(tmp_path / "hv1.img", Path("/l"))
    assert list(tmp_path.iterdir()) == []


def test_what_is_installed_is_what_the_package_has() -> None:
    with tarfile.open(fileobj=io.BytesIO(installed_host._archive(False))) as archive:
        members = {f"/{member.name}": member for member in archive}
    found = {place: member.mode for place, member in members.items()}
    assert found["/usr/bin/ovirt-rdma-host"] == 0o755
    assert found["/usr/lib/tmpfiles.d/ovirt-rdma.conf"] == 0o644
    for path in (CHECKOUT / "host/systemd").glob("*.service"):
        assert found[f"/usr/lib/systemd/system/{path.name}"] == 0o644
    for path in (CHECKOUT / "host/udev").glob("*.rules"):
        assert found[f"/usr/lib/udev/rules.d/{path.name}"] == 0o644
    for path in (CHECKOUT / "vdsm_hooks").glob("*/50_ovirt_rdma"):
        place = f"/usr/libexec/vdsm/hooks/{path.parent.name}/50_ovirt_rdma"
        assert found[place] == 0o755
    for path in (CHECKOUT / "host/systemd").glob("*.wants/*"):
        place = f"/usr/lib/systemd/system/{path.parent.name}/{path.name}"
        assert members[place].linkname == str(path.readlink())
