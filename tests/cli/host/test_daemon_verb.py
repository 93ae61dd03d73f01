# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``daemon status``."""

from __future__ import annotations

import os

import pytest

from ovirt_rdma.cli.host import daemon
from ovirt_rdma.host import __version__
from ovirt_rdma.host.daemon.loop import (
    FAILED,
    HANGS,
    OFF,
    OK,
    PROBLEM,
    DaemonState,
    TaskState,
    write_daemon,
)
from ovirt_rdma.host.paths import DAEMON_JSON, ENABLED, SYSTEMD_BOOTED, under
from ovirt_rdma.host.services.enablement import MODE_HOST, marker_text
from ovirt_rdma.host.system.tree import seconds_after_boot, start_of

WELL = TaskState("health", OK, "mounts: 3 ok")


@pytest.fixture
def enabled(host):
    """Run ovirt-rdma-host on an enabled host."""
    under(host.root, ENABLED).parent.mkdir(parents=True, exist_ok=True)
    under(host.root, ENABLED).write_text(marker_text(MODE_HOST))
    return host


def running(host, *tasks, pid=None, policy_problem=""):
    """Let the daemon have these tasks."""
    pid = pid or os.getpid()
    start = start_of(pid) or 1
    write_daemon(
        host.root, DaemonState(pid, start, __version__, None, policy_problem, tasks)
    )


def test_all_is_well(enabled, monkeypatch):
    now = seconds_after_boot()
    monkeypatch.setattr(daemon, "seconds_after_boot", lambda: now)
    ran = TaskState("health", OK, "mounts: 3 ok", (), now - 4, 0.5, now + 6)
    begun = TaskState("capabilities", began_s=now - 30)
    running(enabled, TaskState("block", OFF, "no targets"), ran, begun)
    result = enabled("daemon", "status")
    assert result.code == 0
    lines = [" ".join(line.split()) for line in result.out.splitlines()]
    assert lines[1].startswith("capabilities waits running for 30 s")
    assert lines[2] == "health ok 4 s ago in 6 s mounts: 3 ok"
    assert lines[3] == "block off - - no targets"
    assert lines[4].endswith(" is running.")


def test_problems_come_first(enabled):
    running(
        enabled,
        WELL,
        TaskState("metrics", PROBLEM, "written", ("a file is missing",)),
        TaskState("capabilities", FAILED, "ValueError"),
        TaskState("partitions", HANGS, "it waits in the kernel"),
    )
    result = enabled("daemon", "status")
    assert result.code == 3
    words = [line.split()[:2] for line in result.out.splitlines()[1:5]]
    assert [state for _, state in words] == [HANGS, FAILED, PROBLEM, OK]
    assert "a file is missing" in result.out
    assert "3 tasks need attention.\nfix: journalctl -b -u ovirt-rdmad" in result.out


def test_the_document(enabled):
    running(enabled, WELL, TaskState("capabilities", FAILED, "ValueError"))
    result = enabled("daemon", "status", "-o", "json")
    document = result.document
    assert (result.code, document["kind"]) == (3, "daemon")
    assert (document["schema_version"], document["running"]) == (1, True)
    assert document["wanted"]
    assert [task["name"] for task in document["tasks"]] == ["capabilities", "health"]


def test_a_policy_that_cannot_be_used(enabled):
    running(enabled, WELL, policy_problem="policy.json: it is invalid")
    result = enabled("daemon", "status")
    assert result.code == 3
    assert "it is invalid.\nfix: ovirt-rdma-host policy load\n" in result.out


def test_a_host_that_is_not_enabled_needs_none(host):
    result = host("daemon", "status")
    assert result.code == 0
    assert "is not wanted: this host is not enabled" in result.out
    document = host("daemon", "status", "-o", "json").document
    assert (document["running"], document["wanted"]) == (False, False)


@pytest.mark.parametrize("start", [None, 1])
def test_a_daemon_that_is_not_running(enabled, start):
    if start:
        # The process has ended, and another one has its number.
        write_daemon(
            enabled.root,
            DaemonState(os.getpid(), start, __version__, None, "", (WELL,)),
        )
    result = enabled("daemon", "status")
    assert result.code == 3
    assert "is not running, although this host is enabled" in result.out
    assert "fix: systemctl status ovirt-rdmad.service" in result.out


def test_status_says_that_it_is_not_running(enabled):
    """Nobody looks at ``daemon status`` who does not know that it is missing."""
    said = "ovirt-rdmad.service is not running, although this host is enabled"
    assert said not in enabled("status").out, "systemd is not running here"
    under(enabled.root, SYSTEMD_BOOTED).mkdir(parents=True)
    assert f"{said}.\nfix: systemctl status ovirt-rdmad" in enabled("status").out
    (advice,) = [
        one
        for one in enabled("status", "-o", "json").document["advice"]
        if one["sentence"] == said
    ]
    assert "systemctl start ovirt-rdmad.service" in advice["fix"]
    under(enabled.root, DAEMON_JSON).parent.mkdir(parents=True, exist_ok=True)
    under(enabled.root, DAEMON_JSON).write_text("{")
    assert "daemon.json: " in enabled("status").out
    running(enabled, WELL)
    assert "ovirt-rdmad.service" not in enabled("status").out
    under(enabled.root, DAEMON_JSON).unlink()
    under(enabled.root, ENABLED).unlink()
    assert "ovirt-rdmad.service" not in enabled("status").out


def test_a_file_that_cannot_be_used_is_one_sentence(enabled):
    under(enabled.root, DAEMON_JSON).parent.mkdir(parents=True)
    under(enabled.root, DAEMON_JSON).write_text("{")
    enabled("daemon", "status").refused(1, "daemon.json", "systemctl restart")
