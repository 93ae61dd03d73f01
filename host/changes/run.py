# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the host, decide its steps, and run them: record, change and verify each, or
roll back everything.

The host is read and decided under the lock before a run changes anything, and again
after it, to verify it. The steps that are applied are always those that are decided
now; with a plan file, only if they are those of the file. So an edited file cannot name
a target that our rules would not change. Before a run, the present values are read:
they are what an undo restores, and they must be those for which the plan was made.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.journal import (
    AppliedChange,
    Journal,
    JournalWriter,
    Run,
    iso,
    refuse_while_awaiting,
    refuse_while_interrupted,
)
from ovirt_rdma.host.changes.kinds.base import EffectFailed
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.kind import Kind, Property
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    ROLLED_BACK,
    AtomicChange,
    Listener,
    Refused,
    RunRequest,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.netdev import MTU_FILE
from ovirt_rdma.host.changes.kinds.registry import kind_of, kind_of_act
from ovirt_rdma.host.changes.plan import Plan, differences
from ovirt_rdma.host.changes.undo import roll_back
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.decision.registry import Decision, decide
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, POLICY_YAML, under
from ovirt_rdma.host.policy.store import Signature, StoredPolicy, read, signature_of
from ovirt_rdma.host.rules.base import REBOOT, Change, Step
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.signals import Signals, delayed_signals


class NoPolicy(Problem):
    """No policy is loaded, so there is nothing to apply."""


class StalePlan(Refused):
    """The plan file is outdated; nothing was changed. The reasons are differences."""


@dataclass(frozen=True)
class Decided:
    """The facts of a host, the policy in force, and the decision for it."""

    facts: Facts
    policy: StoredPolicy
    decision: Decision

    def hold_against(self, plan: Plan, path: str) -> None:
        """Raise StalePlan, with each difference on a line, if ``plan``, which was saved
        in ``path``, differs from what would be done now.
        """
        reasons = differences(
            plan, self.facts.hostname, self.policy.digest, self.decision.applicable
        )
        if reasons:
            raise StalePlan(
                "plan-outdated",
                "the plan is outdated",
                f"review a new plan: ovirt-rdma-host plan --out {shlex.quote(path)}",
                reasons=reasons,
            )


class EarlyFacts:
    """Reads the facts of the host below ``root``, tools through ``run``, before the
    lock is taken: reading a slow host then delays no other run. Called again under the
    lock, it returns the same facts, unless the journal shows that a run has changed the
    host since; then it reads again. The lock does not keep others from changing the
    host in any case.
    """

    def __init__(self, root: Union[str, Path], run: Optional[Runner]) -> None:
        self._reader = HostReader(root, run)
        self._journal = under(root, JOURNAL)
        self._facts: Optional[Facts] = None
        self._seen: Optional[Signature] = None

    def __call__(self) -> Facts:
        """Return the facts, read at the first call or since."""
        seen = signature_of(self._journal)
        if self._facts is None or seen != self._seen:
            # The signature from before the reading: a change meanwhile counts as later.
            self._facts, self._seen = self._reader.facts(), seen
        return self._facts


def loaded_policy(root: Union[str, Path]) -> StoredPolicy:
    """Return the policy in force. Raises NoPolicy, or StoredPolicyProblem."""
    stored = read(under(root, POLICY_JSON))
    if stored is None:
        raise NoPolicy(
            "policy-not-loaded",
            "no policy is loaded",
            f"write {POLICY_YAML}, then: ovirt-rdma-host policy load",
        )
    return stored


def decide_for(facts: Facts, policy: StoredPolicy) -> Decided:
    """Decide by ``policy`` for a host with these ``facts``. Pure."""
    return Decided(facts, policy, decide(facts, policy.policy))


def still_planned(
    root: Union[str, Path], run: Optional[Runner], policy: StoredPolicy
) -> Collection[str]:
    """Return the ids of the steps that ``policy`` requires now; after a run, those had
    no effect.
    """
    decided = decide_for(HostReader(root, run).facts(), policy)
    return frozenset(step.id for step in decided.decision.applicable)


