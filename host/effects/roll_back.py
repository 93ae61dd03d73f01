# SPDX-License-Identifier: GPL-2.0-or-later
"""A run is taken back: one that failed, was interrupted, or that nobody confirmed."""

from __future__ import annotations

from ovirt_rdma.host.effects.door import Door
from ovirt_rdma.host.effects.journal_records import PARTLY, ROLLED_BACK, End
from ovirt_rdma.host.effects.ledger import Ledger
from ovirt_rdma.host.effects.notes import Notes, iso
from ovirt_rdma.host.effects.run_result import RunResult
from ovirt_rdma.host.effects.take_back import TakenBack, take_back, undo_plan
from ovirt_rdma.host.effects.undo_plan import UndoPlan, key_of


def roll_back(host: Door, notes: Notes, run: int, reason: str) -> RunResult:
    """Take all that is held of ``run`` back, because of ``reason``, a clause.

    Does not depend on what can be noted. Returns ROLLED_BACK, or PARTLY where
    something could not be set back and is still held.
    """
    undone = take_back(host, notes, plan_roll_back(host, notes.ledger, run), run)
    outcome = PARTLY if undone.failed else ROLLED_BACK
    sentence = f"{reason}; {what_came_of_it(undone)}"
    notes.may(End(run, outcome, iso(host.now()), sentence))
    sentence += notes.what_is_missing
    return RunResult(run, outcome, sentence, (), tuple(undone.left))


def plan_roll_back(host: Door, ledger: Ledger, run: int) -> UndoPlan:
    """Return how all that is held of ``run`` is taken back."""
    scope = {key_of(entry) for entry in ledger.held if entry.run == run}
    return undo_plan(host, ledger.held, scope, run)


def what_came_of_it(undone: TakenBack) -> str:
    """Return what is as it was before, and what is not, as a clause."""
    if undone.failed:
        words = [f"{one.what} ({one.why})" for one in undone.failed]
        return f"not set back: {', '.join(words)}"
    if undone.left:
        words = [one.what for one in undone.left]
        return f"all but {', '.join(words)} is as before, which others changed"
    return "all is as before"
