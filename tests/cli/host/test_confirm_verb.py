# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``apply --confirm-timeout``, ``confirm``, and ``unit unconfirmed``."""

from __future__ import annotations

import os
import shutil
import signal
import threading
from contextlib import contextmanager

import pytest
from support.host.changes_wanted import modes

from ovirt_rdma.cli.host import unit
from ovirt_rdma.host.changes.journal import ROLLED_BACK, Journal, Ledger, Run
from ovirt_rdma.host.paths import JOURNAL, SYSTEMD_BOOTED, under
from ovirt_rdma.host.system.lock import HolderTimeouts, one_run

pytestmark = pytest.mark.hypervisor

CONNECTED, DATAGRAM = ["connected"] * 2, ["datagram"] * 2
UNIT = "ovirt-rdma-rollback-1"


@pytest.fixture
def waiting(ready):
    """A host with a run that awaits confirmation for a minute."""
    result = ready("apply", "--confirm-timeout", "60")
    assert (result.code, result.err) == (0, "")
    ready.shown = result.out
    return ready


def test_a_timer_is_set_and_said(waiting):
    command = "/usr/bin/ovirt-rdma-host unit unconfirmed 1"
    assert waiting.timers.timers == {UNIT: ("60s", command)}
    assert waiting.shown.endswith(
        "Run 1 is rolled back at 2023-11-14 23:14:20 UTC unless you confirm it.\n"
        "next: ovirt-rdma-host confirm\n"
    )


def test_the_timer_is_set_before_anything_is_done(ready):
    ready.timers.fails = "Failed to start transient timer unit: Access denied"
    ready("apply", "--confirm-timeout", "60").refused(
        1, "Failed to start transient timer unit", "fix: "
    )
    assert modes(ready) == DATAGRAM
    assert not Journal(ready.root).ledger().applied


def test_without_systemd_nothing_is_done(ready):
    shutil.rmtree(under(ready.root, SYSTEMD_BOOTED))
    ready("apply", "--confirm-timeout", "60").refused(
        1, "--confirm-timeout needs systemd", "fix: leave out --confirm-timeout"
    )
    assert not under(ready.root, JOURNAL).exists()


def test_no_timer_stays_where_there_was_nothing_to_do_or_it_failed(ready):
    ready.fake.ignored.add("/sys/class/net/ib1/mode")
    assert ready("apply", "--confirm-timeout", "60").code == 6
    assert ready.timers.timers == {}
    ready.fake.ignored.clear()
    ready("apply")
    result = ready("apply", "--confirm-timeout", "60")
    assert result.out.startswith("Nothing to do on hv1")
    assert ready.timers.timers == {}


def test_confirmed(waiting):
    result = waiting("confirm")
    assert (result.code, result.err) == (0, "")
    assert result.out == "Run 1 is confirmed.\nnext: ovirt-rdma-host status\n"
    assert waiting.timers.timers == {}
    waiting.fake.time += 3600
    assert waiting("apply").err == ""
    assert modes(waiting) == CONNECTED


def test_nothing_to_confirm(ready):
    for _ in range(2):
        result = ready("confirm")
        assert (result.code, result.err) == (0, "")
        assert result.out == "Nothing to confirm: no run is awaiting confirmation.\n"
        ready("apply")
    assert ready("confirm", "-o", "json").document["confirmed"] is None


def test_document(waiting):
    assert waiting("confirm", "-o", "json").document["confirmed"] == 1


def test_the_timer_takes_it_back(waiting):
    waiting.fake.time += 60
    result = waiting("unit", "unconfirmed", "1")
    assert result.code == 0
    assert "run 1 was not confirmed in time" in result.err
    assert modes(waiting) == DATAGRAM
    assert not under(waiting.root, "/etc/modprobe.d/ovirt-rdma.conf").exists()
    late = waiting("confirm")
    late.refused(
        1, "run 1 cannot be confirmed: run 1 was not confirmed in time", "fix: "
    )


def test_the_timer_does_so_with_users_too_and_before_the_clock_says_so(waiting):
    waiting.fake.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="rdma")
    assert waiting("unit", "unconfirmed", "1").code == 0
    assert modes(waiting) == DATAGRAM


@pytest.mark.parametrize("number", ["2", "0", "-1"])
def test_the_timer_of_another_run(waiting, number):
    assert waiting("unit", "unconfirmed", number).code == 0
    assert modes(waiting) == CONNECTED


def test_the_timer_of_a_confirmed_run(waiting):
    waiting("confirm")
    waiting.fake.time += 60
    result = waiting("unit", "unconfirmed", "1")
    assert (result.code, result.out, result.err) == (0, "", "")
    assert modes(waiting) == CONNECTED


def test_too_late_before_the_timer_has_come(waiting):
    waiting.fake.time += 61
    result = waiting("confirm")
    assert (result.code, result.out) == (1, "")
    assert "run 1 cannot be confirmed" in result.err
    assert modes(waiting) == DATAGRAM


