# SPDX-License-Identifier: GPL-2.0-or-later
"""Condense two samples of counters into what rules look at. Pure.

A dump of facts must stay small on a host with thousands of mounts, so it has some
numbers for each NFS mount over RDMA, and the error counters of ports that are not 0.
Values are totals; ``new_...`` and ``grown`` are their growth between the samples.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Optional

from ovirt_rdma.host.facts.port_counters import ERRORS, PACKETS

if TYPE_CHECKING:
    from ovirt_rdma.host.facts.statistics import (
        MountStatistics,
        OperationStatistics,
        PortCounters,
        Statistics,
        SunrpcTransport,
        Transport,
    )

# Requests that a connection sends without any reply until that is no chance: a few are
# always sent just before the second sample.
_MANY_SENT = 10
COUNTERS = frozenset((*ERRORS, *itertools.chain(*PACKETS)))
"""The counters of ports that matter here."""


@dataclass(frozen=True)
class Requests:
    """Requests of a kind between the samples: their number, and sums of the time until
    they were sent and until their replies.
    """

    count: int = 0
    queue_ms: int = 0
    rtt_ms: int = 0


@dataclass(frozen=True)
class MountActivity:
    """An NFS mount over RDMA, all its connections and operations together.

    operations, retransmissions: requests, and how many were sent again
    queue_ms, rtt_ms: sums of all requests: waiting to be sent, waiting for the reply
    reads, writes: READ and READ_PLUS, WRITE requests
    server_read, server_written: bytes by the file system's own count, or None
    copies, cancelled_copies: COPY and OFFLOAD_CANCEL requests of NFS 4.2
    connects, sends, backlog: of the connections; backlog is a sum, see bklog_u in
    statistics
    layout: the pNFS layout in use, whose reads and writes are not counted here
    connections: how many there are
    blocked: connections on which requests wait in this host in both samples, though
    none is under way that could end, and nothing was sent or received in between
    unanswered: connections that sent at least _MANY_SENT requests between the samples,
    and got no reply, although others did
    """

    mountpoint: str
    operations: int = 0
    retransmissions: int = 0
    queue_ms: int = 0
    rtt_ms: int = 0
    reads: int = 0
    writes: int = 0
    server_read: Optional[int] = None
    server_written: Optional[int] = None
    copies: int = 0
    cancelled_copies: int = 0
    connects: int = 0
    sends: int = 0
    backlog: int = 0
    connections: int = 0
    new_operations: int = 0
    new_retransmissions: int = 0
    new_reads: Requests = Requests()
    new_writes: Requests = Requests()
    new_connects: int = 0
    new_sends: int = 0
    new_backlog: int = 0
    blocked: int = 0
    unanswered: int = 0
    layout: Optional[str] = None


@dataclass(frozen=True)
class ConnectionActivity:
    """A connection over RDMA in the kernel's sysfs; see SunrpcTransport of statistics.

    name: ``switch-3/xprt-5-rdma``
    """

    name: str
    destination: Optional[str] = None
    state: tuple[str, ...] = ()
    slots_max: Optional[int] = None
    requests: Optional[int] = None
    backlog: Optional[int] = None

    @property
    def connected(self) -> bool:
        """Whether the kernel says so."""
        return "CONNECTED" in self.state


@dataclass(frozen=True)
class PortError:
    """An error counter that is not 0, and its growth."""

    name: str
    value: int
    grown: int = 0


@dataclass(frozen=True)
class PortActivity:
    """A port of an RDMA device: received packets (None if unknown), and errors.

    read: whether the device has any of the error counters, and answered
    """

    device: str
    port: int
    read: bool = False
    packets: Optional[int] = None
    new_packets: int = 0
    errors: tuple[PortError, ...] = ()


@dataclass(frozen=True)
class Activity:
    """What happened in ``seconds``, and before since each mount or device exists.

    connections: those over RDMA in the kernel's sysfs; None if it shows none
    """

    seconds: float
    mounts: tuple[MountActivity, ...] = ()
    connections: Optional[tuple[ConnectionActivity, ...]] = None
    ports: tuple[PortActivity, ...] = ()


def activity_between(before: Statistics, after: Statistics) -> Activity:
    """Return the activity of the second sample, with the growth since the first.

    Of a mount or device that the first sample does not have, or whose counters became
    smaller (another one, or a counter that wrapped), nothing counts as growth.
    """
    mounts = {(m.mountpoint, m.source): m for m in before.mounts}
    ports = {(p.device, p.port): p for p in before.ports}
    waiting = _waiting(before.transports or (), after.transports or ())
    return Activity(
        seconds=max(0.0, round(after.taken_s - before.taken_s, 2)),
        mounts=tuple(
            _mount(mounts.get((mount.mountpoint, mount.source)), mount, waiting)
            for mount in after.mounts
            if any(transport.protocol == "rdma" for transport in mount.transports)
        ),
        connections=(
            None
            if after.transports is None
            else tuple(
                ConnectionActivity(
                    f"{one.switch}/{one.name}",
                    one.destination,
                    one.state,
                    one.slots_max,
                    one.requests,
                    one.backlog,
                )
                for one in after.transports
                if one.protocol == "rdma"
            )
        ),
        ports=tuple(_ports(after.ports, ports)),
    )


def _mount(
    earlier: Optional[MountStatistics],
    mount: MountStatistics,
    waiting: Sequence[Optional[str]],
) -> MountActivity:
    before = earlier or mount
    then, now = _totals(before), _totals(mount)
    grown = {name: max(0, value - then[name]) for name, value in now.items()}
    return MountActivity(
        mountpoint=mount.mountpoint,
        operations=now["operations"],
        retransmissions=now["retransmissions"],
        queue_ms=sum(one.queue_ms for one in mount.operations),
        rtt_ms=sum(one.rtt_ms for one in mount.operations),
        reads=_total(mount.reads, "operations"),
        writes=_total(mount.writes, "operations"),
        server_read=mount.bytes.server_read if mount.bytes else None,
        server_written=mount.bytes.server_written if mount.bytes else None,
        copies=_count(mount, "COPY"),
        cancelled_copies=_count(mount, "OFFLOAD_CANCEL"),
        connects=now["connects"],
        sends=now["sends"],
        backlog=now["backlog"],
        connections=len(mount.transports),
        new_operations=grown["operations"],
        new_retransmissions=grown["retransmissions"],
        new_reads=_requests(before.reads, mount.reads),
        new_writes=_requests(before.writes, mount.writes),
        new_connects=grown["connects"],
        new_sends=grown["sends"],
        new_backlog=grown["backlog"],
        # Nothing leads from a mount to its connections but the server's address.
        blocked=min(
            waiting.count(mount.address or ""),
            _still(before.transports, mount.transports),
        ),
        unanswered=_unanswered(before.transports, mount.transports),
        layout=mount.layout,
    )


def _totals(mount: MountStatistics) -> dict[str, int]:
    """Return the totals whose growth counts too."""
    operations, transports = mount.operations, mount.transports
    return {
        "operations": sum(one.operations for one in operations),
        "retransmissions": sum(
            max(0, one.transmissions - one.operations) for one in operations
        ),
        "connects": _sum(transports, "connect_count"),
        "sends": _sum(transports, "sends"),
        "backlog": _sum(transports, "bklog_u"),
    }


def _count(mount: MountStatistics, name: str) -> int:
    found = mount.operation(name)
    return found.operations if found else 0


def _requests(
    before: Iterable[OperationStatistics], after: Iterable[OperationStatistics]
) -> Requests:
    wanted = ("operations", "queue_ms", "rtt_ms")
    grown = [_total(after, what) - _total(before, what) for what in wanted]
    return Requests(*grown) if min(grown) >= 0 else Requests()


def _total(operations: Iterable[OperationStatistics], what: str) -> int:
    return sum(getattr(one, what) for one in operations)


def _sum(transports: Iterable[Transport], name: str) -> int:
    return sum(transport.get(name) or 0 for transport in transports)


def _waiting(
    before: Iterable[SunrpcTransport], after: Iterable[SunrpcTransport]
) -> list[Optional[str]]:
    """Return the destinations of the connections over RDMA on which requests wait for a
    slot or to be sent in both samples, while none waits for a reply.

    What ends such a wait is a request that is done (net/sunrpc/xprt.c, xprt_release and
    xprt_write_space), and there is none. A connection that is being made has no queues
    in sysfs.
    """

    def stuck(of: Iterable[SunrpcTransport]) -> dict[tuple[str, ...], Optional[str]]:
        return {
            (one.switch, one.name, one.destination or ""): one.destination
            for one in of
            if one.protocol == "rdma"
            and one.connected
            and one.pending == 0
            and ((one.sending or 0) > 0 or (one.backlog or 0) > 0)
        }

    then = stuck(before)
    return [to for key, to in stuck(after).items() if key in then]


def _between(
    before: Sequence[Transport], after: Sequence[Transport]
) -> list[tuple[int, int]]:
    """Return how many requests each connection sent, and how many replies it got.

    Nothing if a connection was added or removed, because the kernel shows them in the
    same order only, or if it does not count them.
    """
    grown = []
    for old, new in zip(before, after):
        sends, recvs = old.get("sends"), old.get("recvs")
        sent, got = new.get("sends"), new.get("recvs")
        if sends is None or recvs is None or sent is None or got is None:
            return []
        grown.append((sent - sends, got - recvs))
    return grown if len(before) == len(after) else []


def _still(before: Sequence[Transport], after: Sequence[Transport]) -> int:
    return _between(before, after).count((0, 0))


def _unanswered(before: Sequence[Transport], after: Sequence[Transport]) -> int:
    """Count the connections that send in vain while another one gets replies.

    Their totals tell nothing: a request that is sent again counts as another one, and a
    killed one gets no reply, so sends are ahead of replies for ever (net/sunrpc/xprt.c,
    xprt_request_transmit and xprt_complete_rqst).
    """
    grown = _between(before, after)
    if not any(got > 0 for _, got in grown):
        return 0
    return sum(sent >= _MANY_SENT and got == 0 for sent, got in grown)


def _ports(
    ports: Iterable[PortCounters], before: dict[tuple[str, int], PortCounters]
) -> Iterable[PortActivity]:
    for port in ports:
        if port.port == 0:
            continue
        earlier = before.get((port.device, port.port), port)
        values = {
            name: value for name in ERRORS if (value := port.get(name)) is not None
        }
        packets = received_packets(port)
        yield PortActivity(
            port.device,
            port.port,
            read=bool(values),
            packets=packets,
            new_packets=_grown(received_packets(earlier), packets),
            errors=tuple(
                PortError(name, value, _grown(earlier.get(name), value))
                for name, value in values.items()
                if value
            ),
        )


def received_packets(port: PortCounters) -> Optional[int]:
    """Return the packets that a port has received; None if it does not count them."""
    for names in PACKETS:
        known = [value for name in names if (value := port.get(name)) is not None]
        if known:
            return sum(known)
    return None


def _grown(before: Optional[int], after: Optional[int]) -> int:
    if before is None or after is None:
        return 0
    return max(0, after - before)
