# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure what counters cost: ``check`` with and without them, and a look at mounts."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path

from support.storage.metrics_host import MetricsHost

from bench.host_plan import ENVIRONMENT, LARGEST, write_host
from bench.report import Section, Table, Verdict
from bench.rounds import measure
from bench.spread import Timing, duration, durations, times

PROGRAM = "bench.counters_program"
# The variable that names the folder with the host.
HOST = "BENCH_HOST"
MOUNTS = 20

TITLE = "Counters: `check` with and without them, and a look at the mounts' health"
# In the process, without Python's start, which would hide what counters cost.
WITHOUT = "reading and deciding, without counters"
WITH = "reading and deciding, with them"
STAT = f"`timeout 2 stat`, {MOUNTS} times"
LOOK = f"a look at {MOUNTS} mounts"
RIVALS = {WITHOUT: WITHOUT, WITH: WITHOUT, STAT: STAT, LOOK: STAT}
# Issue 17: `check` grows by less than 30 %.
LIMIT_GROWTH = 1.3
# Our own limit: at the usual interval of 10 s, 2 % of a CPU.
LIMIT_LOOK_S = 0.2


def section(rounds: int) -> Section:
    """Measure and return the results."""
    text = f"""
        The host with {LARGEST} RDMA devices of the section on plans, with counters at
        each of its ports and {MOUNTS} NFS mounts, each fifth over TCP. The first rival
        is the same without counters: neither read nor judged; both values are without
        Python's start. A look is what the daemon does at each
        interval: statistics twice, a process that asks for each mount, and the
        verdicts. The mounts answer at once, because their mount points do not exist on
        this machine. The rival is what scripts do, `timeout 2 stat /`, one after the
        other. All rows are seconds of CPU, with those of child processes. What a look
        asks of servers, one call for each mount, is counted in the lab."""
    with tempfile.TemporaryDirectory() as folder:
        write_host(Path(folder), LARGEST)
        add_counters(Path(folder, str(LARGEST), "root"))
        environment = {**ENVIRONMENT, HOST: f"{folder}/{LARGEST}"}
        timings = measure(PROGRAM, rounds, environment)
    rows = tuple(
        (name, *durations(one.spread), times(one.ratio(timings[RIVALS[name]])))
        for name, one in timings.items()
    )
    heads = ("what", "median", "min", "max", "times the rival")
    verdicts = (growth_verdict(timings), look_verdict(timings))
    return Section(TITLE, text, (Table(heads, rows),), verdicts)


def add_counters(root: Path) -> None:
    """Add the mounts, and counters at each port, to the host below ``root``."""
    host = MetricsHost(root)
    for port in sorted(root.glob("sys/class/infiniband/*/ports/*")):
        host.port(port.parts[-3], int(port.name), symbol_error=1)
    for number in range(MOUNTS):
        host.mount(f"nas:/vm{number}", "rdma" if number % 5 else "tcp")


def growth_verdict(timings: Mapping[str, Timing]) -> Verdict:
    """Compare ``check`` with and without counters; pure."""
    ratio = timings[WITH].ratio(timings[WITHOUT])
    return Verdict(
        ratio.median < LIMIT_GROWTH,
        f"with counters `check` takes {times(ratio)} times as long as without, apart "
        f"from Python's start; promised: less than {LIMIT_GROWTH}.",
    )


def look_verdict(timings: Mapping[str, Timing]) -> Verdict:
    """Compare the CPU time of a look with LIMIT_LOOK_S; pure."""
    seen = timings[LOOK].spread.median
    return Verdict(
        seen <= LIMIT_LOOK_S,
        f"a look at {MOUNTS} mounts takes {duration(seen)} of CPU; our own limit is "
        f"{duration(LIMIT_LOOK_S)}, 2 % of a CPU with an interval of 10 s.",
    )
