# SPDX-License-Identifier: GPL-2.0-or-later
"""Show a matrix of hosts, as a table for people or as a document for programs.

Below the table, a sentence that is true of several hosts is printed once, also if it
differs only by the name or address of the host. docs/matrix.md describes the document.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.matrix import (
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Axis,
    Cell,
    Matrix,
)
from ovirt_rdma.engine_sdk_tools.names import listed

# Up to this many names are listed; of more, only their number is shown.
NAMES_SHOWN = 4
# These replace a host's name in a sentence about several hosts.
_AT_FIRST, _ELSEWHERE = "the host", "HOST"


class OnHost(NamedTuple):
    """A sentence about one host, and its fix; ``verdict`` separates equal sentences."""

    host: str
    address: str
    sentence: str
    fix: str = ""
    verdict: str = ""


class OnHosts(NamedTuple):
    """A sentence about several hosts, and its fix; HOST replaces the name of each."""

    hosts: tuple[str, ...]
    sentence: str
    fix: str = ""
    verdict: str = ""

    @property
    def line(self) -> str:
        """The names of the hosts, then the sentence."""
        return f"{listed(self.hosts, NAMES_SHOWN)}: {self.sentence}"


def group_by_sentence(sentences: Iterable[OnHost]) -> list[OnHosts]:
    """Return each sentence once with all its hosts, in the order of occurrence."""
    groups: dict[tuple[str, str, str], dict[str, OnHost]] = {}
    for on_host in sentences:
        sentence = _without_name(on_host, on_host.sentence)
        key = (on_host.verdict, sentence, _without_name(on_host, on_host.fix))
        groups.setdefault(key, {}).setdefault(on_host.host, on_host)
    grouped = []
    for (verdict, sentence, fix), hosts in groups.items():
        only = next(iter(hosts.values())) if len(hosts) == 1 else None
        texts = (only.sentence, only.fix) if only else (sentence, fix)
        grouped.append(OnHosts(tuple(hosts), *texts, verdict))
    return grouped


def _without_name(on_host: OnHost, text: str) -> str:
    """Return ``text`` without the name and address of the host."""
    # The longer first, because the address may start with the name.
    own = sorted({on_host.host, on_host.address} - {""}, key=len, reverse=True)
    if not any(name in text for name in own):
        return text
    names = "|".join(re.escape(name) for name in own)
    # Whole names only, no part of host10, of host1-b or of host1.example.com.
    whole = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    return whole.sub(lambda match: _ELSEWHERE if match.start() else _AT_FIRST, text)


_TONES = {OK: "good", WARN: "doubtful", UNKNOWN: "doubtful", FAIL: "bad"}
# The verdict is readable without colour.
_BEFORE = {WARN: "WARN", FAIL: "FAIL", UNKNOWN: "?"}
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
        [row.name, *(shown(cell) for cell in cells)]
        for row, cells in zip(matrix.rows, matrix.cells)
    ]
    tones = {
        shown(cell): _TONES[cell.verdict]
        for cells in matrix.cells
        for cell in cells
        if cell.verdict in _TONES
    }
    output.table(["HOST", *map(_heading, matrix.columns)], rows, tones)
    problems = _problems(matrix)
    for problem in problems[:_SENTENCES_SHOWN]:
        output.line()
        output.text(f"{_BEFORE[problem.verdict]} {problem.line}")
        output.fix(problem.fix)
    if len(problems) > _SENTENCES_SHOWN:
        output.line()
        output.text(
            f"{len(problems) - _SENTENCES_SHOWN} more are not shown; -o json has all."
        )
    for note in matrix.notes:
        output.line()
        output.text(note)


def shown(cell: Cell) -> str:
    """Return the text of a cell, with its verdict first unless that is OK."""
    if cell.verdict == NONE:
        return cell.text or "-"
    return " ".join(part for part in (_BEFORE.get(cell.verdict), cell.text) if part)


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


def _problems(matrix: Matrix) -> list[OnHosts]:
    """Return the sentences of cells that are not OK, the worst first."""
    worst_first = (FAIL, UNKNOWN, WARN)
    return sorted(
        group_by_sentence(_sentences(matrix)),
        key=lambda problem: worst_first.index(problem.verdict),
    )


def _sentences(matrix: Matrix) -> Iterator[OnHost]:
    for row, cells in zip(matrix.rows, matrix.cells):
        for cell in cells:
            if cell.verdict in _BEFORE and cell.sentence:
                yield OnHost(
                    row.name, row.address, cell.sentence, cell.fix, cell.verdict
                )
