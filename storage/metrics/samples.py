# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the metrics of one reading of a host. Pure.

The sets of labels are bounded: at most MOST_MOUNTS mounts, MOST_TRANSPORTS transports
and MOST_PORTS ports, the operations of NAMED_OPERATIONS and the counters of
host/facts/port_counters. What is left out is said in a sentence.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Optional, Union

from ovirt_rdma.host.facts.port_counters import CONGESTION, ERRORS, of_kind
from ovirt_rdma.host.facts.statistics import (
    MountStatistics,
    OperationStatistics,
    PortCounters,
    Statistics,
    SunrpcTransport,
)
from ovirt_rdma.storage.health.state import STATES, HealthState
from ovirt_rdma.storage.metrics import connections as c
from ovirt_rdma.storage.metrics import families as f
from ovirt_rdma.storage.metrics.family import Family
from ovirt_rdma.storage.metrics.standing import Standing

Number = Union[int, float]

MOST_MOUNTS = 200
MOST_TRANSPORTS = 400
MOST_PORTS = 128

VERDICTS = ("ok", "degraded", "unproven", "not_covered", "not_named")
NFS_3 = "3"
ACTIVE = "ACTIVE"


class Row(NamedTuple):
    """Values of one subject: ``labels`` are the values of the labels of all its
    metrics, in their order.
    """

    labels: tuple[str, ...]
    values: Sequence[tuple[Family, Number]]


@dataclass(frozen=True)
class Reading:
    """What was read of a host.

    statistics: what the kernel counts
    port_states: the words of the ports' states by device and port, as ``ACTIVE``
    were_active: ``DEVICE/PORT`` of the ports that have been ACTIVE since the boot
    standing: verdicts and policy
    health: None if nobody watches the mounts
    now: in seconds since 1970; took_s: how long the reading took
    problems: sentences about what could not be read, in all
    """

    statistics: Statistics
    port_states: Mapping[tuple[str, int], str]
    were_active: Collection[str]
    standing: Standing
    health: Optional[HealthState]
    now: float
    took_s: float
    problems: Sequence[str]


def rows_of(reading: Reading) -> tuple[list[Row], list[str]]:
    """Return the metrics of ``reading``, and sentences about what is left out."""
    left_out: list[str] = []
    statistics = reading.statistics
    mounts = _limited(statistics.mounts, MOST_MOUNTS, "mounts", left_out)
    shown = {mount.mountpoint for mount in mounts}
    rows: list[Row] = []
    for mount in mounts:
        rows += _mount(mount)
    for entry in reading.standing.mounts:
        if entry["mountpoint"] in shown:
            rows += _verdict(entry)
    rows += _health(reading.health, shown)
    transports = statistics.transports or ()
    for transport in _limited(transports, MOST_TRANSPORTS, "transports", left_out):
        rows.append(_transport(transport))
    for port in _limited(statistics.ports, MOST_PORTS, "ports", left_out):
        was_active = f"{port.device}/{port.port}" in reading.were_active
        state = reading.port_states.get((port.device, port.port))
        rows += _port(port, state, was_active)
    rows += _policy(reading.standing)
    own = [
        (f.LAST_RUN, round(reading.now, 3)),
        (f.RUN_TIME, round(reading.took_s, 6)),
        (f.PROBLEMS, len(reading.problems) + len(left_out)),
        (f.LEFT_OUT, len(statistics.mounts) - len(mounts)),
    ]
    rows.append(Row((), own))
    return rows, left_out


def _limited(
    found: Sequence[Any], most: int, what: str, left_out: list[str]
) -> Sequence[Any]:
    if len(found) <= most:
        return found
    left_out.append(
        f"this host has {len(found)} {what}, and the metrics have the first {most}"
    )
    return found[:most]


def _mount(mount: MountStatistics) -> Iterator[Row]:
    labels = (mount.source, mount.mountpoint)
    values: list[tuple[Family, Number]] = [
        (f.CONNECTIONS, len(mount.transports)),
        (f.CONNECTIONS_ASKED, mount.nconnect or 1),
    ]
    for family, number in (
        (f.MOUNT_AGE, mount.age_s),
        (f.READ_SIZE, mount.rsize),
        (f.WRITE_SIZE, mount.wsize),
    ):
        if number is not None:
            values.append((family, number))
    yield Row(labels, values)
    for number, transport in enumerate(mount.transports):
        counters = dict(transport.counters)
        yield Row(
            (*labels, str(number), transport.protocol),
            [
                (column.family, column.of(counters[column.value]))
                for column in c.COLUMNS
                if column.value in counters
            ],
        )
    yield from _operations(mount, labels)


