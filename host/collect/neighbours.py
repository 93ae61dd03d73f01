# SPDX-License-Identifier: GPL-2.0-or-later
"""Read what RDMA ports are cabled to, as the other end says it.

On InfiniBand, ``smpquery`` asks the node at the other end, by a directed route of one
link, which needs no subnet manager. On Ethernet, ``lldptool`` shows what lldpad has
last received by LLDP: VDSM requires lldpad, and lets it listen on all NICs (VDSM,
network/initializer.py). Nothing is enabled or started here.

Unknown is usual: without root privileges or a tool, behind a switch that sends no LLDP.
No rule needs these facts, so a failure is no problem of the facts: ``check`` would warn
of it on most hosts.

The forms are those of rdma-core (infiniband-diags/smpquery.c, libibmad/dump.c and
fields.c) and of lldpad (lldp_mand_clif.c, lldp_basman_clif.c). The texts are those of
another machine: nothing but their length is limited here, and whoever shows them has
to escape them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.collect.rdma import RDMA_CLASS
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    HOST,
    ROUTER,
    SWITCH,
    Guid,
    Neighbour,
    Netdev,
    NetdevGraph,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.system.tree import ROOT, FileTree, runs

# The devices that MADs are sent with; each is of one port (drivers/infiniband/core/
# user_mad.c).
_MAD_CLASS = "/sys/class/infiniband_mad"
# lldpad's own (include/lldpad.h); it is longer than its number, padded with NULs.
_LLDPAD_PID = "/run/lldpad.pid"
# smpquery asks three times before it gives up (libibmad, MAD_DEF_RETRIES), and waits
# for a second each time by default. The answer comes over one cable.
_WAIT_MS = "300"


def with_neighbours(
    tree: FileTree,
    tools: Tools,
    devices: tuple[RdmaDevice, ...],
    netdevs: tuple[Netdev, ...],
) -> tuple[RdmaDevice, ...]:
    """Return ``devices`` with the neighbours of their active ports.

    ``smpquery`` is run twice for an InfiniBand port, ``lldptool`` once for a physical
    netdev of an Ethernet port. Virtual functions are left out: their cable is that of
    the physical function, and they may not ask.
    """
    mads, lldpad = _ports_for_mads(tree), _lldpad_runs(tree)
    graph = NetdevGraph(netdevs)

    def found(device: RdmaDevice, port: RdmaPort) -> Iterator[Optional[Neighbour]]:
        if port.is_infiniband and (device.name, str(port.number)) in mads:
            yield _over_infiniband(tools, device.name, port.number)
        elif port.is_ethernet and lldpad:
            for netdev in netdevs:
                if (netdev.rdma_device, netdev.rdma_port) == (device.name, port.number):
                    yield from _over_ethernet(tools, netdevs, graph.below(netdev.name))

    return tuple(
        device
        if tree.is_folder(f"{RDMA_CLASS}/{device.name}/device/physfn")
        else replace(
            device,
            ports=tuple(
                replace(port, neighbours=tuple(filter(None, found(device, port))))
                if port.is_active
                else port
                for port in device.ports
            ),
        )
        for device in devices
    )


def _over_infiniband(tools: Tools, device: str, port: int) -> Optional[Neighbour]:
    ask = ("smpquery", "-t", _WAIT_MS, "-C", device, "-P", str(port), "-D")
    info = tools.text((*ask, "nodeinfo", f"0,{port}"), optional=True)
    if info is None:
        return None
    description = tools.text((*ask, "nodedesc", f"0,{port}"), optional=True)
    return infiniband_neighbour(info, description)


def _over_ethernet(
    tools: Tools, netdevs: tuple[Netdev, ...], names: tuple[str, ...]
) -> Iterator[Optional[Neighbour]]:
    for netdev in netdevs:
        if netdev.name in names and netdev.pci and netdev.type == ARPHRD_ETHER:
            argv = ("lldptool", "get-tlv", "-n", "-i", netdev.name)
            text = tools.text(argv, optional=True)
            yield lldp_neighbour(text or "", netdev.name)


def _ports_for_mads(tree: FileTree) -> set[tuple[Optional[str], Optional[str]]]:
    """Return devices and port numbers that management datagrams can be sent from; none
    without ib_umad.
    """
    return {
        (
            tree.text(f"{_MAD_CLASS}/{name}/ibdev"),
            tree.text(f"{_MAD_CLASS}/{name}/port"),
        )
        for name in tree.names(_MAD_CLASS)
        if name.startswith("umad")
    }


def _lldpad_runs(tree: FileTree) -> bool:
    """Whether lldpad is running. If it is not, lldptool would start it: systemd listens
    at its socket (lldpad.socket), and lldpad configures DCB.
    """
    pid = (tree.text(_LLDPAD_PID) or "").strip("\0\n ")
    # A stale number may be any process's by now.
    return (
        pid.isdecimal()
        and tree.text(f"/proc/{pid}/comm") == "lldpad"
        and runs(tree, pid, ROOT, "lldpad")
    )


# LLDP's longest text (IEEE 802.1AB, 8.5); a node description has 64 bytes.
_MOST = 255
# NodeType:........................Switch
_FIELD = re.compile(r"(\w+):\.+(.+)")
_NODE_TYPES = {"Switch": SWITCH, "Router": ROUTER, "Channel Adapter": HOST}
_GUID = re.compile(r"0x([0-9a-f]{16})")
_PORT = re.compile(r"[0-9]{1,3}")
_DESCRIPTION = re.compile(r"Node Description:\.*(.*)")


def infiniband_neighbour(info: str, description: Optional[str]) -> Optional[Neighbour]:
    """Return the node at the other end of an InfiniBand cable.

    ``info`` is what ``smpquery nodeinfo`` prints of it, ``description`` what ``smpquery
    nodedesc`` does. None if ``info`` lacks the GUID or the port.
    """
    found = filter(None, map(_FIELD.fullmatch, info.split("\n")))
    fields = {match[1]: match[2] for match in found}
    guid = _GUID.fullmatch(fields.get("Guid", ""))
    # The port that has received the question (InfiniBand Architecture, 14.2.5.3).
    port = _PORT.fullmatch(fields.get("LocalPort", ""))
    if guid is None or port is None:
        return None
    name = _DESCRIPTION.match(description or "")
    return Neighbour(
        kind=_NODE_TYPES.get(fields.get("NodeType", "")),
        id=Guid(guid[1]).in_groups,
        name=_text(name[1]) if name else None,
        port=port[0],
        description=None,
        netdev=None,
        source="smpquery",
    )


def lldp_neighbour(text: str, netdev: str) -> Optional[Neighbour]:
    """Return the neighbour of ``netdev`` in what ``lldptool get-tlv -n`` prints; None
    if it shows none, or one without a name and an id.
    """
    fields: dict[str, list[str]] = {}
    lines: list[str] = []
    for line in text.split("\n"):
        if line.startswith("\t"):
            lines.append(line[1:])
        elif line not in fields:
            lines = fields[line] = []
        else:
            lines = []  # the first counts: the standard allows no second

    def first(name: str) -> Optional[str]:
        return next(iter(fields.get(f"{name} TLV", ())), None)

    chassis, name = _of_kind(first("Chassis ID")), _text(first("System Name"))
    if chassis is None and name is None:
        return None
    return Neighbour(
        kind=_capable(fields.get("System Capabilities TLV", [])),
        id=chassis,
        name=name,
        port=_of_kind(first("Port ID")),
        description=_text(first("Port Description")),
        netdev=netdev,
        source="lldptool",
    )


def _of_kind(line: Optional[str]) -> Optional[str]:
    """Return the id in ``MAC: 01:23:45:67:89:ab`` or ``Ifname: Ethernet1/7``."""
    kind, colon, value = (line or "").partition(": ")
    # What lldptool itself cannot read is "Bad Port ID: HEX".
    return _text(value) if colon and not kind.startswith("Bad ") else None


def _capable(lines: list[str]) -> Optional[str]:
    """Return what the neighbour is by the capabilities that are enabled there."""
    for line in lines:
        head, _, words = line.partition(":")
        if head == "Enabled capabilities":
            enabled = {word.strip() for word in words.split(",")}
            if enabled & {"Bridge", "Router"}:
                return SWITCH
            return HOST if "Station Only" in enabled else None
    return None


def _text(text: Optional[str]) -> Optional[str]:
    return (text or "").strip("\0 \t\r")[:_MOST] or None
