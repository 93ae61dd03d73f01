# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the effects of the monitor on a guest and its peer."""

from __future__ import annotations

import time

import pytest

from lab.problem import LabProblem
from lab.topology import NETDEV, Topology

pytestmark = pytest.mark.selftest

CARRIER = f"cat /sys/class/net/{NETDEV}/carrier"
PORT = "cat /sys/class/infiniband/rxe0/ports/1/state"
DOWN, UP = ("0", "1: DOWN"), ("1", "4: ACTIVE")


def becomes(carrier_and_port: tuple[str, str]) -> str:
    """Wait for both: the RDMA port follows the carrier a moment later."""
    wanted = "\n".join(carrier_and_port)
    return f"until [ \"$({CARRIER}; {PORT})\" = $'{wanted}' ]; do sleep 0.1; done"


NFS_ANSWERS = "timeout 3 bash -c ': > /dev/tcp/10.99.0.1/2049'"


def test_a_pulled_cable_takes_the_carrier_and_the_rdma_port(
    two_guests: Topology,
) -> None:
    host = two_guests.hypervisor
    host.run(NFS_ANSWERS, check=True)
    host.monitor.pull_cable()
    try:
        host.run(becomes(DOWN), check=True)
        assert host.run(NFS_ANSWERS).exit_code != 0
    finally:
        host.monitor.plug_cable()
    host.run(becomes(UP), check=True)
    host.run(NFS_ANSWERS, check=True)


def test_a_frozen_guest_does_nothing_until_it_thaws(two_guests: Topology) -> None:
    server = two_guests.server
    server.monitor.freeze()
    try:
        waiting = server.start("true")
        assert two_guests.hypervisor.run(NFS_ANSWERS).exit_code != 0
        time.sleep(1)
        assert not waiting.ended
    finally:
        server.monitor.thaw()
    waiting.wait(check=True)
    two_guests.hypervisor.run(NFS_ANSWERS, check=True)


def test_a_nic_that_is_not_there_is_a_sentence(two_guests: Topology) -> None:
    with pytest.raises(LabProblem, match="hypervisor: QEMU's set_link failed"):
        two_guests.hypervisor.monitor.pull_cable(9)
