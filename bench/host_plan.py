# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure time and memory of ``plan`` on hosts with one to many RDMA devices."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from bench.memory import highest_memory
from bench.report import Chart, Section, Table, Verdict
from bench.rounds import PROGRAM_PATH, BenchmarkFailed, measure
from bench.spread import Timing, duration, durations, megabytes, times

PROGRAM = "bench.host_plan_program"
# The variable that names the folder with the hosts, one per number of devices.
HOSTS = "BENCH_HOSTS"

TITLE = "A plan for a host with 16 RDMA devices: against a bare Python"
# Devices of a host.
SIZES = (1, 4, 16)
LARGEST = SIZES[-1]

ENVIRONMENT = {"PYTHONPATH": PROGRAM_PATH}

# The benchmarks, and their rivals: a Python that only reads.
LIVE, FILES = "`plan`", "python3 reads every file of that host"
DUMP, LOADS = "`plan --facts`", "python3 reads that facts file"
RIVALS = {LIVE: FILES, DUMP: LOADS}
# Without the start of Python, to see the growth.
INSIDE = "reading and deciding"

# The limits of issue 4, in seconds and bytes; growth from 1 to 16 devices must be
# linear or better.
LIMIT_S, LIMIT_BYTES, LIMIT_GROWTH = 1.0, 80e6, LARGEST / SIZES[0]


def benchmark_name(what: str, devices: int) -> str:
    """Return the name of a benchmark in program and section."""
    return f"{what} ({devices})"


def section(rounds: int) -> Section:
    """Measure and return the results."""
    text = f"""
        Hosts as folders with every file in the kernel's form: ConnectX-3 HCAs with two
        InfiniBand ports each, tables of 128 GIDs and 128 P_Keys a port, two P_Key
        children a port, and 31 or 32 VFs with netdevs an HCA. `plan` is the
        whole command, with a policy that asks for mode, MTU, TSO and one more child on
        every port; the host's tools (`ip`, `ethtool`, `nmcli`, ...) are stood in for by
        `cat` of what they print. `plan --facts` reads a dump of the same host. The
        rivals are a Python that opens each file of the folder once, and one that loads
        the dump as JSON. The {LARGEST} devices have 32 ports and 508 VFs. The second
        table is without Python's start, which hides how a host's size counts."""
    environment = dict(ENVIRONMENT)
    with tempfile.TemporaryDirectory() as folder:
        for devices in SIZES:
            write_host(Path(folder), devices)
        environment[HOSTS] = folder
        timings = measure(PROGRAM, rounds, environment)
        memory = {size: _memory(Path(folder), size, environment) for size in SIZES}
    verdicts = (
        time_verdict(timings),
        memory_verdict(memory),
        growth_verdict(timings),
    )
    tables = (_times(timings), _growth(timings), _memory_table(memory))
    inside = {size: _median(timings, INSIDE, size) for size in SIZES}
    chart = Chart.of_seconds("devices", inside, f"{INSIDE}, median")
    return Section(TITLE, text, tables, verdicts, charts=(chart,))


def time_verdict(timings: Mapping[str, Timing]) -> Verdict:
    """Compare the plan of the largest host with LIMIT_S; pure."""
    seen = _median(timings, LIVE, LARGEST)
    return Verdict(
        seen <= LIMIT_S,
        f"`plan` takes {duration(seen)} on a host with {LARGEST} devices; promised: at "
        f"most {duration(LIMIT_S)}.",
    )


def memory_verdict(memory: Mapping[int, int]) -> Verdict:
    """Compare the memory for the largest host with LIMIT_BYTES; pure."""
    seen = memory[LARGEST]
    return Verdict(
        seen <= LIMIT_BYTES,
        f"`plan` needs {megabytes(seen)} there; promised: at most "
        f"{megabytes(int(LIMIT_BYTES))}.",
    )


def growth_verdict(timings: Mapping[str, Timing]) -> Verdict:
    """Compare reading and deciding of the largest and the smallest host; pure."""
    few, many = (timings[benchmark_name(INSIDE, n)] for n in (SIZES[0], LARGEST))
    ratio = many.ratio(few)
    return Verdict(
        ratio.median <= LIMIT_GROWTH,
        f"{INSIDE} takes {times(ratio)} times as long with {LARGEST} devices as with "
        f"{SIZES[0]}; promised: linear growth or better, at most {LIMIT_GROWTH:.0f}.",
    )


def _median(timings: Mapping[str, Timing], what: str, devices: int) -> float:
    return timings[benchmark_name(what, devices)].spread.median


def _times(timings: Mapping[str, Timing]) -> Table:
    rows = []
    for what, rival in RIVALS.items():
        for size in SIZES:
            theirs = timings[benchmark_name(rival, size)]
            ours = timings[benchmark_name(what, size)]
            rows += [
                (rival, str(size), *durations(theirs.spread), "1.00"),
                (what, str(size), *durations(ours.spread), times(ours.ratio(theirs))),
            ]
    heads = ("what", "devices", "median", "min", "max", "times the rival")
    return Table(heads, tuple(rows))


def _growth(timings: Mapping[str, Timing]) -> Table:
    one = timings[benchmark_name(INSIDE, SIZES[0])]
    rows = []
    for size in SIZES:
        timing = timings[benchmark_name(INSIDE, size)]
        ratio = "1.00" if timing is one else times(timing.ratio(one))
        rows.append((INSIDE, str(size), *durations(timing.spread), ratio))
    heads = ("what", "devices", "median", "min", "max", "times one device")
    return Table(heads, tuple(rows))


def _memory_table(memory: Mapping[int, int]) -> Table:
    rows = tuple((str(size), megabytes(seen)) for size, seen in memory.items())
    return Table(("devices", "`plan`, highest resident"), rows)


def _memory(folder: Path, devices: int, environment: Mapping[str, str]) -> int:
    return highest_memory(
        f"plan with {devices} devices",
        "bench.large_host_run:main",
        [str(folder / str(devices)), "plan"],
        environment,
    )


def write_host(folder: Path, devices: int) -> None:
    """Write a host into a new folder below ``folder``.

    Raises BenchmarkFailed.
    """
    place = folder / str(devices)
    place.mkdir()
    done = subprocess.run(
        [sys.executable, "-m", "bench.large_host", str(place), str(devices)],
        env={**os.environ, **ENVIRONMENT},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        raise BenchmarkFailed(f"the host cannot be written:\n{done.stderr}")
