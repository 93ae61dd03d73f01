# SPDX-License-Identifier: GPL-2.0-or-later
"""Exports and mount options from the command line: what is wrong is wrong usage."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ovirt_rdma.host.export import Export, ExportProblem
from ovirt_rdma.host.problem import UsageProblem
from ovirt_rdma.storage.engine_options import engine_problems
from ovirt_rdma.storage.options import MountOptions, OptionsProblem

_Read = TypeVar("_Read")


def export_of(text: str) -> Export:
    """Return the export; raises UsageProblem where ``text`` is none."""
    return _usage(lambda: Export.parse(text))


def engine_options_of(text: str) -> str:
    """Return the engine's options as they are.

    Raises UsageProblem where the engine would not take them, or mount would take
    none of them for a port that is no number.
    """
    problems = engine_problems(text)
    if problems:
        raise UsageProblem("\n".join(problems), "change --engine-options")
    options = MountOptions.parse(text)
    _usage(lambda: options.port)
    return text


def _usage(read: Callable[[], _Read]) -> _Read:
    try:
        return read()
    except (ExportProblem, OptionsProblem) as problem:
        raise UsageProblem(str(problem), problem.fix) from problem
