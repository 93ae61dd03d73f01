# SPDX-License-Identifier: GPL-2.0-or-later
"""A titled table of the facts overview."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.cli.screen import Screen

NOTHING = "-"


@dataclass(frozen=True)
class Section:
    """A table; a cell that is None or empty has nothing to tell.

    ``even_empty`` has the title printed also where there are no rows, because that
    is what somebody asked.
    """

    title: str
    headings: tuple[str, ...]
    rows: list[tuple[Optional[str], ...]]
    even_empty: bool = False

    def show(self, screen: Screen) -> None:
        """Print it, without the columns in which no row tells anything."""
        if self.rows or self.even_empty:
            screen.line()
            screen.line(self.title if self.rows else f"{self.title}: none")
        if not self.rows:
            return
        told = [any(row[place] for row in self.rows) for place in self._places]
        screen.table(
            [self.headings[place] for place in self._places if told[place]],
            [
                [row[place] or NOTHING for place in self._places if told[place]]
                for row in self.rows
            ],
        )

    @property
    def _places(self) -> range:
        return range(len(self.headings))


def known(*parts: Optional[str], between: str = ", ") -> Optional[str]:
    """Join the parts that are there; None where none is."""
    return between.join(part for part in parts if part) or None


def number(value: Optional[int]) -> Optional[str]:
    """Return a number's text; None where there is none."""
    return None if value is None else str(value)
