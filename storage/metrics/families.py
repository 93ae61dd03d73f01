# SPDX-License-Identifier: GPL-2.0-or-later
"""Define every metric: its name, type, help, labels and source. Data only.

The exporter, docs/metrics.md (tools/metrics_reference.py) and the tests of the alert
rules and of the dashboard use FAMILIES. Names and labels are stable: a metric is added,
never renamed. Times are in seconds, sizes in bytes, counters end in ``_total``
(prometheus.io/docs/practices/naming).
"""

from __future__ import annotations

from ovirt_rdma.host.facts import port_counters
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
# The counters of ports that metrics are made of: the firmware is asked for each.
PORT_COUNTERS = frozenset(
    (*(one.value for one in PORT_TRAFFIC), *port_counters.COUNTERS)
)

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
