# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what a benchmark means: RDMA or TCP, the limit that was met, mount options. Pure.

TCP may be the better choice: a host whose processors are busy with Soft-RoCE, or an
array that answers RDMA badly. Differences within the spread of the repeats are none.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Optional

from ovirt_rdma.host.mount_options import RDMA, TCP, netid_for
from ovirt_rdma.storage.benchmark.limits import Limit, limits, mb, physical_mbps
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
    LOCAL,
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Benchmark,
    Row,
    Rows,
    Setting,
    apart,
)

EITHER, UNKNOWN = "either", "unknown"
_NAMES = {
    SEQUENTIAL_READ: "reads",
    SEQUENTIAL_WRITE: "writes",
    RANDOM_READ: "reads small blocks",
    RANDOM_WRITE: "writes small blocks",
}
# Less than a tenth is no reason to change storage.
_MATTERS = 1.10


@dataclass(frozen=True)
class Ratio:
    """RDMA in parts of TCP, for a load: ``value``; ``certain`` if it is more than the
    spread.
    """

    load: str
    value: float
    certain: bool


@dataclass(frozen=True)
class Verdict:
    """The conclusion.

    sentence: the whole conclusion in one sentence
    better: RDMA, TCP, ``either`` or ``unknown``
    version: the fastest NFS version that was measured over both transports, and is
        compared; without one the fastest
    ratios: by load, that of large reads first
    limits: of the setting that is recommended, without more connections
    rdma_limits: if TCP is recommended: what limits RDMA, where it is another limit
    link_limit_mbps: what the port can carry as payload, in Mb/s; None if unknown
    options: the mount options to use with that version; empty if nothing is compared
    reasons: why these options, a sentence each
    """

    sentence: str
    better: str
    version: Optional[str] = None
    ratios: tuple[Ratio, ...] = ()
    limits: tuple[Limit, ...] = ()
    rdma_limits: tuple[Limit, ...] = ()
    link_limit_mbps: Optional[float] = None
    options: str = ""
    reasons: tuple[str, ...] = ()


def verdict(benchmark: Benchmark, port: int = 20049) -> Verdict:
    """Return the verdict. ``port`` is that of NFS over RDMA, for the options."""
    rows = Rows.of(benchmark)
    physical = physical_mbps(benchmark.path)
    if not rows.rows:
        return Verdict(_without_mount(benchmark), UNKNOWN, link_limit_mbps=physical)
    version = _best_version(rows)
    first = Setting(RDMA, version), Setting(TCP, version)
    rdma, tcp = (next(iter(rows.alike(one)), None) for one in first)
    astray = next((one for one in (rdma, tcp) if _is_astray(rows, one)), None)
    rows = rows.as_asked()
    ratios = tuple(_ratios(rows, rdma, tcp)) if rdma and tcp else ()
    better, sentence = _conclusion(ratios, rows, rdma, tcp)
    chosen = (tcp if better == TCP else rdma) or tcp or rdma
    found = limits(benchmark, chosen) if chosen else ()
    over_rdma = limits(benchmark, rdma) if rdma else ()
    if astray:
        better, found = UNKNOWN, limits(benchmark, astray)
        sentence = _not_measured(Rows.of(benchmark), astray)
    kinds = {one.kind for one in found}
    other = tuple(one for one in over_rdma if one.kind not in kinds)
    rdma_limits = other if better == TCP else ()
    ipv6 = benchmark.path is not None and ":" in benchmark.path.address
    options, reasons = _options(rows, chosen, better, port, ipv6=ipv6)
    clauses = [sentence, _limit_clause(found)]
    if rdma_limits:
        clauses.append(
            f"RDMA may be faster without its limit: {rdma_limits[0].sentence}"
        )
    return Verdict(
        sentence="; ".join(clauses),
        better=better,
        version=version,
        ratios=ratios,
        limits=found,
        rdma_limits=rdma_limits,
        link_limit_mbps=physical and round(physical),
        options=options,
        reasons=reasons,
    )


def _without_mount(benchmark: Benchmark) -> str:
    best = max((r.bytes_per_s for r in benchmark.link), default=None)
    if best is None:
        return "nothing was measured"
    return f"the link carries {mb(best)}; no export was measured"


def _is_astray(rows: Rows, setting: Optional[Setting]) -> bool:
    return any(row.is_astray for row in rows.rows if row.setting == setting)


def _not_measured(rows: Rows, setting: Setting) -> str:
    name = setting.transport.upper()
    samples = [s for row in rows.rows if row.setting == setting for s in row.samples]
    if any(sample.transport == LOCAL for sample in samples):
        return f"{name} was not measured: the data did not leave this host"
    return f"{name} was not measured: its mount went over another transport"


def _score(rows: Rows, setting: Setting) -> float:
    """Return the product of the rates of all loads, to compare settings by."""
    found = [rows.one(setting, load, DEPTH) for load in _NAMES]
    return prod(row.rate.middle for row in found if row)


