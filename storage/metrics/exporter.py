# SPDX-License-Identifier: GPL-2.0-or-later
"""Define every metric, read a host's metrics, and write them for the textfile collector
of node_exporter.

docs/metrics.md (tools/metrics_reference.py) and the tests of the alert rules and of the
dashboard use FAMILIES. Names and labels are stable: a metric is added, never renamed.
Times are in seconds, sizes in bytes, counters end in ``_total``
(prometheus.io/docs/practices/naming).

The sets of labels are bounded: at most MOST_MOUNTS mounts, MOST_TRANSPORTS transports
and MOST_PORTS ports, the operations of NAMED_OPERATIONS and the counters of
host/facts/statistics. What is left out is said in a sentence.

Only files are read, and no server is asked: nothing here waits for a mount.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Callable, NamedTuple, Optional, TypeVar, Union

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.daemon.versions import Versions, read_versions
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts import statistics
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.facts.statistics import (
    CONGESTION,
    ERRORS,
    MountStatistics,
    OperationStatistics,
    PortCounters,
    SunrpcTransport,
    of_kind,
)
from ovirt_rdma.host.paths import METRICS_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy import store
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import InForce
from ovirt_rdma.host.services.enablement import is_enabled
from ovirt_rdma.host.system.files import write_atomically
from ovirt_rdma.host.system.json_codec import Records, json_value, plain
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.health.state import STATES, HealthState, read_state
from ovirt_rdma.storage.mounts import (
    DEGRADED,
    NOT_COVERED,
    OK,
    UNNAMED,
    UNPROVEN,
    MountReview,
    review_all,
)
from ovirt_rdma.storage.paths.state import UP, ServerPaths, read_paths

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
PATHS = "/run/ovirt-rdma/paths.json"
OWN = "the exporter itself"
VERSIONS = "what `ovirt-rdma-host status` reads"
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
    ("path_", ("server", "paths", "address"), PATHS),
    ("paths_", ("server", "paths"), PATHS),
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
    "path_up": "1 if the path to the server is up, 0 if it is down or not proven.",
    "path_connections connections": "Connections that run over the path.",
    "paths_movable": "1 if all connections can be moved between these paths, else 0.",
    "paths_moves_total moves": "Moves of connections since the daemon began.",
    "paths_last_move_seconds": "How long the last move took. Absent without one, or "
    "if they are not connected again.",
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
    "transport_slots max_num_slots": "The most slots that it can have.",
    "transport_slots_reserved min_num_slots": "The slots that it always has.",
    "transport_requests num_reqs": "Slots that it has now.",
    "transport_backlog backlog_q_len": "Requests that wait for a slot now.",
    "transport_sending sending_q_len": "Requests that wait to be sent now.",
    "transport_pending pending_q_len": "Requests that wait for a reply now.",
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


Number = Union[int, float]
_T = TypeVar("_T")

MOST_MOUNTS = 200
MOST_TRANSPORTS = 400
MOST_PORTS = 128

_VERDICTS = (OK, DEGRADED, UNPROVEN, NOT_COVERED, UNNAMED)
NFS_3 = "3"
ACTIVE = "ACTIVE"


class Row(NamedTuple):
    """Values of one subject by the names of metrics in NAMED: ``labels`` are the values
    of the labels of all of them, in their order.
    """

    labels: tuple[str, ...]
    values: Mapping[str, Number]


def _limited(
    found: Sequence[_T], most: int, what: str, left_out: list[str]
) -> Sequence[_T]:
    if len(found) > most:
        left_out.append(
            f"this host has {len(found)} {what}, and the metrics have the first {most}"
        )
    return found[:most]


def _known(
    prefix: str, number_of: Callable[[str], Optional[Number]]
) -> dict[str, Number]:
    """Return the metrics whose names begin so, of numbers that are known by name."""
    found = {}
    for name, family in NAMED.items():
        if family.value and name.startswith(prefix):
            number = number_of(family.value)
            if number is not None:
                found[name] = family.of(number)
    return found


def _mount(mount: MountStatistics) -> Iterator[Row]:
    labels = (mount.source, mount.mountpoint)
    known = _known("mount_", mount._asdict().get)
    known["mount_connections"] = len(mount.transports)
    known["mount_connections_requested"] = mount.nconnect or 1
    yield Row(labels, known)
    for number, transport in enumerate(mount.transports):
        of_connection = (*labels, str(number), transport.protocol)
        yield Row(of_connection, _known("connection_", transport.counters.get))
    # The named operations also if they were not used yet, so that a first request is an
    # increase; and the sum of all others.
    used = {operation.name: operation for operation in mount.operations}
    for name in NAMED_OPERATIONS:
        if name != "OPEN" or mount.version != NFS_3:  # NFS 3 has no OPEN
            one = used.pop(name, None)
            yield _operation((*labels, name), [one] if one else [])
    yield _operation((*labels, OTHER), [*used.values()])


def _operation(labels: tuple[str, ...], counted: list[OperationStatistics]) -> Row:
    def total(name: str) -> int:
        return sum(getattr(operation, name) for operation in counted)

    return Row(labels, _known("operation_", total))


def _verdict(review: MountReview) -> Iterator[Row]:
    mount, rule = review.mount, review.match.rule if review.match else None
    labels = (mount.source, mount.mountpoint)
    about = (
        mount.version or "",
        mount.address or "",
        review.proof.transport or UNPROVEN,
        rule.transport if rule else "",
        rule.title if rule else "",
    )
    yield Row((*labels, *about), {"mount_info": 1})
    for verdict in _VERDICTS:
        is_it = int(verdict == review.verdict)
        yield Row((*labels, verdict.replace(" ", "_")), {"mount_verdict": is_it})
    if review.verdict == DEGRADED and review.since is not None:
        since = datetime.fromisoformat(review.since.replace("Z", "+00:00"))
        made_at = int(since.timestamp())
        yield Row(labels, {"mount_degraded_since_timestamp_seconds": made_at})


def _health(health: HealthState, shown: Collection[str]) -> Iterator[Row]:
    yield Row((), {"health_last_look_timestamp_seconds": health.taken_at})
    for mount in health.mounts:
        if mount.mountpoint not in shown:
            continue
        labels = (mount.export, mount.mountpoint)
        for state in STATES:
            yield Row((*labels, state), {"mount_health": int(state == mount.state)})
        if mount.cause is not None:
            yield Row((*labels, mount.cause), {"mount_health_cause": 1})
        yield Row(labels, _known("mount_health_", vars(mount).get))


def _paths(server: ServerPaths) -> Iterator[Row]:
    labels = (server.server, ",".join(path.address for path in server.paths))
    for path in server.paths:
        known = _known("path_", vars(path).get)
        yield Row((*labels, path.address), {"path_up": int(path.state == UP), **known})
    known = _known("paths_", vars(server).get)
    if server.last is not None and server.last.seconds is not None:
        known["paths_last_move_seconds"] = server.last.seconds
    yield Row(labels, {"paths_movable": int(not server.problem), **known})


def _transport(transport: SunrpcTransport) -> Row:
    labels = (
        transport.switch,
        transport.name,
        transport.protocol,
        transport.destination or "",
    )
    values = {"transport_connected": int(transport.connected)}
    known = _known("transport_", transport.counters.get)
    return Row(labels, {**values, **known})


def _port(port: PortCounters, state: str, was_active: bool) -> Iterator[Row]:
    labels = (port.device, str(port.port))
    values = _known("port_", port.get)
    if state:
        values["port_active"] = int(state == ACTIVE)
        values["port_was_active"] = int(was_active)
    yield Row(labels, values)
    for name, counters in (
        ("port_errors_total", ERRORS),
        ("port_congestion_total", of_kind(CONGESTION)),
    ):
        for counter in counters:
            value = port.get(counter)
            if value is not None:
                yield Row((*labels, counter), {name: value})


def _policy(policy: InForce) -> Iterator[Row]:
    if policy.stored is not None or policy.problem is not None:
        yield Row((), {"policy_usable": int(policy.problem is None)})
    if policy.stored is not None:
        loaded = datetime.fromisoformat(policy.stored.loaded_at).timestamp()
        yield Row((), {"policy_loaded_timestamp_seconds": loaded})
        yield Row((policy.stored.digest,), {"policy_info": 1})


def _versions(versions: Versions) -> Iterator[Row]:
    yield Row((versions.add_on or UNKNOWN, versions.kernel or UNKNOWN), {"info": 1})
    for unit, loaded in versions.services:
        if loaded is not None:
            yield Row((unit, loaded.version or UNKNOWN), {"loaded_info": 1})
            if loaded.restart_needed is not None:
                yield Row((unit,), {"restart_needed": int(loaded.restart_needed)})


_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render(rows: Iterable[Row]) -> str:
    """Return ``rows`` in Prometheus' text format 0.0.4: each metric once, with HELP and
    TYPE, in the order of FAMILIES. Metrics without a value are left out. The text is
    valid UTF-8.

    The format: prometheus.io/docs/instrumenting/exposition_formats. Tests give it to
    promtool and to node_exporter.
    """
    lines: dict[str, list[str]] = {}
    for row in rows:
        for name, value in row.values.items():
            family = NAMED[name]
            line = f"{family.name}{_labels(family.labels, row.labels)} {value!r}\n"
            lines.setdefault(family.name, []).append(line)
    return "".join(
        f"# HELP {family.name} {family.help}\n# TYPE {family.name} {family.kind}\n"
        + "".join(lines[family.name])
        for family in NAMED.values()
        if family.name in lines
    )


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    pairs = (f'{name}="{_escaped(value)}"' for name, value in zip(names, values))
    return f"{{{','.join(pairs)}}}" if names else ""


def _escaped(value: str) -> str:
    r"""Return the value of a label; a byte that is not UTF-8 is written as ``\xff``."""
    if not value.isascii():
        data = value.encode("utf-8", "surrogateescape")
        value = data.decode("utf-8", "backslashreplace")
    return value.translate(_ESCAPES)


EXPORT_S = 15.0
# The collector reads files that end in .prom (node_exporter, collector/textfile.go).
FILE = "ovirt_rdma.prom"
# Read by the user of node_exporter.
_FILE_MODE = 0o644
_DRAFT, _DRAFT_END = ".ovirt_rdma.", ".draft"
_DEVICES = "/sys/class/infiniband"


class Metrics(NamedTuple):
    """The metrics of one run; ``folder``: where the policy wants them, None: nowhere;
    ``problems`` says what could not be read, ``active`` are the ports that have been
    ACTIVE since the boot, as ``DEVICE/PORT``; ``before``: what the run before left.
    """

    rows: list[Row]
    folder: Optional[str]
    problems: list[str]
    active: list[str]
    before: _Last


def read_metrics(root: str = "/") -> Metrics:
    """Return the metrics of the host below ``root``. Asks no tool; never raises."""
    started = time.monotonic()
    tree = FileTree(root)
    statistics = read_statistics(tree, counters=PORT_COUNTERS)
    problems, left_out = [*statistics.problems], list[str]()
    in_force = store.in_force(under(root, POLICY_JSON))
    if in_force.problem is not None:
        problems.append(f"{in_force.problem.one_line}; {in_force.consequence}")
    policy = in_force.stored.policy if in_force.stored else Policy()
    facts = HostReader(root).mount_facts(cm_ids=False)
    problems += facts.problems
    # Whom a mount shares its connection with is no metric.
    reviews = review_all(facts, policy, sharing=False)
    health = read_state(root, problems)
    paths = read_paths(root, problems)
    versions = read_versions(root, problems, with_vdsm=False)
    took_s = time.monotonic() - started
    mounts = _limited(statistics.mounts, MOST_MOUNTS, "mounts", left_out)
    shown = {mount.mountpoint for mount in mounts}
    rows = [row for mount in mounts for row in _mount(mount)]
    for review in reviews:
        if review.mount.mountpoint in shown:
            rows += _verdict(review)
    rows += _health(health, shown) if health else []
    servers = paths.servers if paths else ()
    for server in _limited(servers, MOST_MOUNTS, "servers with paths", left_out):
        rows += _paths(server)
    found = statistics.transports or ()
    transports = _limited(found, MOST_TRANSPORTS, "transports", left_out)
    rows += map(_transport, transports)
    before = _last(tree)
    active = {*before.active}
    for port in _limited(statistics.ports, MOST_PORTS, "ports", left_out):
        place, state = f"{port.device}/{port.port}", _state(tree, port)
        active |= {place} if state == ACTIVE else set()
        rows += _port(port, state, place in active)
    rows += _policy(in_force)
    rows += _versions(versions)
    problems = list(dict.fromkeys(problems))
    own = {
        "exporter_last_run_timestamp_seconds": round(time.time(), 3),
        "exporter_run_seconds": round(took_s, 6),
        "exporter_problems": len(problems) + len(left_out),
        "exporter_mounts_left_out": len(statistics.mounts) - len(mounts),
    }
    rows.append(Row((), own))
    problems += left_out
    folder = policy.host.metrics_folder
    return Metrics(rows, folder, problems, sorted(active), before)


def _state(tree: FileTree, port: PortCounters) -> str:
    """Return ``ACTIVE`` for ``4: ACTIVE``; "" if there is no such port."""
    text = tree.text(f"{_DEVICES}/{port.device}/ports/{port.port}/state")
    return (text or "").rpartition(":")[2].strip()


def write_metrics(folder: str, text: str) -> None:
    """Write FILE in ``folder``, as a whole: node_exporter sees the old text or the new.

    Nothing is synced to disk: the next run writes it again. Raises Problem if the
    folder is missing or cannot be written to.
    """
    draft = f"{_DRAFT}{os.getpid()}{_DRAFT_END}"
    try:
        with _opened(folder) as place:
            _remove_left_over(place)
            descriptor = os.open(
                draft,
                os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW,
                0o600,
                dir_fd=place,
            )
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                    os.fchmod(descriptor, _FILE_MODE)
                    stream.write(text)
                os.replace(draft, FILE, src_dir_fd=place, dst_dir_fd=place)
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(draft, dir_fd=place)
                raise
    except FileNotFoundError as error:
        raise Problem(
            "metrics-folder-missing",
            f"{folder}, the folder for the metrics, does not exist",
            "install node_exporter, or name the folder that its option "
            "--collector.textfile.directory has",
        ) from error
    except OSError as error:
        raise Problem(
            "metrics-not-written",
            f"{folder}/{FILE} cannot be written: {error.strerror}",
            f"run this command as root, and check {folder}, which must be no link",
        ) from error


@contextlib.contextmanager
def _opened(folder: str) -> Iterator[int]:
    """Yield a descriptor of a folder. It may belong to node_exporter's user, and that
    above it too: no link is followed, and all is done in what was opened.
    """
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def _remove_left_over(place: int) -> None:
    """Remove drafts of runs that were killed."""
    for name in os.listdir(place):
        pid = name[len(_DRAFT) : -len(_DRAFT_END)]
        if name != f"{_DRAFT}{pid}{_DRAFT_END}" or not pid.isdecimal():
            continue
        if not os.path.lexists(f"/proc/{pid}"):
            os.unlink(name, dir_fd=place)


class Export(Task):
    """Writes the metrics of the host below ``root`` into the folder of its policy.

    If the policy has no folder, or another one now, the file that was written before is
    removed.
    """

    name = "metrics"
    # A device whose firmware hangs can delay the read of its counters.
    deadline_s = 30.0
    # node_exporter would show the file of the boot before.
    is_early = True
    off = "the policy has no metrics_folder"

    def __init__(self, root: str) -> None:
        self._root = root

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        return None if policy.host.metrics_folder is None else EXPORT_S

    def run(self, turn: Turn) -> Result:
        """Write the metrics. Raises Problem as :func:`write_metrics`."""
        return export(self._root)

    def end(self) -> None:
        """As :meth:`Task.end`: node_exporter would show the last values for ever."""
        tree = FileTree(self._root)
        folder = _last(tree).file
        if folder and not is_enabled(self._root):
            _remove(tree, folder)


def export(root: str) -> Result:
    """Write the metrics of the host below ``root`` into the folder of its policy, or
    remove the file that was written before. Raises Problem as :func:`write_metrics`.
    """
    tree, metrics = FileTree(root), read_metrics(root)
    folder, before = metrics.folder, metrics.before
    result = Result(Export.off)
    if folder is not None:
        write_metrics(tree.below(folder), render(metrics.rows))
        result = Result(f"{folder}/{FILE} is written", tuple(metrics.problems))
    if before.file and before.file != folder:
        _remove(tree, before.file)
    after = _Last(folder, tuple(metrics.active))
    if after != before:
        content = json.dumps(plain(after)).encode("ascii")
        with contextlib.suppress(OSError):
            write_atomically(under(root, METRICS_JSON), content, _FILE_MODE)
    return result


def _remove(tree: FileTree, folder: str) -> None:
    with contextlib.suppress(OSError), _opened(tree.below(folder)) as place:
        os.unlink(FILE, dir_fd=place)


@dataclass(frozen=True)
class _Last:
    """What the run before left: where its file is, and the ports that had been ACTIVE
    since the boot. /run is empty after a boot.
    """

    file: Optional[str] = None
    active: tuple[str, ...] = ()


def _last(tree: FileTree) -> _Last:
    with contextlib.suppress(ValueError):
        data = tree.data(METRICS_JSON)
        if data is not None:
            return Records("the last run").read(_Last, json_value(data))
    return _Last()
