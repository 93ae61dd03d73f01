# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the data of a matrix: rows, columns, and a verdict in each cell.

Tables on a terminal and JSON are made from it alone; docs/matrix.md describes its JSON
form.
"""

from __future__ import annotations

from dataclasses import dataclass

# The verdicts of a cell. UNKNOWN never counts as good, because there is no proof.
OK = "ok"
WARN = "warn"
FAIL = "fail"
UNKNOWN = "unknown"
# Not applicable: the host does not belong to the domain's data center.
NONE = "none"

VERDICTS = (OK, WARN, FAIL, UNKNOWN, NONE)
# What stands before a text, so that its verdict is readable without colour.
BEFORE = {WARN: "WARN", FAIL: "FAIL", UNKNOWN: "?"}


@dataclass(frozen=True)
class Cell:
    """A cell: ``verdict``, a short ``text`` for the table, a sentence, and a fix.

    ``source`` is the origin of the verdict: ``engine``, ``host`` or ``both``.
    """

    verdict: str
    text: str
    sentence: str = ""
    fix: str = ""
    source: str = "host"

    @property
    def shown(self) -> str:
        """The text, with the verdict before it unless that is OK or NONE."""
        if self.verdict == NONE:
            return self.text or "-"
        return " ".join(part for part in (BEFORE.get(self.verdict), self.text) if part)


@dataclass(frozen=True)
class Axis:
    """A row or column: the name shown, the engine's id, and the address of a host."""

    name: str
    id: str = ""
    address: str = ""


@dataclass(frozen=True)
class Matrix:
    """A matrix: ``cells[row][column]``; ``kind`` is ``hosts`` or ``domains``.

    ``notes`` are sentences to show below it.
    """

    kind: str
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    cells: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> str:
        """The worst verdict: fail, unknown, warn, ok; none for an empty matrix."""
        present = {cell.verdict for row in self.cells for cell in row}
        return next((v for v in (FAIL, UNKNOWN, WARN, OK) if v in present), NONE)
