# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure the start-up of the command ``ovirt-rdma-host`` and of a bare Python."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench.report import Section, Table, Verdict
from bench.rounds import PACKAGE, BenchmarkFailed, measure
from bench.spread import Spread, durations, times

TITLE = "Starting the command: against a bare Python"
PROGRAM = "bench.startup_program"
# The variable that names the interpreter to measure.
INTERPRETER = "BENCH_INTERPRETER"

BARE = "python3 -c pass"
# A help loads what its verb needs: of apply that is nearly the whole half of the host.
VERBS = (
    *("--help", "check --help", "apply --help", "bench --help"),
    *("facts", "plan", "nfs list", "status"),
)
# docs/decisions/013-tests-lab-command-line.md
LIMIT_S = 0.25

_VERSION = "import platform; print(platform.python_version())"


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine, outside any virtual environment."""

    path: Path
    version: str


def interpreters(paths: Sequence[Path]) -> list[Interpreter]:
    """Return those of ``paths`` that start, each file once, in order of version.

    Without paths it is the Python that made this virtual environment. Raises
    BenchmarkFailed for a file that is no program, and if none starts.
    """
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(sys.base_prefix) / "bin" / f"python{minor}"
    started = {}
    requested = {path.resolve() for path in paths or [own]}
    for path in requested:
        try:
            done = subprocess.run(
                [path, "-c", _VERSION], capture_output=True, text=True, check=False
            )
        except OSError as error:
            sentence = (
                f"{path} cannot be run ({error.strerror}): name another with --python"
            )
            raise BenchmarkFailed(sentence) from error
        if done.returncode == 0:
            started[path] = Interpreter(path, done.stdout.strip())
    if not started:
        tried = ", ".join(sorted(map(str, requested)))
        raise BenchmarkFailed(
            f"no Python of these starts: {tried}; name one with --python"
        )
    return sorted(started.values(), key=_by_version)


def _by_version(python: Interpreter) -> tuple[int, ...]:
    # A release candidate is 3.14.0rc1.
    return tuple(int(part) for part in re.findall(r"\d+", python.version))


def section(interpreters: Sequence[Interpreter], rounds: int) -> Section:
    """Measure with each Python and return the results."""
    rows: list[tuple[str, ...]] = []
    helps: dict[tuple[str, str], Spread] = {}
    for python in interpreters:
        environment = {"PYTHONPATH": str(PACKAGE), INTERPRETER: str(python.path)}
        timings = measure(PROGRAM, rounds, environment)
        bare = timings[BARE]
        rows += [
            (python.version, name, *durations(timing.spread), times(timing.ratio(bare)))
            for name, timing in timings.items()
        ]
        helps |= {
            (name, python.version): timing.spread
            for name, timing in timings.items()
            if name.endswith("--help")
        }
    heads = ("Python", "command", "median", "min", "max", "times bare Python")
    text = """
        Whole processes on this machine, output to /dev/null; the package is found by
        PYTHONPATH and started by a script like the one that pip writes. The rival is
        the same Python with nothing to do."""
    return Section(
        TITLE,
        text,
        (Table(heads, tuple(rows)),),
        (_verdict(helps),),
    )


def _verdict(helps: Mapping[tuple[str, str], Spread]) -> Verdict:
    (command, version), slowest = max(helps.items(), key=lambda item: item[1].median)
    sentence = (
        f"`{command}` takes {slowest.median * 1000:.0f} ms where a help takes longest, "
        f"on Python {version}; promised: at most {LIMIT_S * 1000:.0f} ms."
    )
    return Verdict(slowest.median <= LIMIT_S, sentence)
