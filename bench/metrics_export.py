# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure a run of the exporter of metrics, beside node_exporter's own collector."""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from support.storage.metrics_host import large

from bench.report import Section, Table, Verdict
from bench.rounds import PACKAGE, PROGRAM_PATH, BenchmarkFailed, measure
from bench.spread import Spread, durations, megabytes, times
from bench.startup import INTERPRETER, Interpreter

TITLE = "Metrics: a run of the exporter, beside node_exporter"
PROGRAM = "bench.metrics_export_program"
MOUNTS, PORTS = 20, 4

BARE = "python3 -c pass"
RUN = "a run"
VERB = "ovirt-rdma-host metrics"
MOUNTSTATS = "node_exporter: a scrape of mountstats, all mounts over TCP"
TEXTFILE = "node_exporter: a scrape of our file"
OURS = (BARE, RUN, VERB)
# Issue 17.
LIMIT_S, LIMIT_BYTES = 0.05, 30_000_000

_WITH_MEMORY = """\
import sys
sys.path.insert(0, sys.argv[1])
from ovirt_rdma.storage.metrics.exporter import export
export(sys.argv[2])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")))
"""


def section(interpreters: Sequence[Interpreter], rounds: int) -> Section:
    """Measure with each Python and return the results."""
    rows: list[tuple[str, ...]] = []
    runs: dict[str, Spread] = {}
    memory: dict[str, int] = {}
    for python in interpreters:
        environment = {
            "PYTHONPATH": PROGRAM_PATH,
            INTERPRETER: str(python.path),
        }
        timings = measure(PROGRAM, rounds, environment)
        bare = timings[BARE]
        rows += [
            (python.version, name, *durations(timing.spread), times(timing.ratio(bare)))
            for name, timing in timings.items()
        ]
        runs[python.version] = timings[RUN].spread
        memory[python.version] = _highest_memory(python)
    heads = ("Python", "what", "median", "min", "max", "times bare Python")
    text = f"""
        A host with {MOUNTS} NFS mounts, each fifth over TCP, and {PORTS} ports of mlx5,
        as files. Our runs are child processes of the daemon, as every 15 seconds, and
        the verb is a whole process.
        node_exporter is Debian's 1.5.0, a daemon: its rows are a scrape over HTTP. Its
        mountstats collector fails on the host above, so it gets one whose mounts all
        are over TCP."""
    highest = ("Python", "highest resident, a run")
    kept = tuple((version, megabytes(size)) for version, size in memory.items())
    return Section(
        TITLE,
        text,
        (Table(heads, tuple(rows)), Table(highest, kept)),
        (time_verdict(runs), memory_verdict(memory)),
    )


def time_verdict(runs: dict[str, Spread]) -> Verdict:
    """Compare the runs, by Python, with LIMIT_S; pure."""
    version, slowest = max(runs.items(), key=lambda item: item[1].median)
    sentence = (
        f"a run of the exporter takes {slowest.median * 1000:.0f} ms where that is "
        f"worst, on Python {version}; promised: under {LIMIT_S * 1000:.0f} ms."
    )
    return Verdict(slowest.median < LIMIT_S, sentence)


def memory_verdict(memory: dict[str, int]) -> Verdict:
    """Compare the memory, by Python, with LIMIT_BYTES; pure."""
    version, most = max(memory.items(), key=lambda item: item[1])
    sentence = (
        f"it needs {megabytes(most)} where that is most, on Python {version}; "
        f"promised: under {megabytes(LIMIT_BYTES)}."
    )
    return Verdict(most < LIMIT_BYTES, sentence)


def _highest_memory(python: Interpreter) -> int:
    """Return the highest resident memory of a run, in bytes."""
    with tempfile.TemporaryDirectory() as folder:
        large(Path(folder), MOUNTS, PORTS)
        done = subprocess.run(
            [python.path, "-c", _WITH_MEMORY, PACKAGE, folder],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": ""},
        )
    highest = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
    if done.returncode or highest is None:
        raise BenchmarkFailed(f"the exporter failed: {done.stderr}")
    return int(highest[1]) * 1024
