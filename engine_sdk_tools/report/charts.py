# SPDX-License-Identifier: GPL-2.0-or-later
"""Lay out the chart of a benchmark: RDMA beside TCP by load, with the spread. Pure.

A bar is as long as the median of the repeats; a whisker reaches from the smallest to
the largest. Large blocks are drawn in MB/s, small ones in operations per second, each
with a scale of its own that begins at 0. Lengths are SVG user units, as in
:mod:`.shapes`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.engine_sdk_tools.report.benchmarks import HostBenchmark, Measured
from ovirt_rdma.engine_sdk_tools.report.shapes import Text
from ovirt_rdma.host.mount_options import RDMA, TCP
from ovirt_rdma.storage.benchmark.model import (
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Load,
    Spread,
    apart,
)

WIDTH = 1060
# Left edges: of the names of transports, the bars, and the figures; and the bars' end.
_TRANSPORT, _BARS, _END, _FIGURES = 245, 292, 820, 846
_LINE, _BAR, _GAP, _HEADING, _AXIS = 19, 13, 12, 30, 34
# The length of a whisker's end, above and below the line.
_CAP = 4
# A rate below this is drawn as none, in units of the panel.
_NOTHING = 1e-9
# Of one panel; a result of ours has at most 4.
_MOST_LOADS = 8
# The port's limit is drawn if the scale need not be longer than this times the bars.
_STRETCH = 2.0
_LARGE, _SMALL = (SEQUENTIAL_READ, SEQUENTIAL_WRITE), (RANDOM_READ, RANDOM_WRITE)


@dataclass(frozen=True)
class Bar:
    """A median: a rectangle. ``style`` is ``rdma`` or ``tcp``."""

    x: int
    y: int
    width: int
    height: int
    style: str


@dataclass(frozen=True)
class Stroke:
    """A whisker, a line of the grid, or the port's limit: an SVG path."""

    path: str
    style: str


@dataclass(frozen=True)
class Chart:
    """The whole chart; ``description`` has the same in words."""

    title: str
    description: str
    height: int
    texts: tuple[Text, ...]
    bars: tuple[Bar, ...]
    strokes: tuple[Stroke, ...]
    width: int = WIDTH


@dataclass(frozen=True)
class _Pair:
    """One load, and the rows of RDMA and TCP, one of which may be missing."""

    load: Load
    rows: dict[str, Measured]


@dataclass(frozen=True)
class _Panel:
    """Loads on one scale. ``value`` is what is drawn, ``factor`` of its unit."""

    title: str
    unit: str
    pairs: tuple[_Pair, ...]
    value: Callable[[Measured], Spread]
    factor: float
    limit: Optional[float] = None

    def scaled(self, row: Measured) -> Spread:
        """Return the values of a row in the panel's unit."""
        its, factor = self.value(row), self.factor
        return Spread(
            its.middle / factor, its.least / factor, its.most / factor, its.repeats
        )


def chart_of(benchmark: HostBenchmark) -> Optional[Chart]:
    """Return the chart of the verdict's NFS version, with the fewest connections that
    were measured; None if there is nothing to draw.
    """
    shown = [panel for panel in _panels(benchmark) if panel.pairs]
    if not shown:
        return None
    texts: list[Text] = []
    bars: list[Bar] = []
    strokes: list[Stroke] = []
    y = 0
    for panel in shown:
        y = _draw(panel, y, texts, bars, strokes)
    return Chart(
        f"NFS {benchmark.nfs_version}: RDMA beside TCP",
        ". ".join(sentence for panel in shown for sentence in _sentences(panel)) + ".",
        y - _GAP,
        tuple(texts),
        tuple(bars),
        tuple(strokes),
    )


def _panels(benchmark: HostBenchmark) -> Iterator[_Panel]:
    limit = benchmark.link_limit_mbps
    yield _Panel(
        "Large blocks, MB/s",
        "MB/s",
        tuple(_pairs(benchmark, _LARGE)),
        lambda row: row.bytes_per_s,
        1e6,
        limit / 8 if limit else None,
    )
    yield _Panel(
        "Small blocks, operations per second",
        "per second",
        tuple(_pairs(benchmark, _SMALL)),
        lambda row: row.operations_per_s,
        1.0,
    )


def _pairs(benchmark: HostBenchmark, names: Sequence[str]) -> Iterator[_Pair]:
    rows = [
        row
        for row in benchmark.rows
        if row.load.name in names
        and row.setting.version == benchmark.nfs_version
        and row.setting.transport in (RDMA, TCP)
    ]
    fewest: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: -row.setting.nconnect):
        fewest[row.setting.transport] = row.setting.nconnect
    loads: dict[Load, dict[str, Measured]] = {}
    for row in rows:
        if row.setting.nconnect == fewest[row.setting.transport]:
            loads.setdefault(row.load, {})[row.setting.transport] = row
    order = sorted(
        loads, key=lambda one: (names.index(one.name), one.block_bytes, one.depth)
    )
    return (_Pair(load, loads[load]) for load in order[:_MOST_LOADS])