def atomic_changes_of(
    steps: Iterable[Step], facts: Optional[Facts], new_uuid: Callable[[], object]
) -> Iterator[AtomicChange]:
    """Yield the atomic changes of ``steps``, in order and without ``before``. Pure.

    ``facts`` are those from which the steps were decided; without them no change has a
    place. ``new_uuid`` returns a UUID for each new profile.
    """
    manager = facts.network_manager if facts else None
    managed = manager.managed if manager and manager.running else ()
    # The UUIDs of new profiles, by netdev.
    uuids: dict[Optional[str], str] = {}
    for step in steps:
        changes = list(step.changes)
        while changes:
            first = changes.pop(0)
            kind = kind_of(first)
            together = [first]
            if kind.needs_uuid and kind.netdev not in uuids:
                uuids[kind.netdev] = str(new_uuid())
                together += [c for c in changes if c.target == first.target]
                changes = [c for c in changes if c.target != first.target]
            yield AtomicChange(
                step=step.id,
                effect=step.effect,
                changes=tuple(together),
                uuid=uuids[kind.netdev] if kind.needs_uuid else None,
                place=kind.place(facts) if facts else None,
                lasting=kind.lasts(kind.netdev in managed or kind.netdev in uuids),
            )


_FIX = "run ovirt-rdma-host plan again"


def with_earlier_values(
    host: HostEffects, acts: Iterable[AtomicChange]
) -> tuple[AtomicChange, ...]:
    """Return ``acts`` with the present values of ``host`` as ``before``. Nothing is
    changed.

    If a run sets a property twice, the second change has the value of the first as
    ``before``; something that the run itself makes has none. Raises Refused where none
    of our rules makes such a change, a value cannot be read, or it is not the value for
    which the plan was made.
    """
    complete: list[AtomicChange] = []
    makers: list[Kind] = []
    known: dict[Property, Optional[str]] = {}
    recreated = False
    for act in acts:
        for change in act.changes:
            refusal = host.refusal(change)
            if refusal:
                raise Refused("change-not-allowed", refusal, _FIX)
        first = kind_of_act(act)
        made = (first.is_maker and first.needs_uuid) or any(
            maker.owns(first) for maker in makers
        )
        before = []
        for change in act.changes:
            kind = kind_of(change, act.uuid)
            if kind.sets not in known:
                # A new port MTU recreates the netdevs: the plan has the MTU they get.
                of_new = recreated and kind.sysfs_file == MTU_FILE
                value = None if made else _read(host, act, change)
                if of_new:
                    value = _smaller(value, change.before)
                elif not made:
                    _check(kind, value)
                known[kind.sets] = value
            before.append(known[kind.sets])
            known[kind.sets] = change.after
            recreated = recreated or kind.port is not None
        if first.is_maker:
            makers.append(first)
        complete.append(replace(act, before=tuple(before)))
    return tuple(complete)


def _read(host: HostEffects, act: AtomicChange, change: Change) -> Optional[str]:
    reading = host.read(change, act.uuid, act.place)
    if reading.problem:
        raise Refused(
            "value-unreadable",
            f"{act.step}: {reading.problem}",
            _FIX,
        )
    return reading.value


def _smaller(now: Optional[str], planned: Optional[str]) -> Optional[str]:
    """Return the MTU ``now``, or ``planned`` if it is smaller: the new port MTU allows
    no more, and an undo restores this value before that of the port.
    """
    if now and planned and now.isdecimal() and planned.isdecimal():
        return min(now, planned, key=int)
    return now


def _check(kind: Kind, value: Optional[str]) -> None:
    if kind.still_holds(value):
        return
    was = kind.value_text(kind.change.before, "another text")
    now = kind.value_text(value, "this one")
    raise Refused(
        "value-changed-since-plan",
        f"{kind.describe()} has changed since the plan was made: it was {was}, and is "
        f"{now}",
        _FIX,
    )


def apply_steps(
    host: HostEffects,
    journal: Journal,
    steps: Sequence[Step],
    request: RunRequest,
    listener: Listener,
) -> RunResult:
    """Do ``steps``, which :func:`.gate.gate` has allowed, and verify them. The caller
    has the lock, and has called :func:`.revert.recover`.

    Returns DONE with ``run`` None if there are no steps: no run begins. Raises Refused
    where a run is open or awaits confirmation, or a value is not what the plan says,
    and JournalProblem where the journal cannot be used; nothing was done then.
    """
    if not steps:
        return RunResult(None, DONE, "there is nothing to do")
    with delayed_signals() as signals:
        writer = JournalWriter(journal, listener)
        refuse_while_interrupted(writer.ledger)
        refuse_while_awaiting(writer.ledger)
        acts = with_earlier_values(
            host, atomic_changes_of(steps, request.facts, request.new_uuid)
        )
        run = _Run(host, writer, writer.ledger.next_run, signals, request)
        return run.carry_out(steps, acts)


