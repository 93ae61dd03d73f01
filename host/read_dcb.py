# SPDX-License-Identifier: GPL-2.0-or-later
"""Data centre bridging of Ethernet netdevs behind RoCE: PFC, ECN, trust, pause."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Optional, TypeVar

from ovirt_rdma.host import dcb_output, ethtool_output
from ovirt_rdma.host.facts import Dcb, Netdev
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.read_netdevs import NET_CLASS
from ovirt_rdma.host.tools import Tools

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
    pause = _asked(tools, ["ethtool", "-a", name], ethtool_output.pause, problems) or (
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
