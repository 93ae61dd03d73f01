# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse what the other end of a cable says of itself: smpquery and lldptool. Pure.

The forms are those of rdma-core (infiniband-diags/smpquery.c, libibmad/dump.c and
fields.c) and of lldpad (lldp_mand_clif.c, lldp_basman_clif.c). The texts are those of
another machine: nothing but their length is limited here, and whoever shows them has
to escape them.
"""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.facts.devices import HOST, ROUTER, SWITCH, Guid, Neighbour

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
