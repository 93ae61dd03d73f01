# SPDX-License-Identifier: GPL-2.0-or-later
"""Test ``partitions: follow`` on the fabric.

The unit makes P_Key children for new partitions in the port's table, and removes its
own children that are not in use.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from prepared_host import PreparedHost, complaints, outcomes

from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from ovirt_rdma.host.facts.infiniband import HEADER
from ovirt_rdma.host.system.lock import LockHeld

# Boots and waits too long for make check.
pytestmark = pytest.mark.faults

# ConnectX-2: like the first ConnectX, except for that one's revision a0.
FABRIC = InfiniBand(
    hcas=1, pkeys=(0xFFFF, 0x8001), pci=PciFunction(revision=0xB0, driver="mlx4_core")
)
UD_2K = 2048 - HEADER
NET = "/sys/class/net"


@pytest.fixture(scope="module")
def host() -> Iterator[PreparedHost]:
    with Guest("hypervisor", systemd=True) as guest:
        FABRIC.load(guest)
        yield PreparedHost(guest, FABRIC.netdevs)


FOLLOW = """
  interfaces:
    - {match: {device: mlx4_0}, partitions: follow, mtu: 2044}
  partitions_interval: 5
"""


def test_children_follow_the_ports_partitions(host: PreparedHost) -> None:
    guest = host.guest
    unit = "ovirt-rdmad.service"
    host.said("ovirt-rdma-host enable --mode host")
    host.load_policy(FOLLOW)
    applied = host.command("apply")
    assert (applied.exit_code, complaints(applied)) == (0, ""), applied
    assert {"IPOIB-PKEY-01/ib0.8001", "IPOIB-PKEY-02/host"} < set(outcomes(applied))
    host.said(f"until systemctl is-active {unit}; do sleep 0.5; done")
    host.said(f"echo 0x8003 > {NET}/ib0/create_child")  # the admin's own
    FABRIC.set_pkeys(guest, "mlx4_0", (0xFFFF, 0x8001, 0x8002, 0x8004))
    host.becomes({f"ib0.800{n}": ("datagram", UD_2K, "on") for n in (1, 2, 4)})
    host.said("ip address add 10.96.0.2/24 dev ib0.8001")
    FABRIC.set_pkeys(guest, "mlx4_0", (0xFFFF, 0x8004))
    host.said(f"while [ -e {NET}/ib0.8002 ]; do sleep 0.2; done")
    there = host.said(f"sleep 6; cd {NET}; echo ib0.*")
    assert there == "ib0.8001 ib0.8003 ib0.8004"
    said = host.said(f"journalctl -o cat -u {unit}")
    assert "ib0.8002 was removed" in said
    assert "ib0.8001 was not removed: " in said
    host.said("ip address del 10.96.0.2/24 dev ib0.8001")
    # A run may be active, because ib0.8001 is no longer in use.
    reverted = host.command("revert")
    while reverted.exit_code == LockHeld.exit_code:
        reverted = host.command("revert")
    assert (reverted.exit_code, complaints(reverted)) == (0, ""), reverted
    # The daemon runs on, and makes none again.
    assert host.said(f"sleep 6; cd {NET}; echo ib0.*") == "ib0.8003"
    assert host.said(f"systemctl is-active {unit}") == "active"
    host.said("ovirt-rdma-host disable")
    runs = json.loads(host.done("history", "-o", "json"))["runs"]
    assert "partitions" in {run["verb"] for run in runs}
