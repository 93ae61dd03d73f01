# SPDX-License-Identifier: GPL-2.0-or-later
"""Start-up of the command ``ovirt-rdma-host`` against Python's own."""

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
# The program finds the interpreter to measure in this variable.
INTERPRETER = "BENCH_INTERPRETER"

BARE = "python3 -c pass"
HELP = "ovirt-rdma-host --help"
VERBS = ("--help", "facts", "plan", "nfs list", "status")
# Issue 3: how many times a bare Python the help may take.
LIMIT = 3.0

IMPORTS_TEST = (
    "tests/cli/host/test_host_command.py::test_light_verbs_load_no_heavy_modules"
)

_VERSION = "import platform; print(platform.python_version())"


@dataclass(frozen=True)
class Interpreter:
    """A Python of this machine, outside any virtual environment."""

    path: Path
    version: str


def interpreters(paths: Sequence[Path]) -> list[Interpreter]:
    """Return those of ``paths`` that start, each file once, in order of version;
    where none is given the Python that this virtual environment was made with.

    Raises BenchmarkFailed for one that is no program, and where none starts.
    """
    minor = f"{sys.version_info.major}.{sys.version_info.minor}"
    own = Path(sys.base_prefix) / "bin" / f"python{minor}"
    found = {}
    asked = {path.resolve() for path in paths or [own]}
    for path in asked:
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
            found[path] = Interpreter(path, done.stdout.strip())
    if not found:
        tried = ", ".join(sorted(map(str, asked)))
        raise BenchmarkFailed(
            f"no Python of these starts: {tried}; name one with --python"
        )
    return sorted(found.values(), key=_by_version)


def _by_version(python: Interpreter) -> tuple[int, ...]:
    # A release candidate is 3.14.0rc1.
    return tuple(int(part) for part in re.findall(r"\d+", python.version))


def section(interpreters: Sequence[Interpreter], rounds: int) -> Section:
    """Measure on each Python, and say what came of it."""
    rows: list[tuple[str, ...]] = []
    helps: dict[Interpreter, Spread] = {}
    for python in interpreters:
        environment = {"PYTHONPATH": str(PACKAGE), INTERPRETER: str(python.path)}
        timings = measure(PROGRAM, rounds, environment)
        bare = timings[BARE]
        rows += [
            (python.version, name, *durations(timing.spread), times(timing.ratio(bare)))
            for name, timing in timings.items()
        ]
        helps[python] = timings[HELP].ratio(bare)
    heads = ("Python", "command", "median", "min", "max", "times bare Python")
    text = f"""
        Whole processes on this machine, output to /dev/null; the package is found by
        PYTHONPATH and started by a script like the one that pip writes. The rival is
        the same Python with nothing to do. No verb of the table imports a YAML or
        schema library; `{IMPORTS_TEST}` holds that."""
    return Section(
        TITLE,
        text,
        (Table(heads, tuple(rows)),),
        (_verdict(helps),),
    )


def _verdict(helps: Mapping[Interpreter, Spread]) -> Verdict:
    slowest, ratio = max(helps.items(), key=lambda item: item[1].median)
    sentence = (
        f"`{HELP}` takes {ratio.median:.2f} times as long as a bare Python where that "
        f"is worst, on Python {slowest.version}; promised: at most {LIMIT:.0f} times."
    )
    return Verdict(ratio.median <= LIMIT, sentence)
