# SPDX-License-Identifier: GPL-2.0-or-later
"""The data model of every matrix: rows, columns, and a verdict in each cell.

Tables on a terminal, JSON and a later HTML report are drawn from it and nothing else;
docs/matrix.md describes its JSON form.
"""

from __future__ import annotations

from dataclasses import dataclass

# What a cell may say. UNKNOWN is never good: no data is no proof.
OK = "ok"
WARN = "warn"
FAIL = "fail"
UNKNOWN = "unknown"
# There is nothing to say: the host does not belong to the domain's data center.
NONE = "none"

VERDICTS = (OK, WARN, FAIL, UNKNOWN, NONE)


@dataclass(frozen=True)
class Cell:
    """One place: ``verdict``, a word or two for the table, a sentence, and a fix.

    ``source`` says whose word it is: ``engine``, ``host`` or ``both``.
    """

    verdict: str
    text: str
    sentence: str = ""
    fix: str = ""
    source: str = "host"


@dataclass(frozen=True)
class Axis:
    """A row or column: the name that is shown, and the engine's id of it; of a host
    also its address.
    """

    name: str
    id: str = ""
    address: str = ""


@dataclass(frozen=True)
class Matrix:
    """``cells[row][column]``; ``kind`` names what it is of (``hosts``, ``domains``).

    ``notes`` are sentences for below it.
    """

    kind: str
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    cells: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> str:
        """The worst verdict: fail, unknown, warn, ok; none for an empty matrix."""
        said = {cell.verdict for row in self.cells for cell in row}
        return next((v for v in (FAIL, UNKNOWN, WARN, OK) if v in said), NONE)
