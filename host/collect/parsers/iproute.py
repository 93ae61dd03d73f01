# SPDX-License-Identifier: GPL-2.0-or-later
"""What ``ip -j`` and ``rdma -j`` print, as facts. Pure.

Forms are those of iproute2 5.18 to 7.1; keys that are not needed are not looked at.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.host.facts.model import UNKNOWN, CmId, Route

Row = dict[str, Any]

# Route types with which ip says, at exit status 0, that there is no way.
_NO_WAY = ("unreachable", "prohibit", "blackhole", "throw")
IPOIB_MODES = ("datagram", "connected")
_PKEY = re.compile(r"0x[0-9a-f]{4}")
_UMCAST = {"0000": False, "0001": True}


@dataclass(frozen=True)
class IpLink:
    """What ``ip -j -d addr show`` knows of a netdev: the kind of a virtual one and
    the addresses as ``10.0.0.1/24``.
    """

    kind: Optional[str] = None
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class IpoibLink:
    """What ``ip -j -d link show type ipoib`` knows of an IPoIB netdev: ``pkey`` as
    ``0x8001``, ``mode`` as ``datagram``, ``parent`` of a P_Key child.
    """

    pkey: Optional[str] = None
    mode: Optional[str] = None
    umcast: Optional[bool] = None
    parent: Optional[str] = None


def rows(text: str) -> list[Row]:
    """Return the objects in a tool's JSON array; no text is an empty array.

    Raises ValueError where it is something else.
    """
    if not text.strip():
        return []
    try:
        found = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(found, list):
        raise ValueError("not an array")
    # ip prints an empty object for each link that it filtered out.
    return [row for row in found if isinstance(row, dict) and row]


def links(found: list[Row]) -> dict[str, IpLink]:
    """Return netdev names with what ``ip -j -d addr show`` says of them."""
    result = {}
    for row in found:
        name = _text(row, "ifname")
        info = row.get("linkinfo")
        addresses = row.get("addr_info")
        if name:
            result[name] = IpLink(
                kind=_text(info, "info_kind") if isinstance(info, dict) else None,
                addresses=_addresses(addresses if isinstance(addresses, list) else []),
            )
    return result


def ipoib_links(found: list[Row]) -> dict[str, IpoibLink]:
    """Return netdev names with what ``ip -j -d link show type ipoib`` says of them.

    The kernel names the parent as the link of a child. The keys are those of
    iproute2's ip/iplink_ipoib.c, which calls the P_Key ``key``.
    """
    result = {}
    for row in found:
        name = _text(row, "ifname")
        info = row.get("linkinfo")
        data = info.get("info_data") if isinstance(info, dict) else None
        if not isinstance(data, dict):
            data = {}
        pkey, mode = _text(data, "key") or "", _text(data, "mode")
        if name:
            result[name] = IpoibLink(
                pkey=pkey if _PKEY.fullmatch(pkey) else None,
                mode=mode if mode in IPOIB_MODES else None,
                umcast=_UMCAST.get(_text(data, "umcast") or ""),
                parent=_text(row, "link"),
            )
    return result


def route(destination: str, found: list[Row]) -> Optional[Route]:
    """Return the route that ``ip -j route get`` shows, or None where it shows none."""
    for row in found:
        if _text(row, "type") in _NO_WAY:
            return Route(destination, problem=f"{row['type']} route")
        via = row.get("via")  # an IPv6 gateway for an IPv4 destination
        netdev = _text(row, "dev")
        if netdev:
            return Route(
                destination=destination,
                netdev=netdev,
                source=_address(row, "prefsrc"),
                gateway=_text(via if isinstance(via, dict) else {}, "host")
                or _text(row, "gateway"),
            )
    return None


def cm_ids(found: list[Row]) -> tuple[CmId, ...]:
    """Return the CM ids that ``rdma -j resource show cm_id`` lists, in its order."""
    return tuple(
        CmId(
            device=_text(row, "ifname"),
            state=_text(row, "state") or UNKNOWN,
            owner=_owner(row),
            source=_endpoint(_text(row, "src-addr")),
            destination=_endpoint(_text(row, "dst-addr")),
        )
        for row in found
    )


def _owner(row: Row) -> str:
    """Return ``[rpcrdma]`` for the kernel's own ids.

    The tool puts the brackets in its plain text only; in JSON the kernel's ids are
    those without a ``pid``.
    """
    name = _text(row, "comm")
    if name is None:
        return UNKNOWN
    if "pid" in row or name.startswith("["):
        return name
    return f"[{name}]"


def _endpoint(text: Optional[str]) -> Optional[str]:
    """Put the brackets round an IPv6 address that the tool leaves out."""
    if text is None:
        return None
    address, colon, port = text.rpartition(":")
    if ":" in address and not address.startswith("["):
        return f"[{address}]{colon}{port}"
    return text


def _addresses(found: list[Any]) -> tuple[str, ...]:
    return tuple(
        f"{row['local']}/{row['prefixlen']}"
        for row in found
        if isinstance(row, dict) and _text(row, "local") and "prefixlen" in row
    )


def _address(row: Row, key: str) -> Optional[str]:
    """Return an IP address; None for any other text, which nobody could use."""
    text = _text(row, key)
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        return None
    return text


def _text(row: Row, key: str) -> Optional[str]:
    value = row.get(key)
    return value if isinstance(value, str) and value else None