def _draw(
    panel: _Panel,
    y: int,
    texts: list[Text],
    bars: list[Bar],
    strokes: list[Stroke],
) -> int:
    """Add a panel whose upper edge is ``y``; return its lower edge."""
    longest = max(
        panel.scaled(row).most for pair in panel.pairs for row in pair.rows.values()
    )
    limit = panel.limit
    if limit is not None and limit > _STRETCH * longest:
        limit = None
    step, ticks = _ticks(max(longest, limit or 0.0))
    scale = (_END - _BARS) / (step * ticks)
    texts.append(Text(0, y + 14, panel.title, "heading"))
    top = y + _HEADING - 6
    y += _HEADING
    grid = len(strokes)
    drawn: list[Stroke] = []
    for pair in panel.pairs:
        texts.append(Text(0, y + 13, str(pair.load)))
        texts.append(Text(0, y + 13 + _LINE, _ratio_text(panel, pair), "muted"))
        for transport in (RDMA, TCP):
            row = pair.rows.get(transport)
            texts.append(Text(_TRANSPORT, y + 13, transport.upper(), "muted"))
            texts.append(Text(_FIGURES, y + 13, _figures(panel, row)))
            if row is not None:
                its = panel.scaled(row)
                width = max(round(its.middle * scale), 1)
                bars.append(Bar(_BARS, y + 3, width, _BAR, transport))
                drawn += _whisker(its, scale, y + 3 + _BAR // 2, row.repeats)
            y += _LINE
        y += _GAP
    bottom = y - _GAP // 2
    for number in range(ticks + 1):
        x = _BARS + round(number * step * scale)
        strokes.insert(grid, Stroke(f"M{x} {top}V{bottom}", "grid"))
        texts.append(Text(x, bottom + 15, _number(number * step), "tick"))
    if limit is not None:
        x = _BARS + round(limit * scale)
        drawn.append(Stroke(f"M{x} {top}V{bottom}", "limit"))
    strokes += drawn
    return bottom + _AXIS


def _whisker(its: Spread, scale: float, y: int, repeats: int) -> Iterator[Stroke]:
    """Yield a whisker over its halo, which keeps it readable on the bar."""
    if repeats < 2:
        return
    low, high = (_BARS + round(value * scale) for value in (its.least, its.most))
    ends = "".join(f"M{x} {y - _CAP}V{y + _CAP}" for x in (low, high))
    for style in ("halo", "whisker"):
        yield Stroke(f"M{low} {y}H{high}{ends}", style)


def _ticks(longest: float) -> tuple[float, int]:
    """Return the step of a scale, 1, 2 or 5 times a power of ten, and how many steps
    reach ``longest``: at most 6.
    """
    # No transport is that slow, and a float has no scale for it.
    if longest < _NOTHING:
        return 1.0, 1
    power = 10.0 ** math.floor(math.log10(longest / 6))
    step = next(
        power * times for times in (1, 2, 5, 10) if power * times * 6 >= longest
    )
    return step, max(1, math.ceil(longest / step))


def _ratio_text(panel: _Panel, pair: _Pair) -> str:
    if len(pair.rows) < 2:
        return "measured with one transport"
    rdma, tcp = (panel.scaled(pair.rows[one]) for one in (RDMA, TCP))
    if not apart(rdma, tcp):
        return "no difference beyond spread"
    slow, quick = sorted((rdma.middle, tcp.middle))
    names = ("RDMA", "TCP") if quick == rdma.middle else ("TCP", "RDMA")
    if slow <= 0:
        return f"{names[1]} moved nothing"
    return f"{names[0]} {quick / slow:.1f} times {names[1]}"


def _figures(panel: _Panel, row: Optional[Measured]) -> str:
    if row is None:
        return "not measured"
    return spread_text(panel.scaled(row))


def spread_text(values: Spread, unit: float = 1.0) -> str:
    """Return a median and its spread in ``unit``: ``8,000 (7,920 to 8,080)``."""
    least, middle, most = (
        _number(value / unit) for value in (values.least, values.middle, values.most)
    )
    return middle if least == most else f"{middle} ({least} to {most})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _sentences(panel: _Panel) -> Iterator[str]:
    for pair in panel.pairs:
        parts = [
            f"{transport.upper()} {_figures(panel, pair.rows.get(transport))}"
            for transport in (RDMA, TCP)
        ]
        yield f"{pair.load}, {panel.unit}: {', '.join(parts)}"
    if panel.limit is not None:
        yield f"The port can carry {_number(panel.limit)} MB/s"
