# SPDX-License-Identifier: GPL-2.0-or-later
"""Compile the plugin that counts and the program that is counted."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from lab.problem import LabProblem

_SOURCES = Path(__file__).parent
_WARNINGS = ("-Wall", "-Wextra", "-Wno-unused-parameter", "-Werror")


@dataclass(frozen=True)
class Programs:
    """The files that were built; guests see them too, because they see /."""

    counter: Path
    load: Path


def build(folder: Path) -> Programs:
    """Build both in ``folder``. Raises LabProblem with the compiler's output."""
    built = Programs(folder / "counter.so", folder / "load")
    _compile("counter.c", built.counter, "-shared", "-fPIC")
    _compile("load.c", built.load)
    return built


def _compile(source: str, target: Path, *options: str) -> None:
    files = ("-o", str(target), str(_SOURCES / source))
    command = ["gcc", "-O2", *_WARNINGS, *options, *files]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except OSError as error:
        raise LabProblem(f"{source} needs gcc to be built: {error}") from None
    if done.returncode:
        raise LabProblem(f"{source} cannot be built:\n{done.stderr.strip()}")
