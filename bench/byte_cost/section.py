# SPDX-License-Identifier: GPL-2.0-or-later
"""Show what a byte costs, and compare it with the recorded table."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench.byte_cost import counts
from bench.byte_cost.cases import KIB, Case, cases
from bench.byte_cost.runs import REPEATS, Row, measured
from bench.report import Section, Table, Verdict
from bench.rounds import CHECKOUT, BenchmarkFailed

RECORDED = CHECKOUT / "bench/byte_cost.json"
# Issue 18: how much an operation may cost, in parts of the dearest recorded repeat.
LIMIT = 1.03
# Issue 18: repeats that differ by more are called unsteady.
STEADY = 0.02
TITLE = "What a byte costs: RDMA against TCP, in instructions"
_RECORD = "`python -m bench.byte_cost --all --record` records it"
_TEXT = f"""
    Instructions, not seconds: QEMU counts what the kernels of client and server execute
    together, {REPEATS} times, by module. Copied are the bytes that string instructions
    copied or filled, of which a processor does 32 or more at a time. What an adapter
    does in hardware is in its own column and in no other. docs/byte-cost.md says how it
    is counted, and what it does not say."""
_HEADS = (
    "transport",
    "NFS",
    "connections",
    "load",
    "instructions/operation",
    "/byte",
    "copied/byte",
    "adapter/byte",
    "spread",
    "RPCs/MiB",
    "registrations/MiB",
    "completions/MiB",
)


@dataclass(frozen=True)
class Cost:
    """What one operation costs both hosts, in each repeat."""

    instructions: tuple[float, ...]
    copied: tuple[float, ...]


_COMPARED: tuple[tuple[str, Callable[[Cost], tuple[float, ...]]], ...] = (
    ("instructions", lambda one: one.instructions),
    ("copied bytes", lambda one: one.copied),
)


def section() -> Section:
    """Count the cases of every run. Raises LabProblem, BenchmarkFailed."""
    rows = []
    for row in measured(cases(every=False)):
        print(f"  {row.case.key}", flush=True)
        rows.append(row)
    return judged(rows, recorded())


def skipped() -> Section:
    """Return the section of a run without the lab."""
    return Section(TITLE, _TEXT, left_out="all of it, because of --without-lab.")


def judged(rows: Sequence[Row], known: Mapping[str, Cost]) -> Section:
    """Return the table of ``rows``, compared with the costs of recorded ones. Pure."""
    steady = sum(spread(row) <= STEADY for row in rows)
    text = (
        f"{_TEXT} Repeats differ by {STEADY:.0%} or less in {steady} of {len(rows)}"
        " rows."
    )
    return Section(
        TITLE,
        text,
        (table(rows),),
        tuple(limit_verdicts(rows, known)),
        "" if known else f"the comparison, because no table is recorded; {_RECORD}.",
    )


def table(rows: Iterable[Row]) -> Table:
    """Return the rows for people. Pure."""
    return Table(_HEADS, tuple(map(_cells, rows)))


def cost(row: Row) -> Cost:
    """Return what both hosts executed for one operation. Pure."""
    return Cost(
        tuple(one.instructions for one in row.hosts),
        tuple(one.copied for one in row.hosts),
    )


def spread(row: Row) -> float:
    """Return how much the repeats' instructions differ, by their median. Pure."""
    return counts.spread(cost(row).instructions)


def limit_verdicts(rows: Sequence[Row], known: Mapping[str, Cost]) -> list[Verdict]:
    """Compare instructions and copied bytes, where they grew most, with the recorded
    table: the median of the repeats with the largest that is recorded. No verdict if
    none of the rows is recorded. Pure.
    """
    pairs = [(row.case.key, cost(row)) for row in rows if row.case.key in known]
    found = []
    for name, repeats in _COMPARED if pairs else ():
        grown = [
            (statistics.median(repeats(new)), max(repeats(known[key])), key)
            for key, new in pairs
        ]
        # One more on both sides: an operation may copy nothing.
        ratio, new, old, key = max(
            ((new + 1) / (old + 1), new, old, key) for new, old, key in grown
        )
        sentence = (
            f"an operation has {ratio:.3f} times the {name} of the dearest recorded"
            f" repeat where that is most, at {key} ({old:.0f} then, {new:.0f} now);"
            f" promised: at most {LIMIT} times."
        )
        found.append(Verdict(ratio <= LIMIT, sentence))
    return found


def recorded(file: Path = RECORDED) -> dict[str, Cost]:
    """Return the recorded costs by the key of their case; none without a file.

    Raises BenchmarkFailed if the file is damaged.
    """
    try:
        rows = json.loads(file.read_text(encoding="utf-8"))["rows"]
        return {
            key: Cost(
                tuple(map(float, one["instructions"])), tuple(map(float, one["copied"]))
            )
            for key, one in rows.items()
        }
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        sentence = f"{file} is no recorded table ({error!r}); {_RECORD}"
        raise BenchmarkFailed(sentence) from None


def document(rows: Iterable[Row], facts: Mapping[str, str]) -> str:
    """Return the text of RECORDED; ``facts`` say what was counted with. Pure."""
    content = {
        "facts": dict(facts),
        "rows": {
            row.case.key: {
                name: [round(value) for value in values]
                for name, values in asdict(cost(row)).items()
            }
            for row in rows
        },
    }
    return json.dumps(content, indent=1) + "\n"


def _cells(row: Row) -> tuple[str, ...]:
    mount, load = row.case.mount, row.case.load
    instructions, copied = map(
        statistics.median, (cost(row).instructions, cost(row).copied)
    )
    adapter = statistics.median(one.instructions for one in row.adapter)
    adapter_copied = statistics.median(one.copied for one in row.adapter)
    return (
        mount.transport.title,
        mount.version,
        _connections(row.case, row.connections),
        _load(row.case),
        f"{instructions:.0f}",
        f"{instructions / load.block:.2f}",
        f"{copied / load.block:.2f}",
        f"{adapter / load.block:.2f} + {adapter_copied / load.block:.2f} copied",
        f"{spread(row):.1%}",
        f"{row.requests:.1f}",
        *(
            "" if number is None else f"{number:.1f}"
            for number in (row.registrations, row.completions)
        ),
    )


def _connections(case: Case, made: int) -> str:
    asked = case.mount.nconnect
    return str(made) if made == asked else f"{made} ({asked} asked for)"


def _load(case: Case) -> str:
    load = case.load
    size = f"{load.block // KIB} KiB" if load.block < KIB * KIB else "1 MiB"
    workers = f", {load.workers} at once" if load.workers > 1 else ""
    return f"{load.direction} {size}{workers}"
