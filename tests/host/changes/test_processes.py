# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests with real processes on real files: killed by SIGKILL, and two at once."""

from __future__ import annotations

import itertools
import os
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from dataclasses import replace

import pytest
from support.host import ipoib_host
from support.host.effects_host import Told, apply_steps, recover, roll_back_unconfirmed

from ovirt_rdma.host.changes.journal import (
    Journal,
    Ledger,
    Run,
)
from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.changes.kinds.registry import HostEffects
from ovirt_rdma.host.changes.run import may_be_rolled_back
from ovirt_rdma.host.rules.base import LIVE, Change, Step
from ovirt_rdma.host.system import lock as end_holder
from ovirt_rdma.host.system.files import own_text
from ovirt_rdma.host.system.lock import (
    Holder,
    HolderTimeouts,
    LockHeld,
    lock_or_end_holder,
    one_run,
)

pytestmark = pytest.mark.hypervisor

FACTS = replace(ipoib_host.host(), netdevs=())
NET = "/sys/class/net"
CONF = "/etc/modprobe.d/ovirt-rdma.conf"


@pytest.fixture
def root(tmp_path):
    for name in ("ib0", "ib1"):
        folder = tmp_path / f"sys/class/net/{name}"
        folder.mkdir(parents=True)
        (folder / "mode").write_text("datagram\n")
        (folder / "mtu").write_text("2044\n")
    (tmp_path / "etc/modprobe.d").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random").mkdir(parents=True)
    (tmp_path / "proc/sys/kernel/random/boot_id").write_text("boot\n")
    return tmp_path


def step(name, *changes):
    words = ("sentence", "before", "after", LIVE, "reason", "undo")
    return Step(name, "ib0", *words, changes)


STEPS = (
    step("MODOPT-02", Change("file", CONF, None, own_text(["options ib_ipoib x=1"]))),
    step("IPOIB-MTU-01", Change("sysfs", f"{NET}/ib0/mtu", "2044", "1500")),
    step(
        "IPOIB-MODE-01",
        Change("sysfs", f"{NET}/ib1/mode", "datagram", "connected"),
        Change("sysfs", f"{NET}/ib1/mtu", "2044", "9000"),
    ),
)


class Points:
    """Counts the points of a process, and calls a function at one."""

    def __init__(self, last, then):
        self.passed, self.last, self.then = 0, last, then

    def point(self):
        self.passed += 1
        if self.passed == self.last:
            self.then()


class KilledJournal(Journal):
    def __init__(self, root, points):
        super().__init__(root)
        self.points = points

    def write(self, ledger):
        self.points.point()
        super().write(ledger)
        self.points.point()


class KilledHost(HostEffects):
    def __init__(self, root, points):
        super().__init__(root)
        self.points = points

    def do(self, act):
        self.points.point()
        super().do(act)
        self.points.point()

    def undo(self, act):
        self.points.point()
        super().undo(act)
        self.points.point()


def _apply(root, points, **parts):
    with one_run(root):
        journal, host = KilledJournal(root, points), KilledHost(root, points)
        recover(host, journal, 0, Told())
        return apply_steps(host, journal, STEPS, Told(), FACTS, **parts)


def _child(work):
    """Run ``work`` in a process of its own; return its id."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:  # noqa: BLE001
            sys.__stderr__.write(f"{error!r}\n")
        finally:
            os._exit(code)
    return child


def _kill_self():
    os.kill(os.getpid(), signal.SIGKILL)


def _tree(root):
    return {
        str(path.relative_to(root)): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file() and "ovirt-rdma/" not in str(path.relative_to(root))
    }


def test_killed_at_any_point_the_next_process_leaves_all_as_before_or_after(root):
    before = _tree(root)
    killed = 0
    failing = {"verify": lambda: [STEPS[0].id]}
    for parts in ({}, failing):
        for last in itertools.count(1):
            child = _child(
                lambda n=last, p=parts: _apply(root, Points(n, _kill_self), **p)
            )
            _, status = os.waitpid(child, 0)
            if not os.WIFSIGNALED(status):
                assert os.waitstatus_to_exitcode(status) == 0
                break
            killed += 1
            journal = Journal(root)
            with one_run(root):
                recover(HostEffects(root), journal, 0, Told())
                assert recover(HostEffects(root), journal, 0, Told()) is None
            runs = journal.ledger().runs
            if not runs or runs[-1].outcome != "done":
                assert _tree(root) == before, last
            else:
                assert _tree(root) != before
                _write(root, before)
            # A journal that grows would make each run slower than the one before.
            journal.path.unlink(missing_ok=True)
        _write(root, before)
        journal.path.unlink()
    assert killed > 60


def _write(root, tree):
    for name in _tree(root).keys() - tree.keys():
        (root / name).unlink()
    for name, data in tree.items():
        (root / name).write_bytes(data)


def test_two_at_once_the_second_is_turned_away(root):
    read, write = os.pipe()
    go, let = os.pipe()

    def pause():
        os.write(write, b"x")
        os.read(go, 1)

    child = _child(lambda: _apply(root, Points(6, pause)))
    assert os.read(read, 1) == b"x"
    half = Journal(root).path.read_bytes()
    with pytest.raises(LockHeld) as caught:
        _apply(root, Points(0, None))
    assert caught.value.exit_code == 75
    assert Journal(root).path.read_bytes() == half
    os.write(let, b"x")
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(Journal(root).ledger().runs) == 1
    assert Journal(root).ledger().runs[0].outcome == "done"


UNDER_WAY = """
import subprocess
import sys
import time
from ovirt_rdma.host.changes.kinds.kind import run_effect
from ovirt_rdma.host.system.signals import delayed_signals

