# SPDX-License-Identifier: GPL-2.0-or-later
"""VDSM's network setup request as data.

What the engine asks VDSM to set up, as before_network_setup and after_network_setup
get it, and the netdevs that it is about: data, made so that odd input is passed over.

A hook starts a Python for each call, so this needs no dataclasses: they would take as
long to import as all else.

The netdevs that a network request names, read from /sys alone, as quickly as it
goes: VDSM waits meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import NamedTuple, Optional

from ovirt_rdma.host.system.safe_file import read_file

# The custom property of a network, as the engine's admin names it.
MODE_PROPERTY = "ipoib_mode"
# Bonding mode of a bond whose options name none (VDSM network/nmstate/bond.py).
DEFAULT_BOND_MODE = "balance-rr"
_OVS = "ovs"
# VDSM's tobool (common/conv.py) has made booleans of these already.
_TRUE = (True, "true", "True")


class Network(NamedTuple):
    """A network to be set up. ``base`` is its NIC or bond, ``mtu`` in bytes; ``mode``
    is what its custom property says, in the admin's own letters.
    """

    name: str
    base: Optional[str]
    bridged: bool = False
    vlan: Optional[str] = None
    ovs: bool = False
    mtu: Optional[int] = None
    mode: Optional[str] = None


class BondRequest(NamedTuple):
    """A bond to be set up; ``mode`` by name or number, None where no option says."""

    name: str
    nics: tuple[str, ...]
    mode: Optional[str] = None


class NetworkRequest(NamedTuple):
    """What is to be set up; what is to be removed is not in it.

    ``rollback`` says that VDSM goes back to what was there, or sets up at boot what it
    had: then nothing must stand in its way.
    """

    networks: tuple[Network, ...] = ()
    bonds: tuple[BondRequest, ...] = ()
    rollback: bool = False

    def bond(self, name: Optional[str]) -> Optional[BondRequest]:
        """Return the bond ``name``, None where the request has none."""
        return next((bond for bond in self.bonds if bond.name == name), None)

    @property
    def netdevs(self) -> tuple[str, ...]:
        """The NICs and bonds that the request names, and the NICs of its bonds."""
        named = [network.base for network in self.networks if network.base]
        for bond in self.bonds:
            named += (bond.name, *bond.nics)
        return tuple(dict.fromkeys(named))


class Link(NamedTuple):
    """A netdev of this host: ``ipoib`` is None where its type cannot be told. ``mode``
    is an IPoIB netdev's transport mode, ``mtu`` in bytes; ``members`` and
    ``bond_mode`` are a bond's. None: not to be told.
    """

    name: str
    ipoib: Optional[bool] = None
    mode: Optional[str] = None
    mtu: Optional[int] = None
    members: tuple[str, ...] = ()
    bond_mode: Optional[str] = None


def parsed(data: object) -> Optional[NetworkRequest]:
    """Return the request in a hook's JSON; None where it has not VDSM's form
    (network/api.py, _build_setup_hook_dict). Odd parts of it are left out.
    """
    request = data.get("request") if isinstance(data, dict) else None
    if not isinstance(request, dict):
        return None
    options = request.get("options")
    return NetworkRequest(
        tuple(_networks(request.get("networks"))),
        tuple(_bonds(request.get("bondings"))),
        # As VDSM takes it: anything that is true.
        isinstance(options, dict) and bool(options.get("_inRollback")),
    )


def _networks(found: object) -> Iterator[Network]:
    for name, network in _to_set_up(found):
        custom = network.get("custom")
        mode = custom.get(MODE_PROPERTY) if isinstance(custom, dict) else None
        mtu = network.get("mtu")
        vlan = network.get("vlan")
        yield Network(
            name,
            _word(network.get("nic")) or _word(network.get("bonding")),
            network.get("bridged") in _TRUE,
            None if vlan in (None, "") else str(vlan),
            network.get("switch") == _OVS,
            mtu if isinstance(mtu, int) and not isinstance(mtu, bool) else None,
            _word(mode),
        )


def _bonds(found: object) -> Iterator[BondRequest]:
    for name, bond in _to_set_up(found):
        nics = bond.get("nics")
        if isinstance(nics, list):
            words = tuple(nic for nic in map(_word, nics) if nic)
            yield BondRequest(name, words, _bond_mode(bond.get("options")))


def _bond_mode(options: object) -> Optional[str]:
    """Return the mode in ``mode=1 miimon=100``; of several, the last, as VDSM does."""
    mode = None
    for option in options.split() if isinstance(options, str) else ():
        key, _, value = option.partition("=")
        if key == "mode":
            mode = value
    return mode


def _to_set_up(found: object) -> Iterator[tuple[str, dict[str, object]]]:
    for name, one in sorted(found.items()) if isinstance(found, dict) else ():
        if isinstance(one, dict) and one.get("remove") not in _TRUE:
            yield name, one


def _word(found: object) -> Optional[str]:
    return found if isinstance(found, str) and found else None


_NET_CLASS = "/sys/class/net"
_LOWER = "lower_"
# include/uapi/linux/if_arp.h
_INFINIBAND = "32"


def read_links(root: str, names: Iterable[str]) -> dict[str, Link]:
    """Return the netdevs ``names`` below ``root`` ("" on a real host) and the members
    of those that are bonds. What cannot be read is None; nothing is raised.
    """
    found: dict[str, Link] = {}
    waiting = list(names)
    while waiting:
        name = waiting.pop()
        # The name is the engine's word; only a plain one is a netdev's.
        if name not in found and name.strip(".") and "/" not in name:
            found[name] = _link(f"{root}{_NET_CLASS}/{name}", name)
            waiting += found[name].members
    return found


def _link(folder: str, name: str) -> Link:
    kind = _text(f"{folder}/type")
    if kind is None:
        return Link(name)
    mtu = _number(f"{folder}/mtu")
    bond = _text(f"{folder}/bonding/mode")
    if bond is not None:
        # A bond takes on the type of its members (bond_main.c), so it is told first.
        # The links, not bonding/slaves, which waits for the lock of all netdevs.
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
