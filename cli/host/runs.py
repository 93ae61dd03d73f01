# SPDX-License-Identifier: GPL-2.0-or-later
"""What verbs that change the host share: the lock, the journal, the report.

What the journal has, in words for people: changes and their values.

What a run shows while it changes the host: a line a step as it is done, and on a
terminal what goes on just now.

Nothing here may end the run: a terminal that is gone is no reason to stop half way.

The host that a verb acts on: its lock, journal and effects, and what every run ends
with.
"""

from __future__ import annotations

import contextlib
import os
from argparse import Namespace
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Optional

from ovirt_rdma.cli.output import Screen
from ovirt_rdma.host.changes.boot import keep_for_boot
from ovirt_rdma.host.changes.confirmation import ConfirmationTimer
from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import PARTLY, Act, RunResult
from ovirt_rdma.host.changes.kinds.properties import makes_profile, shown, shown_act
from ovirt_rdma.host.changes.ledger import JournalAct, Ledger
from ovirt_rdma.host.changes.prepare import FactsBefore
from ovirt_rdma.host.changes.recover import recover
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.rules.base import FILE, PROFILE, Change
from ovirt_rdma.host.rules.infiniband.settings import NEW
from ovirt_rdma.host.system.commands import Runner, run_command


def value_of(change: Change, value: Optional[str]) -> str:
    """Return a value of what ``change`` sets, in few words: no file is quoted."""
    if value is None:
        return "none"
    if change.kind == FILE:
        lines = value.count("\n") + bool(value and not value.endswith("\n"))
        return f"a file of {lines} line{'' if lines == 1 else 's'}"
    return value if value else "empty"


def values_of(
    act: Act, found: Optional[tuple[Optional[str], ...]]
) -> Iterator[tuple[Change, Optional[str], Optional[str]]]:
    """Yield each change of ``act`` with the value before it, and the one that was found
    after; without ``found`` the one that it was to have.
    """
    for number, change in enumerate(act.changes):
        before = act.before[number] if number < len(act.before) else change.before
        after = change.after
        if found is not None and number < len(found):
            after = found[number]
        yield change, before, after


def changes_in_words(one: JournalAct, *, back: bool = False) -> Iterator[str]:
    """Yield what an act changed: ``mtu of ib0: 2044 -> 65520``; ``back``: the other way
    round, and only what there is to set back. A new profile is one thing.
    """
    if makes_profile(one.act):
        yield f"{shown_act(one.act)}: {'removed' if back else 'made'}"
        return
    for change, before, after in values_of(one.act, one.found):
        if back and before == after:
            continue
        pair = (after, before) if back else (before, after)
        values = " -> ".join(value_of(change, value) for value in pair)
        yield f"{_named(change)}: {values}"


def _named(change: Change) -> str:
    if change.kind == PROFILE and change.target.startswith(NEW):
        return f"{change.name} of the new profile of {change.target[len(NEW) :]}"
    return shown(change)


def held_steps(ledger: Ledger) -> list[str]:
    """Return the ids of the steps of which something is held, in their order."""
    return list(dict.fromkeys(one.act.step for one in ledger.held))


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


# What runs the host's tools: None is the real ones on /, and none below another root.
# Tests put their fake host's here.
TOOLS: Optional[Runner] = None
# A tool may take this long where the host is about to be changed: on a busy one, what
# could not be read is a step that is missing, or a change that is not proved.
READ_TIMEOUT_S = 30.0


def door(root: str) -> HostEffects:
    """Return what reads and changes the host below ``root``."""
    return HostEffects(root, TOOLS)


class ThisHost:
    """The host below the root that the words name."""

    def __init__(self, words: Namespace) -> None:
        self.root: str = words.root
        self.run = TOOLS
        if self.run is None and self.root == "/":
            self.run = partial(run_command, timeout_s=READ_TIMEOUT_S)
        self.journal = Journal(self.root)
        self.effects = door(self.root)
        # A verb that needs them calls it before it takes the lock, and again under it.
        self.facts = FactsBefore(self.root, self.run)

    def timer(self, run: int) -> ConfirmationTimer:
        """Return the timer that takes back the run with that number."""
        return ConfirmationTimer(run, self.root, TOOLS)

    def recover(
        self, report: RunReport, *, cut_off: bool = False
    ) -> Optional[RunResult]:
        """Take back what an earlier run left, and say so; None where there is nothing.
        ``cut_off``: also what an interrupted run left where that cuts users off. The
        caller holds the lock.

        Raises Refused where there are such users, and Problem where not all could be
        taken back: no run should build on that.
        """
        facts = None if cut_off else self.facts
        result = recover(self.effects, self.journal, self.effects.now(), report, facts)
        if result is None:
            return None
        self.finish(report)
        if result.outcome == PARTLY:
            told = [f"{left.step}: {left.why}" for left in result.left if left.failed]
            fixes = [left.fix for left in result.left if left.failed and left.fix]
            raise Problem(
                "recovery-incomplete",
                "\n".join([result.sentence, *told]),
                "; ".join(fixes),
            )
        report.note(result.sentence)
        return result

    def finish(self, report: RunReport) -> None:
        """Do what follows a change of the journal: have set again at boot what nothing
        else keeps. That it fails is said, and is no failure of the run.
        """
        trouble = keep_for_boot(self.root, self.journal)
        if trouble:
            report.note(trouble)


def as_root(verb: str, words: Namespace) -> None:
    """Raise Problem where this process may not change the host."""
    if words.root == "/" and os.geteuid() != 0:
        raise Problem(
            "not-root",
            f"{verb} changes this host, which only root may",
            "run it as root",
        )
