# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the results of a benchmark as data, and their JSON document; condense repeats
to rows.

The document has ``kind: benchmark``, the fields of :class:`Benchmark`, and ``verdict``,
which is made from them again when the file is read. Rates are in bytes or operations
per second, times in seconds unless the name says another unit. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from statistics import mean, median
from typing import Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.json_codec import (
    Envelope,
    Records,
    WrongRecord,
    plain,
    read_json,
)

DOCUMENT = Envelope("benchmark")

SEQUENTIAL_READ = "sequential-read"
SEQUENTIAL_WRITE = "sequential-write"
RANDOM_READ = "random-read"
RANDOM_WRITE = "random-write"
# The usual depth, which decides the verdict.
DEPTH = 32
# The transport of a mount whose data does not leave this host: LOCALIO.
LOCAL = "local"
# A number of a file is at most this, far above any rate or count.
_MOST_NUMBER = 1e15


def _check(cls: object, values: Mapping[str, object]) -> tuple[str, str]:
    for key, value in values.items():
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            least = int(key == "cpus")  # others are divided by it
            if not least <= value <= _MOST_NUMBER:
                return key, f"is {value}, not from {least} to {_MOST_NUMBER:.0e}"
    return "", ""


_RECORDS = Records("the benchmark", _check)


@dataclass(frozen=True)
class Load:
    """What fio does: ``name`` is one of the four above, ``block_bytes`` the size of a
    request, ``depth`` how many are under way at once.
    """

    name: str
    block_bytes: int
    depth: int

    def __str__(self) -> str:
        mib = self.block_bytes >= 1 << 20
        size = (
            f"{self.block_bytes >> 20} MiB" if mib else f"{self.block_bytes >> 10} KiB"
        )
        return f"{self.name} {size}, depth {self.depth}"


@dataclass(frozen=True)
class Setting:
    """How the export is mounted: ``transport`` is RDMA or TCP, ``nconnect`` the number
    of connections that are asked for.
    """

    transport: str
    version: str
    nconnect: int = 1

    def __str__(self) -> str:
        shown = f"NFS {self.version} over {self.transport.upper()}"
        return shown if self.nconnect == 1 else f"{shown}, nconnect={self.nconnect}"


@dataclass(frozen=True)
class Sample:
    """What the kernel counted while fio was running.

    seconds: between the two reads of the counters
    transport: as the connections show it: RDMA, TCP, or ``mixed``; LOCAL if more data
        was moved than its requests can carry; None if unknown
    connections: those that exist, which may be fewer than asked for
    cpu_s, cpus: busy seconds of all processors of the host together, without those of
        virtual machines, and how many processors
    busiest_cpu: the busy share of the busiest processor, 0 to 1, counted so too
    operations, transmissions: READ and WRITE requests; more transmissions are repeats
    rtt_ms, queue_ms: averages of these requests: until the reply, and before sending
    backlog: requests that wait for a slot, on average when a request was sent
    reconnects: connections that were made again
    path_errors, packets: of the RDMA port on the path: errors of link and path, and
        received packets; None if the port does not count
    tcp_resent: TCP segments that this host sent again, without those that were only
        late (DSACK); None if unknown
    tcp_out_of_order: TCP segments that came behind a gap, as after a loss; None if
        unknown
    """

    seconds: float
    transport: Optional[str] = None
    connections: int = 0
    cpu_s: float = 0.0
    cpus: int = 1
    busiest_cpu: float = 0.0
    operations: int = 0
    transmissions: int = 0
    rtt_ms: float = 0.0
    queue_ms: float = 0.0
    backlog: float = 0.0
    reconnects: int = 0
    path_errors: Optional[int] = None
    packets: Optional[int] = None
    tcp_resent: Optional[int] = None
    tcp_out_of_order: Optional[int] = None

    @property
    def busy_share(self) -> float:
        """The busy share of all processors together, 0 to 1."""
        return self.cpu_s / self.cpus / self.seconds if self.seconds else 0.0


@dataclass(frozen=True)
class Job:
    """One run of fio. ``repeat`` counts from 1; 999 of 1000 requests took ``p99_9_us``
    microseconds at most.
    """

    setting: Setting
    load: Load
    repeat: int
    bytes_per_s: float
    operations_per_s: float
    p99_9_us: float
    sample: Sample

    @property
    def cpu_s_per_gb(self) -> Optional[float]:
        """Busy processor seconds of the host for 10^9 bytes; None without bytes."""
        moved = self.bytes_per_s * self.sample.seconds
        return self.sample.cpu_s * 1e9 / moved if moved >= 1 else None


# In the lab the same load was up to 1.4 times as fast a minute later.
_WITHOUT_REPEATS = 1.5


