# SPDX-License-Identifier: GPL-2.0-or-later
"""What RDMA adds to netdevs: port, IPoIB, offloads, bond, DCB."""

from __future__ import annotations

from dataclasses import replace
from typing import Optional

from ovirt_rdma.host import ethtool_output
from ovirt_rdma.host.facts import ARPHRD_ETHER, Bond, Netdev, RdmaDevice
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.netdev_stack import concerned
from ovirt_rdma.host.read_dcb import read_dcb
from ovirt_rdma.host.read_ipoib import read_ipoib
from ovirt_rdma.host.read_netdev_ports import read_netdev_ports
from ovirt_rdma.host.read_netdevs import NET_CLASS
from ovirt_rdma.host.tools import Tools

_CARRIER = {"0": False, "1": True}


def with_rdma_details(
    tree: FileTree,
    tools: Tools,
    netdevs: tuple[Netdev, ...],
    devices: tuple[RdmaDevice, ...],
    problems: list[str],
) -> tuple[Netdev, ...]:
    """Return ``netdevs`` with what only those of RDMA ports, and above, have.

    ``ethtool`` is asked once for all netdevs, and not at all where none is of an RDMA
    port; ``dcb``, and ``ethtool`` for pause frames, for each physical RoCE port.
    """
    ipoib = read_ipoib(tree, tools, netdevs, problems)
    ports = read_netdev_ports(tree, netdevs, devices, ipoib)
    placed = tuple(
        replace(
            netdev,
            ipoib=ipoib.get(netdev.name),
            rdma_device=ports[netdev.name][0] if netdev.name in ports else None,
            rdma_port=ports[netdev.name][1] if netdev.name in ports else None,
        )
        for netdev in netdevs
    )
    names = concerned(placed)
    offloads = {}
    if names:
        argv = ["ethtool", "-k", "*"]  # its word for all netdevs, not a shell's
        offloads = ethtool_output.features(tools.text(argv, problems) or "")
    return tuple(
        replace(
            netdev,
            carrier=_carrier(tree, netdev.name),
            bond=_bond(tree, netdev, problems),
            dcb=read_dcb(tree, tools, netdev, problems)
            if netdev.rdma_device and netdev.type == ARPHRD_ETHER
            else None,
            offloads=offloads.get(netdev.name, ()),
        )
        if netdev.name in names
        else netdev
        for netdev in placed
    )


def _carrier(tree: FileTree, name: str) -> Optional[bool]:
    """Return whether there is a link; a netdev that is down cannot tell (EINVAL)."""
    return _CARRIER.get(tree.text(f"{NET_CLASS}/{name}/carrier") or "")


def _bond(tree: FileTree, netdev: Netdev, problems: list[str]) -> Optional[Bond]:
    """Return what a bond is like; texts as ``active-backup 1`` (bond_sysfs.c)."""
    if netdev.driver != "bond":
        return None
    folder = f"{NET_CLASS}/{netdev.name}/bonding"
    mode = tree.text(f"{folder}/mode", problems)
    if mode is None:
        return None
    fail_over_mac = tree.text(f"{folder}/fail_over_mac")
    return Bond(
        mode=mode.split()[0],
        active=tree.text(f"{folder}/active_slave"),
        fail_over_mac=fail_over_mac.split()[0] if fail_over_mac else None,
        members=tuple((tree.text(f"{folder}/slaves") or "").split()),
    )
