# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run shows while it changes the host: a line a step as it is done, and on a
terminal what goes on just now.

Nothing here may end the run: a terminal that is gone is no reason to stop half way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass

from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.host.problem import Problem

DONE = "done"
LEFT = "left"
REFUSED = "refused"
BACK = "back"
# What we changed needs, or can have, nothing set back: it is gone, or stays.
LET_GO = "let go"
# Of a step of a run that was rolled back: only documents have them, as the lines of a
# table were printed before.
TAKEN_BACK = "rolled back"
HELD = "held"

_OUTCOME_WIDTH = len(REFUSED)
_TONES = {
    DONE: "good",
    BACK: "good",
    LET_GO: "good",
    LEFT: "doubtful",
    REFUSED: "doubtful",
}


@dataclass(frozen=True)
class Line:
    """What became of a step, as a document has it."""

    id: str
    outcome: str
    before: str = ""
    after: str = ""


class RunReport:
    """A listener of a run. ``steps`` are the ids that may come, for their column;
    ``word`` is what is said of a step that is done.
    """

    def __init__(
        self, screen: Screen, steps: Iterable[str] = (), word: str = DONE
    ) -> None:
        self._screen = screen
        self.word = word
        self._widest = 0
        self.lines: list[Line] = []
        self.notes: list[str] = []
        self.expect(steps)

    def expect(self, steps: Iterable[str]) -> None:
        """Make the column wide enough for these ids."""
        self._widest = max([self._widest, *map(len, steps)])

    def reading(self, what: str = "reading the host") -> None:
        """Say on a terminal that the host is being read, which takes a while."""
        self._screen.passing(what)

    def doing(self, step_id: str, sentence: str) -> None:
        """Say on a terminal what is being done."""
        self._screen.passing(f"{step_id}: {sentence}")

    def done(self, step_id: str, before: str, after: str) -> None:
        """Print the line of a step that was done."""
        self.add(Line(step_id, self.word, before, after))

    def note(self, sentence: str) -> None:
        """Print a message."""
        self.notes.append(sentence)
        if self._screen.for_people:
            self._screen.message(f"note: {sentence}")

    def add(self, line: Line, more: str = "") -> None:
        """Print one line of the result at once; ``more`` stands in place of values."""
        self.lines.append(line)
        if not self._screen.for_people:
            return
        told = more or f"{line.before} -> {line.after}"
        self._screen.row(
            (line.outcome, line.id, told),
            (_OUTCOME_WIDTH, self._widest),
            _TONES.get(line.outcome, ""),
        )
        # stdout that is gone is said at the end; see flush().
        with contextlib.suppress(Problem):
            self._screen.flush()
