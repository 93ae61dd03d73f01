# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse the output of ``ip -j`` and ``rdma -j``. Pure.

The forms are those of iproute2 5.18 to 7.1; other keys are ignored.
"""

from __future__ import annotations

import ipaddress
import json
import re
from dataclasses import dataclass
from typing import Any, Optional

from ovirt_rdma.host.facts.devices import Guid
from ovirt_rdma.host.facts.model import UNKNOWN, CmId, Route

Row = dict[str, Any]

# Route types that mean, with exit status 0, that there is no route.
_NO_ROUTE = ("unreachable", "prohibit", "blackhole", "throw")
IPOIB_MODES = ("datagram", "connected")
VF_LINK_STATES = ("auto", "enable", "disable")
_GUID = re.compile(r"([0-9a-f]{2}:){7}[0-9a-f]{2}")
_PKEY = re.compile(r"0x[0-9a-f]{4}")
_UMCAST = {"0000": False, "0001": True}


@dataclass(frozen=True)
class IpLink:
    """A netdev in ``ip -j -d addr show``: the kind of a virtual netdev, and addresses
    such as ``10.0.0.1/24``.
    """

    kind: Optional[str] = None
    addresses: tuple[str, ...] = ()


@dataclass(frozen=True)
class IpoibLink:
    """An IPoIB netdev in ``ip -j -d link show type ipoib``: ``pkey`` such as
    ``0x8001``, ``mode`` such as ``datagram``, ``parent`` of a P_Key child.
    """

    pkey: Optional[str] = None
    mode: Optional[str] = None
    umcast: Optional[bool] = None
    parent: Optional[str] = None


@dataclass(frozen=True)
class IpVf:
    """A VF in ``ip -j link show dev ib0``, by the PF: GUIDs as ``0002:c903:00fb:1231``,
    ``link_state`` as ``auto``; None if the kernel does not show it.
    """

    node_guid: Optional[str] = None
    port_guid: Optional[str] = None
    link_state: Optional[str] = None


def rows(text: str) -> list[Row]:
    """Return the objects in a tool's JSON array; no text is an empty array.

    Raises ValueError for other text.
    """
    if not text.strip():
        return []
    try:
        entries = json.loads(text)
    except RecursionError:
        raise ValueError("nested too deeply") from None
    if not isinstance(entries, list):
        raise ValueError("not an array")
    # ip prints an empty object for each link that it has filtered out.
    return [row for row in entries if isinstance(row, dict) and row]


def links(entries: list[Row]) -> dict[str, IpLink]:
    """Return the netdevs of ``ip -j -d addr show`` by name."""
    result = {}
    for row in entries:
        name = _text(row, "ifname")
        info = row.get("linkinfo")
        addresses = row.get("addr_info")
        if name:
            result[name] = IpLink(
                kind=_text(info, "info_kind") if isinstance(info, dict) else None,
                addresses=_addresses(addresses if isinstance(addresses, list) else []),
            )
    return result


def ipoib_links(entries: list[Row]) -> dict[str, IpoibLink]:
    """Return the netdevs of ``ip -j -d link show type ipoib`` by name.

    The kernel names the parent as the link of a child. The keys are those of
    iproute2's ip/iplink_ipoib.c, which calls the P_Key ``key``.
    """
    result = {}
    for row in entries:
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


def virtual_functions(entries: list[Row]) -> dict[int, IpVf]:
    """Return the VFs of the only netdev in ``ip -j link show dev NETDEV``, by number.

    The keys are those of iproute2's ip/ipaddress.c, print_vfinfo(). It prints no GUIDs
    if the driver has none, as that of an Ethernet netdev.
    """
    vfs = {}
    for row in entries:
        listed = row.get("vfinfo_list")
        for vf in listed if isinstance(listed, list) else []:
            number = vf.get("vf") if isinstance(vf, dict) else None
            if isinstance(number, int) and not isinstance(number, bool):
                state = _text(vf, "link_state")
                vfs[number] = IpVf(
                    node_guid=_guid(_text(vf, "node guid")),
                    port_guid=_guid(_text(vf, "port guid")),
                    link_state=state if state in VF_LINK_STATES else None,
                )
    return vfs


def _guid(text: Optional[str]) -> Optional[str]:
    """Return ``0002:c903:00fb:1231`` for ``00:02:c9:03:00:fb:12:31``."""
    if text is None or not _GUID.fullmatch(text):
        return None
    return Guid(text.replace(":", "")).in_groups


def route(destination: str, entries: list[Row]) -> Optional[Route]:
    """Return the route that ``ip -j route get`` shows, or None if there is none."""
    for row in entries:
        if _text(row, "type") in _NO_ROUTE:
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


def cm_ids(entries: list[Row]) -> tuple[CmId, ...]:
    """Return the CM ids that ``rdma -j resource show cm_id`` lists, in its order."""
    return tuple(
        CmId(
            device=_text(row, "ifname"),
            state=_text(row, "state") or UNKNOWN,
            owner=_owner(row),
            source=_endpoint(_text(row, "src-addr")),
            destination=_endpoint(_text(row, "dst-addr")),
        )
        for row in entries
    )


def _owner(row: Row) -> str:
    """Return ``[rpcrdma]`` for the kernel's own ids.

    The tool prints the brackets in plain text only; in JSON the kernel's ids are those
    without a ``pid``.
    """
    name = _text(row, "comm")
    if name is None:
        return UNKNOWN
    if "pid" in row or name.startswith("["):
        return name
    return f"[{name}]"


def _endpoint(text: Optional[str]) -> Optional[str]:
    """Add the brackets around an IPv6 address, which the tool leaves out."""
    if text is None:
        return None
    address, colon, port = text.rpartition(":")
    if ":" in address and not address.startswith("["):
        return f"[{address}]{colon}{port}"
    return text


def _addresses(entries: list[Any]) -> tuple[str, ...]:
    return tuple(
        f"{row['local']}/{row['prefixlen']}"
        for row in entries
        if isinstance(row, dict) and _text(row, "local") and "prefixlen" in row
    )


def _address(row: Row, key: str) -> Optional[str]:
    """Return an IP address; None for any other text."""
    text = _text(row, key)
    try:
        ipaddress.ip_address(text or "")
    except ValueError:
        return None
    return text


def _text(row: Row, key: str) -> Optional[str]:
    value = row.get(key)
    return value if isinstance(value, str) and value else None
