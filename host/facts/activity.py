# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what rules look at of two samples of counters. Data only.

A dump of facts must stay small on a host with thousands of mounts, so it has some
numbers for each NFS mount over RDMA, and the error counters of ports that are not 0.
Values are totals; ``new_...`` and ``grown`` are their growth between the samples.
:func:`ovirt_rdma.host.facts.statistics.activity_between` makes it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


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
    unanswered: connections that sent at least ten requests between the samples,
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
