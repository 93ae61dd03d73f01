# SPDX-License-Identifier: GPL-2.0-or-later
"""A run: steps are done and proved, or all of it is taken back."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.acts import acts_of
from ovirt_rdma.host.effects.door import Door
from ovirt_rdma.host.effects.earlier_values import with_earlier_values
from ovirt_rdma.host.effects.effect import EffectFailed
from ovirt_rdma.host.effects.journal import Journal
from ovirt_rdma.host.effects.journal_records import (
    DONE,
    ROLLED_BACK,
    Begin,
    Doing,
    End,
    Undone,
)
from ovirt_rdma.host.effects.journal_records import Done as ReadBack
from ovirt_rdma.host.effects.notes import Notes, iso
from ovirt_rdma.host.effects.open_runs import (
    refuse_while_awaiting,
    refuse_while_interrupted,
)
from ovirt_rdma.host.effects.properties import file_of, said, shown
from ovirt_rdma.host.effects.roll_back import roll_back
from ovirt_rdma.host.effects.run_result import (
    Left,
    Listener,
    Refused,
    RunRequest,
    RunResult,
)
from ovirt_rdma.host.effects.run_signals import Signals, held_signals
from ovirt_rdma.host.effects.same_value import came_true
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.rules.ipoib_settings import MTU
from ovirt_rdma.host.rules.rule import REBOOT, Step

__all__ = ["Left", "Listener", "Refused", "RunRequest", "RunResult", "apply_steps"]


def apply_steps(
    host: Door,
    journal: Journal,
    steps: Sequence[Step],
    request: RunRequest,
    listener: Listener,
) -> RunResult:
    """Do ``steps``, which the gate let through, and prove them. The caller holds the
    lock, and has called :func:`.recover.recover`.

    Returns DONE with ``run`` None where there are no steps: no run is begun. Raises
    Refused where a run is open or awaits confirmation, or a value is not what the plan
    says, and JournalProblem where the journal cannot be used; nothing was done then.
    """
    if not steps:
        return RunResult(None, DONE, "there is nothing to do")
    with held_signals() as signals:
        notes = Notes(journal, listener)
        ledger = notes.ledger
        refuse_while_interrupted(ledger)
        refuse_while_awaiting(ledger)
        acts = with_earlier_values(
            host, acts_of(steps, request.facts, request.new_uuid)
        )
        run = _Run(host, notes, ledger.next_run, signals, request)
        result = run.carry_out(steps, acts)
        notes.compact()
        return result


class _Stopped(Exception):
    """The run cannot go on; the text is a clause."""


@dataclass
class _Run:
    host: Door
    notes: Notes
    number: int
    signals: Signals
    request: RunRequest

    def carry_out(self, steps: Sequence[Step], acts: Sequence[Act]) -> RunResult:
        self._begin()
        try:
            for step, its in _by_step(steps, acts):
                self._do(step, its)
            self._prove(steps)
            self._go_on()
            count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
            sentence = f"{count} done and proved"
            self.notes.must(End(self.number, DONE, iso(self.host.now()), sentence))
        except (_Stopped, Problem) as error:
            return roll_back(self.host, self.notes, self.number, str(error))
        except Exception as error:
            # A fault of ours leaves no host half changed either.
            roll_back(self.host, self.notes, self.number, f"a fault: {error!r}")
            raise
        return RunResult(self.number, DONE, sentence, tuple(s.id for s in steps))

    def _begin(self) -> None:
        request = self.request
        self.notes.must(
            Begin(
                self.number,
                request.verb,
                iso(self.host.now()),
                self.host.boot_id(),
                request.by,
                request.policy,
                request.confirm_by,
            )
        )
        try:
            request.begun(self.number)
        except Exception as error:
            words = f"{error}; nothing was done"
            self.notes.may(End(self.number, ROLLED_BACK, iso(self.host.now()), words))
            raise

    def _do(self, step: Step, acts: Sequence[tuple[int, Act]]) -> None:
        self._go_on()
        self.notes.doing(step.id, step.sentence)
        for number, act in acts:
            self.notes.must(Doing(self.number, number, act))
        for number, act in acts:
            self._go_on()
            try:
                self.host.do(act)
            except EffectFailed as error:
                if error.untouched:
                    why = "it was not done"
                    self.notes.may(Undone(self.number, number, self.number, why))
                raise _Stopped(f"{step.id} failed: {error}") from None
            found = self._read_back(step, act)
            self.notes.must(ReadBack(self.number, number, found))
        self.notes.done(step.id, step.before, step.after)

    def _read_back(self, step: Step, act: Act) -> tuple[Optional[str], ...]:
        found = []
        for change in act.changes:
            reading = self.host.read(change, act.uuid, act.place)
            if reading.problem:
                raise _Stopped(f"{step.id} cannot be proved: {reading.problem}")
            if not came_true(change, reading.value):
                wanted = said(change, change.after, "our text")
                raise _Stopped(
                    f"{step.id} did not stick: {shown(change)} was set to {wanted}, "
                    f"and is {said(change, reading.value)}"
                )
            found.append(reading.value)
        return tuple(found)

    def _prove(self, steps: Sequence[Step]) -> None:
        if self.request.prove is None:
            return
        still: Collection[str] = self.request.prove()
        for step in steps:
            if step.id in still and not _may_be_planned_again(step):
                raise _Stopped(f"{step.id} was done, and is still planned")

    def _go_on(self) -> None:
        if self.signals.asked:
            raise _Stopped(f"{self.signals.asked} asked the run to end")


def _by_step(
    steps: Sequence[Step], acts: Sequence[Act]
) -> Iterator[tuple[Step, list[tuple[int, Act]]]]:
    known = {step.id: step for step in steps}
    for step_id, its in groupby(enumerate(acts), key=lambda one: one[1].step):
        yield known[step_id], list(its)


def _may_be_planned_again(step: Step) -> bool:
    """Whether the facts may show no difference yet: what comes with the next boot, and
    an MTU that the broadcast group keeps low.
    """
    if step.effect == REBOOT:
        return True
    mtu = [c for c in step.changes if file_of(c) == "mtu" or c.name == MTU]
    return mtu == list(step.changes) and any(c.clamped for c in mtu)
