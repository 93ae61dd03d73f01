# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse VDSM's network setup request, read the netdevs that it names, refuse what
cannot work on InfiniBand, and find the transport modes that it asks for.

The hooks before_network_setup and after_network_setup get the request as JSON; invalid
parts of it are ignored. The netdevs are read from /sys only, because VDSM waits. Each
hook call starts a Python interpreter, so this module uses no dataclasses: their import
would take as long as everything else.

A refusal is one sentence for the engine's event log. VDSM does not check any of this
(network/netswitch/validator.py): without the refusal such a setup fails half-way with a
message of nmstate, and is rolled back. Sources: Linux net/bridge/br_if.c,
drivers/net/bonding/bond_main.c, drivers/infiniband/ulp/ipoib (NETIF_F_VLAN_CHALLENGED;
ipoib_change_mtu); nmstate rust/src/lib/ifaces/infiniband.rs.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple, Optional

from ovirt_rdma.host.facts.infiniband import (
    ACTIVE_BACKUP,
    AUTO,
    COMMON_GROUP_MTU,
    CONNECTED,
    CONNECTED_MTU,
    DATAGRAM,
    DEFAULT_BOND_MODE,
    MODE_PROPERTY,
    MODES,
    MOST_DATAGRAM_MTU,
)
from ovirt_rdma.host.system.safe_file import read_file

_OVS = "ovs"
# VDSM has converted these to booleans (tobool, common/conv.py).
_TRUE = (True, "true", "True")


class Network(NamedTuple):
    """A network to set up. ``base`` is its NIC or bond, ``mtu`` is in bytes, ``mode``
    is its custom property as the admin wrote it.
    """

    name: str
    base: Optional[str]
    bridged: bool = False
    vlan: Optional[str] = None
    ovs: bool = False
    mtu: Optional[int] = None
    mode: Optional[str] = None


class BondRequest(NamedTuple):
    """A bond to set up; ``mode`` is a name or number, None without such an option."""

    name: str
    nics: tuple[str, ...]
    mode: Optional[str] = None


class NetworkRequest(NamedTuple):
    """The networks and bonds to set up; those to remove are left out.

    ``rollback`` is true if VDSM restores the earlier configuration, or sets up its own
    at boot. Such a request must not be refused.
    """

    networks: tuple[Network, ...] = ()
    bonds: tuple[BondRequest, ...] = ()
    rollback: bool = False

    def bond(self, name: Optional[str]) -> Optional[BondRequest]:
        """Return the bond ``name``, or None if it is not in the request."""
        return next((bond for bond in self.bonds if bond.name == name), None)

    @property
    def netdevs(self) -> tuple[str, ...]:
        """The NICs and bonds that the request names, and the NICs of its bonds."""
        named = [network.base for network in self.networks if network.base]
        for bond in self.bonds:
            named += (bond.name, *bond.nics)
        return tuple(dict.fromkeys(named))


class Link(NamedTuple):
    """A netdev of this host; None means unknown.

    ``ipoib`` says whether it is IPoIB. ``mode`` is the transport mode of an IPoIB
    netdev, ``mtu`` is in bytes, ``members`` and ``bond_mode`` are those of a bond.
    """

    name: str
    ipoib: Optional[bool] = None
    mode: Optional[str] = None
    mtu: Optional[int] = None
    members: tuple[str, ...] = ()
    bond_mode: Optional[str] = None


def parsed(data: object) -> Optional[NetworkRequest]:
    """Return the request in a hook's JSON; None if it does not have VDSM's form
    (network/api.py, _build_setup_hook_dict). Invalid parts of it are left out.
    """
    request = data.get("request") if isinstance(data, dict) else None
    if not isinstance(request, dict):
        return None
    options = request.get("options")
    return NetworkRequest(
        tuple(_networks(request.get("networks"))),
        tuple(_bonds(request.get("bondings"))),
        # VDSM accepts every value that is true.
        isinstance(options, dict) and bool(options.get("_inRollback")),
    )


def _networks(data: object) -> Iterator[Network]:
    for name, network in _to_set_up(data):
        custom = network.get("custom")
        mode = custom.get(MODE_PROPERTY) if isinstance(custom, dict) else None
        mtu = network.get("mtu")
        vlan = network.get("vlan")
        yield Network(
            name,
            _name(network.get("nic")) or _name(network.get("bonding")),
            network.get("bridged") in _TRUE,
            None if vlan in (None, "") else str(vlan),
            network.get("switch") == _OVS,
            mtu if isinstance(mtu, int) and not isinstance(mtu, bool) else None,
            _name(mode),
        )


