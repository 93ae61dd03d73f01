# SPDX-License-Identifier: GPL-2.0-or-later
"""Kill ``apply`` at three points: the next run, or our unit, rolls it back."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from changed_host import CONNECTED_AND_TSO, KILLED, ChangedHost, changed_host

# Boots and waits too long for make check.
pytestmark = pytest.mark.faults

# Replaces nmcli, and kills its caller right after a change of a profile.
DEADLY_NMCLI = """\
#!/bin/sh
/usr/bin/nmcli "$@"
code=$?
case "$*" in *"connection modify"*) rm "$0"; kill -9 $PPID;; esac
exit $code
"""


@pytest.fixture(scope="module")
def host() -> Iterator[ChangedHost]:
    with changed_host(CONNECTED_AND_TSO) as booted:
        yield booted


@pytest.fixture(scope="module")
def before(host: ChangedHost) -> list[str]:
    """The state of the host before our changes."""
    return host.look()


def is_applied(host: ChangedHost) -> None:
    """Whether the kernel and the profile are as the policy says."""
    look = host.look()
    profile = "NetworkManager/system-connections/ib0.nmconnection"
    for line in (
        "ib0 mode connected",
        "ib0 mtu 65520",
        "ib0 tso tx-tcp-segmentation: off",
        f"{profile} transport-mode=connected",
        "modprobe.d/ovirt-rdma.conf options ib_ipoib recv_queue_size=512",
    ):
        assert line in look
    assert not any("feature-tso" in line for line in look)


def recovered(host: ChangedHost, before: list[str]) -> None:
    """The unit that runs at boot is enough."""
    assert host.runs()[0]["outcome"] is None
    assert host.look() != before
    host.said("systemctl start ovirt-rdma-recover.service")
    _, outcome, sentence = host.newest()
    assert outcome == "rolled back"
    assert sentence.endswith(" was interrupted; all is as before")
    assert host.look() == before


def test_killed_between_act_and_note(host: ChangedHost, before: list[str]) -> None:
    install = "install -m 755 /dev/stdin /usr/sbin/nmcli"
    host.guest.run(install, input=DEADLY_NMCLI, check=True)
    assert host.run("apply").exit_code == -9
    assert host.guest.run("test -e /usr/sbin/nmcli").exit_code == 1
    recovered(host, before)


def test_killed_in_the_rollback(host: ChangedHost, before: list[str]) -> None:
    orders = "done 3 TERM,undoing 1 KILL"
    assert host.signalled(orders, "apply").exit_code == KILLED
    recovered(host, before)


def test_killed_after_an_act(host: ChangedHost, before: list[str]) -> None:
    assert host.signalled("done 1 KILL", "apply").exit_code == KILLED
    assert host.look() != before
    told = host.must("apply")
    assert "was interrupted; rolling it back" in told
    assert "was interrupted; all is as before" in told
    is_applied(host)
    assert [run["outcome"] for run in host.runs()[:2]] == ["done", "rolled back"]