def _best_version(rows: Rows) -> str:
    """Return the fastest version with both transports; without one, the fastest."""
    settings = rows.settings
    rdma, tcp = (
        {one.version for one in settings if one.transport == transport}
        for transport in (RDMA, TCP)
    )
    both = [one for one in settings if one.version in rdma & tcp]
    return max(both or settings, key=lambda one: _score(rows, one)).version


def _ratios(rows: Rows, rdma: Setting, tcp: Setting) -> Iterator[Ratio]:
    for load in _NAMES:
        one, other = rows.one(rdma, load, DEPTH), rows.one(tcp, load, DEPTH)
        # Less than a byte per second is nothing: no ratio, and none that rounds to 0.
        if one and other and other.rate.middle >= 1:
            value = max(one.rate.middle / other.rate.middle, 0.001)
            yield Ratio(load, round(value, 3), apart(one.rate, other.rate))


def _conclusion(
    ratios: tuple[Ratio, ...],
    rows: Rows,
    rdma: Optional[Setting],
    tcp: Optional[Setting],
) -> tuple[str, str]:
    if not rdma or not tcp or not ratios:
        only = "RDMA" if rdma else "TCP"
        row = rows.one(rdma or tcp, SEQUENTIAL_READ)
        rate = f" ({mb(row.rate.middle)})" if row else ""
        return UNKNOWN, f"only {only} was measured{rate}: nothing can be compared"
    faster = [r for r in ratios if r.certain and r.value >= _MATTERS]
    slower = [r for r in ratios if r.certain and r.value <= 1 / _MATTERS]
    if faster and not slower:
        return RDMA, f"RDMA {_times(faster[0], faster[0].value)} TCP here: keep it"
    if slower and not faster:
        return TCP, f"TCP {_times(slower[0], 1 / slower[0].value)} RDMA here: use TCP"
    if faster and slower:
        return EITHER, (
            f"RDMA {_times(faster[0], faster[0].value)} TCP here, but TCP "
            f"{_times(slower[0], 1 / slower[0].value)} RDMA: choose by what your "
            "machines do"
        )
    return _equal(rows, rdma, tcp)


def _times(ratio: Ratio, value: float) -> str:
    return f"{_NAMES[ratio.load]} {value:.1f} times"


def _equal(rows: Rows, rdma: Setting, tcp: Setting) -> tuple[str, str]:
    """Return the conclusion for equal rates: what a byte costs decides."""
    one, other = (rows.one(s, SEQUENTIAL_READ, DEPTH) for s in (rdma, tcp))
    same = "RDMA and TCP are equally fast here"
    if one and other and one.cpu and other.cpu and apart(one.cpu, other.cpu):
        share = one.cpu.middle / other.cpu.middle if other.cpu.middle else 1.0
        if share <= 1 / _MATTERS:
            return RDMA, f"{same}, and RDMA takes {share:.0%} of TCP's CPU: keep RDMA"
        if share >= _MATTERS:
            return TCP, f"{same}, and TCP takes {1 / share:.0%} of RDMA's CPU: use TCP"
    return EITHER, f"{same}: either is right"


def _limit_clause(found: tuple[Limit, ...]) -> str:
    if not found:
        return "no limit was found"
    first = found[0]
    return f"the limit of {first.loads[0]}: {first.sentence}"


def _options(
    rows: Rows, chosen: Optional[Setting], better: str, port: int, *, ipv6: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the options to recommend, and the reasons."""
    if chosen is None or better == UNKNOWN:
        return "", ()
    reasons = []
    options = [f"proto={netid_for(chosen.transport, ipv6=ipv6)}"]
    if chosen.transport == RDMA:
        options.append(f"port={port}")
    versions = {one.version for one in rows.settings}
    if len(versions) > 1:
        others = ", ".join(sorted(versions - {chosen.version}))
        reasons.append(
            f"NFS {chosen.version} was the fastest with both transports; measured too: "
            f"{others}"
        )
    best = _more_connections(rows, chosen)
    if best:
        row, other = best
        options.append(f"nconnect={other.setting.nconnect}")
        reasons.append(
            f"{other.connections} connections move {mb(other.rate.middle)}, one moves "
            f"{mb(row.rate.middle)} ({row.load})"
        )
    return ",".join(options), tuple(reasons)


def _more_connections(rows: Rows, chosen: Setting) -> Optional[tuple[Row, Row]]:
    """Return the rows that show that more connections help; None if they do not."""
    better = []
    for setting in rows.alike(chosen, chosen.nconnect):
        for load in _NAMES:
            row, other = rows.one(chosen, load, DEPTH), rows.one(setting, load, DEPTH)
            if row and other and other.connections > row.connections:
                gain = other.rate.middle / row.rate.middle if row.rate.middle else 0.0
                if gain >= _MATTERS and apart(row.rate, other.rate):
                    better.append((gain, row, other))
    if not better:
        return None
    _, row, other = max(better, key=lambda one: one[0])
    return row, other
