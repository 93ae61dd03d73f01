# SPDX-License-Identifier: GPL-2.0-or-later
"""Test ``apply --confirm-timeout`` with systemd's timers, two runs, and a full disk.

The guest has no NetworkManager, so sysfs keeps the values, and the journal over a boot.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from changed_host import CONNECTED, JOURNAL, KILLED, ChangedHost, changed_host

# Boots and waits too long for make check.
pytestmark = pytest.mark.faults

# SHORT is the minimum.
LONG, SHORT = "600", "10"


@pytest.fixture(scope="module")
def booted() -> Iterator[ChangedHost]:
    with changed_host(CONNECTED, network_manager=False) as host:
        yield host


@pytest.fixture(scope="module")
def before(booted: ChangedHost) -> list[str]:
    return booted.look()


@pytest.fixture
def host(booted: ChangedHost, before: list[str]) -> Iterator[ChangedHost]:
    """The state before our changes, restored for the next test."""
    yield booted
    if booted.held():
        booted.must("revert")
    assert booted.look() == before


def timers(host: ChangedHost) -> str:
    return host.said("systemctl list-timers --all --no-legend 'ovirt-rdma-rollback*'")


def test_two_at_once_and_confirmed_in_time(host: ChangedHost) -> None:
    first = host.start_signalled("done 1 STOP", "apply", "--confirm-timeout", LONG)
    host.wait_until_stopped()
    for verb in ("apply", "revert"):
        told = host.must(verb, code=75)
        assert "another run of ovirt-rdma-host is changing this host" in told
    # Commands that only read do not wait.
    assert host.newest()[1] is None
    host.go_on()
    done = first.wait()
    assert done.exit_code == 0, done
    assert "ovirt-rdma-host confirm" in done.stdout
    number, outcome, _ = host.newest()
    assert outcome == "done"
    assert f"ovirt-rdma-rollback-{number}.timer" in timers(host)
    assert f"Run {number} is confirmed." in host.must("confirm")
    assert timers(host) == ""
    assert "ib0 mode connected" in host.look()
    assert host.runs()[0]["confirmed"]


def test_nobody_confirms(host: ChangedHost, before: list[str]) -> None:
    host.must("apply", "--confirm-timeout", SHORT)
    number, _, _ = host.newest()
    unit = f"ovirt-rdma-rollback-{number}"
    host.wait_until(f"! systemctl -q is-active {unit}.timer {unit}.service")
    assert host.look() == before
    said = f"run {number} was not confirmed"
    again, outcome, sentence = host.newest()
    assert (again, outcome) == (number, "rolled back")
    assert said in sentence
    assert said in host.must("confirm", code=1)
    # The units are unloaded; their output is in the journal.
    assert timers(host) == ""
    assert said in host.said(f"journalctl -o cat -u {unit}")
    load_state = f"systemctl show -p LoadState --value {unit}.service"
    assert host.said(load_state) == "not-found"


def test_killed_before_anybody_confirms(host: ChangedHost, before: list[str]) -> None:
    killed = host.signalled("done 2 KILL", "apply", "--confirm-timeout", SHORT)
    assert killed.exit_code == KILLED, killed
    host.wait_until(f"! grep -q '\"outcome\": null' {JOURNAL}")
    assert host.look() == before
    number, outcome, sentence = host.newest()
    assert (outcome, sentence) == (
        "rolled back",
        f"run {number} was interrupted; all is as before",
    )


def test_stopped_and_nobody_confirms(host: ChangedHost, before: list[str]) -> None:
    """A run that is stopped as with Ctrl-Z: the timer's unit continues and ends it."""
    first = host.start_signalled("done 1 STOP", "apply", "--confirm-timeout", SHORT)
    host.wait_until_stopped()
    assert ", stopped, since " in host.must("revert", code=75)
    assert "locked by" in host.must("status")
    host.wait_until("! kill -0 $(cat /run/signalled)", 300)
    done = first.wait()
    assert done.exit_code == 6, done
    assert host.look() == before
    number, outcome, sentence = host.newest()
    assert (outcome, sentence) == (
        "rolled back",
        "SIGTERM asked the run to end; all is as before",
    )
    unit = f"ovirt-rdma-rollback-{number}"
    assert "is asked to end" in host.said(f"journalctl -o cat -u {unit}")
    host.wait_until(f"! systemctl -q is-active {unit}.timer {unit}.service")
    assert timers(host) == ""


@contextmanager
def small(host: ChangedHost, folder: str) -> Iterator[str]:
    """Mount a file system over a folder; yield the line that fills it."""
    host.said(
        f"mkdir -p /run/small && mount -t tmpfs -o size=256k small /run/small &&"
        f" cp -a {folder}/. /run/small && mount --bind /run/small {folder}"
    )
    try:
        yield "cat /dev/zero > /run/small/zeros"
    finally:
        host.said(
            f"rm -f /run/small/zeros; umount {folder};"
            f" cp -a /run/small/. {folder}; umount /run/small"
        )


def test_no_room_for_a_file_of_ours(host: ChangedHost, before: list[str]) -> None:
    with small(host, "/etc/modprobe.d") as fill:
        host.guest.run(fill)
        told = host.must("apply", code=6)
        assert "No space left on device" in told
        assert "all is as before" in told
        # Not even half of it is left.
        assert "ovirt-rdma" not in host.said("ls -A /etc/modprobe.d")
        assert host.look() == before
