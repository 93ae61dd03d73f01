# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the InfiniBand fabric: its parameters, and the build of its module."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lab import cache, ib_fabric_build
from lab.infiniband import InfiniBand, PciFunction
from lab.problem import LabProblem, NotProvisioned

pytestmark = pytest.mark.selftest


@pytest.mark.parametrize(
    ("fabric", "words"),
    [
        (InfiniBand(), {"hcas=2", "pkeys=0xffff", "tso=1", "active_mtu=4096"}),
        (InfiniBand(hca_mtu=2048), {"hca_mtu=2048", "active_mtu=2048"}),
        (InfiniBand(active_mtu=2048), {"hca_mtu=4096", "active_mtu=2048"}),
        (InfiniBand(pkeys=(0x7FFF, 0x8001)), {"pkeys=0x7fff,0x8001"}),
        (InfiniBand(tso=False, subnet_manager=False), {"tso=0", "subnet_manager=0"}),
        (InfiniBand(hca_type="InfiniPath"), {"hca_type=InfiniPath"}),
        (
            InfiniBand(pci=PciFunction(0x1077, 0x7322, 2, driver="ib_qib")),
            {"pci_vendor=4215", "pci_device=29474", "pci_revision=2", "driver=ib_qib"},
        ),
    ],
)
def test_what_the_module_is_told(fabric: InfiniBand, words: set[str]) -> None:
    assert words <= set(fabric.parameters())


def test_every_parameter_is_one_that_the_module_has() -> None:
    source = (ib_fabric_build.SOURCES / "main.c").read_text()
    known = re.findall(r"^module_param\w*\((\w+),", source, re.MULTILINE)
    told = [word.partition("=")[0] for word in InfiniBand(hca_type="x").parameters()]
    assert sorted(told) == sorted(known)


def test_every_source_is_built() -> None:
    kbuild = (ib_fabric_build.SOURCES / "Kbuild").read_text()
    sources = {path.stem for path in ib_fabric_build.SOURCES.glob("*.c")}
    assert set(re.findall(r"(\w+)\.o\b", kbuild)) == sources | {"ib_fabric"}


def test_names_of_devices_and_netdevs() -> None:
    fabric = InfiniBand(hcas=2, ports=2, device_name="mlx5_%d")
    assert fabric.devices == ("mlx5_0", "mlx5_1")
    assert fabric.netdevs == ("ib0", "ib1", "ib2", "ib3")
    assert fabric.port_of("ib3") == ("mlx5_1", 2)


@pytest.mark.parametrize(
    ("fabric", "carrier"),
    [
        (InfiniBand(), True),
        (InfiniBand(subnet_manager=False), False),
        (InfiniBand(hca_mtu=2048), False),
        (InfiniBand(active_mtu=2048), False),
        (InfiniBand(hca_mtu=2048, group_mtu=2048), True),
    ],
)
def test_who_can_have_a_carrier(fabric: InfiniBand, carrier: bool) -> None:
    assert fabric.gives_carrier is carrier


@pytest.fixture
def build_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A provisioned cache, test sources, and a make that records its runs."""
    monkeypatch.setenv("OVIRT_RDMA_CACHE", str(tmp_path / "cache"))
    key = cache.wanted_key()
    layer = tmp_path / "cache" / f"layer-{key}"
    made = cache.Provision(key, layer, layer / "vmlinux", "6.1.0-1-amd64")
    made.modules.mkdir(parents=True)
    made.kernel.touch()
    cache.record(made)
    sources = tmp_path / "ib_fabric"
    sources.mkdir()
    (sources / "main.c").write_text("int a;")
    monkeypatch.setattr(ib_fabric_build, "SOURCES", sources)
    programs = tmp_path / "bin"
    programs.mkdir()
    make(programs, 'echo "$@" >> "$0.log"; for w; do case $w in M=*) d=${w#M=};; esac;')
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return tmp_path


def make(programs: Path, begin: str, end: str = "cp $d/main.c $d/ib_fabric.ko") -> None:
    path = programs / "make"
    path.write_text(f"#!/bin/sh\n{begin} done\n{end}\n")
    path.chmod(0o755)


def runs(folder: Path) -> list[str]:
    return (folder / "bin/make.log").read_text().splitlines()


def test_the_module_is_built_once_for_each_content(build_folder: Path) -> None:
    first = ib_fabric_build.built_module()
    assert ib_fabric_build.built_module() == first
    assert first.read_text() == "int a;"
    (command,) = runs(build_folder)
    headers = r"\S+/layer-\w+/usr/src/linux-headers-6\.1\.0-1"
    assert re.search(rf"-C {headers}-amd64 -f {headers}-common/Makefile M=", command)
    (ib_fabric_build.SOURCES / "main.c").write_text("int b;")
    assert ib_fabric_build.built_module().read_text() == "int b;"
    assert first.read_text() == "int a;"
    # Nothing is left behind, not even in the sources.
    assert {path.suffix for path in first.parent.iterdir()} == {".ko", ""}
    assert [path.name for path in ib_fabric_build.SOURCES.iterdir()] == ["main.c"]


def test_what_another_make_was_told_is_not_for_this_one(
    build_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With `make -j2 check` the compiler's output began with a warning of make."""
    for name in ("MAKEFLAGS", "MFLAGS", "MAKELEVEL"):
        monkeypatch.setenv(name, "from-another")
    see = "! env | grep from-another || exit 1; for w; do"
    make(build_folder / "bin", f"{see} case $w in M=*) d=${{w#M=}};; esac;")
    assert ib_fabric_build.built_module().read_text() == "int a;"


def test_what_the_compiler_says_is_shown(build_folder: Path) -> None:
    make(build_folder / "bin", "for w; do :;", "echo main.c:1: oh; exit 2")
    with pytest.raises(
        LabProblem, match=r"ib_fabric.ko cannot be built:\nmain.c:1: oh"
    ):
        ib_fabric_build.built_module()


def test_without_make_that_is_said(
    build_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(build_folder))
    with pytest.raises(LabProblem, match=r"ib_fabric.ko needs make to be built"):
        ib_fabric_build.built_module()


def test_without_a_guest_layer_nothing_is_built(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OVIRT_RDMA_CACHE", str(tmp_path))
    with pytest.raises(NotProvisioned):
        ib_fabric_build.built_module()
