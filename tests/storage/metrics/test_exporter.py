# SPDX-License-Identifier: GPL-2.0-or-later
"""The exporter's file, and what it keeps between runs."""

from __future__ import annotations

import json
import os
import shutil
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from support.problems import problem
from support.storage.metrics_host import FOLDER, MetricsHost

from ovirt_rdma.host.paths import DEGRADED_JSON, ENABLED, METRICS_JSON, under
from ovirt_rdma.host.services.enablement import MODE_VDSMD, marker_text
from ovirt_rdma.storage.metrics import exporter
from ovirt_rdma.storage.metrics.exporter import FILE, Export, export, write_metrics


@pytest.fixture
def host(tmp_path):
    made = MetricsHost(tmp_path)
    made.policy()
    made.mount("nas:/vm")
    return made


def file_of(host, folder=FOLDER):
    return host.root / folder.strip("/") / FILE


def run(host):
    """Run the exporter; return what is wrong. Raises Problem."""
    return [*export(host.root).problems]


def verdict(host):
    (line,) = (
        line
        for line in file_of(host).read_text().splitlines()
        if line.startswith("ovirt_rdma_mount_verdict") and line.endswith(" 1")
    )
    return line.partition('verdict="')[2].partition('"')[0]


def test_the_file_can_be_read_by_all_and_nothing_is_left_beside_it(host):
    before = os.umask(0o077)
    try:
        assert run(host) == []
    finally:
        os.umask(before)
    path = file_of(host)
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [entry.name for entry in path.parent.iterdir()] == [FILE]
    assert path.read_text().endswith("\n")


def test_the_draft_is_no_file_that_node_exporter_reads(host, monkeypatch):
    names = []
    real = os.replace

    def replace(draft, path, **folders):
        names.append(Path(draft).name)
        real(draft, path, **folders)

    monkeypatch.setattr(exporter.os, "replace", replace)
    run(host)
    assert names
    # collector/textfile.go: strings.HasSuffix(f.Name(), ".prom")
    assert not any(name.endswith(".prom") for name in names)


def test_a_draft_of_a_killed_run_is_removed_and_that_of_a_living_one_is_not(host):
    folder = file_of(host).parent
    dead = subprocess.Popen([sys.executable, "-c", ""])
    dead.wait()
    left = folder / f".ovirt_rdma.{dead.pid}.draft"
    alive = folder / f".ovirt_rdma.{os.getppid()}.draft"
    foreign = folder / ".ovirt_rdma.mine.draft"
    for path in (left, alive, foreign):
        path.write_text("")
    run(host)
    assert not left.exists()
    assert alive.exists()
    assert foreign.exists()


def test_a_link_in_the_place_of_the_draft_is_not_followed(host):
    folder = file_of(host).parent
    target = host.root / "target"
    target.write_text("kept")
    (folder / f".ovirt_rdma.{os.getpid()}.draft").symlink_to(target)
    with problem("metrics-not-written"):
        write_metrics(str(folder), "x 1\n")
    assert target.read_text() == "kept"


def test_a_link_in_the_place_of_the_folder_is_not_followed(host):
    run(host)
    folder, away = file_of(host).parent, host.root / "away"
    folder.rename(away)
    (away / FILE).write_text("kept")
    left = away / ".ovirt_rdma.999999999.draft"
    left.touch()
    folder.symlink_to(away)
    with problem("metrics-not-written") as refused:
        run(host)
    assert "no link" in refused.value.fix
    # Nor to remove the file of a folder that the policy had before.
    host.policy(folder="")
    run(host)
    assert (away / FILE).read_text() == "kept"
    assert left.exists()


def test_a_folder_swapped_during_a_run_gets_nothing(host, monkeypatch):
    """All is done in the folder that was opened first."""
    run(host)
    folder, away = file_of(host).parent, host.root / "away"
    away.mkdir()
    real = exporter.os.listdir

    def swap(place):
        folder.rename(folder.with_name("first"))
        folder.symlink_to(away)
        return real(place)

    with monkeypatch.context() as patch:
        patch.setattr(exporter.os, "listdir", swap)
        write_metrics(str(folder), "x 1\n")
    assert list(away.iterdir()) == []
    assert (folder.with_name("first") / FILE).read_text() == "x 1\n"


def test_a_folder_that_is_missing_is_one_sentence(host):
    folder = file_of(host).parent
    shutil.rmtree(folder)
    with problem("metrics-folder-missing") as refused:
        run(host)
    assert str(folder) in str(refused.value)
    assert "node_exporter" in refused.value.fix


