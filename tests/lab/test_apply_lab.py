# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``apply`` and ``revert`` on the fabric without NetworkManager.

Only our units keep the values. They are verified with the kernel's own files, ip and
ethtool.
"""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from prepared_host import (
    JOURNAL,
    REQUESTED,
    PreparedHost,
    complaints,
    outcomes,
)

from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from lab.installed_host import COMMAND
from ovirt_rdma.host.facts.infiniband import CONNECTED_MTU, HEADER

# Boots and waits too long for make check.
pytestmark = pytest.mark.faults

# ConnectX-2: like the first ConnectX, except for that one's revision a0.
FABRIC = InfiniBand(
    hcas=4, pkeys=(0xFFFF, 0x8001), pci=PciFunction(revision=0xB0, driver="mlx4_core")
)
UD_2K, UD_4K = 2048 - HEADER, 4096 - HEADER
NETDEVS = FABRIC.netdevs
NET = "/sys/class/net"
CONNECTED = ("connected", CONNECTED_MTU, REQUESTED)

# mlx4_3 has the wanted value of every key already, so it needs no step.
POLICY = """
  interfaces:
    - {match: {device: mlx4_0}, transport_mode: connected, mtu: auto,
       pkey_children: [0x8001]}
    - {match: {device: mlx4_1}, transport_mode: datagram, mtu: auto, tso: on}
    - {match: {device: mlx4_2}, mtu: 2044, tso: off}
    - {match: {device: mlx4_3}, transport_mode: auto, mtu: auto, tso: auto}
  modules: [nvme_rdma]
  module_options: {ib_ipoib: {send_queue_size: 256}}
