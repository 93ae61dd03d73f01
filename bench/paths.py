# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure two network paths of a mount: cables out and in, shares, the daemon's cost.

It runs in the lab, with real kernels, mounts and cables; ``python -m bench.paths``
measures this section alone.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Iterable, Sequence

from bench import machine
from bench.paths_runs import (
    MOUNTS,
    OURS,
    OUT,
    RETURN,
    SHARE_S,
    STOCK,
    STOCK_OPTIONS,
    WINDOW_S,
    WRITERS,
    Measured,
    measured,
)
from bench.report import Section, Table, Verdict, broken_limits, document
from bench.rounds import BenchmarkFailed
from bench.spread import Spread, duration, durations, megabytes, times
from lab.problem import LabProblem
from lab.two_paths import CLIENT, ENDS, SERVER

MOST_ROUNDS = 3
# Issue 39: seconds of the longest write, while a cable is out and when it is in again;
# the part of the bytes of each path; parts of a CPU; bytes.
LIMITS_S, LIMIT_RETURN_S = {CLIENT: 3.0, SERVER: 8.0}, 1.0
LIMIT_SHARE, LIMIT_CPU, LIMIT_MEMORY = (0.4, 0.6), 0.01, 30e6

_COST_HEADS = (
    "emulated CPU",
    "Python starts a second",
    "this machine's CPU",
    "memory",
)

TITLE = "Two network paths, and a cable out: against a stock mount"
_TEXT = f"""
    A mount with NFS 4.2 and two paths (Soft-RoCE, a connection on each), our daemon,
    and {WRITERS} writers of 64 KiB each with O_DIRECT and O_DSYNC, whose blocks are
    stamped and read back; cables are pulled in turns at both ends of both paths. Stock:
    one connection without our daemon, `{STOCK_OPTIONS}`, the engine's usual values.
    Guests are emulated, all on this machine: times are seconds of the guest's own
    clock, and the ratio is to the median of 200 reads of 4 KiB (one RPC each), in the
    same round. The second table is the client's daemon with {MOUNTS} idle mounts of one
    server, beside vdsmd, the mean and the worst of windows of {WINDOW_S} s, with and
    without `paths` in the rule. Its CPU is part of an emulated processor, many times
    slower than a real one, so it is shown as starts of a bare Python too, and these as
    part of this machine's CPU; memory is the largest sum of proportional set sizes in a
    window: vdsmd has its part of the pages of Python and its libraries."""


def section(rounds: int) -> Section:
    """Measure, at most MOST_ROUNDS times. Raises LabProblem, BenchmarkFailed."""
    return judged(measured(min(rounds, MOST_ROUNDS)))


def skipped() -> Section:
    """Return the section of a run without the lab."""
    return Section(TITLE, _TEXT, left_out="all of it, because of --without-lab.")


def judged(found: Measured) -> Section:
    """Make tables and verdicts of the measurements; pure."""
    return Section(
        TITLE,
        _TEXT,
        (_waits(found), _costs(found)),
        (
            *(wait_verdict(found, OUT, end, LIMITS_S[end]) for end in ENDS),
            *(wait_verdict(found, RETURN, end, LIMIT_RETURN_S) for end in ENDS),
            share_verdict(found.shares),
            cpu_verdict(found),
            memory_verdict(found),
        ),
    )


def wait_verdict(found: Measured, what: str, end: str, limit: float) -> Verdict:
    """Compare the longest write with ``limit``: seconds; pure."""
    event = what.format(end)
    seen = found.writes[event, OURS]
    failed = sum(one.failed for one in seen)
    longest = max(one.longest for one in seen)
    rival = ""
    for one in found.writes.get((event, STOCK), [])[-1:]:
        how = f"{one.error} after" if one.error else "at most"
        rival = f" (stock: {how} {duration(one.longest)})"
    return Verdict(
        not failed and longest <= limit,
        f"{event}: writes failed in {failed} of {len(seen)} rounds, the longest took "
        f"{duration(longest)}{rival}; promised: none, and at most {duration(limit)}.",
    )


