# SPDX-License-Identifier: GPL-2.0-or-later
"""See links, neighbours and traffic of the network paths to a server."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_ports
from ovirt_rdma.host.system.commands import CommandFailed, Runner
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.paths.server import Link
from ovirt_rdma.storage.readiness import ports_behind

# linux/rtnetlink.h
_RTMGRP_LINK = 1
_FIRST_GIDS = 16
# A port that nothing listens on (RFC 863): only the neighbour entry matters.
_DISCARD = 9
_BYTES = ("port_xmit_data", "port_rcv_data")
_PACKETS = ("sent_pkts", "rcvd_pkts")


class Wiring(NamedTuple):
    """How an address is reached while all is well; ``gateway``: None on the same link.

    A route may lead elsewhere while the link is down, so this is kept.
    """

    netdev: str
    device: str
    port: int
    is_ethernet: bool
    gateway: Optional[str] = None


def wirings(reader: HostReader, addresses: Iterable[str]) -> dict[str, Wiring]:
    """Return the wiring of each address that an RDMA port leads to."""
    devices = reader.rdma_devices(most_gids=_FIRST_GIDS)
    netdevs = reader.netdevs()
    found = {}
    for address in addresses:
        route = reader.route(address)
        if route is None or not route.netdev or not route.source:
            continue
        behind = ports_behind(devices, netdevs, route.netdev, route.source)
        for device, port in behind[:1]:
            place = device.name, port.number, port.is_ethernet
            found[address] = Wiring(route.netdev, *place, route.gateway)
    return found


def link(
    tree: FileTree, wiring: Wiring, neighbours: Mapping[tuple[str, str], str], to: str
) -> Link:
    """Return the present link to the address ``to``."""
    # The kernel gives EINVAL for a netdev that is not up.
    carrier = tree.text(f"/sys/class/net/{wiring.netdev}/carrier")
    port = f"{wiring.device}/{wiring.port}"
    folder = f"/sys/class/infiniband/{wiring.device}/ports/{wiring.port}"
    state = (tree.text(f"{folder}/state") or "gone").partition(": ")
    problem = ""
    if carrier != "1":
        problem = f"{wiring.netdev} has no link"
    elif state[2] != "ACTIVE":
        problem = f"the RDMA port {port} is {state[2] or state[0]}"
    # The hardware address of a router says nothing about the server.
    neighbour = "routed" if wiring.gateway else neighbours.get((wiring.netdev, to))
    return Link(wiring.netdev, port, wiring.is_ethernet, problem, neighbour)


def read_neighbours(run: Runner) -> dict[tuple[str, str], str]:
    """Return the hardware address of each neighbour, by netdev and IP address."""
    with contextlib.suppress(CommandFailed, ValueError, KeyError, TypeError):
        return {
            (row["dev"], row["dst"]): row["lladdr"]
            for row in json.loads(run(["ip", "-j", "-4", "neigh", "show"]) or "[]")
            if "lladdr" in row and "FAILED" not in row.get("state", ())
        }
    return {}


def warm(addresses: Iterable[str]) -> None:
    """Have the kernel look for the hardware addresses: without an entry, the first RDMA
    connection runs into a time limit of 5 s (RDMA_RESOLVE_TIMEOUT).
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM | socket.SOCK_NONBLOCK) as out:
        for address in addresses:
            with contextlib.suppress(OSError):
                out.sendto(b"", (address, _DISCARD))


def read_traffic(
    tree: FileTree, ports: Mapping[str, Wiring]
) -> dict[str, tuple[int, ...]]:
    """Return by address what its RDMA port has sent and received: bytes and packets,
    each 0 if the port does not count them.
    """
    names = {*_BYTES, *_PACKETS}
    counters = {(one.device, one.port): one for one in read_ports(tree, [], names)}
    found = {}
    for address, wiring in ports.items():
        # Some drivers have the counters of packets at the device.
        places = (wiring.device, wiring.port), (wiring.device, 0)
        seen = [counters[place] for place in places if place in counters]
        found[address] = tuple(
            sum(one.get(name) or 0 for one in seen for name in group)
            for group in (_BYTES, _PACKETS)
        )
    return found


def shares(
    before: Mapping[str, tuple[int, ...]], after: Mapping[str, tuple[int, ...]]
) -> dict[str, float]:
    """Return the part of each address of the bytes that all carried, or of the packets
    if a port does not count bytes. Empty if nothing was carried. Pure.
    """
    for kind in (0, 1):
        if all(after[address][kind] for address in after):
            grown = {
                address: max(0, counted[kind] - before[address][kind])
                for address, counted in after.items()
                if address in before
            }
            total = sum(grown.values())
            return {a: part / total for a, part in grown.items()} if total else {}
    return {}


class LinkEvents:
    """Tells when a netdev has changed: the descriptors ``files`` can be read then.
    Empty where the kernel gives no such socket.
    """

    def __init__(self) -> None:
        self._socket: Optional[socket.socket] = None
        with contextlib.suppress(OSError):
            kind = socket.SOCK_RAW | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC
            self._socket = socket.socket(socket.AF_NETLINK, kind, socket.NETLINK_ROUTE)
            self._socket.bind((0, _RTMGRP_LINK))

    def close(self) -> None:
        """Close the socket."""
        if self._socket is not None:
            self._socket.close()

    @property
    def files(self) -> list[int]:
        """What to wait for."""
        return [] if self._socket is None else [self._socket.fileno()]

    def drain(self) -> None:
        """Forget what has come; what has changed is read from sysfs."""
        with contextlib.suppress(OSError):
            while self._socket is not None and self._socket.recv(1 << 16):
                pass
