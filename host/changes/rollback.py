# SPDX-License-Identifier: GPL-2.0-or-later
"""Roll back a run that failed or was not confirmed.

Acts are taken back on the host, as :mod:`.undo` planned it: noted before, read back
after. It can be broken off anywhere and begun again.

A run is taken back: one that failed, was interrupted, or that nobody confirmed.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_rdma.host.changes.journal import Notes, iso
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Reading
from ovirt_rdma.host.changes.kinds.model import (
    PARTLY,
    ROLLED_BACK,
    Act,
    Door,
    End,
    Left,
    RunResult,
    Undoing,
    Undone,
)
from ovirt_rdma.host.changes.kinds.properties import (
    Property,
    by_hand,
    property_of,
    said,
    same_value,
    shown_act,
)
from ovirt_rdma.host.changes.ledger import JournalAct, Ledger
from ovirt_rdma.host.changes.undo import (
    Key,
    Present,
    UndoAct,
    UndoPlan,
    follows_group,
    key_of,
    may_be_groups,
    plan_undo,
)


@dataclass
class TakenBack:
    """``steps`` were taken back, or needed nothing, in that order; ``left`` says what
    was left, or could not be set back.
    """

    steps: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def failed(self) -> list[Left]:
        """What could not be set back."""
        return [one for one in self.left if one.failed]


def undo_plan(
    host: Door, held: Sequence[JournalAct], scope: Collection[Key], by_run: int
) -> UndoPlan:
    """Look at what ``held`` acts changed, and plan the undo of those in ``scope``."""
    readings: dict[Property, Reading] = {}
    present = {}
    for entry in held:
        act = host.present(entry.act)
        change = act.changes[0]
        place = property_of(change, act.uuid)
        if place not in readings:
            readings[place] = host.read(change, act.uuid, act.place)
        lowered = follows_group(host, change)
        present[key_of(entry)] = Present(act, readings[place], host.gone(act), lowered)
    return plan_undo(held, scope, present, host.boot_id(), by_run)


def take_back(host: Door, notes: Notes, plan: UndoPlan, by_run: int) -> TakenBack:
    """Carry ``plan`` out, noting it as of the run ``by_run``. Goes on where something
    cannot be set back, and where nothing can be noted any more.
    """
    work = _Work(host, notes, by_run)
    for released in plan.released:
        entry = released.entry
        notes.may(Undone(entry.run, entry.number, by_run, released.why))
        if released.foreign:
            work.leave(entry.act.step, entry.act, released.why)
    for blocked in plan.blocked:
        act = blocked.entry.act
        why = f"{blocked.by.act.step} of run {blocked.by.run} rests on it"
        work.leave(act.step, act, why, by_hand(act, act.before[0]))
    # Noted before anything is done, the oldest first: once the newer acts are closed,
    # a value that stays may look like what an older one had set.
    for one in (one for group in reversed(plan.groups) for one in reversed(group)):
        if one.why:
            entry = one.entry
            notes.may(Undoing(entry.run, entry.number, by_run, one.to))
    for group in plan.groups:
        work.group(group)
    touched = dict.fromkeys(work.closed)
    touched.update({one.entry.act.step: None for one in plan.released})
    failed = {one.step for one in work.result.failed}
    work.result.steps = [step for step in touched if step not in failed]
    return work.result


def not_back_yet(host: Door, group: Sequence[UndoAct]) -> bool:
    """Whether taking ``group`` back would change the host as it is now."""
    return not all(_is_back(host, one) for one in group)


@dataclass
class _Work:
    host: Door
    notes: Notes
    by_run: int
    result: TakenBack = field(default_factory=TakenBack)
    # The steps of acts that are taken back, or went with one that is.
    closed: list[str] = field(default_factory=list)

    def leave(self, step: str, act: Act, why: str, fix: str = "") -> None:
        """Report once that something is left; with ``fix``, that it could not be set
        back.
        """
        left = Left(step, shown_act(act), why, fix, failed=bool(fix))
        if not any(
            one.why == why and one.failed == left.failed for one in self.result.left
        ):
            self.result.left.append(left)

    def group(self, group: Sequence[UndoAct]) -> None:
        """Take the acts of one step back, unless all is back already."""
        failed: dict[Key, EffectFailed] = {}
        if not_back_yet(self.host, group):
            for one in reversed(group):
                entry = one.entry
                self.notes.may(Undoing(entry.run, entry.number, self.by_run, one.to))
            for one in group:
                try:
                    self._set_back(one)
                except EffectFailed as error:
                    failed[key_of(one.entry)] = error
            for one in group:
                if key_of(one.entry) not in failed and not _is_back(
                    self.host, one, settled=True
                ):
                    failed[key_of(one.entry)] = self._not_back(one)
        for one in group:
            self._close(one, failed.get(key_of(one.entry)))

    def _close(self, one: UndoAct, error: Optional[EffectFailed]) -> None:
        act = one.act
        if error:
            # One sentence says it all: what it is about, and what went wrong.
            self.leave(act.step, act, str(error), error.fix or by_hand(act, one.to[0]))
            return
        entry = one.entry
        self.notes.may(Undone(entry.run, entry.number, self.by_run, one.why))
        if one.why:
            self.leave(act.step, act, one.why)
        for each in one.going_with:
            why = f"went with {shown_act(act)}"
            self.notes.may(Undone(each.run, each.number, self.by_run, why))
            self.closed.append(each.act.step)
        self.closed.append(act.step)

    def _set_back(self, one: UndoAct) -> None:
        if not _is_back(self.host, one):
            self.host.undo(replace(one.act, before=one.to))

    def _not_back(self, one: UndoAct) -> EffectFailed:
        act, change = one.act, one.act.changes[0]
        reading = self.host.read(change, act.uuid, act.place)
        now = reading.problem or f"it is {said(change, reading.value)}"
        wanted = said(change, one.to[0], "its earlier text")
        return EffectFailed(
            "value-not-restored", f"{shown_act(act)} did not go back to {wanted}: {now}"
        )


def _is_back(host: Door, one: UndoAct, *, settled: bool = False) -> bool:
    """Whether the host has what ``one`` goes back to; where the step is ``settled``,
    also if the kernel makes less of it.
    """
    act, change = one.act, one.act.changes[0]
    reading = host.read(change, act.uuid, act.place)
    if reading.problem:
        return False
    if same_value(change, one.to[0], reading.value):
        return True
    less = replace(change, after=one.to[0], clamped=True)
    lowered = settled and follows_group(host, change)
    return lowered and may_be_groups(less, reading.value)


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