def share_verdict(shares: Iterable[float]) -> Verdict:
    """Compare the shares of both paths with LIMIT_SHARE; pure."""
    both = [part for share in shares for part in (share, 1 - share)]
    low, high = LIMIT_SHARE
    return Verdict(
        low <= min(both) and max(both) <= high,
        f"each path carries {min(both):.0%} to {max(both):.0%} of the bytes in "
        f"{SHARE_S} s; promised: {low:.0%} to {high:.0%}.",
    )


def cpu_verdict(found: Measured) -> Verdict:
    """Compare the CPU of the daemon with paths with LIMIT_CPU, on this machine; pure.

    Emulation makes all programs slower, so a bare Python is the measure of both.
    """
    cost = found.costs[True]
    here = cost.starts.largest * found.python
    return Verdict(
        here < LIMIT_CPU,
        f"the daemon with {MOUNTS} mounts and paths costs {here:.2%} of a CPU of this "
        f"machine ({cost.shares.largest:.1%} of an emulated one, where a bare Python "
        f"starts in {duration(Spread(cost.python).median)} of CPU; here in "
        f"{duration(found.python)}); promised: under {LIMIT_CPU:.0%}.",
    )


def memory_verdict(found: Measured) -> Verdict:
    """Compare the memory of the daemon with paths with LIMIT_MEMORY; pure."""
    most = int(max(found.costs[True].memory))
    return Verdict(
        most < LIMIT_MEMORY,
        f"it needs {megabytes(most)}; promised: under {megabytes(int(LIMIT_MEMORY))}.",
    )


def _waits(found: Measured) -> Table:
    rows = []
    for (what, who), seen in found.writes.items():
        longest = Spread(tuple(one.longest for one in seen))
        ratio = times(Spread(tuple(one.in_rpcs for one in seen)))
        failed = f"{sum(one.failed for one in seen)} of {len(seen)}"
        how = ", ".join(sorted({one.error for one in seen if one.error}))
        rows.append((what, who, *durations(longest), ratio, failed, how))
    small = Spread(tuple(found.small))
    rows.append(("a small RPC", "", *durations(small), "1.00", "", ""))
    heads = ("longest write", "who", "median", "min", "max", "times a small RPC")
    return Table((*heads, "rounds with a failed write", "error"), tuple(rows))


def _costs(found: Measured) -> Table:
    rows, means = [], []
    for paths in (True, False):
        cost = found.costs[paths]
        spreads = cost.shares, cost.starts, Spread(cost.memory)
        # Some tasks have their turn in one window only.
        means.append([statistics.mean(spread.values) for spread in spreads])
        rows.append(
            _cost_cells(found, OURS if paths else "without", means[-1])
            + _cost_cells(found, "", [spread.largest for spread in spreads])[1:]
        )
    added = [ours - theirs for ours, theirs in zip(*means, strict=True)]
    rows.append((*_cost_cells(found, "paths add", added), *[""] * len(_COST_HEADS)))
    worst = (f"{head}, worst" for head in _COST_HEADS)
    return Table(("the daemon", *_COST_HEADS, *worst), tuple(rows))


def _cost_cells(found: Measured, who: str, numbers: Sequence[float]) -> tuple[str, ...]:
    share, starts, memory = numbers
    here = f"{starts * found.python:.2%}"
    return who, f"{share:.1%}", f"{starts:.2f}", here, megabytes(int(memory))


def main() -> int:
    """Measure this section alone, and print it."""
    try:
        facts = [*machine.facts(), *machine.lab_facts()]
        one = section(MOST_ROUNDS)
    except (LabProblem, BenchmarkFailed) as problem:
        print(f"bench.paths: {problem}", file=sys.stderr)
        return 1
    print(document(facts, [one]))
    return 1 if broken_limits([one]) else 0


if __name__ == "__main__":
    sys.exit(main())
