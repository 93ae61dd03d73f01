# SPDX-License-Identifier: GPL-2.0-or-later
"""Condense the repeats of a benchmark to rows, and compare two benchmarks. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from statistics import mean, median
from typing import Callable, Optional

from ovirt_rdma.storage.benchmark.model import (
    Benchmark,
    Job,
    Load,
    Sample,
    Setting,
    Spread,
    spread,
)


@dataclass(frozen=True)
class Row:
    """All repeats of one load with one setting.

    rate, operations: per second; cpu: busy seconds for 10^9 bytes, None if unknown
    p99_9_us: the median of the repeats, in microseconds
    """

    setting: Setting
    load: Load
    jobs: tuple[Job, ...]
    rate: Spread
    operations: Spread
    cpu: Optional[Spread]
    p99_9_us: float

    @property
    def samples(self) -> tuple[Sample, ...]:
        """The counters of each repeat."""
        return tuple(job.sample for job in self.jobs)

    @property
    def is_astray(self) -> bool:
        """Whether a repeat went over another transport than it was asked for."""
        shown = {sample.transport for sample in self.samples}
        return not shown <= {None, self.setting.transport}

    def average(self, value: Callable[[Sample], float]) -> float:
        """Return the average of a counter over the repeats."""
        return mean(value(sample) for sample in self.samples)

    @property
    def connections(self) -> int:
        """The fewest connections that a repeat had."""
        return min(sample.connections for sample in self.samples)


@dataclass(frozen=True)
class Rows:
    """The rows of a benchmark, in the order of measuring."""

    rows: tuple[Row, ...]

    @classmethod
    def of(cls, benchmark: Benchmark) -> Rows:
        """Return the rows of ``benchmark``."""
        found: dict[tuple[Setting, Load], list[Job]] = {}
        for job in benchmark.jobs:
            found.setdefault((job.setting, job.load), []).append(job)
        return cls(tuple(_row(*key, jobs) for key, jobs in found.items()))

    def one(
        self, setting: Optional[Setting], name: str, depth: Optional[int] = None
    ) -> Optional[Row]:
        """Return the row of a load, of ``depth`` or of the smallest one; or None."""
        rows = [
            row
            for row in self.rows
            if row.setting == setting
            and row.load.name == name
            and depth in (None, row.load.depth)
        ]
        return min(rows, key=lambda row: row.load.depth, default=None)

    def deepest(self, setting: Setting, name: str) -> Optional[Row]:
        """Return the row of a load with the most requests under way; or None."""
        rows = [r for r in self.rows if (r.setting, r.load.name) == (setting, name)]
        return max(rows, key=lambda row: row.load.depth, default=None)

    def as_asked(self) -> Rows:
        """Return those without another transport than they were asked for."""
        return Rows(tuple(row for row in self.rows if not row.is_astray))

    @property
    def settings(self) -> tuple[Setting, ...]:
        """All settings that were measured."""
        return tuple(dict.fromkeys(row.setting for row in self.rows))


def _row(setting: Setting, load: Load, jobs: list[Job]) -> Row:
    rate = spread(job.bytes_per_s for job in jobs)
    operations = spread(job.operations_per_s for job in jobs)
    if rate is None or operations is None:
        raise ValueError("a row has at least one job")
    return Row(
        setting,
        load,
        tuple(jobs),
        rate,
        operations,
        spread(cost for job in jobs if (cost := job.cpu_s_per_gb) is not None),
        median(job.latency.p99_9_us for job in jobs),
    )


# In the lab the same load was up to 1.4 times as fast a minute later.
_WITHOUT_REPEATS = 1.5


def apart(one: Spread, other: Spread) -> bool:
    """Whether no repeat of one is among the repeats of the other.

    A single run has no spread: then a difference must be more than half.
    """
    if min(one.repeats, other.repeats) < 2:
        low, high = sorted((one.middle, other.middle))
        return high > _WITHOUT_REPEATS * low
    return one.least > other.most or other.least > one.most


@dataclass(frozen=True)
class Change:
    """A load that was measured before and now: bytes per second, and their ratio.

    ratio: the median now, in parts of that before
    certain: whether it is more than the spread of the repeats
    """

    setting: Setting
    load: Load
    before: Spread
    now: Spread
    ratio: float
    certain: bool


def changes(old: Benchmark, new: Benchmark) -> Iterator[Change]:
    """Yield the loads that both benchmarks have, in the order of the new one."""
    earlier = {(row.setting, row.load): row for row in Rows.of(old).rows}
    for row in Rows.of(new).rows:
        before = earlier.get((row.setting, row.load))
        if before:
            then, now = before.rate, row.rate
            ratio = round(now.middle / then.middle, 3) if then.middle else 0.0
            yield Change(row.setting, row.load, then, now, ratio, apart(then, now))


@dataclass(frozen=True)
class Comparison:
    """How a benchmark differs from that of ``taken_at``; ``differences`` say what makes
    the two hard to compare.
    """

    taken_at: str
    differences: tuple[str, ...]
    changes: tuple[Change, ...]


def compared(old: Benchmark, new: Benchmark) -> Comparison:
    """Compare two benchmarks."""
    found = tuple(differences(old, new))
    return Comparison(old.taken_at, found, tuple(changes(old, new)))


def differences(old: Benchmark, new: Benchmark) -> Iterator[str]:
    """Yield what makes two benchmarks hard to compare, a sentence each."""
    for what, before, now in (
        ("host", old.hostname, new.hostname),
        ("export", old.export, new.export),
        ("kernel", old.kernel, new.kernel),
        ("fio", old.fio, new.fio),
        ("network path", old.path, new.path),
        ("number of RDMA slots", old.slots, new.slots),
    ):
        if before != now:
            shown = what == "network path"
            detail = "" if shown else f": {before} before, {now} now"
            yield f"the {what} is another one{detail}"
