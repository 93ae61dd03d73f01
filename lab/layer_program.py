# SPDX-License-Identifier: GPL-2.0-or-later
"""Run programs of a guest layer on the machine, with the layer's own libraries."""

from __future__ import annotations

import subprocess
from pathlib import Path

from lab.problem import LabProblem


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