def test_without_a_folder_in_the_policy_nothing_is_written(host):
    run(host)
    assert file_of(host).exists()
    host.policy(folder="")
    assert run(host) == []
    # Old values would be shown for ever.
    assert not file_of(host).exists()


def test_another_folder_in_the_policy_moves_the_file(host):
    run(host)
    other = "/var/lib/prometheus/node-exporter"
    (host.root / other.strip("/")).mkdir(parents=True)
    host.policy(folder=other)
    run(host)
    assert file_of(host, other).exists()
    assert not file_of(host).exists()


def test_the_verdict_follows_the_policy(host):
    run(host)
    assert verdict(host) == "ok"
    host.policy("tcp")
    run(host)
    assert verdict(host) == "degraded"


@pytest.mark.parametrize("text", ["garbage", "[]", '{"active": 7}', "[" * 100_000])
def test_what_an_earlier_run_left_and_cannot_be_used_changes_nothing(host, text):
    (host.root / METRICS_JSON.strip("/")).write_text(text)
    assert run(host) == []
    assert verdict(host) == "ok"


def test_a_folder_in_run_that_cannot_be_written_to_changes_nothing(host):
    path = host.root / "run/ovirt-rdma"
    shutil.rmtree(path)
    path.write_text("")
    assert len(run(host)) <= 1  # what else is there cannot be read
    assert verdict(host) == "ok"


def test_a_port_was_active_if_a_run_of_this_boot_saw_it(host):
    host.port("mlx5_0")
    state = host.root / "sys/class/infiniband/mlx5_0/ports/1/state"

    def shown(text):
        state.write_text(text)
        run(host)
        lines = dict(
            line.rsplit(" ", 1) for line in file_of(host).read_text().splitlines()
        )
        labels = '{device="mlx5_0",port="1"}'
        names = ("port_active", "port_was_active")
        return tuple(lines[f"ovirt_rdma_{name}{labels}"] for name in names)

    # It waits for its subnet manager.
    assert shown("2: INIT") == ("0", "0")
    assert shown("4: ACTIVE") == ("1", "1")
    assert shown("1: DOWN") == ("0", "1")
    assert shown("1: DOWN") == ("0", "1")
    # A boot empties /run.
    (host.root / METRICS_JSON.strip("/")).unlink()
    assert shown("2: INIT") == ("0", "0")


def test_what_is_kept_is_json_that_all_may_read(host):
    run(host)
    path = host.root / METRICS_JSON.strip("/")
    assert json.loads(path.read_text())["file"] == FOLDER


def calls_of(work) -> int:
    """Return how many calls of functions that judge mounts ``work`` makes."""
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        judges = frame.f_code.co_filename.endswith("storage/mounts.py")
        count += event == "call" and judges

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    return count


def test_twice_the_mounts_are_twice_the_work(tmp_path):
    """All over one connection, and all degraded: a file server has thousands."""
    calls = []
    for number in (200, 400):
        host = MetricsHost(tmp_path / str(number))
        host.policy()
        host.mounts = [
            (f"nas:/vm{n}", f"/rhev/data-center/mnt/nas:_vm{n}", "tcp")
            for n in range(number)
        ]
        for mount in host.mounts:
            host.files.nfs_mount(*mount, version="4.2")
        host.write()
        calls.append(calls_of(lambda root=host.root: exporter.read_metrics(str(root))))
    assert calls[1] < 2.1 * calls[0]


def test_a_link_of_vdsms_is_not_followed(host):
    """Root runs the exporter every 15 s; a link to a dead mount would hold it up."""
    link = host.root / DEGRADED_JSON.strip("/")
    assert link.parent.name == "mounts"
    far = host.root / "far"
    far.write_text("{}")
    link.symlink_to(far)
    (problem,) = run(host)
    assert problem.startswith(f"{DEGRADED_JSON} cannot be read")


def test_a_mount_whose_server_is_silent_delays_nothing(host):
    """Nothing below a mount point is looked at."""
    mountpoint = host.root / "rhev"
    mountpoint.mkdir(mode=0o000)
    assert run(host) == []


def test_a_host_that_is_not_enabled_any_more_shows_no_old_values(host):
    """`disable` ends the daemon."""
    under(host.root, ENABLED).parent.mkdir(parents=True)
    under(host.root, ENABLED).write_text(marker_text(MODE_VDSMD))
    run(host)
    Export(host.root).end()
    under(host.root, ENABLED).write_text("of another version")
    Export(host.root).end()
    assert file_of(host).exists()
    under(host.root, ENABLED).unlink()
    Export(host.root).end()
    assert not file_of(host).exists()
