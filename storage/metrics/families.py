# SPDX-License-Identifier: GPL-2.0-or-later
"""Define every metric: its name, labels, help and source. Data only.

The exporter, docs/metrics.md (tools/metrics_reference.py) and the tests of the alert
rules and of the dashboard use FAMILIES. Names and labels are stable: a metric is added,
never renamed. Times are in seconds, sizes in bytes, counters end in ``_total``
(prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

from typing import NamedTuple, Union

from ovirt_rdma.host.facts import statistics

PREFIX = "ovirt_rdma_"

# Labels.
MOUNT = ("export", "mountpoint")
TRANSPORT = ("switch", "transport", "protocol", "destination")
PORT = ("device", "port")

# Sources.
MOUNTSTATS = "/proc/self/mountstats"
XPRT = "/sys/kernel/sunrpc/xprt-switches/switch-N/xprt-M"
OF_PORT = "/sys/class/infiniband/DEVICE/ports/N"
REVIEW = "the proof of the mount and the policy"
HEALTH = "/run/ovirt-rdma/health.json"
OWN = "the exporter itself"
VERSIONS = "what `ovirt-rdma-host version` reads"
POLICY = "/var/lib/ovirt-rdma/policy.json"

# The labels and the source of the metrics whose names begin so; the first one counts.
# In place of {}: the number that they are made of.
_GROUPS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    (
        "mount_info",
        (*MOUNT, "version", "address", "transport", "wanted", "rule"),
        REVIEW,
    ),
    ("mount_verdict", (*MOUNT, "verdict"), REVIEW),
    ("mount_degraded", MOUNT, REVIEW),
    ("mount_health_cause", (*MOUNT, "cause"), HEALTH),
    ("mount_health_", MOUNT, HEALTH),
    ("mount_health", (*MOUNT, "state"), HEALTH),
    ("mount_", MOUNT, MOUNTSTATS),
    ("health_", (), HEALTH),
    ("operation_", (*MOUNT, "operation"), f"{MOUNTSTATS}, per-op"),
    ("connection_", (*MOUNT, "connection", "protocol"), f"{MOUNTSTATS}, xprt: `{{}}`"),
    ("transport_connected", TRANSPORT, f"{XPRT}/xprt_state"),
    ("transport_", TRANSPORT, f"{XPRT}/xprt_info"),
    ("port_active", PORT, f"{OF_PORT}/state"),
    ("port_was_active", PORT, OWN),
    ("port_errors", (*PORT, "counter"), f"{OF_PORT}/counters and hw_counters"),
    ("port_congestion", (*PORT, "counter"), f"{OF_PORT}/counters and hw_counters"),
    ("port_", PORT, f"{OF_PORT}/counters/{{}}"),
    ("policy_info", ("digest",), POLICY),
    ("policy_", (), POLICY),
    ("info", ("version", "kernel"), VERSIONS),
    ("loaded_info", ("unit", "version"), VERSIONS),
    ("restart_needed", ("unit",), VERSIONS),
    ("exporter_", (), OWN),
)
# By the name of a metric, and of the number in host/facts/statistics or in the health
# that it is made of, if it is: its help.
_HELP = {
    "mount_info": "A mount: the transport that the kernel's signals prove (or "
    "unproven), the one that the policy wants (empty: no rule names it), the rule's "
    "title. Always 1.",
    "mount_verdict": "1 for the verdict on the mount, 0 for the others: ok, degraded "
    "(another transport than the policy says), unproven, not_covered (no NFS domain), "
    "not_named.",
    "mount_degraded_since_timestamp_seconds": "When a degraded mount was made, in "
    "seconds since 1970.",
    "mount_age_seconds age_s": "Time since the mount was made.",
    "mount_read_size_bytes rsize": "The largest READ that was negotiated (rsize).",
    "mount_write_size_bytes wsize": "The largest WRITE that was negotiated (wsize).",
    "mount_read_bytes_total server_read": "Bytes of files read, also by LOCALIO.",
    "mount_written_bytes_total server_written": "Bytes of files written, also by "
    "LOCALIO.",
    "mount_connections": "Connections that the mount has.",
    "mount_connections_requested": "Connections that its options ask for (nconnect; 1 "
    "without it).",
    "mount_health": "1 for the present health of the mount, 0 for the others: ok, "
    "slow, stalled, dead, unknown. Absent if nobody watches the mounts.",
    "mount_health_cause": "Why the mount is not ok: server, path, slots, fabric, host "
    "or unknown. Always 1, absent if it is ok.",
    "mount_health_since_timestamp_seconds since": "Since when its health is what it "
    "is, in seconds since 1970.",
    "mount_health_answer_seconds answered_s": "Time until the server answered the "
    "last probe. Absent without an answer.",
    "health_last_look_timestamp_seconds": "When the health of the mounts was last "
    "looked at, in seconds since 1970.",
    # net/sunrpc/stats.c, rpc_count_iostats_metrics().
    "operation_requests_total operations": "Requests that were completed.",
    "operation_transmissions_total transmissions": "Transmissions of requests. More "
    "than requests: they were sent again.",
    "operation_major_timeouts_total timeouts": "Major timeouts of requests (timeo and "
    "retrans).",
    "operation_errors_total errors": "Requests that ended with an error (Linux 5.3).",
    "operation_sent_bytes_total bytes_sent": "Bytes sent, with RPC headers.",
    "operation_received_bytes_total bytes_received": "Bytes received, with RPC "
    "headers.",
    "operation_queue_seconds_total queue_ms": "Time that requests waited in this host "
    "before they were sent.",
    "operation_round_trip_seconds_total rtt_ms": "Time from the transmission of "
    "requests to their replies.",
    "operation_execution_seconds_total execute_ms": "Time that requests took in all, "
    "with waiting and sending again.",
    # net/sunrpc/xprtrdma/transport.c, xprt_rdma_print_stats(), and
    # net/sunrpc/xprtsock.c, xs_tcp_print_stats().
    "connection_local_port port": "The local port; 0 for RDMA. Absent for local.",
    "connection_binds_total bind_count": "Requests to rpcbind for the port.",
    "connection_connects_total connect_count": "Connections that were made.",
    "connection_connect_seconds_total connect_time": "Time spent with connecting.",
    "connection_idle_seconds idle_time": "Time since the last use while connected.",
    "connection_sends_total sends": "RPC messages sent.",
    "connection_receives_total recvs": "RPC messages received.",
    "connection_bad_transactions_total bad_xids": "Replies to a request that is "
    "unknown.",
    "connection_outstanding_requests_total req_u": "At each send, the sends so far "
    "less the replies so far, added up. A request that is sent again or killed stays "
    "in it for ever: for the mean of requests without reply, use the rate of "
    "round_trip_seconds_total.",
    "connection_backlog_total bklog_u": "At each send, the requests that wait for a "
    "slot, added up; divided by sends: the mean length of the backlog.",
    "connection_most_slots max_slots": "The most slots in use so far.",
    "connection_sending_total sending_u": "At each send, the requests that wait to be "
    "sent, added up.",
    "connection_pending_total pending_u": "At each send, the requests that wait for a "
    "reply, added up.",
    "connection_read_chunks_total read_chunk_count": "Read chunks sent (WRITE).",
    "connection_write_chunks_total write_chunk_count": "Write chunks sent (READ).",
    "connection_reply_chunks_total reply_chunk_count": "Reply chunks sent.",
    "connection_rdma_request_bytes_total total_rdma_request": "Bytes of memory "
    "offered for replies (write and reply chunks); data of WRITE requests is not in "
    "it.",
    "connection_rdma_reply_bytes_total total_rdma_reply": "Bytes of replies that RDMA "
    "moved into that memory.",
    "connection_pullup_bytes_total pullup_copy_count": "Bytes of requests that were "
    "copied before they were sent.",
    "connection_fixup_bytes_total fixup_copy_count": "Bytes of replies that were "
    "copied after they were received.",
    "connection_buffer_bytes_total hardway_register_count": "Bytes of larger buffers "
    "that requests needed.",
    "connection_failed_marshals_total failed_marshal_count": "Requests that could not "
    "be put into an RDMA message.",
    "connection_bad_replies_total bad_reply_count": "Replies that were not valid.",
    "connection_nomsg_calls_total nomsg_call_count": "Requests too long to be sent "
    "inline (RDMA_NOMSG).",
    "connection_regions_recycled_total mrs_recycled": "Memory regions that were "
    "recycled after an error.",
    "connection_regions_orphaned_total mrs_orphaned": "Memory regions that were left "
    "over by a lost connection.",
    "connection_regions_allocated_total mrs_allocated": "Memory regions allocated.",
    "connection_local_invalidations_total local_inv_needed": "Replies for which this "
    "host itself had to invalidate memory regions.",
    "connection_empty_send_queue_total empty_sendctx_q": "Requests that waited "
    "because the send queue was full.",
    "connection_reply_waits_total reply_waits_for_send": "Replies that waited for "
    "their request's send; 0 since Linux 5.6.",
    # net/sunrpc/sysfs.c, rpc_sysfs_xprt_info_show(), while it is connected.
    "transport_connected": "1 if the transport is connected. An idle one disconnects "
    "after 5 minutes.",
    "transport_slots slots_max": "The most slots that it can have.",
    "transport_slots_reserved slots_min": "The slots that it always has.",
    "transport_requests requests": "Slots that it has now.",
    "transport_backlog backlog": "Requests that wait for a slot now.",
    "transport_sending sending": "Requests that wait to be sent now.",
    "transport_pending pending": "Requests that wait for a reply now.",
    "port_active": "1 if the state of the RDMA port is ACTIVE.",
    "port_was_active": "1 if the RDMA port has been ACTIVE in a run of the exporter "
    "since the boot.",
    "port_sent_bytes_total port_xmit_data": "Bytes sent by the port.",
    "port_received_bytes_total port_rcv_data": "Bytes received by the port.",
    "port_sent_packets_total port_xmit_packets": "Packets sent by the port.",
    "port_received_packets_total port_rcv_packets": "Packets received by the port.",
    "port_errors_total": "Errors of the RDMA port, by the kernel's name of the "
    "counter.",
    "port_congestion_total": "Signs of congestion at the RDMA port, by the kernel's "
    "name of the counter.",
    "policy_info": "The policy in force. Always 1; absent if none is loaded.",
    "policy_usable": "1 if the loaded policy can be used itself, 0 if it is damaged "
    "and its copy is in force, or none. Absent if none was loaded.",
    "policy_loaded_timestamp_seconds": "When the policy was loaded, in seconds since "
    "1970.",
    "info": "The installed add-on and the running kernel; `unknown` for what cannot "
    "be read. Always 1.",
    "loaded_info": "The version of the add-on that a running service has loaded: "
    "vdsmd.service (stock vdsmd: `stock`), ovirt-rdmad.service; or `unknown`. Always "
    "1.",
    "restart_needed": "1 if a start of the service now would load another version, or "
    "start another vdsmd; else 0. Absent if it is not running, or if that is unknown.",
    "exporter_last_run_timestamp_seconds": "When these metrics were read, in seconds "
    "since 1970.",
    "exporter_run_seconds": "How long it took to read them, without the start of the "
    "program.",
    "exporter_problems": "Things that could not be read; the journal of the unit "
    "names them.",
    "exporter_mounts_left_out": "Mounts without metrics, because the host has more "
    "than the exporter's limit.",
}
# The values of the label `operation`. Those of a disk image: all others are `other`.
NAMED_OPERATIONS = ("READ", "WRITE", "COMMIT", "GETATTR", "LOOKUP", "OPEN")
OTHER = "other"
# The kernel counts words of four octets (ABI/stable/sysfs-class-infiniband).
_WORDS = ("port_xmit_data", "port_rcv_data")


class Family(NamedTuple):
    """One metric: ``name`` begins with PREFIX, ``labels`` are the names of its labels,
    ``source`` says where its values come from.

    value: the name of the number that it is made of; "" if it is made otherwise
    """

    name: str
    help: str
    labels: tuple[str, ...]
    source: str
    value: str = ""

    @property
    def kind(self) -> str:
        """Its type."""
        return "counter" if self.name.endswith("_total") else "gauge"

    def of(self, number: Union[int, float]) -> Union[int, float]:
        """Return the value of the metric for ``number``."""
        if self.value.endswith("_ms"):
            return number / 1000
        return number * 4 if self.value in _WORDS else number


def _family(key: str, help: str) -> Family:
    name, _, value = key.partition(" ")
    labels, source = next(g[1:] for g in _GROUPS if name.startswith(g[0]))
    source = source.format(value)
    if name.startswith("connection_"):
        if value not in statistics.COLUMNS["tcp"]:
            source += " (rdma)"
        elif value not in statistics.COLUMNS["rdma"]:
            source += " (tcp, udp, local)"
    return Family(PREFIX + name, help, labels, source, value)


FAMILIES = tuple(_family(key, help) for key, help in _HELP.items())
NAMED = {family.name[len(PREFIX) :]: family for family in FAMILIES}
# The counters of ports that metrics are made of: the firmware is asked for each.
PORT_COUNTERS = frozenset(
    (
        *(one.value for name, one in NAMED.items() if name.startswith("port_")),
        *statistics.COUNTERS,
    )
) - {""}