class _Stopped(Exception):
    """The run must be rolled back; the text says why, as a clause."""


@dataclass
class _Run:
    host: HostEffects
    writer: JournalWriter
    number: int
    signals: Signals
    request: RunRequest
    boot: str = field(init=False)

    def __post_init__(self) -> None:
        self.boot = self.host.boot_id()

    def carry_out(
        self, steps: Sequence[Step], acts: Sequence[AtomicChange]
    ) -> RunResult:
        self._begin()
        try:
            for step, numbered in _by_step(steps, acts):
                self._do(step, numbered)
            self._verify(steps)
            self._check_signals()
            count = f"{len(steps)} step{'' if len(steps) == 1 else 's'}"
            sentence = f"{count} done and verified"
            self.writer.end(self.number, DONE, self.host.now(), sentence, must=True)
        except (_Stopped, Problem) as error:
            return roll_back(self.host, self.writer, self.number, str(error))
        except Exception as error:
            # A bug of ours must not leave the host half changed either.
            reason = f"internal error: {error!r}"
            roll_back(self.host, self.writer, self.number, reason)
            raise
        return RunResult(self.number, DONE, sentence, tuple(s.id for s in steps))

    def _begin(self) -> None:
        request = self.request
        self.writer.begin(
            Run(
                self.number,
                request.verb,
                iso(self.host.now()),
                self.boot,
                request.by,
                request.policy,
                request.confirm_by,
            )
        )
        try:
            request.on_begin(self.number)
        except Exception as error:
            sentence = f"{error}; nothing was done"
            self.writer.end(self.number, ROLLED_BACK, self.host.now(), sentence)
            raise

    def _do(self, step: Step, acts: Sequence[tuple[int, AtomicChange]]) -> None:
        self._check_signals()
        self.writer.doing(step.id, step.sentence)
        changes = [
            AppliedChange(self.number, number, act, self.boot) for number, act in acts
        ]
        # All before the first is made: one can alter what another sets.
        self.writer.record(*changes, must=True)
        for change in changes:
            self._check_signals()
            try:
                self.host.do(change.act)
            except EffectFailed as error:
                if error.untouched:
                    why = "it was not done"
                    self.writer.record(replace(change, undone_by=self.number, why=why))
                raise _Stopped(f"{step.id} failed: {error}") from None
            found = self._read_back(step, change.act)
            self.writer.record(replace(change, found=found), must=True)
        self.writer.done(step.id, step.before, step.after)

    def _read_back(self, step: Step, act: AtomicChange) -> tuple[Optional[str], ...]:
        values = []
        for change in act.changes:
            reading = self.host.read(change, act.uuid, act.place)
            if reading.problem:
                raise _Stopped(f"{step.id} could not be verified: {reading.problem}")
            kind = kind_of(change, act.uuid)
            if not kind.accepts(reading.value):
                wanted = kind.value_text(change.after, "our text")
                raise _Stopped(
                    f"{step.id} was not accepted: {kind.describe()} was set to "
                    f"{wanted}, and is {kind.value_text(reading.value)}"
                )
            values.append(reading.value)
        return tuple(values)

    def _verify(self, steps: Sequence[Step]) -> None:
        if self.request.verify is None:
            return
        still_planned: Collection[str] = self.request.verify()
        for step in steps:
            if step.id in still_planned and not _may_be_planned_again(step):
                raise _Stopped(f"{step.id} was done, and is still planned")

    def _check_signals(self) -> None:
        if self.signals.asked:
            raise _Stopped(f"{self.signals.asked} asked the run to end")


def _by_step(
    steps: Sequence[Step], acts: Sequence[AtomicChange]
) -> Iterator[tuple[Step, list[tuple[int, AtomicChange]]]]:
    known = {step.id: step for step in steps}
    for step_id, numbered in groupby(enumerate(acts), key=lambda pair: pair[1].step):
        yield known[step_id], list(numbered)


def _may_be_planned_again(step: Step) -> bool:
    """Whether the step may still be planned although it was done: it takes effect at
    the next boot, or it sets an MTU that the broadcast group limits.
    """
    if step.effect == REBOOT:
        return True
    only_mtu = all(kind_of(change).is_mtu for change in step.changes)
    return only_mtu and any(change.clamped for change in step.changes)
