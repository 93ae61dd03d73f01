# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MTU-02: the MTU of a netdev in a logical network is the engine's to set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.facts import OvirtNetwork
from ovirt_rdma.host.policy_host import AUTO, CONNECTED
from ovirt_rdma.host.rules.ipoib_limits import CONNECTED_MTU, MtuLimit, datagram_limit
from ovirt_rdma.host.rules.ipoib_target import coming_mode
from ovirt_rdma.host.rules.rule import FAIL, PASS, SKIP, WARN, Finding, Rule
from ovirt_rdma.host.rules.view import Interface, View

ID = "IPOIB-MTU-02"

# What VDSM sets where the network names none (lib/vdsm/network/nmstate/bridge_util.py).
VDSM_DEFAULT = 1500
# What opensm gives a group unless told otherwise: an IB MTU of 2048.
COMMON_GROUP_MTU = 2044


def decide(view: View) -> Iterator[Finding]:
    """Give a finding for each IPoIB netdev that carries a logical network."""
    none = True
    for interface in view.ipoib:
        if interface.network:
            none = False
            yield _finding(view, interface, interface.network)
    if none:
        yield Finding(ID, "host", SKIP, "no IPoIB netdev carries a logical network")


def _finding(view: View, interface: Interface, network: OvirtNetwork) -> Finding:
    name = interface.name
    mtu = network.mtu or VDSM_DEFAULT
    mode = coming_mode(view, interface)
    limit = datagram_limit(interface)
    if mode == CONNECTED:
        limit = MtuLimit(CONNECTED_MTU, "it is the most there")
    shown = f"network {network.name!r} gives {name} MTU {mtu}"
    if limit and mtu > limit.mtu:
        return Finding(
            ID,
            name,
            FAIL,
            f"{shown}, and {mode} mode carries {limit.mtu} at most: {limit.because}",
            f"set the network's MTU to {limit.mtu} or less in the engine, or let the "
            "policy choose the mode (transport_mode: auto)",
        )
    wanted = interface.wanted.mtu if interface.wanted else None
    if wanted == AUTO:
        wanted = limit.mtu if limit else None
    if wanted is None and limit and mtu < limit.mtu:
        possible = f"; up to {limit.mtu} is possible: {limit.because}"
        return Finding(ID, name, PASS, shown + possible)
    if wanted is None or wanted == mtu:
        return Finding(ID, name, PASS, shown)
    return Finding(
        ID,
        name,
        WARN,
        f"{shown}, and the policy wants {wanted}; the engine's counts",
        f"set MTU {wanted} in the logical network {network.name!r} (Network, Logical "
        f"Networks, Edit), on all its hosts at once{_group(mode, int(wanted))}; or "
        "take mtu out of the policy",
    )


def _group(mode: Optional[str], wanted: int) -> str:
    """Remind of the broadcast group, whose MTU cannot be read, where it may be less."""
    if mode == CONNECTED or wanted <= COMMON_GROUP_MTU:
        return ""
    return ", if the subnet manager gives the partition as much (opensm: mtu=5)"


RULES = (
    Rule(
        ID,
        "MTU of a netdev in a logical network",
        "A netdev that is in a logical network of oVirt has the network's MTU; that of "
        "the policy is compared with it and never set.",
        "VDSM sets an MTU with every network that it attaches: the network's, and "
        "1500 where the engine says default, which is less than the 2044 that "
        "InfiniBand ports commonly do. Two owners of one property would undo each "
        "other. A network whose MTU is larger than the mode allows cannot be attached.",
        "Set the MTU in the engine's logical network, to the same on all hosts: 2044, "
        "4092 or 65520 as IPOIB-MTU-01 says what is possible. Set the transport mode "
        "first, by the policy.",
        (
            "VDSM lib/vdsm/network/nmstate/bridge_util.py, linux_bridge.py",
            "oVirt Administration Guide, Logical Networks",
        ),
        decide,
    ),
)
