# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure a policy with 1,000 rules: load it, follow it in vdsmd, find a rule."""

from __future__ import annotations

import tempfile
import tracemalloc
from collections.abc import Mapping
from pathlib import Path

from bench import thousand_rules
from bench.memory import highest_memory
from bench.report import Chart, Section, Table, Verdict
from bench.rounds import PACKAGE, measure
from bench.spread import Timing, duration, durations, kilobytes, megabytes, times
from bench.thousand_rules import MANY
from ovirt_rdma.host.policy.store import read, store

PROGRAM = "bench.policy_size_program"

SIZES = (1, 100, MANY)
# The benchmarks, and their limits with MANY rules, in seconds. The limits are our own:
# an admin waits for the first, the engine for the others.
LOAD, READ, CURRENT, FIRST, LAST, NONE = (
    "`policy load`, a new policy",
    "vdsmd reads policy.json",
    "vdsmd looks whether it changed",
    "finding the rule: the first",
    "finding the rule: the last",
    "finding the rule: none",
)
LIMITS_S = {LOAD: 5.0, READ: 0.1, CURRENT: 0.001, FIRST: 0.01, LAST: 0.01, NONE: 0.01}


def benchmark_name(what: str, rules: int) -> str:
    """Return the name of a benchmark in program and section."""
    return f"{what} ({rules})"


def section(rounds: int) -> Section:
    """Measure and return the results."""
    timings = measure(PROGRAM, rounds, {"PYTHONPATH": str(PACKAGE)})
    text = f"""
        The policy of the constructors above, with 1, 100 and {MANY} rules. `policy
        load` is the whole command, from YAML to a policy.json that was not there.
        The rest happens inside vdsmd at every connect, but for the reading: that
        happens when the policy has changed. What patterns mean is kept, so the first
        search after a change costs more, some 40 ms for {MANY} globs."""
    return Section(
        f"A policy with {MANY} rules",
        text,
        (_times(timings), _memory()),
        (verdict({what: timings[benchmark_name(what, MANY)] for what in LIMITS_S}),),
        charts=tuple(_chart(what, timings) for what in (READ, NONE)),
    )


def verdict(timings: Mapping[str, Timing]) -> Verdict:
    """Compare the measurements with MANY rules with LIMITS_S; pure."""
    shares = {
        what: timing.spread.median / LIMITS_S[what] for what, timing in timings.items()
    }
    worst = max(shares, key=lambda what: shares[what])
    holds = shares[worst] <= 1
    seen = duration(timings[worst].spread.median)
    sentence = (
        f"{'nearest to' if holds else 'beyond'} its limit with {MANY} rules is: "
        f"{worst}, {seen} of {duration(LIMITS_S[worst])}; these limits are our own."
    )
    return Verdict(holds, sentence)


def _times(timings: dict[str, Timing]) -> Table:
    rows = []
    for what, limit in LIMITS_S.items():
        few = timings[benchmark_name(what, SIZES[0])]
        for size in SIZES:
            some = timings[benchmark_name(what, size)]
            ratio = "1.00" if some is few else times(some.ratio(few))
            its = duration(limit) if size == MANY else ""
            rows.append((what, str(size), *durations(some.spread), ratio, its))
    heads = ("what", "rules", "median", "min", "max", "times one rule", "limit")
    return Table(heads, tuple(rows))


def _chart(what: str, timings: Mapping[str, Timing]) -> Chart:
    medians = {
        size: timings[benchmark_name(what, size)].spread.median for size in SIZES
    }
    return Chart.of_seconds("rules", medians, f"{what}, median")


def _memory() -> Table:
    rows = []
    for rules in SIZES:
        with tempfile.TemporaryDirectory() as folder:
            command = _highest_memory(rules, Path(folder))
            stored = _memory_of_stored(rules, Path(folder) / "policy.json")
        rows.append((str(rules), megabytes(command), kilobytes(stored)))
    heads = ("rules", "`policy load`, highest resident", "policy in vdsmd's memory")
    return Table(heads, tuple(rows))


def _highest_memory(rules: int, folder: Path) -> int:
    """Run ``policy load`` once; return its highest resident memory in bytes.

    Raises BenchmarkFailed.
    """
    policy = folder / "policy.yaml"
    policy.write_text(thousand_rules.yaml_text(rules), encoding="ascii")
    arguments = ["policy", "load", "-y", str(policy), "--root", str(folder / "root")]
    return highest_memory(
        f"policy load with {rules} rules",
        "ovirt_rdma.cli.host.main:main",
        arguments,
        {},
    )


def _memory_of_stored(rules: int, path: Path) -> int:
    """Return the memory in bytes of the policy, read from policy.json."""
    store(thousand_rules.policy(rules), "policy.yaml", path)
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    stored = read(path)
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    if stored is None:
        raise AssertionError(f"{path} was not written")
    return after - before
