# SPDX-License-Identifier: GPL-2.0-or-later
"""Read netdev details for RDMA: port, IPoIB, offloads, bond and data center bridging.

IPoIB settings are read from sysfs. P_Key children that ``ip link`` created have no
files there (drivers/infiniband/ulp/ipoib/ipoib_vlan.c); for them ``ip`` is run. PFC,
ECN, trust and pause frames are read for Ethernet netdevs behind RoCE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Callable, Optional, TypeVar

from ovirt_rdma.host.collect.netdevs import concerned, read_netdev_ports
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
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.system.tree import FileTree

# The message of the kernel if a driver does not support a setting (EOPNOTSUPP), and of
# dcb if the kernel's answer lacks it (dcb/dcb.c), as for qede without DCBX.
_UNSUPPORTED = ("not supported", "Attribute not found")
# The two ends of RoCE's congestion control: reaction point and notification point.
_ECN_ENDS = ("roce_rp", "roce_np")

_Read = TypeVar("_Read")


def read_dcb(
    tree: FileTree, tools: Tools, netdev: Netdev, problems: list[str]
) -> Optional[Dcb]:
    """Return the DCB settings of ``netdev``; None if all are unknown.

    Virtual netdevs and VFs are skipped: the physical function has these settings.
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
    """Return the source of a packet's priority in mlx5.

    There is no file or attribute for it: mlx5 trusts the DSCP while there is an entry
    for one (mlx5e_dcbnl_ieee_setapp, _delapp), otherwise the VLAN's PCP.
    """
    if netdev.driver != "mlx5_core":
        return None
    argv = ["dcb", "-j", "app", "show", "dev", netdev.name]
    by_dscp = _asked(tools, argv, dcb_output.has_dscp_priorities, problems)
    if by_dscp is None:
        return None
    return "dscp" if by_dscp else "pcp"


def _ecn_priorities(tree: FileTree, folder: str) -> Optional[tuple[int, ...]]:
    """Return the priorities with ECN enabled at both ends.

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
    """Return the tool's text as parsed by ``read``; None if there is none."""
    failures: list[str] = []
    text = tools.text(argv, failures, optional=True)
    problems.extend(
        sentence
        for sentence in failures
        if not any(part in sentence for part in _UNSUPPORTED)
    )
    if text is None:
        return None
    try:
        return read(text)
    except ValueError as error:
        problems.append(f"{' '.join(argv)} printed unexpected text: {error}")
        return None


# The files, with the pattern of their text and its description.
_FILES = {
    "mode": (re.compile("|".join(IPOIB_MODES)), "a transport mode"),
    "pkey": (re.compile(r"0x[0-9a-f]{4}"), "a P_Key"),
    "umcast": (re.compile(r"[01]"), "0 or 1"),
    "parent": (re.compile(r"\S+"), "a netdev"),  # of a P_Key child
}


def read_ipoib(
    tree: FileTree, tools: Tools, netdevs: tuple[Netdev, ...], problems: list[str]
) -> dict[str, Ipoib]:
    """Return the IPoIB settings of all IPoIB netdevs by name.

    ``ip`` is run once, and only if a netdev has no files of its own.
    """
    entries = {
        netdev.name: set(tree.names(f"{NET_CLASS}/{netdev.name}"))
        for netdev in netdevs
        # A bond has the type and address of its members (bond_main.c).
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
    failures: list[str] = []
    shown = {
        file: _text(tree, f"{folder}/{file}", form, description, failures)
        for file, (form, description) in _FILES.items()
        if file in entries
    }
    if failures and not tree.is_folder(folder):
        failures = [f"netdev {name} disappeared during the read"]
    problems.extend(failures)
    umcast = shown.get("umcast")
    return Ipoib(
        mode=shown.get("mode") or link.mode,
        pkey=shown.get("pkey") or link.pkey,
        parent=shown.get("parent") or link.parent,
        umcast=link.umcast if umcast is None else umcast == "1",
        sysfs="mode" in entries,
    )


def _text(
    tree: FileTree,
    path: str,
    form: re.Pattern[str],
    description: str,
    problems: list[str],
) -> Optional[str]:
    text = tree.text(path, problems)
    if text is not None and not form.fullmatch(text):
        problems.append(f"{path} reads {text!a}, not {description}")
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
    """Return ``netdevs``, with details of those of RDMA ports and above them.

    ``ethtool`` is run once for all netdevs, or not at all if none is of an RDMA port.
    ``dcb``, and ``ethtool`` for pause frames, are run for each physical RoCE port.
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
        argv = ["ethtool", "-k", "*"]  # ethtool itself expands * to all netdevs
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
    """Return True if there is a link; None for a netdev that is down (EINVAL)."""
    return _CARRIER.get(tree.text(f"{NET_CLASS}/{name}/carrier") or "")


def _bond(tree: FileTree, netdev: Netdev, problems: list[str]) -> Optional[Bond]:
    """Return the settings of a bond; texts as ``active-backup 1`` (bond_sysfs.c)."""
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
