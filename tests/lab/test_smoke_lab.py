# SPDX-License-Identifier: GPL-2.0-or-later
"""Try each promise of ``apply`` and of VDSM's hooks once on a real kernel.

These are a run and its revert, a kill, a run that nobody confirms, and a network setup
of VDSM.

There is no NetworkManager; test_reapply_lab.py tests its profiles.
test_connection_lab.py tests mounts, the files marked ``faults`` the long variants.
Half of them have one kernel, and half the other.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from changed_host import KILLED
from hooked_host import POLICY, TSO, HookedHost, asking, hooked_host
from support.host.hook_host import network, setup

ON_6_12 = pytest.mark.kernels("6.12")
OPTIONS = "  module_options:\n    ib_ipoib: {recv_queue_size: 512}\n"
APPLIED = {
    "ib0 mode connected",
    "ib0 tso tx-tcp-segmentation: off",
    "ib1 mode connected",
    "ib1 tso tx-tcp-segmentation: off",
    "modprobe.d/ovirt-rdma.conf options ib_ipoib recv_queue_size=512",
}


@pytest.fixture(scope="module")
def booted(kernel: str) -> Iterator[HookedHost]:
    with hooked_host(POLICY + OPTIONS) as host:
        # As on most hosts: the units have to look into its network namespace too.
        host.said("systemd-run --property=PrivateNetwork=yes sleep infinity")
        yield host


@pytest.fixture(scope="module")
def before(booted: HookedHost) -> list[str]:
    """The state of the host before our changes."""
    return booted.look()


@pytest.fixture
def host(booted: HookedHost, before: list[str]) -> Iterator[HookedHost]:
    """The state before our changes, restored for the next test."""
    yield booted
    if booted.look() != before:
        booted.must("revert")
        assert booted.look() == before


def test_apply_and_revert(host: HookedHost, before: list[str]) -> None:
    host.must("apply")
    assert set(host.look()) >= APPLIED
    assert host.must("apply").startswith("Nothing to do on hypervisor")
    host.must("revert")
    assert host.look() == before


def test_killed_in_the_middle_and_recovered(
    host: HookedHost, before: list[str]
) -> None:
    assert host.signalled("done 2 KILL", "apply").exit_code == KILLED
    assert host.look() != before
    # What happens at boot.
    host.said("systemctl start ovirt-rdma-recover.service")
    _, outcome, sentence = host.newest()
    assert outcome == "rolled back"
    assert sentence.endswith(" was interrupted; all is as before")
    assert host.look() == before


@ON_6_12
def test_not_confirmed_and_rolled_back(host: HookedHost, before: list[str]) -> None:
    host.must("apply", "--confirm-timeout", "10")
    # Until the end either systemd's timer or its service is active.
    host.wait_until("! systemctl -q is-active 'ovirt-rdma-rollback-*'", 300)
    assert host.look() == before
    assert host.newest()[1] == "rolled back"


@ON_6_12
def test_a_network_setup_of_vdsm(host: HookedHost) -> None:
    host.must("enable", "--mode", "vdsmd")
    refused = setup({"vms": network("ib0", bridged=True)})
    rollback = asking("connected")
    rollback["request"]["options"]["_inRollback"] = True
    [why, *others] = host.ask(refused, rollback)
    assert why is not None
    assert "InfiniBand" in why
    assert (others, host.mode()) == ([None], "datagram")

    # The mode is set before VDSM's network setup, TSO afterwards.
    wanted = asking("connected", mtu=65520)
    assert host.ask(wanted) == [None]
    assert host.mode() == "connected"
    assert host.runs()[0]["by"] == "before_network_setup"
    assert host.ask(asking("datagram", mtu=2044)) == [None]
    assert host.mode() == "datagram"
    host.call("after_network_setup", rollback)
    assert host.tso() == TSO
    host.call("after_network_setup", wanted)
    assert host.tso() == {**TSO, "ib0": "tx-tcp-segmentation: off"}
    host.has_logged("after_network_setup: IPOIB-TSO-01/ib0: on -> off")