def _bonds(data: object) -> Iterator[BondRequest]:
    for name, bond in _to_set_up(data):
        nics, options, mode = bond.get("nics"), bond.get("options"), None
        # The last of several modes in "mode=1 miimon=100", as in VDSM.
        for option in options.split() if isinstance(options, str) else ():
            key, _, value = option.partition("=")
            mode = value if key == "mode" else mode
        if isinstance(nics, list):
            members = tuple(nic for nic in map(_name, nics) if nic)
            yield BondRequest(name, members, mode)


def _to_set_up(data: object) -> Iterator[tuple[str, dict[str, object]]]:
    for name, entry in sorted(data.items()) if isinstance(data, dict) else ():
        if isinstance(entry, dict) and entry.get("remove") not in _TRUE:
            yield name, entry


def _name(value: object) -> Optional[str]:
    return value if isinstance(value, str) and value else None


_NET_CLASS = "/sys/class/net"  # as in paths, which the hooks need not import
_LOWER = "lower_"
# include/uapi/linux/if_arp.h
_INFINIBAND = "32"


def read_links(root: str, names: Iterable[str]) -> dict[str, Link]:
    """Return the netdevs ``names`` below ``root`` ("" on a real host), and the members
    of bonds among them. Values that cannot be read are None. Never raises.
    """
    links: dict[str, Link] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        # The name is from the engine and must not leave the folder.
        if name not in links and name.strip(".") and "/" not in name:
            links[name] = _link(f"{root}{_NET_CLASS}/{name}", name)
            waiting += links[name].members
    return links


def _link(folder: str, name: str) -> Link:
    kind = _text(f"{folder}/type")
    if kind is None:
        return Link(name)
    mtu = _text(f"{folder}/mtu") or ""
    size = int(mtu) if mtu.isdecimal() and mtu.isascii() else None
    bond = _text(f"{folder}/bonding/mode")
    if bond is None:
        mode = _text(f"{folder}/mode") if kind == _INFINIBAND else None
        return Link(name, kind == _INFINIBAND, mode, size)
    # Before the type: a bond has the type of its members (bond_main.c). The members are
    # read from the links, because bonding/slaves waits for the netdev lock.
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  (no time for pathlib)
    except OSError:
        names = []
    members = tuple(one[len(_LOWER) :] for one in names if one.startswith(_LOWER))
    return Link(name, False, None, size, members, bond.partition(" ")[0] or None)


def _text(path: str) -> Optional[str]:
    try:
        return read_file(path).decode("utf-8", "replace").strip()
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


class WantedMode(NamedTuple):
    """``network`` asks for the transport mode ``mode``, which may be AUTO, of the IPoIB
    netdev ``netdev``: its NIC, or a member of its bond ``base``. ``mtu`` as in Network.
    """

    network: str
    netdev: str
    mode: str
    base: str
    mtu: Optional[int] = None


def concerns_ipoib(links: Mapping[str, Link]) -> bool:
    """Whether a netdev of the request is IPoIB; otherwise nothing needs a check."""
    return any(link.ipoib for link in links.values())


def refusal(
    request: NetworkRequest,
    links: Mapping[str, Link],
    limits: Optional[Mapping[str, int]] = None,
) -> str:
    """Return why ``request`` cannot work, or "".

    ``links`` are the netdevs of the request with the members of its bonds; ``limits``
    are the largest datagram MTUs in bytes, as far as they are known. A value that is
    unknown is no reason to refuse.
    """
    refusals: list[str] = []
    for bond in request.bonds:
        refusals += _refused_bond(bond.name, bond.nics, bond.mode, links)
    for network in request.networks:
        refusals += _refused(request, network, links, limits or {})
    more = len(dict.fromkeys(refusals)) - 1
    return f"{refusals[0]} (and {more} more)" if more > 0 else "".join(refusals[:1])


def undecided_netdevs(
    request: NetworkRequest, links: Mapping[str, Link]
) -> tuple[str, ...]:
    """Return the netdevs whose largest datagram MTU decides if ``request`` works."""
    names = []
    for network in request.networks:
        mtu = network.mtu or 0
        for link in _ipoib_below(request, network, links):
            if (
                _mode_after(network, link) == DATAGRAM
                and max(link.mtu or 0, COMMON_GROUP_MTU) < mtu <= MOST_DATAGRAM_MTU
            ):
                names.append(link.name)
    return tuple(dict.fromkeys(names))


