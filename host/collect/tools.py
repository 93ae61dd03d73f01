# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the host's tools (``ip``, ``rdma``, ``ethtool``, ``nmcli`` ...); a failure is a
sentence, not an exception. Parse the output of ``ip -j`` and ``rdma -j``: the forms are
those of iproute2 5.18 to 7.1; other keys are ignored.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Callable, NamedTuple, Optional, TypeVar

from ovirt_rdma.host.facts.devices import (
    Guid,
    PriorityOf,
    VfPort,
    VirtualFunction,
)
from ovirt_rdma.host.facts.model import UNKNOWN, CmId, Route
from ovirt_rdma.host.system.commands import (
    CommandFailed,
    CommandTimeout,
    NotInstalled,
    Runner,
)
from ovirt_rdma.host.system.tree import FileTree, Problems

_MOST_TIMEOUTS = 2


@dataclass(frozen=True)
class Tools:
    """Run tools with ``run``; None if ``root`` is not the root of this host, where they
    cannot be run.
    """

    run: Optional[Runner]
    root: str = "/"

    def with_limited_timeouts(self) -> Tools:
        """Return the tools for one snapshot: one that has timed out twice is not run
        again, because that could take as long for each of many netdevs. Twice, because
        a call for all netdevs may take longer than a call for one.
        """
        run = self.run
        if run is None:
            return self
        timeouts: Counter[str] = Counter()

        def ask(argv: Sequence[str]) -> str:
            tool = argv[0]
            if timeouts[tool] == _MOST_TIMEOUTS:
                raise CommandFailed(f"not run, because {tool} has timed out before")
            try:
                return run(argv)
            except CommandTimeout:
                timeouts[tool] += 1
                raise

        return Tools(ask, self.root)

    def text(
        self,
        argv: Sequence[str],
        problems: Problems = None,
        *,
        optional: bool = False,
        raised_status: Optional[int] = None,
    ) -> Optional[str]:
        """Return a tool's stdout, or None and a sentence if it fails.

        If the tool is ``optional`` and not installed, there is no sentence. A failure
        with the exit status ``raised_status`` is raised as CommandFailed.
        """
        problems = [] if problems is None else problems
        command = " ".join(argv)
        if self.run is None:
            if not optional:
                problems.append(
                    f"{command} was not run: {self.root} is not this host's root"
                )
            return None
        try:
            return self.run(argv)
        except NotInstalled as e:
            if not optional:
                problems.append(f"{command} failed: {e}")
        except CommandFailed as e:
            if raised_status is not None and e.returncode == raised_status:
                raise
            problems.append(f"{command} failed: {e}")
        return None

    def rows(
        self,
        argv: Sequence[str],
        problems: list[str],
        raised_status: Optional[int] = None,
    ) -> Optional[list[Row]]:
        """Return the objects in the JSON array that a tool prints, as :meth:`text`."""
        text = self.text(argv, problems, raised_status=raised_status)
        try:
            return None if text is None else rows(text)
        except ValueError as e:
            problems.append(f"{' '.join(argv)} printed no JSON array: {e}")
            return None


_Found = TypeVar("_Found")


def read_each(
    tree: FileTree,
    folder: str,
    names: Sequence[str],
    problems: list[str],
    read: Callable[[str, list[str]], Optional[_Found]],
) -> Iterator[_Found]:
    """Yield what ``read`` makes of the folders ``names`` in ``folder``. One that
    disappears during the read is left out, with a sentence.
    """
    for name in names:
        failures: list[str] = []
        found = read(name, failures)
        if failures and not tree.is_folder(f"{folder}/{name}"):
            problems.append(f"{folder}/{name} disappeared during the read")
            continue
        problems.extend(failures)
        if found is not None:
            yield found


Row = dict[str, Any]

# Route types that mean, with exit status 0, that there is no route.
_NO_ROUTE = ("unreachable", "prohibit", "blackhole", "throw")
_GUID = re.compile(r"([0-9a-f]{2}:){7}[0-9a-f]{2}")


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


def _info(row: Row) -> tuple[Optional[str], Row]:
    """Return the kind of a virtual netdev, and what ip shows of that kind."""
    info = row.get("linkinfo")
    info = info if isinstance(info, dict) else {}
    data = info.get("info_data")
    return _text(info, "info_kind"), data if isinstance(data, dict) else {}


class Link(NamedTuple):
    """What ``ip -j -d addr show`` knows of a netdev: the kind of a virtual one,
    addresses such as ``10.0.0.1/24``, and the egress map of a VLAN: of that iproute2
    prints the entries that are not 0 (ip/iplink_vlan.c, ``egress_qos``).

    ipoib: mode, P_Key (``key`` in ip/iplink_ipoib.c) and parent, the link of a child
    """

    kind: Optional[str] = None
    addresses: tuple[str, ...] = ()
    egress: Optional[tuple[PriorityOf, ...]] = None
    ipoib: tuple[Optional[str], ...] = (None, None, None)


def links(entries: list[Row]) -> dict[str, Link]:
    """Return the netdevs of ``ip -j -d addr show`` by name."""
    found = {}
    for row in entries:
        kind, data = _info(row)
        addresses = (
            f"{one['local']}/{one['prefixlen']}"
            for one in _objects(row, "addr_info")
            if _text(one, "local") and "prefixlen" in one
        )
        egress, ipoib = None, Link().ipoib
        if kind == "ipoib":
            ipoib = _text(data, "mode"), _text(data, "key"), _text(row, "link")
        if kind == "vlan" and data:
            shown = _objects(data, "egress_qos")
            egress = tuple(
                PriorityOf(one["from"], one["to"])
                for one in shown
                if {"from", "to"} <= one.keys()
            )
        if name := _text(row, "ifname"):
            found[name] = Link(kind, tuple(addresses), egress, ipoib)
    return found


def _objects(row: Row, key: str) -> list[Row]:
    listed = row.get(key)
    listed = listed if isinstance(listed, list) else []
    return [one for one in listed if isinstance(one, dict)]


def virtual_functions(entries: list[Row]) -> dict[int, VirtualFunction]:
    """Return what a PF says of its VFs in ``ip -j link show dev NETDEV``, by number,
    without their addresses; None for what the kernel does not show.

    The keys are those of iproute2's ip/ipaddress.c, print_vfinfo(). It prints no GUIDs
    if the driver has none, as that of an Ethernet netdev. mlx5 has one port a function.
    """
    vfs = {}
    for row in entries:
        for vf in _objects(row, "vfinfo_list"):
            number, guid = vf.get("vf"), _guid(_text(vf, "port guid"))
            if isinstance(number, int):
                vfs[number] = VirtualFunction(
                    number,
                    "",
                    node_guid=_guid(_text(vf, "node guid")),
                    link_state=_text(vf, "link_state"),
                    ports=() if guid is None else (VfPort(1, guid),),
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
