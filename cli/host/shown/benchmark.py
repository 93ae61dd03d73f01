# SPDX-License-Identifier: GPL-2.0-or-later
"""Show a benchmark, its plan and its verdict to people."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.errors import NOTHING_CHANGED
from ovirt_rdma.storage.benchmark.case import mb
from ovirt_rdma.storage.benchmark.model import Benchmark
from ovirt_rdma.storage.benchmark.plan import Request, Turn, duration_s
from ovirt_rdma.storage.benchmark.summary import Comparison, Row, Rows
from ovirt_rdma.storage.benchmark.verdict import Verdict


def show_plan(output: Output, request: Request, planned: Sequence[Turn]) -> None:
    """Show what would be measured, in its order."""
    seconds = round(duration_s(request, planned))
    if not output.for_people:
        output.document(
            "benchmark-plan",
            {
                "seconds": seconds,
                "mounts": [
                    {
                        "transport": turn.setting.transport,
                        "version": turn.setting.version,
                        "nconnect": turn.setting.nconnect,
                        "repeat": turn.repeat,
                        "loads": [str(load) for load in turn.loads],
                    }
                    for turn in planned
                ],
            },
        )
        return
    output.table(
        ("REPEAT", "MOUNT"),
        [(str(turn.repeat), str(turn.setting)) for turn in planned],
    )
    output.line("In each mount:")
    for load in planned[0].loads:
        output.line(f"  {load}, {request.seconds} s")
    output.line(f"About {max(1, round(seconds / 60))} min. {NOTHING_CHANGED}")


def show(
    output: Output,
    made: Benchmark,
    found: Verdict,
    comparison: Optional[Comparison],
) -> None:
    """Show results and verdict; and a comparison with an earlier result, if any."""
    if made.link:
        output.table(
            ("TOOL", "TEST", "TRANSPORT", "RATE"),
            [
                (one.tool, one.test, one.transport, mb(one.bytes_per_s))
                for one in made.link
            ],
        )
        output.line()
    rows = Rows.of(made).rows
    if rows:
        headings = ("LOAD", "MOUNT", "CONN", "RATE", "SPREAD", "IOPS", "P99.9", "CPU")
        output.table(headings, [_cells(row) for row in rows])
        output.line()
    for sentence in made.skipped:
        output.line(f"note: {sentence}")
    if comparison:
        _show_changes(output, comparison)
    output.text(f"{found.sentence[0].upper()}{found.sentence[1:]}.")
    _show_verdict(output, found)


def _cells(row: Row) -> tuple[str, ...]:
    cpu = f"{row.cpu.middle:.2f} s/GB" if row.cpu else "unknown"
    return (
        str(row.load),
        str(row.setting),
        str(row.connections),
        mb(row.rate.middle),
        f"{row.rate.relative:.0%}",
        f"{row.operations.middle:.0f}",
        f"{row.p99_9_us / 1000:.2f} ms",
        cpu,
    )


def _show_verdict(output: Output, found: Verdict) -> None:
    pairs = []
    for ratio in found.ratios:
        published = f"; published: {ratio.published:.2f}" if ratio.published else ""
        sure = "" if ratio.certain else ", within the spread"
        value = f"RDMA {ratio.value:.2f} times TCP{sure}{published}"
        pairs.append((ratio.load, value))
    if found.source:
        pairs.append(("published by", found.source))
    if found.link_limit_mbps:
        carried = mb(found.link_limit_mbps * 1e6 / 8)
        pairs.append(("port", f"carries {carried} as payload"))
    named = [("limit", one) for one in found.limits]
    named += [("limit of RDMA", one) for one in found.rdma_limits]
    for title, limit in named:
        loads = ", ".join(limit.loads)
        pairs.append((title, f"{limit.kind} ({loads}): {limit.sentence}"))
        pairs.append(("evidence", limit.evidence))
        if limit.fix:
            pairs.append(("fix", limit.fix))
    if found.options:
        pairs.append(("recommended", f"NFS {found.version}, {found.options}"))
    pairs += [("because", reason) for reason in found.reasons]
    output.fields(pairs)


def _show_changes(output: Output, comparison: Comparison) -> None:
    taken_at = comparison.taken_at
    for sentence in comparison.differences:
        output.line(f"note: compared with {taken_at}, {sentence}")
    rows = [
        (
            str(one.load),
            str(one.setting),
            mb(one.before.middle),
            mb(one.now.middle),
            f"{one.ratio:.2f}" + ("" if one.certain else " (within the spread)"),
        )
        for one in comparison.changes
    ]
    if rows:
        output.table(("LOAD", "MOUNT", "BEFORE", "NOW", "RATIO"), rows)
    else:
        output.line(f"note: nothing is comparable with the result of {taken_at}")
    output.line()