@dataclass(frozen=True)
class Spread:
    """Values of ``repeats`` jobs: the median, the smallest and the largest."""

    middle: float
    least: float
    most: float
    repeats: int = 1

    @classmethod
    def of(cls, values: Sequence[float]) -> Spread:
        """Return the spread of at least one value."""
        return cls(median(values), min(values), max(values), len(values))

    @property
    def relative(self) -> float:
        """The distance of the extremes, in parts of the median."""
        return (self.most - self.least) / self.middle if self.middle else 0.0


def apart(one: Spread, other: Spread) -> bool:
    """Whether no repeat of one is among the repeats of the other.

    A single run has no spread: then a difference must be more than half.
    """
    if min(one.repeats, other.repeats) < 2:
        low, high = sorted((one.middle, other.middle))
        return high > _WITHOUT_REPEATS * low
    return one.least > other.most or other.least > one.most


@dataclass(frozen=True)
class Row:
    """All repeats of one load with one setting; rates are per second."""

    setting: Setting
    load: Load
    jobs: tuple[Job, ...]

    @cached_property
    def rate(self) -> Spread:
        """The bytes."""
        return Spread.of([job.bytes_per_s for job in self.jobs])

    @cached_property
    def operations(self) -> Spread:
        """The requests."""
        return Spread.of([job.operations_per_s for job in self.jobs])

    @cached_property
    def cpu(self) -> Optional[Spread]:
        """Busy seconds of the processors for 10^9 bytes; None if unknown."""
        costs = [job.cpu_s_per_gb for job in self.jobs]
        known = [cost for cost in costs if cost is not None]
        return Spread.of(known) if known else None

    @property
    def p99_9_us(self) -> float:
        """The median of the repeats, in microseconds."""
        return median(job.p99_9_us for job in self.jobs)

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The counters of each repeat."""
        return tuple(job.sample for job in self.jobs)

    @property
    def others(self) -> set[str]:
        """The transports that repeats went over, other than the one asked for."""
        shown = {one.transport for one in self.samples if one.transport}
        return shown - {self.setting.transport}

    def average(self, name: str) -> float:
        """Return the average of a counter over the repeats."""
        return float(mean(getattr(sample, name) for sample in self.samples))

    def total(self, name: str) -> int:
        """Return the sum of a counter over the repeats; unknown ones are 0."""
        return sum(getattr(sample, name) or 0 for sample in self.samples)

    @property
    def connections(self) -> int:
        """The fewest connections that a repeat had."""
        return min(sample.connections for sample in self.samples)


@dataclass(frozen=True)
class NetworkPath:
    """How this host reaches the server.

    netdev, netdev_mtu: of the route; bytes
    device, port: the RDMA port that owns the source address, as ``mlx5_0`` and 1
    link_layer, data_rate_mbps, active_mtu: of that port; bytes, Mb/s
    """

    address: str
    netdev: Optional[str] = None
    netdev_mtu: Optional[int] = None
    device: Optional[str] = None
    port: Optional[int] = None
    link_layer: Optional[str] = None
    data_rate_mbps: Optional[int] = None
    active_mtu: Optional[int] = None


@dataclass(frozen=True)
class Benchmark:
    """All results of one run.

    taken_at: as ``2026-11-21T02:51:34Z``
    export: ``server:/path``
    slots: requests under way for each RDMA connection (rdma_slot_table_entries)
    skipped: sentences about what was not measured, and why
    """

    taken_at: str
    hostname: str
    kernel: str
    export: str
    fio: str
    path: Optional[NetworkPath] = None
    slots: Optional[int] = None
    jobs: tuple[Job, ...] = ()
    skipped: tuple[str, ...] = ()

    @cached_property
    def rows(self) -> tuple[Row, ...]:
        """The repeats of each load with one setting, in the order of measuring."""
        found: dict[tuple[Setting, Load], list[Job]] = {}
        for job in self.jobs:
            found.setdefault((job.setting, job.load), []).append(job)
        return tuple(Row(*key, tuple(jobs)) for key, jobs in found.items())

    def row(
        self, setting: Optional[Setting], name: str, depth: int = DEPTH
    ) -> Optional[Row]:
        """Return the row of a load; or None."""
        wanted = (setting, name, depth)
        found = (
            row
            for row in self.rows
            if (row.setting, row.load.name, row.load.depth) == wanted
        )
        return next(found, None)


def as_document(benchmark: Benchmark, verdict: object) -> dict[str, object]:
    """Return the document, for JSON."""
    return DOCUMENT.around({**plain(benchmark), "verdict": plain(verdict)})


def load(path: Union[str, Path]) -> Benchmark:
    """Return the benchmark in a file that ``bench -o json`` printed. Raises Problem."""
    try:
        content = DOCUMENT.content(read_json(path))
        content.pop("verdict", None)
        return _RECORDS.read(Benchmark, content)
    except WrongRecord as error:
        raise Problem(
            "bench-file-unreadable",
            f"{path} is no result of bench: {error}",
            error.fix or "give a file that ovirt-rdma-host bench -o json printed",
        ) from None
