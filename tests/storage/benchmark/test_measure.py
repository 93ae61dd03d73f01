# SPDX-License-Identifier: GPL-2.0-or-later
"""The order of mounts, what is skipped and refused, and one run of the real fio."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from support.problems import problem
from support.storage.fake_mount import FakeMount

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.facts.statistics import Statistics
from ovirt_rdma.host.policy.model import PREFER_RDMA, NfsRule
from ovirt_rdma.host.system.commands import run_command
from ovirt_rdma.storage.benchmark import measure
from ovirt_rdma.storage.benchmark.measure import (
    MIB,
    Measuring,
    Request,
    read_counters,
)
from ovirt_rdma.storage.benchmark.model import RANDOM_READ, SEQUENTIAL_WRITE, Load
from ovirt_rdma.storage.benchmark.scratch import Scratch
from ovirt_rdma.storage.benchmark.verdict import Moment, sample_between
from ovirt_rdma.storage.readiness import NOT_READY, READY, Readiness, Step

EXPORT = Export.parse("10.0.0.1:/x")
RULE = NfsRule(0, "none", "10.0.0.1", "*", PREFER_RDMA, options="nconnect=8,nodiratime")
ENGINE = measure.Engine("3.35", "libaio")
WRITE, READ = Load(SEQUENTIAL_WRITE, MIB, 32), Load(RANDOM_READ, 4096, 1)
QUICK = Request(repeats=2, seconds=1, size=MIB)


class Canned(Scratch):
    """Answers for fio. ``full_at``: with which run the server is full."""

    full_at = 0
    runs = 0
    # What is written as the file; what fio says that it wrote.
    content = b"x" * MIB
    written = MIB

    def fio(self, arguments, seconds):
        assert arguments[0] == "fio"
        assert f"--filename={self.file}" in arguments
        assert self.folder.is_dir()
        self.runs += 1
        percentiles = dict.fromkeys(("50.000000", "90.000000", "99.000000"), 1000)
        side = {
            "bw_bytes": 1e9,
            "iops": 1000.0,
            "clat_ns": {"percentile": {**percentiles, "99.900000": 1000}},
        }
        if "--name=layout" in arguments:
            Path(self.file).write_bytes(self.content)
        side["io_bytes"] = self.written
        error = 28 if self.runs == self.full_at else 0
        return json.dumps({"jobs": [{"error": error, "read": side, "write": side}]})


@pytest.fixture
def mounts(tmp_path):
    return FakeMount(tmp_path)


@pytest.fixture
def measuring(mounts):
    return Measuring(
        EXPORT,
        RULE,
        ("10.0.0.1",),
        Readiness((_step(READY),)),
        Facts("hv1", "6.1.0", 100.0),
        ENGINE,
        Canned(str(mounts.root), mounts),
        tuple,
        lambda: Moment(Statistics(100.0)),
        lambda text: None,
    )


def _jobs(measuring, request=QUICK, *, yes_write=False):
    return measuring.run(request, yes_write=yes_write).jobs


def _step(verdict, detail="fine"):
    return Step("listener", verdict, detail)


def _mounted(mounts):
    lines = [line for line in mounts.commands if line.startswith("mount.nfs")]
    return [line.rpartition(" -o ")[2] for line in lines]


def test_transports_are_mounted_in_turns_and_never_together(measuring, mounts):
    jobs = _jobs(measuring)
    names = ["rdma" if "proto=rdma" in one else "tcp" for one in _mounted(mounts)]
    assert names == ["rdma", "tcp", "tcp", "rdma"]
    # FakeMount refuses a mount over a mount.
    assert len(jobs) == 4 * 5
    assert [job.repeat for job in jobs] == [1] * 10 + [2] * 10
    assert mounts.is_clean()
    assert measuring.skipped == []


@pytest.mark.parametrize(
    ("content", "written", "reason"),
    [
        (b"x" * MIB, 0, f"it wrote 0 of {MIB} bytes"),
        (b"x" * MIB, None, "its JSON has no job with all numbers"),
        (b"x" * MIB, MIB - 1, f"it wrote {MIB - 1} of {MIB} bytes"),
        (b"x" * 10, MIB, f"the file has 10 bytes, and not {MIB}"),
        (b"x" * 4096 + bytes(MIB - 4096), MIB, "the end of the file was not written"),
    ],
)
def test_a_file_that_was_not_written_is_not_measured(
    measuring, mounts, content, written, reason
):
    """A server reads zeros of a hole without its disks."""
    measuring.scratch.content, measuring.scratch.written = content, written
    with problem("bench-fio-incomplete") as caught:
        _jobs(measuring)
    assert reason in str(caught.value)
    assert measuring.scratch.runs == 1
    assert mounts.is_clean()


def test_the_options_are_those_that_vdsm_gets(measuring, mounts):
    _jobs(measuring, replace(QUICK, repeats=1, version="3"))
    _jobs(measuring, replace(QUICK, repeats=1, nconnect=4))
    first, *_, last = _mounted(mounts)
    assert first == (
        "soft,nosharecache,timeo=100,retrans=3,nfsvers=3,"
        "nodiratime,proto=rdma,port=20049,retry=0,nolock"
    )
    assert last == (
        "soft,nosharecache,timeo=100,retrans=3,nfsvers=4,minorversion=2,"
        "nodiratime,proto=tcp,retry=0,nconnect=4"
    )


def test_rdma_that_is_not_ready_is_skipped_with_the_reason(measuring, mounts):
    step = _step(NOT_READY, "10.0.0.1 refuses RDMA connections")
    measuring.readiness = Readiness((step,))
    made = measuring.run(QUICK, yes_write=False)
    assert {job.setting.transport for job in made.jobs} == {"tcp"}
    refused = "10.0.0.1 refuses RDMA connections"
    assert made.skipped == (f"RDMA was not measured: {refused}",)


def test_a_mount_that_fails_is_skipped_once(measuring, mounts):
    mounts.refusals = {"proto=rdma": "mount.nfs: Protocol error"}
    jobs = _jobs(measuring)
    assert {job.setting.transport for job in jobs} == {"tcp"}
    assert len([one for one in _mounted(mounts) if "proto=rdma" in one]) == 1
    assert len(measuring.skipped) == 1
    assert "no RDMA device leads to the server" in measuring.skipped[0]


def test_the_folder_is_removed_also_if_the_last_mount_fails(measuring, mounts):
    mounts.refusals = {"proto=tcp": "mount.nfs: Protocol error"}
    jobs = _jobs(measuring, replace(QUICK, repeats=1))
    assert {job.setting.transport for job in jobs} == {"rdma"}
    assert mounts.is_clean()
    # By what worked last.
    assert "proto=rdma" in _mounted(mounts)[-1]


def test_without_any_mount_the_reason_is_the_error(measuring, mounts):
    mounts.refusals = {"nfsvers": "mount.nfs: access denied by server while mounting"}
    with problem("bench-nothing-mounted") as caught:
        _jobs(measuring)
    assert "the server refuses this path to this host" in str(caught.value)
    assert mounts.is_clean()


def _with_mount(measuring, source, protocol="tcp"):
    mount = NfsMount(
        source,
        "/rhev/data-center/mnt/10.0.0.1:_x",
        "rw",
        "4.2",
        protocol,
        2049,
        "10.0.0.1",
        protocols=(protocol,),
    )
    measuring.nfs_mounts = lambda: (mount,)
    return mount


def test_a_domain_in_use_is_refused_before_anything_is_mounted(measuring, mounts):
    _with_mount(measuring, "10.0.0.1:/x")
    with pytest.raises(Problem) as caught:
        _jobs(measuring)
    assert (caught.value.id, caught.value.exit_code) == ("bench-storage-domain", 4)
    assert "mounted at /rhev/data-center/mnt/10.0.0.1:_x" in str(caught.value)
    assert mounts.commands == []


def test_a_domain_of_another_host_is_refused_and_unmounted(measuring, mounts):
    domain = mounts.server / "c1b2ef3e-0c5e-4f5c-9d3a-6a1b2c3d4e5f"
    (domain / "dom_md").mkdir(parents=True)
    with pytest.raises(Problem) as caught:
        _jobs(measuring)
    assert caught.value.exit_code == 4
    assert f"has the storage domain {domain.name}" in str(caught.value)
    assert [path.name for path in mounts.server.iterdir()] == [domain.name]
    assert measuring.scratch.runs == 0
    jobs = _jobs(measuring, yes_write=True)
    assert jobs
    assert [path.name for path in mounts.server.iterdir()] == [domain.name]


def test_a_connection_of_another_mount_is_not_measured(measuring, mounts):
    _with_mount(measuring, "10.0.0.1:/other")
    jobs = _jobs(measuring)
    assert {job.setting.transport for job in jobs} == {"tcp"}
    assert (
        "a second mount of the server would use that connection"
        in (measuring.skipped[0])
    )
    # The export's own mount has a connection too.
    _with_mount(measuring, "10.0.0.1:/x", "rdma")
    jobs = _jobs(measuring, yes_write=True)
    assert {job.setting.transport for job in jobs} == {"rdma"}


def _domain_appears(measuring, mounts, at):
    """Have vdsmd mount another export over TCP once ``at`` of our mounts were made."""
    other = _with_mount(measuring, "10.0.0.1:/other")
    # Ours is in the table too, and its connection is not another's.
    own = replace(
        other,
        mountpoint=str(measuring.scratch.mountpoint),
        protocols=("rdma",),
    )
    measuring.nfs_mounts = lambda: (own, *[other][: len(_mounted(mounts)) >= at])


@pytest.mark.parametrize(
    "at, rdma, words",
    [
        (1, 0, "NFS 4.2 over RDMA was not measured: 10.0.0.1:/other is mounted over"),
        (2, 5, "NFS 4.2 over RDMA was not measured again: 10.0.0.1:/other is mounted"),
        (4, 5, "NFS 4.2 over RDMA was not measured again: 10.0.0.1:/other is mounted"),
    ],
    ids=["while it was mounted", "before the turn", "while it was mounted again"],
)
def test_a_domain_that_is_mounted_meanwhile_ends_the_turns_of_the_other_transport(
    measuring, mounts, at, rdma, words
):
    _domain_appears(measuring, mounts, at)
    jobs = _jobs(measuring)
    names = [job.setting.transport for job in jobs]
    assert (names.count("rdma"), names.count("tcp")) == (rdma, 10)
    (note,) = measuring.skipped
    assert note.startswith(words)
    # The scratch folder too, where the last turn did not run.
    assert mounts.is_clean()


@pytest.mark.parametrize("full_at", [1, 5])
def test_an_export_that_fills_up_ends_it_and_leaves_nothing(measuring, mounts, full_at):
    measuring.scratch.full_at = full_at
    with pytest.raises(Problem) as caught:
        _jobs(measuring)
    assert str(caught.value) == "the export cannot be measured: No space left on device"
    assert "free space" in caught.value.fix
    assert mounts.is_clean()


def test_an_export_that_is_almost_full_gets_no_file(measuring, mounts, monkeypatch):
    monkeypatch.setattr(measuring.scratch, "free_space", lambda: (2 * MIB, 100 * MIB))
    with pytest.raises(Problem) as caught:
        _jobs(measuring)
    assert (caught.value.id, caught.value.exit_code) == ("bench-no-space", 4)
    assert str(caught.value) == (
        "10.0.0.1:/x has 2 MiB free, and bench needs 6 MiB: 1 MiB for its file, and a "
        "twentieth is kept free"
    )
    assert measuring.scratch.runs == 0
    assert mounts.is_clean()


@pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
def test_the_real_fio_makes_no_file(tmp_path):
    found = measure.engine(run_command)
    file = tmp_path / "data"
    for command in (
        measure.arguments(READ, str(file), MIB, 1, found),
        measure.layout_arguments(str(file), MIB),
    ):
        with contextlib.suppress(Problem):
            Scratch(str(tmp_path)).fio(command, 1)
        assert not file.exists()


@pytest.mark.skipif(not shutil.which("fio"), reason="fio is not installed")
def test_the_real_fio_is_understood():
    # Not the memory file system of the tests, which may have no direct I/O.
    with tempfile.TemporaryDirectory(dir="/var/tmp") as name:
        mounts = FakeMount(Path(name))
        scratch = Scratch(name, mounts)
        found = measure.engine(run_command)
        results = []
        with scratch.only_run():
            scratch.mount("nas1:/x", "soft", over_rdma=False)
            scratch.make(4 * MIB)
            file = scratch.file
            made = scratch.folder / "data"
            inode = made.stat().st_ino
            layout = measure.layout_arguments(file, 4 * MIB)
            measure.check_layout(scratch.fio(layout, 9), 4 * MIB)
            scratch.check_written(4 * MIB)
            # Written by its name in /proc, and in place.
            assert made.read_bytes().count(0) < MIB
            assert (made.stat().st_ino, made.stat().st_size) == (inode, 4 * MIB)
            before = read_counters("/")
            for load in (WRITE, READ):
                command = measure.arguments(load, file, 4 * MIB, 1, found)
                # Shorter than the verb can: fio's output is the same.
                short = [word.replace("runtime=1", "runtime=100ms") for word in command]
                results.append(measure.parse(scratch.fio(short, 1), load))
            sample = sample_between(before, read_counters("/"), file, None)
        assert mounts.is_clean()
    for result in results:
        assert result.bytes_per_s > 0
        assert result.p99_9_us > 0
    assert sample.seconds >= 0.2
    assert 0 < sample.cpu_s <= sample.cpus * sample.seconds
