# SPDX-License-Identifier: GPL-2.0-or-later
"""Read only P_Key tables, netdevs and their ports: for a unit that often looks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from ovirt_rdma.host.collect.netdev_details import read_ipoib
from ovirt_rdma.host.collect.netdevs import read_netdev_ports, read_netdevs
from ovirt_rdma.host.collect.parsers.iproute import IpLink
from ovirt_rdma.host.collect.rdma import read_rdma_devices, with_port_details
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.model import UNKNOWN, Facts
from ovirt_rdma.host.system.tree import FileTree


def read_partitions(
    tree: FileTree, tools: Tools, links: Mapping[str, IpLink], problems: list[str]
) -> Facts:
    """Return facts that have only RDMA devices and netdevs, without MTUs of ports and
    offloads. ``links`` has the addresses and virtual kinds of netdevs.

    Reads /sys; ``ip`` is run only if an IPoIB netdev has no files there.
    """
    devices = read_rdma_devices(tree, problems)
    # Without tools: the MTUs of ibv_devinfo are not needed.
    devices = with_port_details(tree, Tools(None), devices, problems)
    netdevs = read_netdevs(tree, links, problems)
    ipoib = read_ipoib(tree, tools, netdevs, problems)
    ports = read_netdev_ports(tree, netdevs, devices, ipoib)
    nowhere = (None, None)
    placed = (
        (netdev, *ports.get(netdev.name, nowhere), ipoib.get(netdev.name))
        for netdev in netdevs
    )
    return Facts(
        hostname=UNKNOWN,
        kernel_release=UNKNOWN,
        uptime_s=0.0,
        rdma_devices=devices,
        netdevs=tuple(
            replace(netdev, rdma_device=device, rdma_port=port, ipoib=own)
            for netdev, device, port, own in placed
        ),
        problems=tuple(dict.fromkeys(problems)),
    )
