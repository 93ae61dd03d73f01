# SPDX-License-Identifier: GPL-2.0-or-later
"""The netdevs that a network request names, read from /sys alone, as quickly as it
goes: VDSM waits meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Optional

from ovirt_rdma.host.network_request import Link
from ovirt_rdma.host.safe_file import read_file

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
