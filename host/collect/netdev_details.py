# SPDX-License-Identifier: GPL-2.0-or-later
"""Netdev facts of DCB, IPoIB and RDMA.

Data centre bridging of Ethernet netdevs behind RoCE: PFC, ECN, trust, pause.

What is IPoIB's own of netdevs: from sysfs, and from ``ip`` for P_Key children that
``ip link`` made, which have no such files (drivers/infiniband/ulp/ipoib/ipoib_vlan.c).

What RDMA adds to netdevs: port, IPoIB, offloads, bond, DCB.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Callable, Optional, TypeVar

from ovirt_rdma.host.collect.netdevs import NET_CLASS, concerned, read_netdev_ports
from ovirt_rdma.host.collect.parsers import dcb as dcb_output
from ovirt_rdma.host.collect.parsers import ethtool, iproute
from ovirt_rdma.host.collect.parsers.iproute import IPOIB_MODES, IpoibLink
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    Bond,
    Dcb,
    Ipoib,
    Netdev,
    RdmaDevice,
)
from ovirt_rdma.host.system.tree import FileTree

# The kernel's words where a driver has no such thing (EOPNOTSUPP), and those of dcb
# where the kernel's answer lacks it (dcb/dcb.c), as for qede without DCBX.
_NONE_THERE = ("not supported", "Attribute not found")
# The two ends of RoCE's congestion control: who slows down, who notices.
_ECN_ENDS = ("roce_rp", "roce_np")

_Read = TypeVar("_Read")


def read_dcb(
    tree: FileTree, tools: Tools, netdev: Netdev, problems: list[str]
) -> Optional[Dcb]:
    """Return what can be told of ``netdev``; None where that is nothing.

    Nothing is asked of virtual netdevs and of VFs: the physical function has these
    settings.
    """
    folder = f"{NET_CLASS}/{netdev.name}"
    if netdev.pci is None or tree.is_folder(f"{folder}/device/physfn"):
        return None
    name = netdev.name
    pause = _asked(tools, ["ethtool", "-a", name], ethtool.pause, problems) or (
        None,
        None,
    )
    dcb = Dcb(
        pfc_priorities=_asked(
            tools,
            ["dcb", "-j", "pfc", "show", "dev", name],
            dcb_output.pfc_priorities,
            problems,
        ),
        ecn_priorities=_ecn_priorities(tree, folder),
        trust=_trust(tools, netdev, problems),
        pause_rx=pause[0],
        pause_tx=pause[1],
    )
    return None if dcb == Dcb() else dcb


def _trust(tools: Tools, netdev: Netdev, problems: list[str]) -> Optional[str]:
    """Return what mlx5 takes the priority of a packet from.

    It has no file or attribute for that: it trusts the DSCP while there is an entry
    for one (mlx5e_dcbnl_ieee_setapp, _delapp), else the VLAN's PCP.
    """
    if netdev.driver != "mlx5_core":
        return None
    argv = ["dcb", "-j", "app", "show", "dev", netdev.name]
    by_dscp = _asked(tools, argv, dcb_output.has_dscp_priorities, problems)
    if by_dscp is None:
        return None
    return "dscp" if by_dscp else "pcp"


def _ecn_priorities(tree: FileTree, folder: str) -> Optional[tuple[int, ...]]:
    """Return the priorities with ECN on at both ends.

    Only the out-of-tree mlx5 driver has these files.
    """
    ends = []
    for end in _ECN_ENDS:
        names = tree.names(f"{folder}/ecn/{end}/enable")
        if not names:
            return None
        ends.append(
            {
                int(name)
                for name in names
                if name.isascii()
                and name.isdecimal()
                and tree.text(f"{folder}/ecn/{end}/enable/{name}") == "1"
            }
        )
    return tuple(sorted(ends[0] & ends[1]))


def _asked(
    tools: Tools,
    argv: Sequence[str],
    read: Callable[[str], _Read],
    problems: list[str],
) -> Optional[_Read]:
    """Return what ``read`` makes of the tool's text; None where it gives none."""
    said: list[str] = []
    text = tools.text(argv, said, optional=True)
    problems.extend(
        sentence for sentence in said if not any(w in sentence for w in _NONE_THERE)
    )
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as odd:
        problems.append(f"{' '.join(argv)} printed something else: {odd}")
        return None


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
        links = iproute.ipoib_links(tools.rows(argv, problems) or [])
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


_CARRIER = {"0": False, "1": True}


def with_rdma_details(
    tree: FileTree,
    tools: Tools,
    netdevs: tuple[Netdev, ...],
    devices: tuple[RdmaDevice, ...],
    problems: list[str],
) -> tuple[Netdev, ...]:
    """Return ``netdevs`` with what only those of RDMA ports, and above, have.

    ``ethtool`` is asked once for all netdevs, and not at all where none is of an RDMA
    port; ``dcb``, and ``ethtool`` for pause frames, for each physical RoCE port.
    """
    ipoib = read_ipoib(tree, tools, netdevs, problems)
    ports = read_netdev_ports(tree, netdevs, devices, ipoib)
    placed = tuple(
        replace(
            netdev,
            ipoib=ipoib.get(netdev.name),
            rdma_device=ports[netdev.name][0] if netdev.name in ports else None,
            rdma_port=ports[netdev.name][1] if netdev.name in ports else None,
        )
        for netdev in netdevs
    )
    names = concerned(placed)
    offloads = {}
    if names:
        argv = ["ethtool", "-k", "*"]  # its word for all netdevs, not a shell's
        offloads = ethtool.features(tools.text(argv, problems) or "")
    return tuple(
        replace(
            netdev,
            carrier=_carrier(tree, netdev.name),
            bond=_bond(tree, netdev, problems),
            dcb=read_dcb(tree, tools, netdev, problems)
            if netdev.rdma_device and netdev.type == ARPHRD_ETHER
            else None,
            offloads=offloads.get(netdev.name, ()),
        )
        if netdev.name in names
        else netdev
        for netdev in placed
    )


def _carrier(tree: FileTree, name: str) -> Optional[bool]:
    """Return whether there is a link; a netdev that is down cannot tell (EINVAL)."""
    return _CARRIER.get(tree.text(f"{NET_CLASS}/{name}/carrier") or "")


def _bond(tree: FileTree, netdev: Netdev, problems: list[str]) -> Optional[Bond]:
    """Return what a bond is like; texts as ``active-backup 1`` (bond_sysfs.c)."""
    if netdev.driver != "bond":
        return None
    folder = f"{NET_CLASS}/{netdev.name}/bonding"
    mode = tree.text(f"{folder}/mode", problems)
    if mode is None:
        return None
    fail_over_mac = tree.text(f"{folder}/fail_over_mac")
    return Bond(
        mode=mode.split()[0],
        active=tree.text(f"{folder}/active_slave"),
        fail_over_mac=fail_over_mac.split()[0] if fail_over_mac else None,
        members=tuple((tree.text(f"{folder}/slaves") or "").split()),
    )
