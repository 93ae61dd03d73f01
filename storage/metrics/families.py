# SPDX-License-Identifier: GPL-2.0-or-later
"""Define every metric: its name, type, help, labels and source. Data only.

The exporter, docs/metrics.md (tools/metrics_reference.py) and the tests of the alert
rules and of the dashboard use FAMILIES. Names and labels are stable: a metric is added,
never renamed. Times are in seconds, sizes in bytes, counters end in ``_total``
(prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

from typing import NamedTuple, Union

from ovirt_rdma.host.facts import statistics

PREFIX = "ovirt_rdma_"
GAUGE, COUNTER = "gauge", "counter"

# Labels.
MOUNT = ("export", "mountpoint")
CONNECTION = (*MOUNT, "connection", "protocol")
OPERATION = (*MOUNT, "operation")
TRANSPORT = ("switch", "transport", "protocol", "destination")
PORT = ("device", "port")

MOUNTSTATS = "/proc/self/mountstats"
XPRT_INFO = "/sys/kernel/sunrpc/xprt-switches/switch-N/xprt-M/xprt_info"
COUNTERS = "/sys/class/infiniband/DEVICE/ports/N/counters"
REVIEW = "the proof of the mount and the policy"
HEALTH = "/run/ovirt-rdma/health.json"
OWN = "the exporter itself"
VERSIONS = "what `ovirt-rdma-host version` reads"
POLICY = "/var/lib/ovirt-rdma/policy.json"


class Family(NamedTuple):
    """One metric: ``name`` begins with PREFIX, ``kind`` is GAUGE or COUNTER, ``labels``
    are the names of its labels, ``source`` says where its values come from.

    value: the name of a number in host/facts/statistics or the health that it is made
    of, multiplied by ``times``, divided by ``per``; "" if it is made otherwise
    """

    name: str
    kind: str
    help: str
    labels: tuple[str, ...]
    source: str
    value: str = ""
    times: int = 1
    per: int = 1

    def of(self, number: Union[int, float]) -> Union[int, float]:
        """Return the value of the metric for ``number``."""
        number *= self.times
        return number if self.per == 1 else number / self.per


def _family(  # noqa: PLR0917
    name: str,
    kind: str,
    help: str,
    labels: tuple[str, ...],
    source: str,
    value: str = "",
    times: int = 1,
    per: int = 1,
) -> Family:
    return Family(PREFIX + name, kind, help, labels, source, value, times, per)


def _mount(name: str, help: str, source: str, *labels: str, value: str = "") -> Family:
    labels = (*MOUNT, *labels)
    return _family(f"mount_{name}", GAUGE, help, labels, source, value)


# One for each NFS mount.
MOUNT_INFO = _mount(
    "info",
    "A mount: the transport that the kernel's signals prove (or unproven), the one "
    "that the policy wants (empty: no rule names it), the rule's title. Always 1.",
    REVIEW,
    "version",
    "address",
    "transport",
    "wanted",
    "rule",
)
MOUNT_VERDICT = _mount(
    "verdict",
    "1 for the verdict on the mount, 0 for the others: ok, degraded (another transport "
    "than the policy says), unproven, not_covered (no NFS domain), not_named.",
    REVIEW,
    "verdict",
)
DEGRADED_SINCE = _mount(
    "degraded_since_timestamp_seconds",
    "When a degraded mount was made, in seconds since 1970.",
    REVIEW,
)


def _moved(name: str, value: str, help: str) -> Family:
    return _family(f"mount_{name}_total", COUNTER, help, MOUNT, MOUNTSTATS, value)


# Each is a number of MountStatistics or its MountBytes.
MOUNT_NUMBERS = (
    _mount("age_seconds", "Time since the mount was made.", MOUNTSTATS, value="age_s"),
    _mount(
        "read_size_bytes",
        "The largest READ that was negotiated (rsize).",
        MOUNTSTATS,
        value="rsize",
    ),
    _mount(
        "write_size_bytes",
        "The largest WRITE that was negotiated (wsize).",
        MOUNTSTATS,
        value="wsize",
    ),
    _moved("read_bytes", "server_read", "Bytes of files read, also by LOCALIO."),
    _moved(
        "written_bytes",
        "server_written",
        "Bytes of files written, also by LOCALIO.",
    ),
)
CONNECTIONS = _mount("connections", "Connections that the mount has.", MOUNTSTATS)
CONNECTIONS_ASKED = _mount(
    "connections_requested",
    "Connections that its options ask for (nconnect; 1 without it).",
    MOUNTSTATS,
)
MOUNT_HEALTH = _mount(
    "health",
    "1 for the present health of the mount, 0 for the others: ok, slow, stalled, dead, "
    "unknown. Absent if nobody watches the mounts.",
    HEALTH,
    "state",
)
HEALTH_CAUSE = _mount(
    "health_cause",
    "Why the mount is not ok: server, path, slots, fabric, host or unknown. Always 1, "
    "absent if it is ok.",
    HEALTH,
    "cause",
)
HEALTH_SINCE = _mount(
    "health_since_timestamp_seconds",
    "Since when its health is what it is, in seconds since 1970.",
    HEALTH,
    value="since",
)
HEALTH_ANSWER = _mount(
    "health_answer_seconds",
    "Time until the server answered the last probe. Absent without an answer.",
    HEALTH,
    value="answered_s",
)
HEALTH_TAKEN = _family(
    "health_last_look_timestamp_seconds",
    GAUGE,
    "When the health of the mounts was last looked at, in seconds since 1970.",
    (),
    HEALTH,
)


def _operation(name: str, value: str, help: str, per: int = 1) -> Family:
    name, source = f"operation_{name}_total", f"{MOUNTSTATS}, per-op"
    return _family(name, COUNTER, help, OPERATION, source, value, per=per)


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
) -> Family:
    source = f"{MOUNTSTATS}, xprt: `{value}`{source}"
    return _family(f"connection_{name}", kind, help, CONNECTION, source, value)


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


def _transport(name: str, value: str, help: str) -> Family:
    return _family(f"transport_{name}", GAUGE, help, TRANSPORT, XPRT_INFO, value)


TRANSPORT_CONNECTED = _family(
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

PORT_ACTIVE = _family(
    "port_active",
    GAUGE,
    "1 if the state of the RDMA port is ACTIVE.",
    PORT,
    COUNTERS.replace("counters", "state"),
)
# A port that waits for its link or subnet manager after the boot has not failed.
PORT_WAS_ACTIVE = _family(
    "port_was_active",
    GAUGE,
    "1 if the RDMA port has been ACTIVE in a run of the exporter since the boot.",
    PORT,
    OWN,
)


def _port(name: str, value: str, help: str, times: int = 1) -> Family:
    source = f"{COUNTERS}/{value}"
    return _family(f"port_{name}_total", COUNTER, help, PORT, source, value, times)


# The kernel counts words of four octets (ABI/stable/sysfs-class-infiniband).
PORT_TRAFFIC = (
    _port("sent_bytes", "port_xmit_data", "Bytes sent by the port.", 4),
    _port("received_bytes", "port_rcv_data", "Bytes received by the port.", 4),
    _port("sent_packets", "port_xmit_packets", "Packets sent by the port."),
    _port("received_packets", "port_rcv_packets", "Packets received by the port."),
)
PORT_ERRORS = _family(
    "port_errors_total",
    COUNTER,
    "Errors of the RDMA port, by the kernel's name of the counter.",
    (*PORT, "counter"),
    f"{COUNTERS} and hw_counters",
)
PORT_CONGESTION = _family(
    "port_congestion_total",
    COUNTER,
    "Signs of congestion at the RDMA port, by the kernel's name of the counter.",
    (*PORT, "counter"),
    f"{COUNTERS} and hw_counters",
)
# The counters of ports that metrics are made of: the firmware is asked for each.
PORT_COUNTERS = frozenset((*(one.value for one in PORT_TRAFFIC), *statistics.COUNTERS))

POLICY_INFO = _family(
    "policy_info",
    GAUGE,
    "The policy in force. Always 1; absent if none is loaded.",
    ("digest",),
    POLICY,
)
POLICY_USABLE = _family(
    "policy_usable",
    GAUGE,
    "1 if the loaded policy can be used itself, 0 if it is damaged and its copy is in "
    "force, or none. Absent if none was loaded.",
    (),
    POLICY,
)
POLICY_LOADED = _family(
    "policy_loaded_timestamp_seconds",
    GAUGE,
    "When the policy was loaded, in seconds since 1970.",
    (),
    POLICY,
)
INFO = _family(
    "info",
    GAUGE,
    "The installed add-on and the running kernel; `unknown` for what cannot be read. "
    "Always 1.",
    ("version", "kernel"),
    VERSIONS,
)
LOADED_INFO = _family(
    "loaded_info",
    GAUGE,
    "The version of the add-on that a running service has loaded: vdsmd.service (stock "
    "vdsmd: `stock`), ovirt-rdmad.service; or `unknown`. Always 1.",
    ("unit", "version"),
    VERSIONS,
)
RESTART_NEEDED = _family(
    "restart_needed",
    GAUGE,
    "1 if a start of the service now would load another version, or start another "
    "vdsmd; else 0. Absent if it is not running, or if that is unknown.",
    ("unit",),
    VERSIONS,
)
LAST_RUN = _family(
    "exporter_last_run_timestamp_seconds",
    GAUGE,
    "When these metrics were read, in seconds since 1970.",
    (),
    OWN,
)
RUN_TIME = _family(
    "exporter_run_seconds",
    GAUGE,
    "How long it took to read them, without the start of the program.",
    (),
    OWN,
)
PROBLEMS = _family(
    "exporter_problems",
    GAUGE,
    "Things that could not be read; the journal of the unit names them.",
    (),
    OWN,
)
LEFT_OUT = _family(
    "exporter_mounts_left_out",
    GAUGE,
    "Mounts without metrics, because the host has more than the exporter's limit.",
    (),
    OWN,
)

FAMILIES: tuple[Family, ...] = (
    MOUNT_INFO,
    MOUNT_VERDICT,
    DEGRADED_SINCE,
    *MOUNT_NUMBERS,
    CONNECTIONS,
    CONNECTIONS_ASKED,
    MOUNT_HEALTH,
    HEALTH_CAUSE,
    HEALTH_SINCE,
    HEALTH_ANSWER,
    HEALTH_TAKEN,
    *OPERATIONS,
    *COLUMNS,
    TRANSPORT_CONNECTED,
    *TRANSPORTS,
    PORT_ACTIVE,
    PORT_WAS_ACTIVE,
    *PORT_TRAFFIC,
    PORT_ERRORS,
    PORT_CONGESTION,
    POLICY_INFO,
    POLICY_USABLE,
    POLICY_LOADED,
    INFO,
    LOADED_INFO,
    RESTART_NEEDED,
    LAST_RUN,
    RUN_TIME,
    PROBLEMS,
    LEFT_OUT,
)
