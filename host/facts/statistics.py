# SPDX-License-Identifier: GPL-2.0-or-later
"""Define what the kernel counts for NFS mounts, their connections and RDMA ports. Pure.

Rules, health, metrics and benchmarks judge errors and congestion of ports by the table
COUNTERS alone. The names are those of
``counters/`` (drivers/infiniband/core/sysfs.c, IBTA 16.1.3.5) and, in ``hw_counters/``,
of the drivers: mlx5 (drivers/infiniband/hw/mlx5/counters.c), bnxt_re (hw/bnxt_re/
hw_counters.c; kernels differ), irdma (hw/irdma/verbs.c, irdma_hw_stat_descs; likewise)
and rxe (sw/rxe/rxe_hw_counters.c).

The values of Statistics are a sample of one moment (``Statistics.taken_s``): rates need
two samples. All counters only grow while the mount, connection or device exists; a
counter that is smaller than in an earlier sample belongs to another one, or has
wrapped. :func:`ovirt_rdma.host.collect.statistics.read_statistics` reads them. A
difference of two samples is made in one place, :func:`load_between`; rules get it
condensed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import NamedTuple, Optional

from ovirt_rdma.host.facts.model import (
    Activity,
    ConnectionActivity,
    MountActivity,
    PortActivity,
    PortError,
    Requests,
)

# A bad cable, connector, transceiver or port.
LINK = "link"
# Packets that were lost, discarded or repeated.
PATH = "path"
# A connection that was ended because all repeats were in vain.
FATAL = "fatal"
# A network or a receiver that is too slow.
CONGESTION = "congestion"

_MEANINGS = {
    LINK: {
        "symbol_error": "minor link errors: cable, transceiver",
        "link_error_recovery": "times the link recovered from an error",
        "link_downed": "times the link went down",
        "port_rcv_errors": "packets with an error that were received",
        "port_rcv_remote_physical_errors": "packets that the sender marked as bad",
        "local_link_integrity_errors": "times the local errors exceeded their limit",
        "excessive_buffer_overrun_errors": "input buffer overruns",
        "rx_icrc_encapsulated": "packets with a wrong checksum (mlx5, RoCE)",
    },
    PATH: {
        "port_xmit_discards": "packets dropped at sending: port down or congested",
        "local_ack_timeout_err": "the peer did not acknowledge in time (mlx5, bnxt_re)",
        "out_of_sequence": "packets that arrived out of order (mlx5, bnxt_re)",
        "packet_seq_err": "the peer asked for packets again (mlx5, bnxt_re)",
        "implied_nak_seq_err": "a read answered a later packet first (mlx5, bnxt_re)",
        "duplicate_request": "the peer sent requests again (mlx5, bnxt_re, rxe)",
        "roce_adp_retrans": "adaptive retransmissions (mlx5, RoCE)",
        "roce_adp_retrans_to": "adaptive retransmissions that timed out (mlx5, RoCE)",
        "to_retransmits": "the peer did not acknowledge in time (bnxt_re)",
        "seq_err_naks_rcvd": "the peer asked for packets again (bnxt_re)",
        "missing_resp": "answers that are missing (bnxt_re)",
        "missin_resp": "answers that are missing (bnxt_re, as it writes it)",
        "dup_req": "the peer sent requests again (bnxt_re)",
        "oos_drop_count": "packets that arrived out of order (bnxt_re)",
        "RetransSegs": "segments that were sent again (irdma)",
        "tcpRetransSegs": "segments that were sent again (irdma)",
        "out_of_seq_request": "requests that arrived out of order (rxe)",
        "rcvd_seq_err": "the peer asked for packets again (rxe)",
        "completer_retry_err": "requests that were sent again (rxe)",
        "send_err": "packets that could not be sent (rxe)",
    },
    FATAL: {
        "req_transport_retries_exceeded": "given up after all retries (mlx5)",
        "req_rnr_retries_exceeded": "given up, the peer was never ready (mlx5)",
        "max_retry_exceeded": "given up after all retries (bnxt_re)",
        "retry_exceeded_err": "given up after all retries (rxe)",
        "retry_rnr_exceeded_err": "given up, the peer was never ready (rxe)",
    },
    CONGESTION: {
        "port_xmit_wait": "ticks with data to send and no credits",
        "rnr_nak_retry_err": "the peer was not ready to receive (mlx5, bnxt_re)",
        "rnr_naks_rcvd": "the peer was not ready to receive (bnxt_re)",
        "rcvd_rnr_err": "the peer was not ready to receive (rxe)",
        "out_of_buffer": "packets dropped for lack of a receive buffer (mlx5)",
        "rx_out_of_buffer": "packets dropped for lack of a receive buffer (bnxt_re)",
        "np_cnp_sent": "congestion notifications sent (mlx5, RoCE)",
        "np_ecn_marked_roce_packets": "packets that came with a congestion mark (mlx5)",
        "rp_cnp_handled": "congestion notifications obeyed (mlx5, RoCE)",
        "rp_cnp_ignored": "congestion notifications ignored (mlx5, RoCE)",
        "cnpSent": "congestion notifications sent (irdma)",
        "cnpHandled": "congestion notifications obeyed (irdma)",
        "cnpIgnored": "congestion notifications ignored (irdma)",
        "RxECNMrkd": "packets that came with a congestion mark (irdma)",
    },
}
COUNTERS: Mapping[str, tuple[str, str]] = {
    name: (kind, meaning)
    for kind, meanings in _MEANINGS.items()
    for name, meaning in meanings.items()
}
"""The kind of each counter, and its meaning, by name."""


def of_kind(*kinds: str) -> tuple[str, ...]:
    """Return the counters of some kinds, in the order of the table."""
    return tuple(name for name, (kind, _) in COUNTERS.items() if kind in kinds)


ERRORS = of_kind(LINK, PATH, FATAL)
"""What should not be: everything but congestion."""

# Of packets that were sent again because this host waited in vain for acknowledgements.
# A port counts those of all servers, and Soft-RoCE also waits that were too short
# (rxe_comp.c, retransmit_timer).
WAITED = frozenset(
    {
        "local_ack_timeout_err",
        "roce_adp_retrans_to",
        "to_retransmits",
        "completer_retry_err",
        "req_transport_retries_exceeded",
        "max_retry_exceeded",
        "retry_exceeded_err",
    }
)
SENT_AGAIN = WAITED.union(of_kind(PATH)) - {"port_xmit_discards", "send_err"}
"""Of packets that were sent again, also because a side asked for them."""

LOSSES = SENT_AGAIN.union(of_kind(LINK, PATH))
"""Errors that come from lost or damaged packets, and not from a late receiver."""

# The received packets of a port: of counters/, rxe, bnxt_re and irdma. The first group
# that a port has counts, as a sum.
PACKETS = (
    ("port_rcv_packets",),
    ("rcvd_pkts",),
    ("rx_pkts",),
    ("ip4InPkts", "ip6InPkts"),
)


# The names of all columns, in the kernel's order: xprt_rdma_print_stats()
# (net/sunrpc/xprtrdma/transport.c) and xs_tcp_print_stats() (net/sunrpc/xprtsock.c),
# the same in Linux 5.14, 6.1 and 6.12. Of UDP, which EL's NFS has not, none are read.
#
# port: the local port; 0 with RDMA
# bind_count: requests to rpcbind; connect_count: connections that were made
# connect_time: seconds spent with connecting; jiffies in old kernels
# idle_time: seconds since the last request; 0 if not connected
# sends, recvs: requests sent, replies received; bad_xids: replies to no request
# req_u, bklog_u, sending_u, pending_u: sums, one summand with each request sent: sends
#   less recvs, and the lengths of the queues for a slot (backlog), for the transport
#   (sending) and for the reply (pending). Divided by sends, those of queues are
#   averages; req_u is none: a request that is sent again has two sends and one reply.
# max_slots: the most slots that were used at once
# *_chunk_count: chunks in calls
# total_rdma_request: bytes of memory offered for replies, in write and reply chunks;
#   the read chunks of WRITE are not added (net/sunrpc/xprtrdma/rpc_rdma.c,
#   rpcrdma_encode_write_list and rpcrdma_encode_reply_chunk)
# total_rdma_reply: bytes that the server wrote there
# pullup_copy_count, fixup_copy_count: bytes copied; hardway_register_count: bytes
# failed_marshal_count, bad_reply_count, nomsg_call_count: calls that failed to encode,
#   replies that could not be decoded, calls without inline message
# mrs_*: memory regions, recycled, orphaned, allocated
# local_inv_needed: replies after which the client had to invalidate its memory
# empty_sendctx_q: waits for a send context; reply_waits_for_send: always 0 in 6.1
_COMMON = (
    "bind_count connect_count connect_time idle_time sends recvs bad_xids req_u bklog_u"
)
COLUMNS = {
    protocol: tuple(names.split())
    for protocol, names in (
        (
            "rdma",
            f"port {_COMMON} read_chunk_count write_chunk_count reply_chunk_count "
            "total_rdma_request total_rdma_reply pullup_copy_count fixup_copy_count "
            "hardway_register_count failed_marshal_count bad_reply_count "
            "nomsg_call_count mrs_recycled mrs_orphaned mrs_allocated "
            "local_inv_needed empty_sendctx_q reply_waits_for_send",
        ),
        ("tcp", f"port {_COMMON} max_slots sending_u pending_u"),
    )
}


class Transport(NamedTuple):
    """One ``xprt:`` line of mountstats, which is one connection of a mount.

    protocol: ``rdma`` or ``tcp``, or what else a kernel has
    counters: values by their names of COLUMNS; fewer if the kernel has fewer
    """

    protocol: str
    counters: Mapping[str, int] = {}


class OperationStatistics(NamedTuple):
    """The requests of one NFS operation, such as ``READ`` (net/sunrpc/stats.c,
    _print_rpc_iostats).

    operations, transmissions: requests; more transmissions are repeated requests
    timeouts: requests that had no reply within ``timeo``
    bytes_sent, bytes_received: with headers
    queue_ms, rtt_ms, execute_ms: sums in milliseconds: before sending, until the reply,
    and in all
    errors: requests that ended in an error
    """

    name: str
    operations: int
    transmissions: int
    timeouts: int
    bytes_sent: int
    bytes_received: int
    queue_ms: int
    rtt_ms: int
    execute_ms: int
    errors: int = 0


# The operations of requests that read and write files; NFS 3 and 4 have the same names
# (fs/nfs/nfs3xdr.c, fs/nfs/nfs4xdr.c). With CONFIG_NFS_V4_2_READ_PLUS, which Debian's
# 6.12 has, NFS 4.2 over TCP reads by READ_PLUS (fs/nfs/client.c,
# nfs4_server_set_init_caps).
READS = ("READ", "READ_PLUS")
WRITES = ("WRITE",)
# Those that move file data to or from the server's disks.
DATA = (*READS, *WRITES, "COMMIT")
# Requests that a connection sends without any reply until that is no chance: a few are
# always sent just before the second sample.
_MANY_SENT = 10
ACTIVITY_COUNTERS = frozenset((*ERRORS, *chain(*PACKETS)))
"""The counters of ports that rules look at."""


def beyond_requests(moved: int, requests: int, largest: int) -> int:
    """Return by how many bytes ``moved`` is more than so many ``requests`` of at most
    ``largest`` bytes (rsize or wsize) can have carried; negative if it is less.

    It is more if LOCALIO moved data, for a server on the same host: the kernel counts
    its bytes as the server's (fs/nfs/read.c, nfs_readpage_done), and no request.
    """
    return moved - requests * largest


class MountStatistics(NamedTuple):
    """A mount in mountstats (fs/nfs/super.c, nfs_show_stats).

    source: ``server:/path``, normalised as in the facts
    address: the server's address, from mountinfo; None if it is not there
    age_s: whole seconds since it was mounted
    version, rsize, wsize (bytes, as negotiated with the server), nconnect (as asked
    for, if the kernel took it): of ``opts:``
    transports: one for each connection
    operations: those that were used at least once
    server_read, server_written: bytes that were read from and written to the server
    (``bytes:``, enum nfs_stat_bytecounters in include/linux/nfs_iostat.h); None if the
    kernel's line has another form
    layout: the pNFS layout in use (``LAYOUT_FLEX_FILES``): then reads and writes are
    requests to other servers, and are not in operations
    """

    mountpoint: str
    source: str
    age_s: Optional[int] = None
    version: Optional[str] = None
    rsize: Optional[int] = None
    wsize: Optional[int] = None
    nconnect: Optional[int] = None
    transports: tuple[Transport, ...] = ()
    operations: tuple[OperationStatistics, ...] = ()
    server_read: Optional[int] = None
    server_written: Optional[int] = None
    address: Optional[str] = None
    layout: Optional[str] = None

    def requests(self, *names: str) -> int:
        """Return the number of requests of some operations."""
        return sum(one.operations for one in self.operations if one.name in names)


def moved_without_requests(before: MountStatistics, after: MountStatistics) -> int:
    """Return how many bytes of its files a mount read and wrote between two samples
    without requests (:func:`beyond_requests`); 0 if that is unknown, and with a layout.

    Reads count if their requests cannot have carried half of them, and so do writes:
    what ends while a sample is taken can be in its requests, and its bytes in the next
    one's (net/sunrpc/sched.c, rpc_exit_task; fs/nfs/super.c, nfs_show_stats).
    """
    if before.layout or after.layout:
        return 0
    total = 0
    for what, names, size in (
        ("server_read", READS, "rsize"),
        ("server_written", WRITES, "wsize"),
    ):
        was, now = getattr(before, what), getattr(after, what)
        if was is None or now is None:
            return 0
        sizes = getattr(before, size), getattr(after, size)
        requests = after.requests(*names) - before.requests(*names)
        beyond = beyond_requests(now - was, requests, max(one or 0 for one in sizes))
        # Fewer requests than before are those of another mount.
        if requests >= 0 and None not in sizes and 2 * beyond > now - was:
            total += beyond
    return total


class SunrpcTransport(NamedTuple):
    """A connection in /sys/kernel/sunrpc/xprt-switches (net/sunrpc/sysfs.c).

    switch, name: the folders, such as ``switch-3`` and ``xprt-5-rdma``; the kernel
    gives their numbers again
    destination: the address, without port
    state: the words of ``xprt_state``, such as ``CONNECTED`` and ``BOUND``
    counters: the numbers of ``xprt_info``, by the kernel's names; none while it is not
    connected. Of these:
    max_num_slots, min_num_slots: how many requests may, and can at once, be under way
    num_reqs: slots that exist now
    backlog_q_len, pending_q_len, sending_q_len: requests that wait for a slot, for a
    reply, for the transport
    last_used: when a request was done last, in the kernel's jiffies (net/sunrpc/xprt.c,
    xprt_schedule_autodisconnect)
    main_xprt: 1 for the connection that its switch was made with, 0 for others

    RDMA connections that are not used are closed after five minutes
    (RPCRDMA_IDLE_DISC_TO): that is no fault.
    """

    switch: str
    name: str
    protocol: str
    destination: Optional[str] = None
    state: tuple[str, ...] = ()
    counters: Mapping[str, int] = {}

    @property
    def connected(self) -> bool:
        """Whether the kernel says so now."""
        return "CONNECTED" in self.state


class PortCounters(NamedTuple):
    """The counters of a port of an RDMA device, from
    /sys/class/infiniband/DEVICE/ports/PORT.

    port: 0 for the counters of the device as a whole (DEVICE/hw_counters)
    counters: those of ``counters/``, the same for all drivers
    (drivers/infiniband/core/sysfs.c), and of ``hw_counters/``, named by the driver;
    None if the device did not answer. port_xmit_data and port_rcv_data are in units of
    four bytes
    """

    device: str
    port: int
    counters: Mapping[str, Optional[int]] = {}

    def get(self, name: str) -> Optional[int]:
        """Return the counter ``name``; None if there is none, or no answer."""
        return self.counters.get(name)

    @property
    def packets(self) -> Optional[int]:
        """The packets that it has received; None if it does not count them."""
        for names in PACKETS:
            known = [value for name in names if (value := self.get(name)) is not None]
            if known:
                return sum(known)
        return None


class Statistics(NamedTuple):
    """One sample of a host.

    taken_s: in seconds after boot (/proc/uptime, to 10 ms); 0.0 if unknown
    mounts: the visible NFS mounts, in the kernel's order
    transports: None if the kernel has no /sys/kernel/sunrpc
    problems: sentences about what could not be read
    """

    taken_s: float
    mounts: tuple[MountStatistics, ...] = ()
    transports: Optional[tuple[SunrpcTransport, ...]] = None
    ports: tuple[PortCounters, ...] = ()
    problems: tuple[str, ...] = ()


def option_value(options: str, name: str) -> Optional[str]:
    """Return the value of ``name`` in ``rw,vers=4.2,...``; None without a value."""
    for option in options.split(","):
        key, equals, value = option.partition("=")
        if equals and key == name:
            return value
    return None


@dataclass(frozen=True)
class Load:
    """What a mount did in ``seconds``.

    operations: what each one grew by
    connects: connections made; sends: calls sent over them, of other mounts too;
    queued: at each of these, the calls that waited for a slot, added up
    """

    seconds: float
    operations: tuple[OperationStatistics, ...] = ()
    connects: int = 0
    sends: int = 0
    queued: int = 0

    @property
    def count(self) -> int:
        """The number of all calls."""
        return self.total("operations")

    def total(self, what: str, names: Collection[str] = ()) -> int:
        """Return the sum of a number of OperationStatistics over all calls, or those of
        the operations ``names``.
        """
        return sum(
            getattr(one, what)
            for one in self.operations
            if not names or one.name in names
        )

    def mean(self, what: str, names: Collection[str] = ()) -> float:
        """Return :meth:`total`, such as of ``rtt_ms``, per call; 0.0 without any."""
        return self.total(what, names) / (self.total("operations", names) or 1)

    @property
    def sent_again(self) -> int:
        """Transmissions beyond the first of each call."""
        return sum(
            max(0, one.transmissions - one.operations) for one in self.operations
        )

    @property
    def backlog(self) -> float:
        """The mean number of calls that waited for a slot."""
        return self.queued / self.sends if self.sends else 0.0

    @property
    def on_wire(self) -> float:
        """The mean number of calls that the server had: by Little's law, the time that
        all calls together were on the wire.
        """
        return self.total("rtt_ms") / (1000.0 * self.seconds)

    def requests(self, names: Collection[str]) -> Requests:
        """Return the requests of some operations."""
        sums = ("operations", "queue_ms", "rtt_ms")
        return Requests(*(self.total(one, names) for one in sums))


def load_between(
    before: Optional[MountStatistics], after: MountStatistics, seconds: float
) -> Optional[Load]:
    """Return what a mount did in the ``seconds`` between two samples.

    None if there is no earlier sample, or if it is of an earlier mount at that point,
    which also a counter that is smaller than before shows.
    """
    if before is None or seconds <= 0:
        return None
    if (before.mountpoint, before.source) != (after.mountpoint, after.source):
        return None
    if after.age_s is not None and (before.age_s or 0) > after.age_s:
        return None
    earlier = {one.name: one[1:9] for one in before.operations}
    operations = []
    for one in after.operations:
        new = map(int.__sub__, one[1:9], earlier.get(one.name, (0,) * 8))
        operations.append(OperationStatistics(one.name, *new))
    if any(min(one[1:9]) < 0 for one in operations):
        return None
    grown = _of_connections(before.transports, after.transports)
    return Load(seconds, tuple(operations), *grown)


def _of_connections(
    before: Sequence[Transport], after: Sequence[Transport]
) -> tuple[int, int, int]:
    """Return how many connections were made and calls sent, and by how much the backlog
    grew, on all connections together. One that was made meanwhile counts from 0; one
    that ended does not count.
    """
    pairs = [*zip_longest(before[: len(after)], after, fillvalue=Transport(""))]
    connects, sends, backlog = (
        sum(
            max(0, new.counters.get(n, 0) - old.counters.get(n, 0))
            for old, new in pairs
        )
        for n in ("connect_count", "sends", "bklog_u")
    )
    return connects, sends, backlog


def growth(before: Optional[int], after: Optional[int]) -> Optional[int]:
    """Return by how much a counter grew; None if it is unknown, 0 if it is smaller."""
    return None if before is None or after is None else max(0, after - before)


def activity_between(before: Statistics, after: Statistics) -> Activity:
    """Return the activity of the second sample, with the growth since the first.

    Of a mount or device that the first sample does not have, or whose counters became
    smaller (another one, or a counter that wrapped), nothing counts as growth.
    """
    mounts = {(m.mountpoint, m.source): m for m in before.mounts}
    waiting = _waiting(before.transports or (), after.transports or ())
    seconds = max(0.0, round(after.taken_s - before.taken_s, 2))
    connections = None
    if after.transports is not None:
        connections = tuple(
            ConnectionActivity(
                f"{one.switch}/{one.name}",
                one.destination,
                one.state,
                one.counters.get("max_num_slots"),
                _key(one) in waiting,
            )
            for one in after.transports
            if one.protocol == "rdma"
        )
    return Activity(
        seconds,
        tuple(
            _mount(mounts.get((one.mountpoint, one.source)), one, seconds)
            for one in after.mounts
            if any(transport.protocol == "rdma" for transport in one.transports)
        ),
        connections,
        tuple(_ports(after.ports, {(p.device, p.port): p for p in before.ports})),
    )


def _mount(
    earlier: Optional[MountStatistics],
    mount: MountStatistics,
    seconds: float,
) -> MountActivity:
    load = load_between(earlier, mount, seconds) or Load(seconds)
    all_of_it = Load(0.0, mount.operations, *_of_connections((), mount.transports))
    between = _between((earlier or mount).transports, mount.transports)
    return MountActivity(
        mountpoint=mount.mountpoint,
        operations=all_of_it.count,
        retransmissions=all_of_it.sent_again,
        reads=mount.requests(*READS),
        writes=mount.requests(*WRITES),
        server_read=mount.server_read,
        server_written=mount.server_written,
        copies=mount.requests("COPY"),
        cancelled_copies=mount.requests("OFFLOAD_CANCEL"),
        connects=all_of_it.connects,
        sends=all_of_it.sends,
        backlog=all_of_it.queued,
        connections=len(mount.transports),
        new_operations=load.count,
        new_retransmissions=load.sent_again,
        new_reads=load.requests(READS),
        new_writes=load.requests(WRITES),
        new_connects=load.connects,
        new_sends=load.sends,
        new_backlog=load.queued,
        still=between.count((0, 0)),
        unanswered=_unanswered(between),
        layout=mount.layout,
    )


def _key(one: SunrpcTransport) -> tuple[str, ...]:
    return one.switch, one.name, one.destination or ""


def _waiting(
    before: Iterable[SunrpcTransport], after: Iterable[SunrpcTransport]
) -> set[tuple[str, ...]]:
    """Return the connections over RDMA on which requests wait for a slot or to be sent
    in both samples, while none waits for a reply.

    What ends such a wait is a request that is done (net/sunrpc/xprt.c, xprt_release and
    xprt_write_space), and there is none. A connection that is being made has no queues
    in sysfs.
    """

    def stuck(of: Iterable[SunrpcTransport]) -> set[tuple[str, ...]]:
        return {
            _key(one)
            for one in of
            if one.protocol == "rdma"
            and one.connected
            and one.counters.get("pending_q_len") == 0
            and any(map(one.counters.get, ("sending_q_len", "backlog_q_len")))
        }

    return stuck(before) & stuck(after)


def _between(
    before: Sequence[Transport], after: Sequence[Transport]
) -> list[tuple[int, int]]:
    """Return how many requests each connection sent, and how many replies it got.

    Nothing if a connection was added or removed, because the kernel shows them in the
    same order only, or if it does not count them.
    """
    grown = []
    for old, new in zip(before, after):
        if not {"sends", "recvs"} <= old.counters.keys() & new.counters.keys():
            return []
        # Below 0 where the mount was made again: that is no connection that stands.
        sent, got = (new.counters[n] - old.counters[n] for n in ("sends", "recvs"))
        grown.append((sent, got))
    return grown if len(before) == len(after) else []


def _unanswered(grown: Sequence[tuple[int, int]]) -> int:
    """Count the connections that send in vain while another one gets replies.

    Their totals tell nothing: a request that is sent again counts as another one, and a
    killed one gets no reply, so sends are ahead of replies for ever (net/sunrpc/xprt.c,
    xprt_request_transmit and xprt_complete_rqst).
    """
    if not any(got > 0 for _, got in grown):
        return 0
    return sum(sent >= _MANY_SENT and got == 0 for sent, got in grown)


def _ports(
    ports: Iterable[PortCounters], before: dict[tuple[str, int], PortCounters]
) -> Iterator[PortActivity]:
    for port in ports:
        if port.port == 0:
            continue
        earlier = before.get((port.device, port.port), port)
        values = {
            name: value for name in ERRORS if (value := port.get(name)) is not None
        }
        yield PortActivity(
            port.device,
            port.port,
            read=bool(values),
            packets=port.packets,
            new_packets=growth(earlier.packets, port.packets) or 0,
            errors=tuple(
                PortError(name, value, growth(earlier.get(name), value) or 0)
                for name, value in values.items()
                if value
            ),
        )