def _operations(mount: MountStatistics, labels: tuple[str, ...]) -> Iterator[Row]:
    """Yield the named operations, also those that were not used yet, so that a first
    request is an increase; and the sum of all others.
    """
    used = {operation.name: operation for operation in mount.operations}
    for name in c.NAMED_OPERATIONS:
        if name != "OPEN" or mount.version != NFS_3:  # NFS 3 has no OPEN
            one = used.pop(name, None)
            yield _operation((*labels, name), [one] if one else [])
    yield _operation((*labels, c.OTHER), [*used.values()])


def _operation(labels: tuple[str, ...], counted: list[OperationStatistics]) -> Row:
    values: list[tuple[Family, Number]] = []
    for metric in c.OPERATIONS:
        numbers = [getattr(operation, metric.value) for operation in counted]
        if None not in numbers:  # old kernels count no errors
            values.append((metric.family, metric.of(sum(numbers))))
    return Row(labels, values)


def _verdict(entry: Mapping[str, Any]) -> Iterator[Row]:
    labels = (entry["export"], entry["mountpoint"])
    about = tuple(
        entry[key] or ""
        for key in ("version", "address", "transport", "wanted", "rule")
    )
    yield Row((*labels, *about), [(f.MOUNT_INFO, 1)])
    for verdict in VERDICTS:
        is_it = int(verdict == entry["verdict"])
        yield Row((*labels, verdict), [(f.MOUNT_VERDICT, is_it)])
    if entry["degraded_since"] is not None:
        yield Row(labels, [(f.DEGRADED_SINCE, entry["degraded_since"])])


def _health(health: Optional[HealthState], shown: Collection[str]) -> Iterator[Row]:
    if health is None:
        return
    yield Row((), [(f.HEALTH_TAKEN, health.taken_at)])
    for mount in health.mounts:
        if mount.mountpoint not in shown:
            continue
        labels = (mount.export, mount.mountpoint)
        for state in STATES:
            is_it = int(state == mount.state)
            yield Row((*labels, state), [(f.MOUNT_HEALTH, is_it)])
        if mount.cause is not None:
            yield Row((*labels, mount.cause), [(f.HEALTH_CAUSE, 1)])
        times = (f.HEALTH_SINCE, mount.since), (f.HEALTH_ANSWER, mount.answered_s)
        yield Row(labels, [(family, s) for family, s in times if s is not None])


def _transport(transport: SunrpcTransport) -> Row:
    values: list[tuple[Family, Number]] = [
        (c.TRANSPORT_CONNECTED, int(transport.connected))
    ]
    for metric in c.TRANSPORTS:
        number = getattr(transport, metric.value)
        if number is not None:
            values.append((metric.family, number))
    labels = (
        transport.switch,
        transport.name,
        transport.protocol,
        transport.destination or "",
    )
    return Row(labels, values)


def _port(port: PortCounters, state: Optional[str], was_active: bool) -> Iterator[Row]:
    labels = (port.device, str(port.port))
    counters = {
        counter.name: counter.value
        # Of a name in both folders, the one of hw_counters is the driver's own.
        for counter in (*port.counters, *port.hardware)
        if counter.value is not None
    }
    values: list[tuple[Family, Number]] = [
        (metric.family, metric.of(counters[metric.value]))
        for metric in f.PORT_TRAFFIC
        if metric.value in counters
    ]
    if state is not None:
        values.append((f.PORT_ACTIVE, int(state == ACTIVE)))
        values.append((f.PORT_WAS_ACTIVE, int(was_active)))
    yield Row(labels, values)
    for family, names in (
        (f.PORT_ERRORS, ERRORS),
        (f.PORT_CONGESTION, of_kind(CONGESTION)),
    ):
        for name in names:
            if name in counters:
                yield Row((*labels, name), [(family, counters[name])])


def _policy(standing: Standing) -> Iterator[Row]:
    if standing.usable is None:
        return
    values: list[tuple[Family, Number]] = [(f.POLICY_USABLE, int(standing.usable))]
    if standing.loaded_at is not None:
        values.append((f.POLICY_LOADED, standing.loaded_at))
    yield Row((), values)
    if standing.digest is not None:
        yield Row((standing.digest,), [(f.POLICY_INFO, 1)])
