# SPDX-License-Identifier: GPL-2.0-or-later
"""Undo changes on the host, and roll back a run that failed or was not confirmed.

:mod:`.undo` plans the undo. Each change is recorded before it is undone, and verified
afterwards. An undo can be interrupted anywhere and started again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_rdma.host.changes.journal import AppliedChange, JournalWriter, Ledger
from ovirt_rdma.host.changes.kinds.base import EffectFailed, Reading
from ovirt_rdma.host.changes.kinds.kind import Property
from ovirt_rdma.host.changes.kinds.model import (
    PARTLY,
    ROLLED_BACK,
    AtomicChange,
    HostBackend,
    Left,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.registry import describe, kind_of_act
from ovirt_rdma.host.changes.undo import (
    Key,
    Present,
    UndoChange,
    UndoPlan,
    follows_group,
    key_of,
    may_be_group_mtu,
    plan_undo,
)
from ovirt_rdma.host.errors import Sentence


@dataclass
class UndoResult:
    """``steps`` were undone, or nothing had to be done, in this order; ``left`` has
    what was left, or could not be undone.
    """

    steps: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)

    @property
    def failed(self) -> list[Left]:
        """What could not be undone."""
        return [left for left in self.left if left.failed]


def undo_plan(
    host: HostBackend,
    applied: Sequence[AppliedChange],
    scope: Collection[Key],
    by_run: int,
) -> UndoPlan:
    """Read the values of all ``applied`` changes, and plan the undo of those in
    ``scope``.
    """
    readings: dict[Property, Reading] = {}
    present = {}
    for entry in applied:
        act = host.present(entry.act)
        change, sets = act.changes[0], kind_of_act(act).sets
        if sets not in readings:
            readings[sets] = host.read(change, act.uuid, act.place)
        lowered = follows_group(host, change)
        present[key_of(entry)] = Present(act, readings[sets], host.gone(act), lowered)
    return plan_undo(applied, scope, present, host.boot_id(), by_run)


def carry_out_undo(
    host: HostBackend, writer: JournalWriter, plan: UndoPlan, by_run: int
) -> UndoResult:
    """Carry out ``plan``, recording it for the run ``by_run``. Continues if a change
    cannot be undone, or the journal cannot be written any more.
    """
    execution = _Execution(host, writer, by_run)
    writer.record(
        *(
            replace(released.entry, undone_by=by_run, why=released.why)
            for released in plan.released
        )
    )
    for blocked in plan.blocked:
        act = blocked.entry.act
        why = Sentence(
            "step-needed-by-others",
            f"{blocked.by.act.step} of run {blocked.by.run} depends on it",
        )
        execution.leave(act.step, act, why, kind_of_act(act).manual_fix(act.before[0]))
    # Recorded before anything is done: once the newer changes are closed, a value that
    # stays may look like one that an older change had set.
    execution.record_undoing(
        undo for group in plan.groups for undo in group if undo.why
    )
    for group in plan.groups:
        execution.group(group)
    touched = dict.fromkeys(execution.closed)
    touched.update({released.entry.act.step: None for released in plan.released})
    failed = {left.step for left in execution.result.failed}
    execution.result.steps = [step for step in touched if step not in failed]
    return execution.result


def is_undo_needed(host: HostBackend, group: Sequence[UndoChange]) -> bool:
    """Whether undoing ``group`` would change the host as it is now."""
    return not all(_is_restored(host, undo) for undo in group)


@dataclass
class _Execution:
    host: HostBackend
    writer: JournalWriter
    by_run: int
    result: UndoResult = field(default_factory=UndoResult)
    # The steps of changes that were undone, or deleted with one that was.
    closed: list[str] = field(default_factory=list)

    def leave(self, step: str, act: AtomicChange, why: Sentence, fix: str = "") -> None:
        """Report once that a change is left; with ``fix``: it could not be undone."""
        left = Left(step, describe(act), why, fix, failed=bool(fix))
        if not any(
            earlier.why == why and earlier.failed == left.failed
            for earlier in self.result.left
        ):
            self.result.left.append(left)

    def record_undoing(self, undone: Iterable[UndoChange]) -> None:
        """Record to which values changes are about to be undone."""
        self.writer.record(
            *(
                replace(undo.entry, undoing=undo.to, undoing_run=self.by_run)
                for undo in undone
            )
        )

    def group(self, group: Sequence[UndoChange]) -> None:
        """Undo the changes of one step, unless all values are restored already."""
        failed: dict[Key, EffectFailed] = {}
        if is_undo_needed(self.host, group):
            self.record_undoing(group)
            for undo in group:
                try:
                    self._restore(undo)
                except EffectFailed as error:
                    failed[key_of(undo.entry)] = error
            for undo in group:
                if key_of(undo.entry) not in failed and not _is_restored(
                    self.host, undo, settled=True
                ):
                    failed[key_of(undo.entry)] = self._not_restored(undo)
        for undo in group:
            self._close(undo, failed.get(key_of(undo.entry)))

    def _close(self, undo: UndoChange, error: Optional[EffectFailed]) -> None:
        act = undo.act
        if error:
            # The sentence of the error names the property and the reason.
            why = Sentence(error.id, str(error))
            fix = error.fix or kind_of_act(act).manual_fix(undo.to[0])
            self.leave(act.step, act, why, fix)
            return
        removed = f"removed with {describe(act)}"
        self.writer.record(
            replace(undo.entry, undone_by=self.by_run, why=undo.why or ""),
            *(
                replace(part, undone_by=self.by_run, why=removed)
                for part in undo.going_with
            ),
        )
        if undo.why:
            self.leave(act.step, act, undo.why)
        self.closed += [part.act.step for part in undo.going_with]
        self.closed.append(act.step)

    def _restore(self, undo: UndoChange) -> None:
        if not _is_restored(self.host, undo):
            self.host.undo(replace(undo.act, before=undo.to))

    def _not_restored(self, undo: UndoChange) -> EffectFailed:
        act, kind = undo.act, kind_of_act(undo.act)
        reading = self.host.read(act.changes[0], act.uuid, act.place)
        now = reading.problem or f"it is {kind.value_text(reading.value)}"
        wanted = kind.value_text(undo.to[0], "its earlier text")
        return EffectFailed(
            "value-not-restored",
            f"{describe(act)} was not restored to {wanted}: {now}",
        )


def _is_restored(host: HostBackend, undo: UndoChange, *, settled: bool = False) -> bool:
    """Whether the host has the value that ``undo`` restores. If the step is
    ``settled``, a value that the kernel has lowered counts too.
    """
    act, change = undo.act, undo.act.changes[0]
    reading = host.read(change, act.uuid, act.place)
    if reading.problem:
        return False
    if kind_of_act(act).same(undo.to[0], reading.value):
        return True
    clamped = replace(change, after=undo.to[0], clamped=True)
    lowered = settled and follows_group(host, change)
    return lowered and may_be_group_mtu(clamped, reading.value)


def roll_back(
    host: HostBackend, writer: JournalWriter, run: int, reason: str
) -> RunResult:
    """Undo all applied changes of ``run``, because of ``reason``, a clause.

    Continues if the journal cannot be written. Returns ROLLED_BACK, or PARTLY if a
    change could not be undone and is still applied.
    """
    undone = carry_out_undo(host, writer, plan_rollback(host, writer.ledger, run), run)
    outcome = PARTLY if undone.failed else ROLLED_BACK
    sentence = f"{reason}; {undo_summary(undone)}"
    writer.end(run, outcome, host.now(), sentence)
    sentence += writer.unrecorded
    return RunResult(run, outcome, sentence, (), tuple(undone.left))


def plan_rollback(host: HostBackend, ledger: Ledger, run: int) -> UndoPlan:
    """Return the plan that undoes all applied changes of ``run``."""
    scope = {key_of(entry) for entry in ledger.applied if entry.run == run}
    return undo_plan(host, ledger.applied, scope, run)


def undo_summary(undone: UndoResult) -> str:
    """Return which values were restored, and which were not, as a clause."""
    if undone.failed:
        failed = [f"{left.what} ({left.why})" for left in undone.failed]
        return f"not restored: {', '.join(failed)}"
    if undone.left:
        names = ", ".join(left.what for left in undone.left)
        return f"all is as before, except {names}, which others have changed"
    return "all is as before"