with delayed_signals() as signals:
    print(run_effect([sys.executable, "-c", sys.argv[1]]).strip(), signals.asked)
"""
TOOL = """
import pathlib, sys, time

pathlib.Path({begun!r}).touch()
while not pathlib.Path({go!r}).exists():
    time.sleep(0.01)
print("whole")
"""


def test_ctrl_c_on_the_terminal_does_not_reach_the_tool_under_way(tmp_path):
    begun, go = tmp_path / "begun", tmp_path / "go"
    tool = TOOL.format(begun=str(begun), go=str(go))
    # A terminal sends its signals to all of the foreground's process group.
    with subprocess.Popen(
        [sys.executable, "-c", UNDER_WAY, tool],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    ) as process:
        while not begun.exists():
            assert process.poll() is None
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGINT)
        go.touch()
        assert process.stdout.read() == "whole SIGINT\n"


# A run that hangs, and must be rolled back


def _stop_self():
    os.kill(os.getpid(), signal.SIGSTOP)


def _taken_back(root, patience):
    """Do what the timer does; return the sentences."""
    said = []
    with ExitStack() as stack:
        assert lock_or_end_holder(
            stack,
            root,
            "unit unconfirmed",
            is_needed=lambda: may_be_rolled_back(Journal(root).ledger(), 1),
            say=said.append,
            patience=patience,
        )
        host, journal = HostEffects(root), Journal(root)
        if recover(host, journal, 0, Told()) is None:
            roll_back_unconfirmed(host, journal, 1, Told())
    return said


@pytest.mark.parametrize("deaf", [False, True])
def test_a_run_that_is_stopped_is_taken_back_all_the_same(root, deaf):
    """At any of its points: by itself if it continues, else by the next run."""
    before = _tree(root)

    def work(last):
        then = _stop_self
        if deaf:

            def then():
                signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
                while True:
                    _stop_self()

        _apply(root, Points(last, then), confirm_by=1)

    ended = set()
    for last in itertools.count(2):
        child = _child(lambda n=last: work(n))
        _, status = os.waitpid(child, os.WUNTRACED)
        if os.WIFSTOPPED(status):
            # A run that reacts to signals gets the time that it needs, others none.
            patience = (
                HolderTimeouts(0.0, 0.0, 60.0)
                if deaf
                else HolderTimeouts(0.0, 60.0, 60.0)
            )
            said = _taken_back(root, patience)
            assert len(said) == 1 + deaf
            assert f"(process {child}, stopped, since " in said[0]
            _, status = os.waitpid(child, 0)
            ended.add(os.WIFSIGNALED(status) and os.WTERMSIG(status))
            assert _tree(root) == before, last
            assert not Journal(root).ledger().applied
            Journal(root).path.unlink()
        else:
            break
    assert last > 20
    assert ended == ({signal.SIGKILL} if deaf else {False})


def test_who_waits_in_the_kernel_is_left_to_the_next_try(root, monkeypatch):
    sent = []
    monkeypatch.setattr(
        end_holder, "_signal", lambda root, holder, *numbers: sent.append(numbers)
    )
    child = _child(lambda: _apply(root, Points(4, _stop_self), confirm_by=1))
    os.waitpid(child, os.WUNTRACED)
    try:
        with pytest.raises(LockHeld, match=r"apply|a run") as caught:
            _taken_back(root, HolderTimeouts(0.0, 0.0, 0.0))
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    assert caught.value.exit_code == 75
    assert sent == [(signal.SIGTERM, signal.SIGCONT), (signal.SIGKILL,)]
    _taken_back(root, HolderTimeouts())
    assert not Journal(root).ledger().applied


def test_who_holds_the_lock_no_more_is_let_be(root):
    """Another process may have its id when the signal is sent."""
    child = _child(signal.pause)
    try:
        with one_run(root, by="apply"):
            for start in (0, 10**9):
                former = Holder(child, start, "apply", 0)
                end_holder._signal(root, former, signal.SIGKILL)
        assert os.waitpid(child, os.WNOHANG) == (0, 0)
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_what_may_be_taken_back():
    """Only a run that has not ended or awaits confirmation."""
    act = AtomicChange("s", "live", (Change("sysfs", "/x", "a", "b"),))
    change = replace(act, run=1, boot="boot")
    begun = Run(1, "apply", "t", confirm_by=9)
    open_ = replace(begun, acts=(change,))
    done = replace(open_, outcome="done")
    confirmed = replace(done, confirmed="t")
    back = replace(done, acts=(replace(change, undone_by=2),))
    revert, other = Run(2, "revert", "t"), Run(3, "apply", "t")
    for runs, due in (
        ([], False),
        ([begun], True),
        ([open_], True),
        ([done], True),
        ([confirmed], False),
        ([confirmed, other], False),
        ([confirmed, revert], False),
        ([done, revert], True),
        ([back, revert], True),
        ([back, replace(revert, outcome="done")], False),
        ([back, replace(revert, outcome="done"), other], False),
        ([replace(open_, confirm_by=None)], False),
    ):
        assert may_be_rolled_back(Ledger(tuple(runs)), 1) is due, runs
    assert not may_be_rolled_back(Ledger((begun,)), 2)
