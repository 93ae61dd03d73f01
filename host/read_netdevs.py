# SPDX-License-Identifier: GPL-2.0-or-later
"""Netdevs from /sys/class/net, with what ``ip -j -d addr show`` adds to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Optional

from ovirt_rdma.host.facts import UNKNOWN, Netdev
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.ip_output import IpLink
from ovirt_rdma.host.pci import read_driver, read_pci

NET_CLASS = "/sys/class/net"


def read_netdevs(
    tree: FileTree, links: Mapping[str, IpLink], problems: list[str]
) -> tuple[Netdev, ...]:
    """Return all netdevs by name; ``links`` gives addresses and virtual kinds.

    A netdev that goes away meanwhile, or has no readable type or MTU, is left out
    with a sentence in ``problems``.
    """
    netdevs = []
    for name in tree.names(NET_CLASS, problems):
        folder = f"{NET_CLASS}/{name}"
        if not tree.is_folder(folder):  # bonding_masters is a file
            continue
        odd: list[str] = []
        netdev = _netdev(tree, name, links.get(name, IpLink()), odd)
        if odd and not tree.is_folder(folder):
            problems.append(f"netdev {name} went away while it was being read")
            continue
        problems.extend(odd)
        if netdev:
            netdevs.append(netdev)
    return tuple(netdevs)


def _netdev(
    tree: FileTree, name: str, link: IpLink, problems: list[str]
) -> Optional[Netdev]:
    folder = f"{NET_CLASS}/{name}"
    kind = _number(tree, f"{folder}/type", problems)
    mtu = _number(tree, f"{folder}/mtu", problems)
    if kind is None or mtu is None:
        return None
    entries = tree.names(folder)
    return Netdev(
        name=name,
        type=kind,
        mtu=mtu,
        address=tree.text(f"{folder}/address") or "",
        operstate=tree.text(f"{folder}/operstate", problems) or UNKNOWN,
        driver=read_driver(tree, folder) or link.kind,
        pci=read_pci(tree, folder),
        uppers=_stacked(entries, "upper_"),
        lowers=_stacked(entries, "lower_"),
        addresses=link.addresses,
    )


def _stacked(entries: list[str], prefix: str) -> tuple[str, ...]:
    return tuple(e[len(prefix) :] for e in entries if e.startswith(prefix))


def _number(tree: FileTree, path: str, problems: list[str]) -> Optional[int]:
    text = tree.text(path, problems)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 10:
        problems.append(f"{path} reads {text!a}, not a number")
        return None
    return int(text)