def wanted_modes(
    request: NetworkRequest, links: Mapping[str, Link]
) -> tuple[WantedMode, ...]:
    """Return the modes that the networks' custom property asks for of IPoIB netdevs.

    Invalid values are left out; :func:`refusal` names them.
    """
    return tuple(
        WantedMode(network.name, link.name, network.mode, network.base, network.mtu)
        for network in request.networks
        if network.mode in MODES and network.mode and network.base
        for link in _ipoib_below(request, network, links)
    )


def without_auto(request: NetworkRequest) -> NetworkRequest:
    """Return ``request`` without AUTO, after the mode was chosen and set."""
    networks = (
        network._replace(mode=None) if network.mode == AUTO else network
        for network in request.networks
    )
    return request._replace(networks=tuple(networks))


def _refused(
    request: NetworkRequest,
    network: Network,
    links: Mapping[str, Link],
    limits: Mapping[str, int],
) -> Iterator[str]:
    below = _ipoib_below(request, network, links)
    if not below:
        return
    bond = links.get(network.base or "")
    if bond and bond.bond_mode and request.bond(bond.name) is None:
        yield from _refused_bond(bond.name, bond.members, bond.bond_mode, links)
    names = ", ".join(link.name for link in below)
    subject = f"{names} is" if len(below) == 1 else f"{names} are"
    head = f"network {network.name}: {subject} InfiniBand, which"
    if network.vlan is not None:
        yield (
            f"{head} does not support VLANs: clear the network's VLAN tag (a P_Key "
            f"child such as {below[0].name}.8001 does the same)"
        )
    if network.ovs:
        yield f"{head} cannot be a port of Open vSwitch: use switch type Linux Bridge"
    elif network.bridged:
        yield f"{head} cannot be a bridge port: clear 'VM network' for it"
    if network.mode is not None and network.mode not in MODES:
        yield (
            f"network {network.name}: {MODE_PROPERTY} {network.mode!r} is invalid; "
            f"allowed: {', '.join(MODES)}"
        )
        return
    for link in below:
        yield from _too_large(network, link, limits.get(link.name))


def _too_large(network: Network, link: Link, limit: Optional[int]) -> Iterator[str]:
    mtu = network.mtu
    if mtu is None:
        return
    head = f"network {network.name}: MTU {mtu} is too large for {link.name}"
    if mtu > CONNECTED_MTU:
        yield f"{head}: the limit of InfiniBand is {CONNECTED_MTU} bytes"
        return
    if _mode_after(network, link) != DATAGRAM:
        return
    most = MOST_DATAGRAM_MTU if limit is None else limit
    if mtu > max(most, link.mtu or 0 if link.mode == DATAGRAM else 0):
        yield (
            f"{head} in datagram mode (at most {most} bytes): lower the network's MTU, "
            f"or set its {MODE_PROPERTY} to connected if the adapter supports it"
        )


def _mode_after(network: Network, link: Link) -> Optional[str]:
    """Return the mode of ``link`` after the setup; None if it is not known yet."""
    if network.mode in (DATAGRAM, CONNECTED):
        return network.mode
    return None if network.mode == AUTO else link.mode


def _refused_bond(
    name: str, nics: Iterable[str], wanted: Optional[str], links: Mapping[str, Link]
) -> Iterator[str]:
    members = [links[nic] for nic in nics if nic in links]
    infiniband = [link.name for link in members if link.ipoib]
    others = [link.name for link in members if link.ipoib is False]
    if not infiniband:
        return
    verb = "is" if len(infiniband) == 1 else "are"
    head = f"bond {name}: {', '.join(infiniband)} {verb} InfiniBand"
    if others:
        verb = "is" if len(others) == 1 else "are"
        yield (
            f"{head} and {', '.join(others)} {verb} not; a bond cannot have both: "
            "remove one kind"
        )
    mode = DEFAULT_BOND_MODE if wanted is None else wanted
    if mode not in ACTIVE_BACKUP:
        default = ", VDSM's default" if wanted is None else ""
        yield (
            f"{head}, which can only be bonded in mode active-backup (1), but the mode "
            f"is {mode}{default}: choose the custom bonding mode 'mode=1 miimon=100'"
        )


def _ipoib_below(
    request: NetworkRequest, network: Network, links: Mapping[str, Link]
) -> tuple[Link, ...]:
    """Return the IPoIB netdevs of ``network``: its NIC, or the members of its bond in
    the request, or of the present bond.
    """
    base = network.base or ""
    bond = request.bond(base)
    link = links.get(base)
    names = bond.nics if bond else link.members if link and link.members else (base,)
    return tuple(links[name] for name in names if name in links and links[name].ipoib)