"""
FOUND = {
    "ib0": ("datagram", 1500, "off"),
    "ib1": ("connected", 9000, "off"),
    "ib2": ("datagram", UD_4K, "on"),
    "ib3": ("datagram", UD_4K, "on"),
}
BECOMES = {
    "ib0": ("connected", CONNECTED_MTU, "off"),
    "ib0.8001": CONNECTED,
    "ib1": ("datagram", UD_4K, "on"),
    "ib2": ("datagram", UD_2K, "off"),
    "ib3": ("datagram", UD_4K, "on"),
}
STEPS = {
    "MODULE-02/boot",
    "MODULE-02/nvme_rdma",
    "MODOPT-02/boot",
    "IPOIB-PKEY-01/ib0.8001",
    "IPOIB-MODE-01/ib0",
    "IPOIB-MODE-01/ib0.8001",
    "IPOIB-MODE-01/ib1",
    "IPOIB-MTU-01/ib2",
    "IPOIB-TSO-02/ib1",
    "IPOIB-TSO-02/ib2",
}


@pytest.fixture(scope="module")
def host() -> Iterator[PreparedHost]:
    with Guest("hypervisor", systemd=True) as guest:
        FABRIC.load(guest)
        yield PreparedHost(guest, NETDEVS)


def be(host: PreparedHost, netdev: str, mode: str, mtu: int, tso: str) -> None:
    """Set up a netdev as an admin might. TSO is set in datagram mode."""
    host.said(
        f"echo datagram > {NET}/{netdev}/mode\n"
        f"ethtool -K {netdev} tx-tcp-segmentation {tso}\n"
        f"echo {mode} > {NET}/{netdev}/mode\n"
        f"ip link set {netdev} up mtu {mtu}"
    )


def test_apply_again_a_new_netdev_and_revert(host: PreparedHost) -> None:
    be(host, "ib0", "datagram", 1500, "off")
    be(host, "ib1", "connected", 9000, "off")
    host.becomes(FOUND)
    host.load_policy(POLICY)
    found, kept = host.facts(), host.kept()

    # The command itself; elsewhere a process with its imports runs it.
    applied = host.guest.run([COMMAND, "apply"], timeout=300)
    assert (applied.exit_code, complaints(applied)) == (0, ""), applied
    assert outcomes(applied) == dict.fromkeys(STEPS, "done")
    host.becomes(BECOMES)
    assert host.said("lsmod | grep -o ^nvme_rdma") == "nvme_rdma"
    files = host.said(
        "cat /etc/modprobe.d/ovirt-rdma.conf; "
        "grep -v '#' /etc/modules-load.d/ovirt-rdma.conf"
    )
    assert files.splitlines()[-2:] == [
        "options ib_ipoib send_queue_size=256",
        "nvme_rdma",
    ]
    assert host.said(f"stat -c %a {JOURNAL}") == "600"
    journal = host.said(f"md5sum {JOURNAL}")
    assert host.done("apply").startswith("Nothing to do on hypervisor")
    assert host.said(f"md5sum {JOURNAL}") == journal

    # udev starts ovirt-rdma-netdev@ib0.service, and then that of its child.
    FABRIC.unbind(host.guest, 0)
    FABRIC.bind(host.guest, 0)
    # The admin's value, TSO off, has disappeared with the netdev.
    host.becomes({**BECOMES, "ib0": CONNECTED})
    unit = "ovirt-rdma-netdev@ib0.service"
    assert "was datagram, is connected" in host.said(f"journalctl -u {unit}")
    assert host.said("systemctl --failed --no-legend") == ""
    host.said("ethtool -K ib0 tx-tcp-segmentation off; ip link set ib0 up")

    reverted = host.command("revert")
    assert (reverted.exit_code, complaints(reverted)) == (0, ""), reverted
    assert outcomes(reverted) == {
        **dict.fromkeys(STEPS, "back"),
        "MODULE-02/nvme_rdma": "let go",
        "IPOIB-MODE-01/ib0.8001": "let go",  # with the child
    }
    host.becomes(FOUND)
    FABRIC.wait_for_carrier(host.guest, *NETDEVS)
    assert host.facts() == found
    assert host.kept() == kept


def test_revert_brings_any_state_back(host: PreparedHost) -> None:
    chance = random.Random(2)
    rules = []
    for number, netdev in enumerate(NETDEVS):
        mode = chance.choice(["datagram", "connected"])
        mtu = chance.choice(
            [1500, UD_2K, UD_4K] + [9000, 65520] * (mode == "connected")
        )
        be(host, netdev, mode, mtu, chance.choice(["on", "off"]))
        if chance.random() < 0.5:
            host.said(f"echo 0x8001 > {NET}/{netdev}/create_child")
            be(host, f"{netdev}.8001", "connected", chance.choice([1500, 7000]), "on")
        keys = {
            "transport_mode": chance.choice(["auto", "datagram", "connected"]),
            "mtu": chance.choice(["auto", "auto", "1500", "2000"]),
        }
        if chance.random() < 0.7:
            keys["pkey_children"] = "[0x8001]"
        if keys["transport_mode"] != "connected":
            keys["tso"] = chance.choice(["auto", "on", "off"])
        words = ", ".join(f"{key}: {value}" for key, value in keys.items())
        rules.append(f"    - {{match: {{device: mlx4_{number}}}, {words}}}")
    host.load_policy("\n".join(["  interfaces:", *rules]))
    before = host.shapes()
    applied = host.command("apply")
    assert (applied.exit_code, complaints(applied)) == (0, ""), applied
    assert set(outcomes(applied).values()) == {"done"}
    after = host.shapes()
    assert after != before
    # Another name does not hide a netdev.
    host.said("ip link set ib3 down; ip link set ib3 name storage0 up")
    # udev starts the unit for the new name, which may have the lock for long on a busy
    # machine: starting it again waits for it.
    host.said("udevadm settle; systemctl start ovirt-rdma-netdev@storage0.service")
    reverted = host.command("revert")
    assert (reverted.exit_code, complaints(reverted)) == (0, ""), reverted
    host.said("ip link set storage0 down; ip link set storage0 name ib3 up")
    host.becomes(before)
    assert host.shapes().keys() == before.keys()
    for child in before.keys() - set(NETDEVS):
        host.said(f"ip link delete {child}")
