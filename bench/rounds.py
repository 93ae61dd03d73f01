# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a program of pyperf benchmarks in rounds, so that rivals take turns.

pyperf completes one benchmark before it begins the next; a machine that becomes slower
in between would look like a difference.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import pyperf

from bench.spread import Timing

CHECKOUT = Path(__file__).resolve().parents[1]
# The package under its import name (``make tree``), for Pythons without .venv.
PACKAGE = CHECKOUT / ".cache/package"
# PYTHONPATH of a program of this folder.
PROGRAM_PATH = f"{PACKAGE}:{CHECKOUT}"

# A round measures in one process, after one value for warming up.
_ONCE = (
    *("--processes", "1", "--warmups", "1", "--values", "3"),
    *("--min-time", "0.05", "--quiet"),
)


class BenchmarkFailed(Exception):
    """Something could not be measured; the text is a sentence, followed by the output
    of a failed benchmark program.
    """


def measure(
    program: str, rounds: int, environment: Mapping[str, str]
) -> dict[str, Timing]:
    """Run the module ``program`` ``rounds`` times; return a Timing for each benchmark.

    ``environment`` is set for the program and its children; pyperf removes most other
    variables. Raises BenchmarkFailed.
    """
    values: dict[str, list[tuple[float, ...]]] = {}
    for number in range(1, rounds + 1):
        print(f"  {program}: round {number} of {rounds}", flush=True)
        for benchmark in _round(program, environment):
            values.setdefault(benchmark.get_name(), []).append(benchmark.get_values())
    return {name: Timing(tuple(all_rounds)) for name, all_rounds in values.items()}


def _round(program: str, environment: Mapping[str, str]) -> pyperf.BenchmarkSuite:
    with tempfile.TemporaryDirectory() as folder:
        results = Path(folder) / "results.json"
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                program,
                *_ONCE,
                "--inherit-environ",
                ",".join(environment),
                "--output",
                str(results),
            ],
            cwd=CHECKOUT,
            env={**os.environ, **environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            raise BenchmarkFailed(f"{program} failed:\n{done.stdout}{done.stderr}")
        return pyperf.BenchmarkSuite.load(str(results))
