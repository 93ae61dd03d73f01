# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the metrics of operations, connections and transports of sunrpc. Data only."""

from __future__ import annotations

from ovirt_rdma.storage.metrics.family import (
    CONNECTION,
    COUNTER,
    GAUGE,
    MOUNTSTATS,
    OPERATION,
    TRANSPORT,
    XPRT_INFO,
    Counted,
    Family,
)


def _operation(name: str, value: str, help: str, per: int = 1) -> Counted:
    family = Family(
        f"operation_{name}_total", COUNTER, help, OPERATION, f"{MOUNTSTATS}, per-op"
    )
    return Counted(family, value, per=per)


# Of each operation, from net/sunrpc/stats.c (rpc_count_iostats_metrics); the kernel
# counts milliseconds.
OPERATIONS = (
    _operation("requests", "operations", "Requests that were completed."),
    _operation(
        "transmissions",
        "transmissions",
        "Transmissions of requests. More than requests: they were sent again.",
    ),
    _operation(
        "major_timeouts", "timeouts", "Major timeouts of requests (timeo and retrans)."
    ),
    _operation("errors", "errors", "Requests that ended with an error (Linux 5.3)."),
    _operation("sent_bytes", "bytes_sent", "Bytes sent, with RPC headers."),
    _operation("received_bytes", "bytes_received", "Bytes received, with RPC headers."),
    _operation(
        "queue_seconds",
        "queue_ms",
        "Time that requests waited in this host before they were sent.",
        1000,
    ),
    _operation(
        "round_trip_seconds",
        "rtt_ms",
        "Time from the transmission of requests to their replies.",
        1000,
    ),
    _operation(
        "execution_seconds",
        "execute_ms",
        "Time that requests took in all, with waiting and sending again.",
        1000,
    ),
)
# The values of the label `operation`. Those of a disk image: all others are `other`.
NAMED_OPERATIONS = ("READ", "WRITE", "COMMIT", "GETATTR", "LOOKUP", "OPEN")
OTHER = "other"


def _connection(
    name: str, value: str, help: str, kind: str = COUNTER, source: str = ""
) -> Counted:
    family = Family(
        f"connection_{name}",
        kind,
        help,
        CONNECTION,
        f"{MOUNTSTATS}, xprt: `{value}`{source}",
    )
    return Counted(family, value)


_RDMA, _TCP = " (rdma)", " (tcp, udp, local)"
# Of each connection of a mount: net/sunrpc/xprtrdma/transport.c,
# xprt_rdma_print_stats(), and net/sunrpc/xprtsock.c, xs_tcp_print_stats().
COLUMNS = (
    _connection(
        "local_port",
        "port",
        "The local port; 0 for RDMA. Absent for local.",
        GAUGE,
    ),
    _connection("binds_total", "bind_count", "Requests to rpcbind for the port."),
    _connection("connects_total", "connect_count", "Connections that were made."),
    _connection("connect_seconds_total", "connect_time", "Time spent with connecting."),
    _connection(
        "idle_seconds", "idle_time", "Time since the last use while connected.", GAUGE
    ),
    _connection("sends_total", "sends", "RPC messages sent."),
    _connection("receives_total", "recvs", "RPC messages received."),
    _connection(
        "bad_transactions_total", "bad_xids", "Replies to a request that is unknown."
    ),
    _connection(
        "outstanding_requests_total",
        "req_u",
        "At each send, the sends so far less the replies so far, added up. A request "
        "that is sent again or killed stays in it for ever: for the mean of requests "
        "without reply, use the rate of round_trip_seconds_total.",
    ),
    _connection(
        "backlog_total",
        "bklog_u",
        "At each send, the requests that wait for a slot, added up; divided by sends: "
        "the mean length of the backlog.",
    ),
    _connection(
        "most_slots",
        "max_slots",
        "The most slots in use so far.",
        GAUGE,
        _TCP,
    ),
    _connection(
        "sending_total",
        "sending_u",
        "At each send, the requests that wait to be sent, added up.",
        COUNTER,
        _TCP,
    ),
    _connection(
        "pending_total",
        "pending_u",
        "At each send, the requests that wait for a reply, added up.",
        COUNTER,
        _TCP,
    ),
    *(
        _connection(name, value, help, COUNTER, _RDMA)
        for name, value, help in (
            ("read_chunks_total", "read_chunk_count", "Read chunks sent (WRITE)."),
            ("write_chunks_total", "write_chunk_count", "Write chunks sent (READ)."),
            ("reply_chunks_total", "reply_chunk_count", "Reply chunks sent."),
            (
                "rdma_request_bytes_total",
                "total_rdma_request",
                "Bytes of memory offered for replies (write and reply chunks); data of "
                "WRITE requests is not in it.",
            ),
            (
                "rdma_reply_bytes_total",
                "total_rdma_reply",
                "Bytes of replies that RDMA moved into that memory.",
            ),
            (
                "pullup_bytes_total",
                "pullup_copy_count",
                "Bytes of requests that were copied before they were sent.",
            ),
            (
                "fixup_bytes_total",
                "fixup_copy_count",
                "Bytes of replies that were copied after they were received.",
            ),
            (
                "buffer_bytes_total",
                "hardway_register_count",
                "Bytes of larger buffers that requests needed.",
            ),
            (
                "failed_marshals_total",
                "failed_marshal_count",
                "Requests that could not be put into an RDMA message.",
            ),
            (
                "bad_replies_total",
                "bad_reply_count",
                "Replies that were not valid.",
            ),
            (
                "nomsg_calls_total",
                "nomsg_call_count",
                "Requests too long to be sent inline (RDMA_NOMSG).",
            ),
            (
                "regions_recycled_total",
                "mrs_recycled",
                "Memory regions that were recycled after an error.",
            ),
            (
                "regions_orphaned_total",
                "mrs_orphaned",
                "Memory regions that were left over by a lost connection.",
            ),
            ("regions_allocated_total", "mrs_allocated", "Memory regions allocated."),
            (
                "local_invalidations_total",
                "local_inv_needed",
                "Replies for which this host itself had to invalidate memory regions.",
            ),
            (
                "empty_send_queue_total",
                "empty_sendctx_q",
                "Requests that waited because the send queue was full.",
            ),
            (
                "reply_waits_total",
                "reply_waits_for_send",
                "Replies that waited for their request's send; 0 since Linux 5.6.",
            ),
        )
    ),
)


def _transport(name: str, value: str, help: str) -> Counted:
    family = Family(f"transport_{name}", GAUGE, help, TRANSPORT, XPRT_INFO)
    return Counted(family, value)


TRANSPORT_CONNECTED = Family(
    "transport_connected",
    GAUGE,
    "1 if the transport is connected. An idle one disconnects after 5 minutes.",
    TRANSPORT,
    XPRT_INFO.replace("xprt_info", "xprt_state"),
)
# Of each transport of sunrpc, while it is connected: net/sunrpc/sysfs.c,
# rpc_sysfs_xprt_info_show().
TRANSPORTS = (
    _transport("slots", "slots_max", "The most slots that it can have."),
    _transport("slots_reserved", "slots_min", "The slots that it always has."),
    _transport("requests", "requests", "Slots that it has now."),
    _transport("backlog", "backlog", "Requests that wait for a slot now."),
    _transport("sending", "sending", "Requests that wait to be sent now."),
    _transport("pending", "pending", "Requests that wait for a reply now."),
)
