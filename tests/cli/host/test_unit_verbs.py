# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the verbs of our systemd units; test_confirm_verb has the timer's."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from support.command_line import COMMAND
from support.host.changes_wanted import modes

from ovirt_rdma.host.paths import CAPS_JSON, DAEMON_JSON, ENABLED, JOURNAL, under
from ovirt_rdma.host.services.enablement import MODE_VDSMD, marker_text

pytestmark = pytest.mark.hypervisor

UNIT = Path(__file__).parents[3] / "host/systemd/ovirt-rdmad.service"


@pytest.fixture
def booted(ready):
    """A host on which apply was run, and that was booted since."""
    assert ready("apply").code == 0
    ready.fake.reboot()
    assert modes(ready) == ["datagram", "datagram"]
    return ready


def test_a_netdev_that_comes_gets_what_apply_had_set(booted):
    for name in ("ib0", "ib1"):
        assert booted("unit", "netdev", name).code == 0
    assert modes(booted) == ["connected", "connected"]
    assert booted.fake.text("ib0", "mtu") == "65520"
    assert booted("plan", "--exit-code").code == 0


def test_a_netdev_of_which_nothing_is_held(booted):
    result = booted("unit", "netdev", "eth9")
    assert (result.code, result.out, result.err) == (0, "", "")


def test_boot_settings_that_cannot_be_used(booted):
    under(booted.root, JOURNAL).write_text("{")
    result = booted("unit", "netdev", "ib0")
    assert (result.code, result.out) == (1, "")
    assert "it is not JSON" in result.err


def test_nothing_to_recover(ready):
    result = ready("unit", "recover")
    assert (result.code, result.out, result.err) == (0, "", "")


STOPPED_EARLY = """
import os
import signal
import sys
from ovirt_rdma.cli.host import main as host_command
from ovirt_rdma.cli.host import daemon
daemon.as_root = lambda *words: os.kill(os.getpid(), signal.SIGTERM)
sys.exit(host_command.main(["unit", "daemon"]))
"""


def test_a_daemon_stopped_before_it_is_at_work_has_not_failed():
    """systemd takes death by SIGTERM for a clean end, but not an exit code."""
    done = subprocess.run(
        [sys.executable, "-c", STOPPED_EARLY],
        check=False,
        capture_output=True,
        timeout=120,
    )
    assert (done.stdout, done.stderr) == (b"", b"")
    assert f"SuccessExitStatus={done.returncode}\n" in UNIT.read_text()


def test_the_daemon_runs_until_sigterm_and_leaves_what_is_true(ready):
    """Its processes, tasks and files, with the real policy, on a host of files."""
    under(ready.root, ENABLED).parent.mkdir(parents=True, exist_ok=True)
    under(ready.root, ENABLED).write_text(marker_text(MODE_VDSMD))
    child = subprocess.Popen(
        [*COMMAND, "unit", "daemon", "--root", str(ready.root)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        shown = {"running": False}
        while not shown["running"] or not under(ready.root, CAPS_JSON).exists():
            assert child.poll() is None
            shown = ready("daemon", "status", "-o", "json").document
        child.terminate()
        out, _ = child.communicate(timeout=120)
    finally:
        child.kill()
    assert (child.returncode, out) == (0, b"")
    assert (shown["running"], shown["process"]) == (True, child.pid)
    assert {task["name"] for task in shown["tasks"]} == {
        "metrics",
        "capabilities",
        "health",
        "partitions",
        "block",
        "paths",
    }
    # Still enabled: the engine gets the same while the daemon starts again.
    assert "NFS_RDMA" in under(ready.root, CAPS_JSON).read_text()
    assert not under(ready.root, DAEMON_JSON).exists()
