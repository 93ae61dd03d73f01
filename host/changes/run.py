# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a plan: record, change, read back, step by step.

The acts of a plan: what is done in one go, with its place and its UUID. Pure.

The values that a host has before a run: what its undo sets, and whether they are
those that the plan was made for.

A run: steps are done and proved, or all of it is taken back.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Callable, Optional

from ovirt_rdma.host.changes.journal import Journal, Notes, iso
from ovirt_rdma.host.changes.kinds.base import EffectFailed
from ovirt_rdma.host.changes.kinds.location import place_of
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    ROLLED_BACK,
    Act,
    Begin,
    Doing,
    Door,
    End,
    Left,
    Listener,
    Refused,
    RunRequest,
    RunResult,
    Undone,
)
from ovirt_rdma.host.changes.kinds.model import Done as ReadBack
from ovirt_rdma.host.changes.kinds.properties import (
    Property,
    adapter_of,
    came_true,
    file_of,
    goes_with,
    is_maker,
    is_volatile,
    makes_child,
    makes_profile,
    netdev_of,
    property_of,
    said,
    same_value,
    shown,
)
from ovirt_rdma.host.changes.ledger import (
    refuse_while_awaiting,
    refuse_while_interrupted,
)
from ovirt_rdma.host.changes.rollback import roll_back
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.rules.base import MODULE, OFFLOAD, PROFILE, REBOOT, Change, Step
from ovirt_rdma.host.rules.infiniband.settings import MTU, NEW
from ovirt_rdma.host.system.signals import Signals, held_signals


def acts_of(
    steps: Iterable[Step], facts: Optional[Facts], new_uuid: Callable[[], str]
) -> tuple[Act, ...]:
    """Return the acts of ``steps``, in order and without ``before``.

    ``facts`` are those that the steps were decided from; without them no act has a
    place. ``new_uuid`` gives out a UUID for each new profile.
    """
    return tuple(_Acts(facts, new_uuid).of(steps))


@dataclass
class _Acts:
    facts: Optional[Facts]
    new_uuid: Callable[[], str]
    uuids: dict[str, str] = field(default_factory=dict)

    def of(self, steps: Iterable[Step]) -> Iterator[Act]:
        for step in steps:
            changes = list(step.changes)
            while changes:
                first = changes.pop(0)
                together = [first]
                new = first.kind == PROFILE and first.target.startswith(NEW)
                if new and first.target not in self.uuids:
                    self.uuids[first.target] = self.new_uuid()
                    together += [c for c in changes if c.target == first.target]
                    changes = [c for c in changes if c.target != first.target]
                yield Act(
                    step=step.id,
                    effect=step.effect,
                    reason=step.reason,
                    changes=tuple(together),
                    uuid=self.uuids.get(first.target) if new else None,
                    place=place_of(first, self.facts) if self.facts else None,
                    lasting=self._lasts(first),
                )

    def _lasts(self, change: Change) -> bool:
        """Whether something keeps the value over a boot: NetworkManager does for the
        mode and MTU of a netdev that it manages, which are in its profile. Offloads are
        kept out of profiles (:mod:`ovirt_rdma.host.rules.infiniband.tso`).
        """
        if not is_volatile(change):
            return True
        if change.kind == OFFLOAD or makes_child(change) or adapter_of(change):
            return False
        manager = self.facts.network_manager if self.facts else None
        managed = manager.managed if manager and manager.running else ()
        netdev = netdev_of(change)
        return netdev in managed or f"{NEW}{netdev}" in self.uuids


_FIX = "run ovirt-rdma-host plan again"


def with_earlier_values(host: Door, acts: Iterable[Act]) -> tuple[Act, ...]:
    """Return ``acts`` with what ``host`` has now as ``before``. Nothing is changed.

    Where a run sets a property twice, the second time it has what the first one set;
    what a run makes has no value before. Raises Refused where a change is none that
    our rules give, a value cannot be read, or is not the one that the plan is for.
    """
    found: list[Act] = []
    known: dict[Property, Optional[str]] = {}
    anew = False
    for act in acts:
        for change in act.changes:
            words = host.refusal(change)
            if words:
                raise Refused("value-changed-since-plan", words, _FIX)
        made = makes_profile(act) or any(
            goes_with(act, one) for one in found if is_maker(one)
        )
        before = []
        for change in act.changes:
            place = property_of(change, act.uuid)
            if place not in known:
                # A new port MTU makes netdevs anew: the plan says what they get.
                of_new = anew and file_of(change) == "mtu"
                value = None if made else _read(host, act, change)
                if of_new:
                    value = _smaller(value, change.before)
                elif not made:
                    _check(change, value)
                known[place] = value
            before.append(known[place])
            known[place] = change.after
            anew = anew or adapter_of(change) is not None
        found.append(replace(act, before=tuple(before)))
    return tuple(found)


def _read(host: Door, act: Act, change: Change) -> Optional[str]:
    reading = host.read(change, act.uuid, act.place)
    if reading.problem:
        raise Refused(
            "value-unreadable",
            f"{act.step}: {reading.problem}; nothing was changed",
            _FIX,
        )
    return reading.value


def _smaller(now: Optional[str], planned: Optional[str]) -> Optional[str]:
    """Return the MTU ``now``, or the one ``planned`` where the new port MTU allows no
    more: it comes back before that of the port.
    """
    if now and planned and now.isdecimal() and planned.isdecimal():
        return min(now, planned, key=int)
    return now


def _check(change: Change, value: Optional[str]) -> None:
    # Of what the kernel has, a plan may not know it: the netdev is not there yet.
    unknown = is_volatile(change) and change.before is None
    if unknown or change.kind == MODULE or same_value(change, change.before, value):
        return
    was = said(change, change.before, "another text")
    now = said(change, value, "this one")
    raise Refused(
        "value-changed-since-plan",
        f"{shown(change)} has changed since the plan was made: it was {was}, and is "
        f"{now}; nothing was changed",
        _FIX,
    )


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
