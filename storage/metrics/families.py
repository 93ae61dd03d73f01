# SPDX-License-Identifier: GPL-2.0-or-later
"""Define every metric: its name, type, help, labels and source. Data only.

The exporter, docs/metrics.md (tools/metrics_reference.py) and the tests of the alert
rules and of the dashboard use FAMILIES. Names and labels are stable: a metric is added,
never renamed. Times are in seconds, sizes in bytes, counters end in ``_total``
(prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

from ovirt_rdma.storage.metrics.connections import (
    COLUMNS,
    OPERATIONS,
    TRANSPORT_CONNECTED,
    TRANSPORTS,
)
from ovirt_rdma.storage.metrics.family import (
    COUNTER,
    COUNTERS,
    GAUGE,
    HEALTH,
    HW_COUNTERS,
    MOUNT,
    MOUNTSTATS,
    OWN,
    PORT,
    REVIEW,
    Counted,
    Family,
)

TYPE_CHECKING = False  # importing typing would be a tenth of the run
if TYPE_CHECKING:
    from collections.abc import Mapping


def _mount(name: str, help: str, source: str, *labels: str) -> Family:
    return Family(f"mount_{name}", GAUGE, help, (*MOUNT, *labels), source)


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
MOUNT_AGE = _mount("age_seconds", "Time since the mount was made.", MOUNTSTATS)
READ_SIZE = _mount(
    "read_size_bytes", "The largest READ that was negotiated (rsize).", MOUNTSTATS
)
WRITE_SIZE = _mount(
    "write_size_bytes", "The largest WRITE that was negotiated (wsize).", MOUNTSTATS
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
)
HEALTH_ANSWER = _mount(
    "health_answer_seconds",
    "Time until the server answered the last probe. Absent without an answer.",
    HEALTH,
)
_OF_MOUNTS = (
    MOUNT_INFO,
    MOUNT_VERDICT,
    DEGRADED_SINCE,
    MOUNT_AGE,
    READ_SIZE,
    WRITE_SIZE,
    CONNECTIONS,
    CONNECTIONS_ASKED,
    MOUNT_HEALTH,
    HEALTH_CAUSE,
    HEALTH_SINCE,
    HEALTH_ANSWER,
)
HEALTH_TAKEN = Family(
    "health_last_look_timestamp_seconds",
    GAUGE,
    "When the health of the mounts was last looked at, in seconds since 1970.",
    (),
    HEALTH,
)


PORT_ACTIVE = Family(
    "port_active",
    GAUGE,
    "1 if the state of the RDMA port is ACTIVE.",
    PORT,
    COUNTERS.replace("counters", "state"),
)
# A port that waits for its link or subnet manager after the boot has not failed.
PORT_WAS_ACTIVE = Family(
    "port_was_active",
    GAUGE,
    "1 if the RDMA port has been ACTIVE in a run of the exporter since the boot.",
    PORT,
    OWN,
)


def _port(name: str, value: str, help: str, times: int = 1) -> Counted:
    family = Family(f"port_{name}_total", COUNTER, help, PORT, f"{COUNTERS}/{value}")
    return Counted(family, value, times)


# The kernel counts words of four octets (ABI/stable/sysfs-class-infiniband).
PORT_TRAFFIC = (
    _port("sent_bytes", "port_xmit_data", "Bytes sent by the port.", 4),
    _port("received_bytes", "port_rcv_data", "Bytes received by the port.", 4),
    _port("sent_packets", "port_xmit_packets", "Packets sent by the port."),
    _port("received_packets", "port_rcv_packets", "Packets received by the port."),
)
PORT_ERRORS = Family(
    "port_errors_total",
    COUNTER,
    "Errors of the RDMA port, by the kernel's name of the counter.",
    (*PORT, "counter"),
    f"{COUNTERS} and {HW_COUNTERS}",
)
PORT_CONGESTION = Family(
    "port_congestion_total",
    COUNTER,
    "Signs of congestion at the RDMA port, by the kernel's name of the counter.",
    (*PORT, "counter"),
    f"{COUNTERS} and {HW_COUNTERS}",
)
# The values of the label `counter`. The first of each are the ABI's
# (sysfs-class-infiniband), the others are of drivers/infiniband/hw/mlx5/counters.c and
# drivers/infiniband/sw/rxe/rxe_hw_counters.c.
ERRORS: Mapping[str, str] = {
    "symbol_error": "minor link errors: cable, transceiver",
    "link_error_recovery": "times the link recovered from an error",
    "link_downed": "times the link went down",
    "port_rcv_errors": "packets with an error that were received",
    "port_rcv_remote_physical_errors": "packets that the sender marked as bad",
    "local_link_integrity_errors": "times the local errors exceeded their limit",
    "excessive_buffer_overrun_errors": "input buffer overruns",
    "local_ack_timeout_err": "the peer did not acknowledge in time (mlx5)",
    "out_of_sequence": "packets that arrived out of order (mlx5)",
    "packet_seq_err": "the peer asked for packets again (mlx5)",
    "implied_nak_seq_err": "a read answered a later packet first (mlx5)",
    "rnr_nak_retry_err": "the peer was not ready to receive (mlx5)",
    "req_transport_retries_exceeded": "given up after all retries (mlx5)",
    "req_rnr_retries_exceeded": "given up, the peer was never ready (mlx5)",
    "roce_adp_retrans": "adaptive retransmissions (mlx5, RoCE)",
    "roce_adp_retrans_to": "adaptive retransmissions that timed out (mlx5, RoCE)",
    "rx_icrc_encapsulated": "packets with a wrong checksum (mlx5, RoCE)",
    "out_of_seq_request": "requests that arrived out of order (rxe)",
    "rcvd_seq_err": "the peer asked for packets again (rxe)",
    "completer_retry_err": "requests that were sent again (rxe)",
    "retry_exceeded_err": "given up after all retries (rxe)",
    "retry_rnr_exceeded_err": "given up, the peer was never ready (rxe)",
    "send_err": "packets that could not be sent (rxe)",
}
CONGESTION: Mapping[str, str] = {
    "port_xmit_discards": "packets dropped at sending: port down or congested",
    "port_xmit_wait": "ticks with data to send and no credits",
    "out_of_buffer": "packets dropped for lack of a receive buffer (mlx5)",
    "np_cnp_sent": "congestion notifications sent (mlx5, RoCE)",
    "np_ecn_marked_roce_packets": "packets that arrived with a congestion mark "
    "(mlx5, RoCE)",
    "rp_cnp_handled": "congestion notifications obeyed (mlx5, RoCE)",
    "rp_cnp_ignored": "congestion notifications ignored (mlx5, RoCE)",
}
# The counters of ports that metrics are made of: the firmware is asked for each.
PORT_COUNTERS = frozenset((*(one.value for one in PORT_TRAFFIC), *ERRORS, *CONGESTION))

POLICY_INFO = Family(
    "policy_info",
    GAUGE,
    "The policy in force. Always 1; absent if none is loaded.",
    ("digest",),
    "/var/lib/ovirt-rdma/policy.json",
)
POLICY_USABLE = Family(
    "policy_usable",
    GAUGE,
    "1 if the loaded policy can be used itself, 0 if it is damaged and its copy is in "
    "force, or none. Absent if none was loaded.",
    (),
    "/var/lib/ovirt-rdma/policy.json",
)
POLICY_LOADED = Family(
    "policy_loaded_timestamp_seconds",
    GAUGE,
    "When the policy was loaded, in seconds since 1970.",
    (),
    "/var/lib/ovirt-rdma/policy.json",
)
LAST_RUN = Family(
    "exporter_last_run_timestamp_seconds",
    GAUGE,
    "When these metrics were read, in seconds since 1970.",
    (),
    OWN,
)
RUN_TIME = Family(
    "exporter_run_seconds",
    GAUGE,
    "How long it took to read them, without the start of the program.",
    (),
    OWN,
)
PROBLEMS = Family(
    "exporter_problems",
    GAUGE,
    "Things that could not be read; the journal of the unit names them.",
    (),
    OWN,
)
LEFT_OUT = Family(
    "exporter_mounts_left_out",
    GAUGE,
    "Mounts without metrics, because the host has more than the exporter's limit.",
    (),
    OWN,
)

FAMILIES: tuple[Family, ...] = (
    *_OF_MOUNTS,
    HEALTH_TAKEN,
    *(one.family for one in OPERATIONS),
    *(one.family for one in COLUMNS),
    TRANSPORT_CONNECTED,
    *(one.family for one in TRANSPORTS),
    PORT_ACTIVE,
    PORT_WAS_ACTIVE,
    *(one.family for one in PORT_TRAFFIC),
    PORT_ERRORS,
    PORT_CONGESTION,
    POLICY_INFO,
    POLICY_USABLE,
    POLICY_LOADED,
    LAST_RUN,
    RUN_TIME,
    PROBLEMS,
    LEFT_OUT,
)
