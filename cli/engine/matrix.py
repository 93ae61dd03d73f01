# SPDX-License-Identifier: GPL-2.0-or-later
"""Show a matrix of hosts, as a table for people or as a document for programs.

Below the table, a sentence that is true of several hosts is printed once.
docs/matrix.md describes the document.
"""

from __future__ import annotations

from typing import Any

from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import AllowNone, verdict_code
from ovirt_rdma.engine_sdk_tools.matrix import (
    BEFORE,
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    VERDICTS,
    WARN,
    Axis,
    Cell,
    Matrix,
    problems_of,
    worst_of,
)
from ovirt_rdma.host.exit_code import ExitCode

_TONES = {OK: "good", WARN: "doubtful", UNKNOWN: "doubtful", FAIL: "bad"}
# More sentences than this would hide the worst ones.
_SENTENCES_SHOWN = 30


def show_matrix(output: Output, matrix: Matrix) -> None:
    """Print ``matrix``: one line per host; below it the problems, the worst first, each
    once for all its hosts; then the notes.
    """
    if not output.for_people:
        output.document("matrix", matrix_document(matrix))
        return
    rows = [
        [row.name, *(cell.shown for cell in cells)]
        for row, cells in zip(matrix.rows, matrix.cells)
    ]
    tones = {
        cell.shown: _TONES[cell.verdict]
        for cells in matrix.cells
        for cell in cells
        if cell.verdict in _TONES
    }
    headings = [*map(_heading, matrix.columns)]
    # On a narrow terminal columns without a problem fold first.
    worst_first = sorted(
        zip(headings, zip(*matrix.cells)),
        key=lambda one: VERDICTS.index(worst_of(cell.verdict for cell in one[1])),
    )
    minor = [heading for heading, _ in reversed(worst_first)]
    output.table(["HOST", *headings], rows, tones, minor=minor)
    problems = problems_of(matrix)
    for problem in problems[:_SENTENCES_SHOWN]:
        output.line()
        output.text(f"{BEFORE[problem.verdict]} {problem.line}")
        output.fix(problem.fix)
    if len(problems) > _SENTENCES_SHOWN:
        output.line()
        output.text(
            f"{len(problems) - _SENTENCES_SHOWN} more are not shown; -o json has all."
        )
    for note in matrix.notes:
        output.line()
        output.text(note)


def matrix_code(args: AllowNone, output: Output, matrix: Matrix, none: str) -> ExitCode:
    """Return the exit code for ``matrix``; ``none`` is the sentence for one that shows
    nothing that was looked at.
    """
    looked_at = matrix.worst != NONE
    if not looked_at and output.for_people:
        output.text(none)
    elif not looked_at:
        output.message(f"note: {none}")
    failed = matrix.worst in (FAIL, UNKNOWN)
    return verdict_code(args, looked_at=looked_at, failed=failed)


def matrix_document(matrix: Matrix) -> dict[str, Any]:
    """Return the document of ``matrix``, without schema_version and kind."""
    return {
        "of": matrix.kind,
        "worst": matrix.worst,
        "rows": [
            {"name": row.name, "id": row.id, "address": row.address}
            for row in matrix.rows
        ],
        "columns": [
            {"name": column.name, "id": column.id} for column in matrix.columns
        ],
        "cells": [[cell_document(cell) for cell in cells] for cells in matrix.cells],
        "notes": list(matrix.notes),
    }


def cell_document(cell: Cell) -> dict[str, str]:
    """Return a cell as it is in documents."""
    return {
        "verdict": cell.verdict,
        "text": cell.text,
        "sentence": cell.sentence,
        "fix": cell.fix,
        "source": cell.source,
    }


def _heading(column: Axis) -> str:
    """Return the heading of a column; one with an id is named as in the engine."""
    return column.name if column.id else column.name.upper()
