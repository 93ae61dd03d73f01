# SPDX-License-Identifier: GPL-2.0-or-later
"""What is IPoIB's own of netdevs: from sysfs, and from ``ip`` for P_Key children that
``ip link`` made, which have no such files (drivers/infiniband/ulp/ipoib/ipoib_vlan.c).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from ovirt_rdma.host import ip_output
from ovirt_rdma.host.facts import ARPHRD_INFINIBAND, Ipoib, Netdev
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.ip_output import IPOIB_MODES, IpoibLink
from ovirt_rdma.host.read_netdevs import NET_CLASS
from ovirt_rdma.host.tools import Tools

# The files with the form of what they read, and that form in words.
_FILES = {
    "mode": (re.compile("|".join(IPOIB_MODES)), "a transport mode"),
    "pkey": (re.compile(r"0x[0-9a-f]{4}"), "a P_Key"),
    "umcast": (re.compile(r"[01]"), "0 or 1"),
    "parent": (re.compile(r"\S+"), "a netdev"),  # of a P_Key child
}


def read_ipoib(
    tree: FileTree, tools: Tools, netdevs: tuple[Netdev, ...], problems: list[str]
) -> dict[str, Ipoib]:
    """Return the names of all IPoIB netdevs with what is IPoIB's own.

    ``ip`` is run once, and only where a netdev has no files of its own.
    """
    entries = {
        netdev.name: set(tree.names(f"{NET_CLASS}/{netdev.name}"))
        for netdev in netdevs
        # A bond takes on the type and address of its members (bond_main.c).
        if netdev.type == ARPHRD_INFINIBAND and not netdev.lowers
    }
    links: Mapping[str, IpoibLink] = {}
    if any(not {"mode", "pkey"} <= names for names in entries.values()):
        argv = ["ip", "-j", "-d", "link", "show", "type", "ipoib"]
        links = ip_output.ipoib_links(tools.rows(argv, problems) or [])
    return {
        name: _ipoib(tree, name, names, links.get(name, IpoibLink()), problems)
        for name, names in entries.items()
    }


def _ipoib(
    tree: FileTree, name: str, entries: set[str], link: IpoibLink, problems: list[str]
) -> Ipoib:
    folder = f"{NET_CLASS}/{name}"
    odd: list[str] = []
    shown = {
        file: _text(tree, f"{folder}/{file}", form, words, odd)
        for file, (form, words) in _FILES.items()
        if file in entries
    }
    if odd and not tree.is_folder(folder):
        odd = [f"netdev {name} went away while it was being read"]
    problems.extend(odd)
    umcast = shown.get("umcast")
    return Ipoib(
        mode=shown.get("mode") or link.mode,
        pkey=shown.get("pkey") or link.pkey,
        parent=shown.get("parent") or link.parent,
        umcast=link.umcast if umcast is None else umcast == "1",
        sysfs="mode" in entries,
    )


def _text(
    tree: FileTree, path: str, form: re.Pattern[str], words: str, problems: list[str]
) -> Optional[str]:
    text = tree.text(path, problems)
    if text is not None and not form.fullmatch(text):
        problems.append(f"{path} reads {text!a}, not {words}")
        return None
    return text
