# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the largest datagram MTU of IPoIB netdevs from their adapters."""

from __future__ import annotations

from collections.abc import Collection
from typing import Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.netdevs import with_rdma_details
from ovirt_rdma.host.collect.rdma import read_rdma_devices
from ovirt_rdma.host.collect.tools import Tools, with_limited_timeouts
from ovirt_rdma.host.facts.ipoib import HEADER
from ovirt_rdma.host.system.commands import Runner, run_command
from ovirt_rdma.host.system.tree import FileTree


def datagram_limits(
    root: str, names: Collection[str], run: Optional[Runner] = None
) -> dict[str, int]:
    """Return the largest datagram MTU in bytes of each netdev in ``names``.

    It comes from ``ibv_devinfo``; netdevs for which it is unknown are left out. The
    kernel refuses a larger MTU with EINVAL. Never raises, whatever the host has.
    """
    if run is None and root == "/":
        run = run_command
    tree, problems = FileTree(root), list[str]()
    tools = Tools(run and with_limited_timeouts(run), root)
    devices = read_rdma_devices(tree, problems, tools=tools)
    plain = HostReader(root, run).netdevs(problems)
    netdevs = with_rdma_details(tree, tools, plain, devices, problems)
    ports = {
        (device.name, port.number): port for device in devices for port in device.ports
    }
    limits = {}
    for netdev in netdevs:
        port = ports.get((netdev.rdma_device or "", netdev.rdma_port or 0))
        if netdev.name in names and port and port.max_mtu:
            limits[netdev.name] = port.max_mtu - HEADER
    return limits
