# SPDX-License-Identifier: GPL-2.0-or-later
"""Which netdevs are stacked on others. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ovirt_rdma.host.netdev_facts import Netdev


def with_uppers(netdevs: Sequence[Netdev], names: Iterable[str]) -> set[str]:
    """Return ``names`` and all netdevs above them: bonds, VLANs, bridges, and P_Key
    children, which the kernel does not show among the uppers of their parent.
    """
    above: dict[str, list[str]] = {n.name: list(n.uppers) for n in netdevs}
    for netdev in netdevs:
        if netdev.ipoib and netdev.ipoib.parent:
            above.setdefault(netdev.ipoib.parent, []).append(netdev.name)
    found: set[str] = set()
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += above.get(name, ())
    return found


def concerned(netdevs: Sequence[Netdev]) -> set[str]:
    """Return the names of the netdevs of RDMA ports and of what is stacked on them."""
    return with_uppers(netdevs, (n.name for n in netdevs if n.rdma_device))
