# SPDX-License-Identifier: GPL-2.0-or-later
"""Provide what the verbs that change this host share.

``ThisHost`` is the host with the tools of a verb. ``RunReport`` prints one line per
step during a run; it never ends the run, because a lost terminal is no reason to stop.
Other functions describe changes for people.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from functools import partial
from typing import Any, Optional

from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.changes.journal import Listener, RunResult
from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of, kind_of_act
from ovirt_rdma.host.changes.run import ConfirmationTimer, HostRun
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.rules.base import Change
from ovirt_rdma.host.system.commands import Runner, run_command


def values_of(act: AtomicChange) -> Iterator[tuple[Change, Optional[str]]]:
    """Yield each change of ``act`` with the value read after it, or the planned one."""
    yield from zip(act.changes, act.found or [change.after for change in act.changes])


def describe_changes(applied: AtomicChange, *, back: bool = False) -> Iterator[str]:
    """Yield the changes of an act: ``mtu of ib0: 2044 -> 65520``.

    ``back`` reverses them, and omits those without effect. What is made, a profile or a
    P_Key child, is one change.
    """
    made = kind_of_act(applied)
    if made.is_maker:
        yield f"{made.describe()}: {'removed' if back else 'created'}"
        return
    for change, after in values_of(applied):
        if back and change.before == after:
            continue
        pair = (after, change.before) if back else (change.before, after)
        kind = kind_of(change)
        yield f"{kind.describe()}: {' -> '.join(map(kind.value_text, pair))}"


DONE = "done"
LEFT = "left"
REFUSED = "refused"
BACK = "back"
# Nothing of the step needs to be reverted, or can be: it is gone, or it stays.
LET_GO = "let go"
# Outcomes of steps of a run that was rolled back. Only documents have them: the lines
# of the table were printed before the rollback.
ROLLED_BACK_STEP = "rolled back"
APPLIED = "held"

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
    """The outcome of a step, as in documents."""

    id: str
    outcome: str
    before: str = ""
    after: str = ""


class RunReport(Listener):
    """Listens to a run, prints its steps and collects them for the document; ``word``
    is the outcome of a step that is done.
    """

    def __init__(self, output: Output, word: str = DONE) -> None:
        self._output = output
        self.word = word
        self._widest = 0
        self.lines: list[Line] = []
        self.notes: list[str] = []

    def expect(self, steps: Iterable[str]) -> None:
        """Make the column wide enough for the ids of the steps that may occur."""
        self._widest = max([self._widest, *map(len, steps)])

    def reading(self, what: str = "reading the host") -> None:
        """Show on a terminal that the host is being read, which takes a while."""
        self._output.progress(what)

    def doing(self, step_id: str, sentence: str) -> None:
        """Show on a terminal the step in progress."""
        self._output.progress(f"{step_id}: {sentence}")

    def done(self, step_id: str, before: str, after: str) -> None:
        """Print the line of a completed step."""
        self.add(Line(step_id, self.word, before, after))

    def note(self, sentence: str) -> None:
        """Print a note, and collect it."""
        self.notes.append(sentence)
        if self._output.for_people:
            self._output.message(f"note: {sentence}")

    def add(self, line: Line, more: str = "") -> None:
        """Print one line of the result at once; ``more`` replaces the values."""
        self.lines.append(line)
        if not self._output.for_people:
            return
        text = more or f"{line.before} -> {line.after}"
        self._output.row(
            (line.outcome, line.id, text),
            (_OUTCOME_WIDTH, self._widest),
            _TONES.get(line.outcome, ""),
        )
        # A stdout that cannot be written is reported at the end; see flush().
        with contextlib.suppress(Problem):
            self._output.flush()

    def document(self, result: RunResult) -> dict[str, Any]:
        """Return what all verbs say of a run in their documents."""
        return {
            "run": result.run,
            "outcome": result.outcome,
            "sentence": result.sentence,
            "steps": [asdict(line) for line in self.lines],
            "left": [left.document() for left in result.left],
            "notes": self.notes,
        }


# Runs the host's tools. None: the real ones on /, and no tools below another root.
# Tests replace it with that of their fake host.
TOOLS: Optional[Runner] = None
# Timeout of a tool when the host is about to be changed. It is long because on a busy
# host an unread fact is a missing step or an unverified change.
READ_TIMEOUT_S = 30.0


def host_effects(root: str) -> HostEffects:
    """Return the effects, which read and change the host below ``root``."""
    return HostEffects(root, TOOLS)


class ThisHost(HostRun):
    """The host below ``root``, which the verb ``words`` changes."""

    def __init__(self, root: str, words: str, report: Listener) -> None:
        run = TOOLS
        if run is None and root == "/":
            run = partial(run_command, timeout_s=READ_TIMEOUT_S)
        super().__init__(
            root, f"ovirt-rdma-host {words}", report, run, host_effects(root)
        )

    def timer(self, run: int) -> ConfirmationTimer:
        """Return the timer that rolls back the run with this number."""
        return ConfirmationTimer(run, self.effects)
