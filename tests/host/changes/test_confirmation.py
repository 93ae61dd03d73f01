# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import sys

import pytest
from support.fakes.fake_runner import FakeRunner
from support.fakes.fake_timers import Timers
from support.problems import problem

from ovirt_rdma.host.changes.kinds.kind import Host
from ovirt_rdma.host.changes.run import (
    PROGRAM,
    ConfirmationTimer,
    own_program,
)
from ovirt_rdma.host.paths import SYSTEMD_BOOTED, under
from ovirt_rdma.host.system.commands import NotInstalled

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def systemd(tmp_path):
    under(tmp_path, SYSTEMD_BOOTED).mkdir(parents=True)
    found = Timers()
    found.runner = FakeRunner()
    found.runner.program("systemd-run", found.systemd_run)
    found.runner.program("systemctl", found.stop)
    found.timer = lambda number: ConfirmationTimer(number, Host(tmp_path, found.runner))
    return found


def test_the_timer_runs_our_verb(systemd):
    systemd.timer(7).set(60)
    assert systemd.timers == {
        "ovirt-rdma-rollback-7": ("60s", f"{PROGRAM} unit unconfirmed 7")
    }


def test_it_is_exact_to_a_second(systemd):
    systemd.timer(7).set(10)
    assert "--timer-property=AccuracySec=1s" in systemd.runner.ran[-1]


def test_it_tries_again_where_it_could_not_be_done(systemd):
    systemd.timer(7).set(10)
    command = systemd.runner.ran[-1]
    options = command[: command.index("--")]
    assert "--property=Restart=on-failure" in options
    assert "--property=RestartSec=30" in options


def test_one_that_a_killed_run_left_is_replaced(systemd):
    systemd.timer(7).set(600)
    systemd.timer(7).set(60)
    assert systemd.timers["ovirt-rdma-rollback-7"][0] == "60s"


def test_it_is_stopped_together_with_what_it_may_have_started(systemd):
    systemd.timer(7).set(60)
    assert systemd.timer(7).cancel() == ""
    assert systemd.timers == {}
    assert systemd.runner.ran[-1][2:] == (
        "ovirt-rdma-rollback-7.timer",
        "ovirt-rdma-rollback-7.service",
    )


def test_a_timer_that_is_gone_needs_no_stop(systemd):
    assert systemd.timer(7).cancel() == ""


def test_systemd_that_does_not_take_it(systemd):
    systemd.fails = "Failed to start transient timer unit: Access denied"
    with problem("timer-not-set", "Failed to start"):
        systemd.timer(7).set(60)
    assert "Failed to start" in systemd.timer(7).cancel()


def test_without_systemd_or_its_tools(tmp_path):
    timer = ConfirmationTimer(7, Host(tmp_path, FakeRunner()))
    for ask in (timer.check, lambda: timer.set(60)):
        with problem("systemd-not-running", "--confirm-timeout"):
            ask()
    assert timer.cancel() == ""
    under(tmp_path, SYSTEMD_BOOTED).mkdir(parents=True)
    timer.check()
    with problem("timer-not-set", "No such file"):
        timer.set(60)
    # Below another root no real tool is run.
    with problem("systemd-not-running"):
        ConfirmationTimer(7, Host(tmp_path)).check()


def test_a_missing_systemctl_is_no_error_when_stopping(systemd):
    def gone(argv):
        raise NotInstalled("No such file or directory")

    systemd.runner.program("systemctl", gone)
    assert systemd.timer(7).cancel() == ""


def test_the_running_program_is_what_the_timer_runs(tmp_path, monkeypatch):
    program = tmp_path / "bin" / "ovirt-rdma-host"
    program.parent.mkdir()
    program.touch()
    link = tmp_path / "link"
    link.symlink_to(program)
    monkeypatch.setattr(sys, "argv", [str(link)])
    assert own_program() == str(program)
    for argv in ([], [""], ["/usr/bin/pytest"], [str(tmp_path / "ovirt-rdma-host")]):
        monkeypatch.setattr(sys, "argv", argv)
        assert own_program() == PROGRAM
