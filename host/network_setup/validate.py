# SPDX-License-Identifier: GPL-2.0-or-later
"""What of a network request cannot work on InfiniBand, in a sentence for the engine's
event log; and which transport modes its networks ask for. Pure.

VDSM checks none of this (network/netswitch/validator.py): without the sentence such a
setup fails in the middle, in nmstate's words, and is rolled back. Sources: Linux
net/bridge/br_if.c, drivers/net/bonding/bond_main.c, drivers/infiniband/ulp/ipoib
(NETIF_F_VLAN_CHALLENGED; ipoib_change_mtu); nmstate rust/src/lib/ifaces/infiniband.rs.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple, Optional

from ovirt_rdma.host.network_setup.request import (
    DEFAULT_BOND_MODE,
    MODE_PROPERTY,
    BondRequest,
    Link,
    Network,
    NetworkRequest,
)

# These five are what policy_host and rules.ipoib_limits have, without their imports;
# a test holds them to it.
AUTO, DATAGRAM, CONNECTED = "auto", "datagram", "connected"
MODES = (AUTO, DATAGRAM, CONNECTED)
CONNECTED_MTU = 65520
# The largest datagram of any fabric is Omni-Path's.
MOST_DATAGRAM_MTU = 10240 - 4
# Every adapter has an IB MTU of 2048, so this much needs no question.
_SURE_DATAGRAM_MTU = 2048 - 4

_ACTIVE_BACKUP = ("active-backup", "1")
_BOND_FIX = "choose the custom bonding mode 'mode=1 miimon=100'"


class WantedMode(NamedTuple):
    """``network`` asks for the transport mode ``mode`` (AUTO too) on the IPoIB netdev
    ``netdev``: its NIC, or a member of its bond ``base``. ``mtu`` as in Network.
    """

    network: str
    netdev: str
    mode: str
    base: str
    mtu: Optional[int] = None


def concerns_ipoib(links: Mapping[str, Link]) -> bool:
    """Whether a netdev of the request is IPoIB; else nothing of this is about it."""
    return any(link.ipoib for link in links.values())


def refusal(
    request: NetworkRequest,
    links: Mapping[str, Link],
    limits: Optional[Mapping[str, int]] = None,
) -> str:
    """Say what of ``request`` cannot be, or "".

    ``links`` are the netdevs of the request with the members of its bonds; ``limits``
    the largest datagram MTU in bytes of those netdevs of which it is known. What is
    not known is no reason to refuse.
    """
    found = [
        *(text for bond in request.bonds for text in _bond(bond, links)),
        *(
            text
            for network in request.networks
            for text in _network(request, network, links, limits or {})
        ),
    ]
    if not found:
        return ""
    more = len(dict.fromkeys(found)) - 1
    return found[0] if not more else f"{found[0]} (and {more} more)"


def in_question(request: NetworkRequest, links: Mapping[str, Link]) -> tuple[str, ...]:
    """Return the netdevs whose largest datagram MTU decides about ``request``."""
    names = []
    for network in request.networks:
        mtu = network.mtu or 0
        for link in _ipoib_below(request, network, links):
            if (
                _mode_after(network, link) == DATAGRAM
                and max(link.mtu or 0, _SURE_DATAGRAM_MTU) < mtu <= MOST_DATAGRAM_MTU
            ):
                names.append(link.name)
    return tuple(dict.fromkeys(names))


def wanted_modes(
    request: NetworkRequest, links: Mapping[str, Link]
) -> tuple[WantedMode, ...]:
    """Return what the networks' custom property asks for on IPoIB netdevs; bad values
    are left out, as :func:`refusal` names them.
    """
    return tuple(
        WantedMode(network.name, link.name, network.mode, network.base, network.mtu)
        for network in request.networks
        if network.mode in MODES and network.mode and network.base
        for link in _ipoib_below(request, network, links)
    )


def without_auto(request: NetworkRequest) -> NetworkRequest:
    """Return ``request`` as if AUTO were not asked for: it is chosen by now."""
    networks = (
        network._replace(mode=None) if network.mode == AUTO else network
        for network in request.networks
    )
    return request._replace(networks=tuple(networks))


def _network(
    request: NetworkRequest,
    network: Network,
    links: Mapping[str, Link],
    limits: Mapping[str, int],
) -> Iterator[str]:
    below = _ipoib_below(request, network, links)
    if not below:
        return
    yield from _existing_bond(request, network, links)
    names = ", ".join(link.name for link in below)
    what = f"{names} is" if len(below) == 1 else f"{names} are"
    head = f"network {network.name}: {what} InfiniBand, which"
    if network.vlan is not None:
        yield (
            f"{head} takes no VLAN: clear the network's VLAN tag (a P_Key child like "
            f"{below[0].name}.8001 does the same)"
        )
    if network.ovs:
        yield f"{head} cannot be a port of Open vSwitch: use switch type Linux Bridge"
    elif network.bridged:
        yield f"{head} cannot be a bridge port: clear 'VM network' for it"
    if network.mode is not None and network.mode not in MODES:
        yield (
            f"network {network.name}: {MODE_PROPERTY} is {network.mode!r}, and can be "
            f"{', '.join(MODES)}"
        )
        return
    yield from (
        text for link in below for text in _mtu(network, link, limits.get(link.name))
    )


def _mtu(network: Network, link: Link, limit: Optional[int]) -> Iterator[str]:
    mtu = network.mtu
    if mtu is None:
        return
    head = f"network {network.name}: MTU {mtu} is more than {link.name}"
    if mtu > CONNECTED_MTU:
        yield f"{head} can ever carry: InfiniBand's most is {CONNECTED_MTU}"
        return
    if _mode_after(network, link) != DATAGRAM:
        return
    most = MOST_DATAGRAM_MTU if limit is None else limit
    if mtu > max(most, link.mtu or 0 if link.mode == DATAGRAM else 0):
        shown = f"at most {limit} bytes" if limit else "no datagram is that large"
        yield (
            f"{head} carries in datagram mode ({shown}): lower the network's MTU, or "
            f"set its {MODE_PROPERTY} to connected where the adapter can"
        )


def _mode_after(network: Network, link: Link) -> Optional[str]:
    """Return the mode in which ``link`` will carry ``network``; None: not known yet."""
    if network.mode in (DATAGRAM, CONNECTED):
        return network.mode
    return None if network.mode == AUTO else link.mode


def _bond(bond: BondRequest, links: Mapping[str, Link]) -> Iterator[str]:
    members = [links[nic] for nic in bond.nics if nic in links]
    by_default = bond.mode is None
    mode = DEFAULT_BOND_MODE if bond.mode is None else bond.mode
    yield from _bond_of(bond.name, members, mode, by_default)


def _existing_bond(
    request: NetworkRequest, network: Network, links: Mapping[str, Link]
) -> Iterator[str]:
    """Look at a bond that the network is on and that the request leaves as it is."""
    found = links.get(network.base or "")
    if found and found.bond_mode and request.bond(found.name) is None:
        members = [links[name] for name in found.members if name in links]
        yield from _bond_of(found.name, members, found.bond_mode, False)


def _bond_of(
    name: str, members: list[Link], mode: str, by_default: bool
) -> Iterator[str]:
    ours = [link.name for link in members if link.ipoib]
    others = [link.name for link in members if link.ipoib is False]
    if not ours:
        return
    shown = ", ".join(ours)
    what = "is" if len(ours) == 1 else "are"
    if others:
        yield (
            f"bond {name}: {shown} {what} InfiniBand and {', '.join(others)} not, and "
            "no bond can have both: take one kind out"
        )
    if mode not in _ACTIVE_BACKUP:
        default = ", VDSM's default" if by_default else ""
        yield (
            f"bond {name}: {shown} {what} InfiniBand, which can only be bonded in mode "
            f"active-backup (1), and this would be {mode}{default}: {_BOND_FIX}"
        )


def _ipoib_below(
    request: NetworkRequest, network: Network, links: Mapping[str, Link]
) -> tuple[Link, ...]:
    """Return the IPoIB netdevs that ``network`` is on: its NIC, or members of its bond
    as the request has it, or as it is.
    """
    base = network.base or ""
    bond = request.bond(base)
    link = links.get(base)
    names = bond.nics if bond else link.members if link and link.members else (base,)
    return tuple(links[name] for name in names if name in links and links[name].ipoib)
