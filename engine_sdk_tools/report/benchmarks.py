# SPDX-License-Identifier: GPL-2.0-or-later
"""Condense results of ``ovirt-rdma-host bench`` for the report. Pure.

A result is judged again by this version. It comes from a file, so every text in it may
be anything; :func:`ovirt_rdma.storage.benchmark.model.load` checked types and numbers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.storage.benchmark.limits import Limit
from ovirt_rdma.storage.benchmark.model import (
    Benchmark,
    LinkResult,
    Load,
    NetworkPath,
    Row,
    Rows,
    Setting,
    Spread,
)
from ovirt_rdma.storage.benchmark.verdict import Ratio, verdict

# Of one result. ``bench`` itself makes at most 6 loads for each of 32 mounts.
_MOST_ROWS, _MOST_LINKS, _MOST_SKIPPED = 192, 20, 20


@dataclass(frozen=True)
class Measured:
    """The repeats of one load over one mount.

    connections: that exist, which may be fewer than ``setting`` asked for
    bytes_per_s, operations_per_s: median, least and most of the repeats
    p99_9_us: the median of the repeats, in microseconds
    cpu_s_per_gb: busy seconds of the host's processors for 10^9 bytes; None: unknown
    """

    setting: Setting
    load: Load
    connections: int
    repeats: int
    bytes_per_s: Spread
    operations_per_s: Spread
    p99_9_us: float
    cpu_s_per_gb: Optional[Spread]


@dataclass(frozen=True)
class HostBenchmark:
    """A result, and its verdict.

    hostname: as the host itself said; ``host`` is the engine's name of the host with
        that name or address, and ``domain`` the domain with that export; None: none
    better: the transport ``rdma`` or ``tcp``, ``either`` or ``unknown``
    nfs_version: the verdict's, which ``ratios`` and ``options`` are about
    link_limit_mbps: what the port can carry as payload, in Mb/s; None if unknown
    """

    hostname: str
    host: Optional[str]
    domain: Optional[str]
    export: Optional[str]
    taken_at: str
    kernel: str
    path: Optional[NetworkPath]
    better: str
    sentence: str
    nfs_version: Optional[str]
    ratios: tuple[Ratio, ...]
    limits: tuple[Limit, ...]
    link_limit_mbps: Optional[float]
    options: str
    reasons: tuple[str, ...]
    link: tuple[LinkResult, ...]
    rows: tuple[Measured, ...]
    skipped: tuple[str, ...]


def benchmarks_of(
    results: Iterable[Benchmark],
    hosts: Sequence[tuple[str, str]],
    domains: Mapping[str, str],
) -> tuple[HostBenchmark, ...]:
    """Return the results, each once, by host and export, the newest of each first.

    ``hosts`` are the names and addresses of the engine's hosts, ``domains`` the names
    of its domains by export.
    """
    found = [_condensed(result, hosts, domains) for result in dict.fromkeys(results)]
    found.sort(key=lambda one: one.taken_at, reverse=True)
    found.sort(key=lambda one: (one.host or one.hostname, one.export or ""))
    return tuple(found)


def _condensed(
    result: Benchmark, hosts: Sequence[tuple[str, str]], domains: Mapping[str, str]
) -> HostBenchmark:
    judged = verdict(result)
    return HostBenchmark(
        result.hostname,
        _host_named(result.hostname, hosts),
        domains.get(result.export) if result.export else None,
        result.export,
        result.taken_at,
        result.kernel,
        result.path,
        judged.better,
        f"{judged.sentence[0].upper()}{judged.sentence[1:]}.",
        judged.version,
        judged.ratios,
        judged.limits,
        judged.link_limit_mbps,
        judged.options,
        judged.reasons,
        result.link[:_MOST_LINKS],
        tuple(map(_measured, Rows.of(result).rows[:_MOST_ROWS])),
        result.skipped[:_MOST_SKIPPED],
    )


def _host_named(hostname: str, hosts: Sequence[tuple[str, str]]) -> Optional[str]:
    """Return the name of the host that calls itself ``hostname``; None if none or
    several do. The engine may know it by another name, or without its domain.
    """
    for form in (_whole, _short):
        own = form(hostname)
        found = [host[0] for host in hosts if own in map(form, host)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _whole(name: str) -> str:
    return name.lower()


def _short(name: str) -> str:
    # An IP address has no domain to leave out.
    return name if name.replace(".", "").isdigit() else name.partition(".")[0].lower()


def _measured(row: Row) -> Measured:
    return Measured(
        row.setting,
        row.load,
        row.connections,
        len(row.jobs),
        row.rate,
        row.operations,
        row.p99_9_us,
        row.cpu,
    )
