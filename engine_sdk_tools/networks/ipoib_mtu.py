# SPDX-License-Identifier: GPL-2.0-or-later
"""Determine the largest MTU that each IPoIB netdev supports, from a host's facts. Pure.

The engine requires that the MTU of network and netdev are equal. If the kernel accepts
an MTU but uses a smaller one, the network stays out of sync.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.ipoib import CONNECTED, CONNECTED_MTU, DATAGRAM
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.ipoib import may_be_group_mtu, mtu_limit, no_connected_mode
from ovirt_rdma.host.rules.profiles import MTU, settings_of
from ovirt_rdma.host.rules.view import Interface, View


@dataclass(frozen=True)
class NetdevMtu:
    """``mtu`` in bytes, None if unknown; ``because`` is the reason, a clause.

    ``no_mode`` is a clause on why the requested mode is not possible, "" if it is.
    """

    netdev: str
    mtu: Optional[int]
    because: str
    child: bool = False
    no_mode: str = ""


def ipoib_mtus(facts: Facts, mode: Optional[str] = None) -> dict[str, NetdevMtu]:
    """Return the limit of each IPoIB netdev, by name.

    ``mode`` is the transport mode that they will get (``connected``, ``datagram``);
    None: their present mode.
    """
    view = View(facts, Policy())
    return {netdev.name: _limit(view, netdev, mode) for netdev in view.ipoib}


def _limit(view: View, interface: Interface, mode: Optional[str]) -> NetdevMtu:
    now = interface.netdev.ipoib.mode if interface.netdev.ipoib else None
    wanted = mode if mode in (CONNECTED, DATAGRAM) else now
    mtu: Optional[int] = None
    because = "the host does not report the transport mode"
    if wanted == CONNECTED:
        cannot = no_connected_mode(view, interface)
        if not cannot:
            because = "it is in connected mode"
            if now != CONNECTED:
                because = "connected mode is requested"
            return NetdevMtu(interface.name, CONNECTED_MTU, because, interface.is_child)
        mtu, _ = _datagram(view, interface)
        because = f"connected mode is not possible: {cannot}"
        return NetdevMtu(interface.name, mtu, because, interface.is_child, cannot)
    if wanted == DATAGRAM:
        mtu, because = _datagram(view, interface)
    return NetdevMtu(interface.name, mtu, because, interface.is_child)


def _datagram(view: View, interface: Interface) -> tuple[Optional[int], str]:
    limit = mtu_limit(interface, DATAGRAM)
    if limit is None:
        return None, "neither port nor link report their MTU (ibv_devinfo)"
    mtu = interface.netdev.mtu
    if may_be_group_mtu(interface, limit.mtu) and _stays_below(view, interface):
        return mtu, (
            "the subnet manager's broadcast group allows no more, although "
            f"{limit.reason}"
        )
    return limit.mtu, f"in datagram mode, {limit.reason}"


def _stays_below(view: View, interface: Interface) -> bool:
    """Whether neither profile nor network asks for the netdev's present MTU."""
    if interface.netdev.carrier is False:
        return False
    network = interface.network.mtu if interface.network else None
    kept = settings_of(view, interface).number(MTU)
    return interface.netdev.mtu not in (kept, network)
