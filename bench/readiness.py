# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure asking 64 NFS servers for RDMA, half of them dead, as vdsmd does."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from bench.readiness_program import IN_TURN, TOGETHER
from bench.report import Chart, Section, Table, Verdict
from bench.rounds import CHECKOUT, PROGRAM_PATH, BenchmarkFailed
from bench.spread import Spread, duration, durations, megabytes

TITLE = "64 NFS servers, half of them dead: against asking one after the other"
PROGRAM = "bench.readiness_program"
SIZES = (4, 16, 64)
LARGEST = SIZES[-1]
# Our own limits. A silent server is given 2 s; 32 of them in two turns of 16 are 4 s,
# and the engine waits 180 s for the whole connect, mounts included.
LIMIT_S, LIMIT_TIMES, LIMIT_BYTES = 20.0, 4.0, 50_000_000


@dataclass(frozen=True)
class Asked:
    """One run: its seconds, CPU seconds with those of all children, and the highest
    resident memory of the process in bytes.
    """

    seconds: float
    cpu_s: float
    memory: int


def section(rounds: int) -> Section:
    """Measure and return the results."""
    ours: dict[int, list[Asked]] = {size: [] for size in SIZES}
    for number in range(1, rounds + 1):
        print(f"  {PROGRAM}: round {number} of {rounds}", flush=True)
        for size in SIZES:
            ours[size].append(ask(size, TOGETHER))
    print(f"  {PROGRAM}: the rival, once", flush=True)
    return judged(ours, ask(LARGEST, IN_TURN))


def ask(servers: int, how: str) -> Asked:
    """Run the program once. Raises BenchmarkFailed, also if it did not find each
    second server ready.
    """
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-m", PROGRAM, folder, str(servers), how],
            cwd=CHECKOUT,
            env={**os.environ, "PYTHONPATH": PROGRAM_PATH},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise BenchmarkFailed(f"{PROGRAM} failed:\n{done.stderr}")
    result = json.loads(done.stdout)
    ready = result.pop("ready")
    if ready != servers // 2:
        raise BenchmarkFailed(f"{ready} of {servers} servers were ready, not each 2nd")
    return Asked(**result)


def judged(ours: Mapping[int, Sequence[Asked]], rival: Asked) -> Section:
    """Return the section; pure."""
    spreads = {
        size: Spread(tuple(run.seconds for run in runs)) for size, runs in ours.items()
    }
    rows = [
        _row("ours, 16 at a time", size, spreads[size], runs)
        for size, runs in ours.items()
    ]
    alone = Spread((rival.seconds,))
    rows.append(_row("one after the other, once", LARGEST, alone, [rival]))
    seen, slowest = spreads[LARGEST].median, spreads[LARGEST].largest
    memory = max(run.memory for run in ours[LARGEST])
    times = rival.seconds / seen
    heads = ("how", "servers", "median", "min", "max", "CPU", "highest resident")
    what = f"{LARGEST} servers, {LARGEST // 2} of them dead,"
    return Section(
        TITLE,
        """
        What vdsmd asks before it mounts, for one export of each server, rules with
        prefer-rdma: address, route, RDMA port, and whether the server listens, with 2 s
        for each. The host is a folder with one ConnectX-3 HCA of the plans above.
        Each question is a child process with the protocol of our probe: for a dead
        server it never answers, for the others at once. The fabric is left out, so a
        real host adds its time. The rival is the same code without its threads. CPU is
        that of all processes together.""",
        (Table(heads, tuple(rows)),),
        (
            Verdict(
                slowest < LIMIT_S,
                f"{what} answer or do not within {duration(slowest)}; our own limit is "
                f"{duration(LIMIT_S)}.",
            ),
            Verdict(
                times >= LIMIT_TIMES,
                f"one after the other they take {duration(rival.seconds)}, "
                f"{times:.1f} times as long; our own limit is {LIMIT_TIMES:.0f} times.",
            ),
            Verdict(
                memory < LIMIT_BYTES,
                f"that needs {megabytes(memory)}; our own limit is "
                f"{megabytes(LIMIT_BYTES)}.",
            ),
        ),
        charts=(
            Chart.of_seconds(
                "servers", {size: spread.median for size, spread in spreads.items()}
            ),
        ),
    )


def _row(
    how: str, servers: int, seconds: Spread, runs: Sequence[Asked]
) -> tuple[str, ...]:
    cpu = Spread(tuple(run.cpu_s for run in runs)).median
    memory = max(run.memory for run in runs)
    return (how, str(servers), *durations(seconds), duration(cpu), megabytes(memory))
