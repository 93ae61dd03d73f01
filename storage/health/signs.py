# SPDX-License-Identifier: GPL-2.0-or-later
"""Look for the signs that tell why a server does not answer, or answers late.

Only asked if a mount is in trouble: this host's route and port, a TCP connection to the
server's NFS port with a call that does nothing, and, if the server does not answer, an
RDMA connection to its listener.
Each ends at its deadline. The kernel of the server answers a TCP connection, not its
NFS threads: the time of the answer is that of the path. The call needs a thread, and so
does an RDMA connection to a Linux server (svc_rdma_accept in
net/sunrpc/xprtrdma/svc_rdma_transport.c).
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, replace
from typing import Callable, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.model import Facts, Route
from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.storage import probe
from ovirt_rdma.storage.readiness import NOT_READY, Step, local_steps, ports_behind
from ovirt_rdma.storage.transport import NFS_TCP_PORT

# The GIDs of a port's own addresses are the first of its table.
_FIRST_GIDS = 16
KNOCK_S = 1.5
LISTENER_S = 2.0
# The RDMA listener is asked by a program, whose start would delay a TCP answer that is
# on its way; after this time none is, and both are waited for together.
ALONE_S = 0.3
# Servers asked at the same time: each needs a thread and, for RDMA, a process.
_AT_ONCE = 8
# The number of NFS among the programs of RPC (RFC 7530).
_NFS = 100003

# How the server's TCP port answered.
ACCEPTS, REFUSES, SILENT, UNREACHABLE = "accepts", "refuses", "silent", "unreachable"
# No machine answered to the address: ARP and its like, on this host or the last router
# (net/ipv4/arp.c, arp_error_report; EHOSTUNREACH). Or a firewall rejects: EHOSTUNREACH
# too (icmp_err_convert in net/ipv4/icmp.c), EACCES (tab_unreach in net/ipv6/icmp.c).
ABSENT = "absent, or rejected"
# operstate of a netdev: Linux, Documentation/networking/operstates.rst.
_CARRIER = {"up": True, "down": False, "lowerlayerdown": False}
# States of a port with a link, until the subnet manager has set it up
# (drivers/infiniband/core/sysfs.c, state_show).
_NO_SM = {"INIT", "ARMED"}
_RESULTS = {
    errno.ECONNREFUSED: REFUSES,
    errno.ECONNRESET: REFUSES,
    errno.ETIMEDOUT: SILENT,
    errno.EINPROGRESS: SILENT,
    errno.EAGAIN: SILENT,
    errno.EHOSTUNREACH: ABSENT,
    errno.EACCES: ABSENT,
}


@dataclass(frozen=True)
class Server:
    """An address of a server with the ``port`` of its RDMA listener, and its
    ``tcp_port``; ``transport`` is that of the mounts in question.

    ``silent``: False if it answers, so that its RDMA listener tells nothing
    """

    address: str
    transport: Optional[str]
    port: int
    silent: bool = True
    tcp_port: int = NFS_TCP_PORT


@dataclass(frozen=True)
class Knock:
    """The answer to a TCP connection: ACCEPTS, REFUSES, SILENT, ABSENT or UNREACHABLE
    (this host's kernel or a router says so), and the seconds until it came.

    ``replied``: whether an NFS thread answered a call within the time; None: unknown
    """

    result: str
    seconds: float
    replied: Optional[bool] = None


@dataclass(frozen=True)
class ServerSigns:
    """What was seen of one server.

    - ``steps``: the readiness of this host: module, route, port
    - ``netdev``: by which it is reached; ``carrier``: of that; None if unknown
    - ``devices``: the RDMA ports that lead to it: device and port number
    - ``infiniband``: whether one of them is an InfiniBand port
    - ``ports_down``: the RDMA ports of this host that are not ACTIVE: ``mlx5_0/1 is
      DOWN``; ``waits_for_sm``: the link of one is up, but no subnet manager set it up
    - ``tcp``: its NFS port; ``listener``: its RDMA listener, None if it was not asked:
      for a TCP mount, or a server that answers
    """

    steps: tuple[Step, ...]
    tcp: Knock
    listener: Optional[Step] = None
    netdev: Optional[str] = None
    carrier: Optional[bool] = None
    devices: tuple[tuple[str, int], ...] = ()
    infiniband: bool = False
    ports_down: tuple[str, ...] = ()
    waits_for_sm: bool = False


def knock(address: str, port: int, timeout_s: float = KNOCK_S) -> Knock:
    """Connect to the TCP port of an NFS server and call it; say how the connection was
    answered, and how soon, and whether the call was.
    """
    begun = time.monotonic()
    try:
        with socket.create_connection((address, port), timeout=timeout_s) as connected:
            seconds = time.monotonic() - begun
            replied = _replies(connected, begun + timeout_s)
            return Knock(ACCEPTS, seconds, replied)
    except socket.timeout:
        result = SILENT
    except OSError as error:
        result = _RESULTS.get(error.errno or 0, UNREACHABLE)
    return Knock(result, time.monotonic() - begun)


def _replies(connected: socket.socket, until: float) -> Optional[bool]:
    """Whether NFS answers procedure NULL, which needs no rights; None if the connection
    ends before. A server without NFS 4 answers too, with an error (RFC 5531).
    """
    number = os.urandom(4)
    call = number + struct.pack(">9I", 0, 2, _NFS, 4, 0, 0, 0, 0, 0)
    # TCP has records: the last fragment, its length.
    expected, received = number + struct.pack(">I", 1), b""
    try:
        connected.sendall(struct.pack(">I", 1 << 31 | len(call)) + call)
        while len(received) < 4 + len(expected):
            left = until - time.monotonic()
            if left <= 0:
                return False
            connected.settimeout(left)
            more = connected.recv(64)
            if not more:
                return None
            received += more
    except socket.timeout:
        return False
    except OSError:
        return None
    return received[4 : 4 + len(expected)] == expected or None


@dataclass(frozen=True)
class Questions:
    """The questions to a server; tests replace them."""

    knock: Callable[[str, int, float], Knock] = knock
    listener: Callable[[str, int, float], Step] = probe.rdma_listener


def signs_of(
    servers: Iterable[Server],
    root: str = "/",
    questions: Optional[Questions] = None,
    reader: Optional[HostReader] = None,
) -> dict[str, ServerSigns]:
    """Return the signs of each server, by its address; all are asked at the same time.

    Reads the facts of this host once. Raises nothing for what a host or a server has.
    """
    asked = {server.address: server for server in servers}
    if not asked:
        return {}
    reader = reader or HostReader(root)
    routes = {address: reader.route(address) for address in asked}
    facts = _facts(reader, routes.values())
    ask = questions or Questions()
    with ThreadPoolExecutor(min(_AT_ONCE, len(asked))) as threads:
        found = {
            address: threads.submit(_signs, server, facts, routes[address], ask)
            for address, server in asked.items()
        }
        return {address: one.result() for address, one in found.items()}


def _facts(reader: HostReader, routes: Iterable[Optional[Route]]) -> Facts:
    """Return the facts for the local steps, with as few GIDs as suffice."""
    facts = Facts(
        hostname="",
        kernel_release=reader.kernel_release(),
        uptime_s=reader.uptime(),
        rdma_devices=reader.rdma_devices(most_gids=_FIRST_GIDS),
        netdevs=reader.netdevs(),
        modules=reader.modules(),
    )
    if facts.rdma_devices and any(r and not _ports(facts, r) for r in routes):
        return replace(facts, rdma_devices=reader.rdma_devices())
    return facts


def _ports(facts: Facts, route: Optional[Route]) -> list[tuple[RdmaDevice, RdmaPort]]:
    if route is None or not route.netdev or not route.source:
        return []
    devices, netdevs = facts.rdma_devices, facts.netdevs
    return ports_behind(devices, netdevs, route.netdev, route.source)


def _signs(
    server: Server, facts: Facts, route: Optional[Route], ask: Questions
) -> ServerSigns:
    steps = local_steps(facts, route)
    netdev = route.netdev if route else None
    ports = _ports(facts, route)
    down = [
        (device, port)
        for device in facts.rdma_devices
        for port in device.ports
        if not port.is_active
    ]
    state = next((n.operstate for n in facts.netdevs if n.name == netdev), "")
    carrier = _CARRIER.get(state)
    # Without a route or a port there is nobody to ask.
    over_rdma = server.silent and server.transport == RDMA
    over_rdma &= not any(step.verdict == NOT_READY for step in steps)
    tcp, listener = _answers(server, ask, over_rdma)
    return ServerSigns(
        steps,
        tcp,
        listener,
        netdev,
        carrier,
        tuple((device.name, port.number) for device, port in ports),
        any(port.is_infiniband for _, port in ports),
        tuple(f"{device.name}/{port.number} is {port.state}" for device, port in down),
        any(port.is_infiniband and port.state in _NO_SM for _, port in down),
    )


def _answers(
    server: Server, ask: Questions, over_rdma: bool
) -> tuple[Knock, Optional[Step]]:
    address, listener = server.address, None
    with ThreadPoolExecutor(1) as other:
        knocking = other.submit(ask.knock, address, server.tcp_port, KNOCK_S)
        wait([knocking], ALONE_S)
        if over_rdma:
            listener = ask.listener(address, server.port, LISTENER_S)
        return knocking.result(), listener
