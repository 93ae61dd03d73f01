# SPDX-License-Identifier: GPL-2.0-or-later
"""Run programs of a guest layer on the machine, with the layer's own libraries."""

from __future__ import annotations

import subprocess
import sys
from functools import cache
from pathlib import Path

from lab.problem import LabProblem

_CHECKOUT = Path(__file__).resolve().parents[1]
# Whose modules guests import, from the checkout or installed from it.
_IMPORTED = (
    *("cli", "engine_sdk_tools", "host", "storage", "vdsm_hooks", "lab"),
    *("tests/support", "tests/vdsm_double"),
)


def run_from(layer: Path, program: str, name: str, *arguments: str) -> None:
    """Run ``program``, a path in ``layer``, as ``name``.

    Raises LabProblem with its output if it fails.
    """
    libraries = layer / "usr/lib/x86_64-linux-gnu"
    done = subprocess.run(
        [
            *(str(libraries / "ld-linux-x86-64.so.2"), "--argv0", name),
            *("--library-path", str(libraries), str(layer / program), *arguments),
        ],
        env={"PYTHONHOME": str(layer / "usr"), "LANG": "C.UTF-8"},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        output = (done.stderr or done.stdout).strip()
        raise LabProblem(f"{name} {' '.join(arguments)} failed: {output}")


@cache
def compile_checkout(layer: Path) -> None:
    """Compile the checkout's modules that are newer than what is compiled of them, for
    the layer's Python and for .venv's; at most once in a process.

    Packages have them compiled too. A guest does not write what it has compiled, and
    would need twice the time for each command. Raises LabProblem.
    """
    folders = [str(_CHECKOUT / folder) for folder in _IMPORTED]
    arguments = ("-m", "compileall", "-q", *folders)
    run_from(layer, "usr/bin/python3", "python3", *arguments)
    # The guests of another kernel have another Python.
    subprocess.run([sys.executable, *arguments], stdout=subprocess.DEVNULL, check=False)
