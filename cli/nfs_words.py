# SPDX-License-Identifier: GPL-2.0-or-later
"""Exports and mount options from the command line: what is wrong is wrong usage."""

from __future__ import annotations

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.problem import UsageProblem
from ovirt_rdma.storage.engine_options import engine_problems
from ovirt_rdma.storage.options import MountOptions, OptionsProblem


def export_of(text: str) -> Export:
    """Return the export; raises UsageProblem where ``text`` is none."""
    try:
        return Export.parse(text)
    except ExportProblem as problem:
        fix = f"{problem.fix}; no rule names what is written otherwise"
        raise UsageProblem(str(problem), fix) from problem


def engine_options_of(text: str) -> str:
    """Return the engine's options as they are.

    Raises UsageProblem where the engine would not take them, or mount would take
    none of them for a port that is no number.
    """
    problems = engine_problems(text)
    if problems:
        raise UsageProblem("\n".join(problems), "change --engine-options")
    try:
        _ = MountOptions.parse(text).port
    except OptionsProblem as problem:
        raise UsageProblem(str(problem), problem.fix) from problem
    return text