def test_too_late_also_where_a_hook_has_done_something_since(waiting):
    waiting("unit", "unconfirmed", "1")
    journal = Journal(waiting.root)
    at = "2023-11-14T23:15:00Z"
    hook = Run(2, "hook", at, "after_x", outcome="done", ended=at)
    journal.write(journal.ledger().with_run(hook))
    waiting("confirm").refused(1, "run 1 cannot be confirmed", "not confirmed")


def test_after_a_boot_nobody_can_confirm(waiting):
    waiting.fake.reboot()
    assert waiting("unit", "recover").code == 0
    assert Journal(waiting.root).ledger().runs[-1].outcome == ROLLED_BACK
    assert waiting("confirm").code == 1


def test_what_waits_is_said_and_nothing_else_is_done(waiting):
    shown = waiting("status").out
    assert "confirm   run 1 is rolled back at 2023-11-14 23:14:20 UTC\n" in shown
    assert "Run 1 awaits confirmation.\nfix: ovirt-rdma-host confirm\n" in shown
    same = waiting("apply")
    assert same.code == 0
    assert same.out.endswith("next: ovirt-rdma-host confirm\n")
    waiting.follow("version: 1\nhost: {modules: [ib_ipoib]}\n")
    waiting("apply").refused(4, "run 1 awaits confirmation", "fix: ")
    waiting("revert", "MODOPT-02/boot").refused(4, "run 1 awaits confirmation")


def test_revert_takes_it_back_and_the_timer_away(waiting):
    assert waiting("revert").code == 0
    assert modes(waiting) == DATAGRAM
    assert waiting.timers.timers == {}
    assert waiting("confirm").code == 0


def test_a_timer_that_does_not_stop_is_said_and_does_no_harm(waiting):
    waiting.timers.fails = "Failed to stop it: Connection timed out"
    result = waiting("confirm")
    assert result.code == 0
    assert "note: the timer ovirt-rdma-rollback-1.timer cannot be stopped" in result.err
    assert waiting("unit", "unconfirmed", "1").code == 0
    assert modes(waiting) == CONNECTED


def test_the_timer_waits_for_the_run_that_is_still_at_work(waiting):
    held, go = threading.Event(), threading.Event()

    def hold():
        with one_run(waiting.root):
            held.set()
            go.wait(120)

    other = threading.Thread(target=hold)
    other.start()
    held.wait(120)
    threading.Timer(0.1, go.set).start()
    assert waiting("unit", "unconfirmed", "1").code == 0
    other.join()
    assert modes(waiting) == DATAGRAM


@contextmanager
def stopped_holder(root):
    """A process that was stopped after it had taken the lock."""
    child = os.fork()
    if child == 0:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        with one_run(root, by="policy load"):
            os.kill(os.getpid(), signal.SIGSTOP)
            signal.pause()
    os.waitpid(child, os.WUNTRACED)
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


@pytest.fixture
def hasty(monkeypatch):
    """Ends the process that holds the lock at once."""
    monkeypatch.setattr(unit, "_PATIENCE", HolderTimeouts(before_sigterm_s=0.0))


def test_a_holder_that_is_stopped_is_ended(waiting, hasty):
    with stopped_holder(waiting.root) as child:
        waiting("apply").refused(75, f": policy load (process {child}, stopped, since")
        result = waiting("unit", "unconfirmed", "1")
    assert result.code == 0
    assert "holds the lock of this host, and is asked to end" in result.err
    assert modes(waiting) == DATAGRAM
    assert "run 1 was not confirmed" in waiting("confirm").err


def test_a_run_that_was_confirmed_ends_nobody(waiting, hasty):
    waiting("confirm")
    with stopped_holder(waiting.root) as child:
        result = waiting("unit", "unconfirmed", "1")
        assert (result.code, result.err) == (0, "")
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    assert modes(waiting) == CONNECTED


def test_a_holder_that_does_not_go_is_for_the_next_try(waiting, monkeypatch):
    """The holder is this process, which must not be ended."""
    monkeypatch.setattr(unit, "_PATIENCE", HolderTimeouts(0.0, 0.0, 0.0))
    with one_run(waiting.root, by="apply"):
        result = waiting("unit", "unconfirmed", "1")
        assert result.code == 75
        assert "another run" in result.err
    assert modes(waiting) == CONNECTED
    assert waiting("unit", "unconfirmed", "1").code == 0
    assert modes(waiting) == DATAGRAM


def test_status_tells_who_is_at_work(waiting):
    assert waiting("status", "-o", "json").document["at_work"] is None
    assert "locked by" not in waiting("status").out
    with one_run(waiting.root, by="revert"):
        assert f"locked by  revert (process {os.getpid()}, " in waiting("status").out
        told = waiting("status", "-o", "json").document["at_work"]
    assert (told["pid"], told["by"], told["stopped"]) == (os.getpid(), "revert", False)


def test_a_run_at_work_was_not_interrupted(ready):
    journal = Journal(ready.root)
    run = Run(1, "apply", "2023-11-14T23:15:00Z", "apply")
    journal.write(Ledger((run,)))
    assert "was interrupted" in ready("status").out
    with one_run(ready.root, by="apply"):
        assert "interrupted" not in ready("status").out
