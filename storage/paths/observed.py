# SPDX-License-Identifier: GPL-2.0-or-later
"""See links and neighbours of the network paths to a server."""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterable, Mapping
from typing import NamedTuple, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.system.commands import CommandFailed, Runner
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.paths.server import Link
from ovirt_rdma.storage.readiness import ports_behind

# linux/rtnetlink.h
_RTMGRP_LINK = 1
_FIRST_GIDS = 16
# A port that nothing listens on (RFC 863): only the neighbour entry matters.
_DISCARD = 9


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
