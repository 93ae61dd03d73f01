# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``watch``: on a fake host that changes between the samples, and on a terminal."""

from __future__ import annotations

import json
import os
import pty
import signal
import struct
import subprocess
import time
from fcntl import ioctl
from termios import TIOCSWINSZ

import pytest
from support.command_line import COMMAND, run
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.cli.host.mounts import rows
from ovirt_rdma.host.facts.statistics import (
    MountStatistics,
    OperationStatistics,
    Statistics,
    Transport,
)
from ovirt_rdma.storage.health.state import HealthState, MountHealth


def sample(taken_s, *mounts):
    return Statistics(taken_s, tuple(mounts))


def mount(name="a", reads=0, rtt=0, connects=1, age_s=100):
    moved = (reads * 100, reads * 1000)
    read = OperationStatistics("READ", reads, reads, 0, *moved, 0, rtt, rtt)
    xprt = Transport("rdma", {"connect_count": connects, "sends": reads})
    made = MountStatistics(f"/mnt/{name}", f"s:/{name}", age_s)
    return made._replace(transports=(xprt,), operations=(read,))


def test_rates_are_of_the_time_between_the_samples():
    after = sample(12.0, mount("a", 400, 800, 2))
    (shown,) = rows(sample(10.0, mount()), after, None)
    assert shown["calls"] == 200.0
    assert (shown["received_bytes"], shown["sent_bytes"]) == (200000.0, 20000.0)
    assert (shown["rtt_ms"], shown["connects"], shown["health"]) == (2.0, 1, None)
    assert shown["transport"] == "rdma"


def test_mounts_come_and_go():
    (shown,) = rows(sample(1.0, mount("a")), sample(2.0, mount("b")), None)
    assert (shown["export"], shown["calls"]) == ("s:/b", None)


def test_the_health_is_that_of_the_unit():
    state = HealthState(0, 0, 10, (MountHealth("s:/a", "/mnt/a", "rdma", "3", "slow"),))
    (row,) = rows(sample(1.0, mount()), sample(2.0, mount()), state)
    assert row["health"] == "slow"


@pytest.fixture
def watched(tmp_path, capsys, monkeypatch):
    """A host with two mounts; ``then`` is called between two samples."""
    root = soft_roce(tmp_path)
    root.nfs_mount("nas1:/a", "/mnt/a")
    root.nfs_mount("nas1:/b", "/mnt/b", "tcp")
    slept = []

    def sleep(seconds):
        slept.append(seconds)
        on_host.then()

    monkeypatch.setattr(time, "sleep", sleep)

    def on_host(*words):
        return run(capsys, "watch", *words, "--root", str(tmp_path))

    on_host.fake, on_host.slept, on_host.then = root, slept, lambda: None
    return on_host


def test_one_line_of_json_for_each_sample(watched):
    result = watched("-o", "json", "--count", "3", "--interval", "0.5")
    assert (result.code, result.err, watched.slept) == (0, "", [0.5] * 3)
    documents = [json.loads(line) for line in result.out.splitlines()]
    assert [d["kind"] for d in documents] == ["nfs-watch"] * 3
    assert [m["export"] for m in documents[0]["mounts"]] == ["nas1:/a", "nas1:/b"]


def test_yaml_is_a_stream_of_documents(watched):
    result = watched("-o", "yaml", "--count", "2")
    assert result.out.count("---\nschema_version: 1\nkind: nfs-watch\n") == 2


def test_a_table_for_people(watched):
    lines = watched("--count", "1").out.splitlines()
    assert lines[1].split()[:3] == ["HEALTH", "XPRT", "CALLS/S"]
    assert lines[2].split()[:2] == ["-", "rdma"]
    assert lines[2].endswith("nas1:/a")


def test_a_mount_that_vanishes(watched):
    def unmount():
        for file in ("mountinfo", "mountstats"):
            watched.fake.write(f"/proc/self/{file}", "")

    watched.then = unmount
    result = watched("--count", "2")
    assert result.code == 0
    assert "This host has no NFS mount." in result.out


def test_ctrl_c_is_the_way_to_end_it(watched):
    def interrupt():
        raise KeyboardInterrupt

    watched.then = interrupt
    result = watched()
    assert (result.code, result.out, result.err) == (0, "", "")


@pytest.mark.parametrize(
    "words",
    [["--interval", "0"], ["--interval", "x"], ["--count", "0"], ["--facts", "f.json"]],
)
def test_refused_arguments(watched, words):
    watched(*words).refused(2)


def test_it_ends_when_nobody_reads_any_more():
    """``watch -o json | head -1``, with the real statistics of this machine."""
    words = [*COMMAND, "watch", "-o", "json", "--interval", "0.1"]
    with subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None
        first = child.stdout.readline()
        child.stdout.close()
        assert child.wait(timeout=60) == 0
        assert child.stderr is not None
        assert child.stderr.read() == b""
    assert json.loads(first)["kind"] == "nfs-watch"


def test_on_a_terminal_each_sample_replaces_the_one_before():
    ours, theirs = pty.openpty()
    ioctl(theirs, TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    words = [*COMMAND, "watch", "--interval", "0.1"]
    plain = {k: v for k, v in os.environ.items() if k not in {"COLUMNS", "LINES"}}
    with subprocess.Popen(
        words,
        stdin=theirs,
        stdout=theirs,
        stderr=theirs,
        env={**plain, "TERM": "xterm"},
    ) as child:
        os.close(theirs)
        shown = b""
        while shown.count(b"\x1b[J") < 2:
            shown += os.read(ours, 4096)
        # A terminal of two lines shows one, and does not scroll.
        ioctl(ours, TIOCSWINSZ, struct.pack("HHHH", 2, 80, 0, 0))
        child.send_signal(signal.SIGWINCH)
        seen = len(shown)
        while shown.count(b"\x1b[J", seen) < 3:
            shown += os.read(ours, 4096)
        child.send_signal(signal.SIGINT)
        assert child.wait(timeout=60) == 0
    os.close(ours)
    screens = shown.split(b"\x1b[H")
    assert screens[0] == b""
    assert screens[1].count(b"\n") == 2  # the time, and that there is no mount
    assert screens[-1].count(b"\n") <= 1
