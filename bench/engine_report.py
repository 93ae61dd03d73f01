# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure ``ovirt-rdma report``: time, size and memory, and how they grow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace

from support.storage.benchmarks import benchmark

from bench.engine_runs import (
    PAGE,
    REPORT,
    RESULT,
    Served,
    memory_of,
    run_verb,
    served,
)
from bench.report import Chart, Section, Table, Verdict
from bench.spread import Spread, duration, durations, kilobytes, megabytes
from ovirt_rdma.storage.benchmark.model import as_document
from ovirt_rdma.storage.benchmark.verdict import verdict

TITLE = "A report of 3, 50 and 250 hosts"
SIZES, DOMAINS, CHARTS = (3, 50, 250), 8, 40
# The limits of issue 18 for the largest: seconds for the whole command, bytes of the
# page. The limit of memory is that of the other verbs, issue 6.
LIMIT_S, LIMIT_PAGE, LIMIT_BYTES = 3.0, 1_500_000, 200e6


@dataclass(frozen=True)
class Measured:
    """The runs of one number of hosts in seconds, their CPU seconds, the size of the
    page, and the highest resident memory, both in bytes.
    """

    hosts: int
    seconds: Spread
    cpu_s: Spread
    page: int
    memory: int


def section(rounds: int) -> Section:
    """Measure and return the results."""
    measured = []
    for hosts in SIZES:
        with served(hosts, 0.0, DOMAINS) as engine:
            write_results(engine)
            measured.append(_measured(engine, rounds))
    return judged(measured)


def _measured(engine: Served, rounds: int) -> Measured:
    runs = []
    for number in range(1, rounds + 1):
        where = f"{engine.hosts} hosts, round {number} of {rounds}"
        print(f"  bench.engine_report: {where}", flush=True)
        runs.append(run_verb(engine, REPORT))
    return Measured(
        engine.hosts,
        Spread(tuple(run.seconds for run in runs)),
        Spread(tuple(run.cpu_s for run in runs)),
        (engine.folder / PAGE).stat().st_size,
        memory_of(engine, REPORT),
    )


def write_results(engine: Served) -> None:
    """Write a result of bench for each of the first CHARTS hosts."""
    for number in range(1, min(engine.hosts, CHARTS) + 1):
        made = replace(benchmark(), hostname=f"host{number:02}")
        text = json.dumps(as_document(made, verdict(made)))
        (engine.folder / f"{number:03}{RESULT}").write_text(text, encoding="ascii")


def judged(measured: Sequence[Measured]) -> Section:
    """Return the section; pure."""
    largest = measured[-1]
    slowest = largest.seconds.largest
    rows = tuple(
        (
            str(one.hosts),
            *durations(one.seconds),
            duration(one.cpu_s.median),
            kilobytes(one.page),
            megabytes(one.memory),
        )
        for one in measured
    )
    heads = ("hosts", "median", "min", "max", "CPU", "page", "highest resident")
    seconds = {one.hosts: one.seconds.median for one in measured}
    memory = tuple((one.hosts, one.memory, megabytes(one.memory)) for one in measured)
    where = f"for {largest.hosts} hosts and {DOMAINS} domains"
    return Section(
        TITLE,
        f"""
        The whole command `report FILE` with `--facts-dir`, a report of each host
        (facts, status, policy), {DOMAINS} NFS domains; the tests' engine double in a
        process of its own answers at once. Of up to {CHARTS} hosts there is a result of
        `bench` too. All is well on every host; tests/engine/
        report has the size of pages whose hosts all differ.""",
        (Table(heads, rows),),
        (
            Verdict(
                slowest < LIMIT_S,
                f"{where} {REPORT} takes {duration(slowest)} at most; promised: under "
                f"{duration(LIMIT_S)}.",
            ),
            Verdict(
                largest.page < LIMIT_PAGE,
                f"{where} the page has {megabytes(largest.page)}; promised: under "
                f"{megabytes(LIMIT_PAGE)}.",
            ),
            Verdict(
                largest.memory < LIMIT_BYTES,
                f"{where} {REPORT} needs {megabytes(largest.memory)}; our own limit is "
                f"{megabytes(int(LIMIT_BYTES))}.",
            ),
        ),
        charts=(
            Chart.of_seconds("hosts", seconds, "the whole command, median"),
            Chart("hosts", "highest resident memory", memory),
        ),
    )
