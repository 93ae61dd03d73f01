# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse VDSM's network setup request, and read the netdevs that it names.

The hooks before_network_setup and after_network_setup get the request as JSON; invalid
parts of it are ignored. The netdevs are read from /sys only, because VDSM waits. Each
hook call starts a Python interpreter, so this module uses no dataclasses: their import
would take as long as everything else.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from ovirt_rdma.host.facts.ipoib import MODE_PROPERTY
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
        nics = bond.get("nics")
        if isinstance(nics, list):
            members = tuple(nic for nic in map(_name, nics) if nic)
            yield BondRequest(name, members, _bond_mode(bond.get("options")))


def _bond_mode(options: object) -> Optional[str]:
    """Return the mode in ``mode=1 miimon=100``; the last of several, as in VDSM."""
    mode = None
    for option in options.split() if isinstance(options, str) else ():
        key, _, value = option.partition("=")
        if key == "mode":
            mode = value
    return mode


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
    mtu = _number(f"{folder}/mtu")
    bond = _text(f"{folder}/bonding/mode")
    if bond is not None:
        # Before the type: a bond has the type of its members (bond_main.c). The members
        # are read from the links, because bonding/slaves waits for the netdev lock.
        return Link(
            name, False, None, mtu, _lowers(folder), bond.partition(" ")[0] or None
        )
    if kind != _INFINIBAND:
        return Link(name, False, None, mtu)
    return Link(name, True, _text(f"{folder}/mode"), mtu)


def _lowers(folder: str) -> tuple[str, ...]:
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208  (no time for pathlib)
    except OSError:
        return ()
    return tuple(name[len(_LOWER) :] for name in names if name.startswith(_LOWER))


def _text(path: str) -> Optional[str]:
    try:
        return read_file(path).decode("utf-8", "replace").strip()
    except (OSError, ValueError):  # ValueError: a NUL in the name
        return None


def _number(path: str) -> Optional[int]:
    text = _text(path) or ""
    return int(text) if text.isdecimal() and text.isascii() else None
