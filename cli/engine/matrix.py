# SPDX-License-Identifier: GPL-2.0-or-later
"""Show a matrix of hosts, as a table or a document.

Sentences on hosts, said once for all hosts of which they are true: also where they
differ by the host's own name or address only.

A matrix as a table for people and as a document for programs; docs/matrix.md has
the document's form.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

from ovirt_rdma.cli.output import Screen
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

# More names than this are a number.
NAMES_SHOWN = 4
# What stands for a host's name in a sentence on several.
_AT_FIRST, _ELSEWHERE = "the host", "HOST"


class OnHost(NamedTuple):
    """A sentence on one host, and its fix. ``verdict`` keeps apart what looks alike."""

    host: str
    address: str
    sentence: str
    fix: str = ""
    verdict: str = ""


class OnHosts(NamedTuple):
    """A sentence on all ``hosts``, and its fix; HOST stands for the name of each."""

    hosts: tuple[str, ...]
    sentence: str
    fix: str = ""
    verdict: str = ""

    @property
    def line(self) -> str:
        """The sentence behind the hosts' names."""
        return f"{listed(self.hosts, NAMES_SHOWN)}: {self.sentence}"


def said_once(said: Iterable[OnHost]) -> list[OnHosts]:
    """Return what is ``said``, each sentence once, in the order of their first."""
    alike: dict[tuple[str, str, str], dict[str, OnHost]] = {}
    for one in said:
        key = (one.verdict, _of_any(one, one.sentence), _of_any(one, one.fix))
        alike.setdefault(key, {}).setdefault(one.host, one)
    found = []
    for (verdict, sentence, fix), of in alike.items():
        only = next(iter(of.values())) if len(of) == 1 else None
        words = (only.sentence, only.fix) if only else (sentence, fix)
        found.append(OnHosts(tuple(of), *words, verdict))
    return found


def _of_any(one: OnHost, text: str) -> str:
    """Return ``text`` without the host's name and address."""
    # The longer first: the address may begin with the name.
    own = sorted({one.host, one.address} - {""}, key=len, reverse=True)
    if not any(name in text for name in own):
        return text
    names = "|".join(re.escape(name) for name in own)
    # Whole names only: no part of host10, of host1-b or of host1.example.com.
    whole = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    return whole.sub(lambda at: _ELSEWHERE if at.start() else _AT_FIRST, text)


_TONES = {OK: "good", WARN: "doubtful", UNKNOWN: "doubtful", FAIL: "bad"}
# The verdict is read without colour too.
_BEFORE = {WARN: "WARN", FAIL: "FAIL", UNKNOWN: "?"}
# More sentences than this nobody reads.
_SENTENCES_SHOWN = 30


def show_matrix(screen: Screen, matrix: Matrix) -> None:
    """Print ``matrix``: a host a line; below it what is not as it should be, the same
    sentence once for all hosts, the worst first, and the notes.
    """
    if not screen.for_people:
        screen.document("matrix", matrix_document(matrix))
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
    screen.table(["HOST", *map(_heading, matrix.columns)], rows, tones)
    said = _said(matrix)
    for one in said[:_SENTENCES_SHOWN]:
        screen.line()
        screen.text(f"{_BEFORE[one.verdict]} {one.line}")
        screen.fix(one.fix)
    if len(said) > _SENTENCES_SHOWN:
        screen.line()
        screen.text(f"And {len(said) - _SENTENCES_SHOWN} more; -o json has them all.")
    for note in matrix.notes:
        screen.line()
        screen.text(note)


def shown(cell: Cell) -> str:
    """Return a cell's text, after its verdict unless that is good."""
    if cell.verdict == NONE:
        return cell.text or "-"
    return " ".join(part for part in (_BEFORE.get(cell.verdict), cell.text) if part)


def matrix_document(matrix: Matrix) -> dict[str, Any]:
    """Return the document of ``matrix``, without schema_version and kind."""
    return {
        "of": matrix.kind,
        "worst": matrix.worst,
        "rows": [
            {"name": one.name, "id": one.id, "address": one.address}
            for one in matrix.rows
        ],
        "columns": [{"name": one.name, "id": one.id} for one in matrix.columns],
        "cells": [
            [
                {
                    "verdict": cell.verdict,
                    "text": cell.text,
                    "sentence": cell.sentence,
                    "fix": cell.fix,
                    "source": cell.source,
                }
                for cell in cells
            ]
            for cells in matrix.cells
        ],
        "notes": list(matrix.notes),
    }


def _heading(column: Axis) -> str:
    """Return a column's name; what has an id has a name of its own in the engine."""
    return column.name if column.id else column.name.upper()


def _said(matrix: Matrix) -> list[OnHosts]:
    """Return what is not as it should be, the worst first."""
    worst_first = (FAIL, UNKNOWN, WARN)
    return sorted(
        said_once(_each(matrix)), key=lambda one: worst_first.index(one.verdict)
    )


def _each(matrix: Matrix) -> Iterator[OnHost]:
    for row, cells in zip(matrix.rows, matrix.cells):
        for cell in cells:
            if cell.verdict in _BEFORE and cell.sentence:
                yield OnHost(
                    row.name, row.address, cell.sentence, cell.fix, cell.verdict
                )
