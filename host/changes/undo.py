# SPDX-License-Identifier: GPL-2.0-or-later
"""Undo applied changes: to which values, in which order, and what is left.

**Order.** Changes are undone in reverse order: run by run, step by step, change by
change. Each property is set to its value before that change, not at once to the value
before all changes, because the order matters: an MTU of 9000 is only possible in
connected mode, a mode sets an MTU and turns offloads off and on, a new port MTU
recreates the netdevs. So each intermediate state is one that the host was in before,
and a value that is restored already is not skipped ahead of its turn either.

**Steps.** The changes of a step are undone together. While a step is done or undone,
one change alters what another has set, and a value that is neither the earlier one nor
ours comes from the kernel. At any other time somebody else has set it: it is left, in
all runs, also if the rest of its step is undone.

**Ownership.** The value that a change found is ours only if that change was not
completed, or if everything is undone to that value. Otherwise somebody else has set it,
even if an earlier change of ours had set the same: an undo is recorded before it is
done. A value that somebody set between two of our runs is restored: it is the
operator's, and not the one from before the first run. The kernel forgets sysfs and
ethtool values at a boot: after one, a value that is neither the earlier one nor ours is
the kernel's own, and nothing has to be done. In datagram mode the kernel lowers an MTU
to that of the broadcast group, which may change at any time (ipoib_change_mtu and
ipoib_mcast_join_finish, Linux 6.1).

**Created objects.** A profile or P_Key child that we made is deleted as a whole, with
all later changes to it. A loaded module stays.

The undo is planned from what the journal and the host have, and then carried out. Each
change is recorded before it is undone, and verified afterwards. An undo can be
interrupted anywhere and started again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Optional

from ovirt_rdma.host.changes.journal import (
    PARTLY,
    ROLLED_BACK,
    AppliedChange,
    JournalWriter,
    Key,
    Ledger,
    Left,
    Refused,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.kind import (
    AtomicChange,
    EffectFailed,
    Property,
    Reading,
    Values,
)
from ovirt_rdma.host.changes.kinds.netdev import MODE_FILE, MTU_FILE
from ovirt_rdma.host.changes.kinds.registry import (
    HostEffects,
    describe,
    kind_of,
    kind_of_act,
)
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.infiniband import DATAGRAM, GROUP_MTUS
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import SYSFS, Change

_GROUP_MTUS = frozenset(str(mtu) for mtu in GROUP_MTUS)


def _follows_group(host: HostEffects, change: Change) -> bool:
    """Whether ``change`` is for the MTU of a netdev that is in datagram mode."""
    kind = kind_of(change)
    if kind.sysfs_file != MTU_FILE:
        return False
    target = f"{NET_CLASS}/{kind.netdev}/{MODE_FILE}"
    mode = Change(SYSFS, target, None, DATAGRAM)
    return kind_of(mode).same(DATAGRAM, host.read(mode).value)


def _may_be_group_mtu(change: Change, value: Optional[str]) -> bool:
    """Whether ``value`` may be ``change.after``, lowered to the MTU of the broadcast
    group; only for a change that is ``clamped``.
    """
    of_group = value is not None and value.strip() in _GROUP_MTUS
    return change.clamped and of_group and kind_of(change).accepts(value)


@dataclass(frozen=True)
class UndoChange:
    """``entry`` is undone to the values ``to``; ``act`` is its change with the present
    names. ``why`` is set if these are somebody else's values, which stay.
    ``going_with`` are the changes of what it made, which are removed with it.
    """

    entry: AppliedChange
    act: AtomicChange
    to: Values
    why: Optional[Sentence] = None
    going_with: tuple[AppliedChange, ...] = ()


@dataclass(frozen=True)
class UndoPlan:
    """``groups``, and the changes in each, in the order in which they are undone, by
    the run ``by_run``. ``released`` are changes for which nothing has to be done.
    """

    by_run: int
    groups: tuple[tuple[UndoChange, ...], ...] = ()
    released: tuple[AppliedChange, ...] = ()

    @property
    def whys(self) -> tuple[Sentence, ...]:
        """Why somebody else's values stay."""
        undone = (undo for group in self.groups for undo in group)
        return tuple(dict.fromkeys(undo.why for undo in undone if undo.why))


@dataclass(frozen=True)
class _Present:
    """The present state of a change. ``act`` has the present names, ``reading`` the
    value of its first change. ``gone``: its netdev, profile or unit no longer exists.
    ``lowered``: the kernel may have lowered the number (an MTU in datagram mode).
    """

    act: AtomicChange
    reading: Reading
    gone: bool
    lowered: bool


def plan_undo(
    host: HostEffects, ledger: Ledger, scope: Collection[Key], by_run: int
) -> UndoPlan:
    """Read the values of all applied changes, and plan the undo of those in ``scope``
    by the run ``by_run``, which may itself have been interrupted before.

    Raises Refused where another step, which is not in ``scope``, depends on one.
    """
    readings: dict[Property, Reading] = {}
    present = {}
    for entry in ledger.applied:
        act = host.present(entry.act)
        change, sets = act.changes[0], kind_of_act(act).sets
        if sets not in readings:
            readings[sets] = host.read(change, act.uuid, act.place)
        present[entry.key] = _Present(
            act, readings[sets], host.gone(act), _follows_group(host, change)
        )
    plan = _Plan(ledger.applied, scope, present, host.boot_id(), by_run)
    plan.plan_makers()
    plan.plan_properties()
    return plan.result()


@dataclass
class _Plan:
    """Plans the undo. Pure. ``boot`` is the kernel's boot id now, "" if unknown."""

    applied: Sequence[AppliedChange]
    scope: Collection[Key]
    present: dict[Key, _Present]
    boot: str
    by_run: int
    going_with: dict[Key, list[AppliedChange]] = field(default_factory=dict)
    parts: set[Key] = field(default_factory=set)
    to: dict[Key, tuple[Values, Optional[Sentence]]] = field(default_factory=dict)
    released: list[AppliedChange] = field(default_factory=list)

    def plan_makers(self) -> None:
        """Plan the removal of what we made, with the later changes to it."""
        kinds = {key: kind_of_act(now.act) for key, now in self.present.items()}
        for entry in self.applied:
            maker = kinds[entry.key]
            if not maker.is_maker or entry.key not in self.scope:
                continue
            later = [
                part
                for part in self.applied
                if part is not entry
                and maker.owns(kinds[part.key])
                and part.key not in self.parts
            ]
            self.parts.update(part.key for part in later)
            self.going_with[entry.key] = later
            self.to[entry.key] = ((None,) * len(entry.act.changes), None)
        for part_key in self.parts:
            self.to.pop(part_key, None)

    def plan_properties(self) -> None:
        """Plan the undo of all other changes, property by property."""
        chains: dict[Property, list[AppliedChange]] = {}
        for entry in self.applied:
            now = self.present[entry.key]
            if entry.key in self.to or entry.key in self.parts:
                continue
            kind = kind_of_act(now.act)
            if kind.stays:
                self._release([entry], kind.stays)
            elif now.gone:
                self._release([entry], f"{describe(now.act)} no longer exists")
            else:
                chains.setdefault(kind.sets, []).append(entry)
        for chain in chains.values():
            self._plan_property(chain)

    def result(self) -> UndoPlan:
        """Return the plan, the newest changes first."""
        groups: dict[tuple[int, str], list[UndoChange]] = {}
        for entry in reversed(self.applied):
            if entry.key in self.to:
                to, why = self.to[entry.key]
                act = self.present[entry.key].act
                going_with = tuple(self.going_with.get(entry.key, ()))
                undo = UndoChange(entry, act, to, why, going_with)
                groups.setdefault(entry.group, []).append(undo)
        return UndoPlan(
            self.by_run,
            tuple(tuple(group) for group in groups.values()),
            tuple(self.released),
        )

    def _release(self, entries: Iterable[AppliedChange], why: str) -> None:
        self.released += [
            replace(entry, undone_by=self.by_run, why=why)
            for entry in entries
            if entry.key in self.scope
        ]

    def _plan_property(self, chain: list[AppliedChange]) -> None:
        """Plan the undo of the applied changes of one property, the oldest first."""
        ours = [entry for entry in chain if entry.key in self.scope]
        if not ours:
            return
        newest = chain[-1]
        later = chain[chain.index(ours[0]) :]
        if later != ours:
            by = next(entry for entry in later if entry.key not in self.scope)
            raise _needed_by(ours[0].act.step, by.act.step)
        # The two parts have different values to restore.
        older, own = _split_at_foreign_value(ours)
        now = self.present[newest.key]
        if not now.reading.problem and not self._is_ours(own, now):
            if self._rebooted(newest):
                why = "it has the kernel's own value since the host's boot"
                self._release(ours, why)
            else:
                self._keep(ours, now.reading.value, _changed_since(newest, now))
            return
        for entry in own:
            to = self._undo_values(entry)
            if to == (None,) and kind_of_act(entry.act).is_volatile:
                self._release([entry], "it had no value before: we had made its netdev")
            else:
                self.to[entry.key] = (to, _why_kept(entry, to))
        if older:
            self._plan_older(older, own[0])

    def _plan_older(self, older: Sequence[AppliedChange], entry: AppliedChange) -> None:
        """Plan for the changes from before somebody else set the value that ``entry``
        found.
        """
        value = entry.act.before[0]
        what = describe(self.present[entry.key].act)
        kind = kind_of_act(entry.act)
        text = kind.value_text(value)
        kept = f"{what} was {text} before run {entry.run}, which is kept"
        if kind.is_volatile and older[-1].boot != entry.boot:
            self._release(older, kept)
        else:
            self._keep(older, value, _by_others(f"{kept}: someone else had set it"))

    def _keep(
        self, entries: Sequence[AppliedChange], value: Optional[str], why: Sentence
    ) -> None:
        for entry in entries:
            self.to[entry.key] = ((value,), why)

    def _is_ours(self, own: Sequence[AppliedChange], now: _Present) -> bool:
        """Whether the value ``now`` may come from ``own``, our changes of a property
        since somebody else last changed it, or from their undo by this run.
        """
        newest, change = own[-1], now.act.changes[0]
        volatile = kind_of_act(now.act).is_volatile
        if volatile and not self._rebooted(newest) and self._in_the_middle(newest):
            return True
        known = (*self._undo_values(own[0]), *_left_by(newest))
        return _is_one_of(change, now.reading.value, known, lowered=now.lowered)

    def _undo_values(self, entry: AppliedChange) -> Values:
        """Return the values that the undo of ``entry`` restores; those that this run
        has recorded, if it was interrupted in the undo.
        """
        if entry.undoing is not None and entry.undoing_run == self.by_run:
            return entry.undoing
        return entry.act.before

    def _in_the_middle(self, entry: AppliedChange) -> bool:
        """Whether this run was doing or undoing the step of ``entry``."""
        return any(
            other.undoing_run == self.by_run
            or (other.run == self.by_run and other.found is None)
            for other in self.applied
            if other.group == entry.group
        )

    def _rebooted(self, entry: AppliedChange) -> bool:
        volatile = kind_of_act(entry.act).is_volatile
        return volatile and bool(self.boot) and entry.boot != self.boot


def _split_at_foreign_value(
    acts: Sequence[AppliedChange],
) -> tuple[Sequence[AppliedChange], Sequence[AppliedChange]]:
    """Return the changes ``acts`` of one property, the oldest first, in two parts: from
    before somebody else last changed it, and from after that.
    """
    for position in range(len(acts) - 1, 0, -1):
        entry, older = acts[position], acts[position - 1]
        found = entry.act.before[0] if entry.act.before else None
        known = (*acts[0].act.before, *_left_by(older))
        if not _is_one_of(older.act.changes[0], found, known, lowered=True):
            return acts[:position], acts[position:]
    return (), acts


def _is_one_of(
    change: Change,
    value: Optional[str],
    known: Values,
    *,
    lowered: bool,
) -> bool:
    """Whether ``value`` is what ``change`` sets or one of the ``known`` values; if it
    may be ``lowered``, also that of the broadcast group.
    """
    kind = kind_of(change)
    if any(kind.same(one, value) for one in (change.after, *known)):
        return True
    return lowered and _may_be_group_mtu(change, value)


def _left_by(entry: AppliedChange) -> Values:
    """Return the values that ``entry`` may have left, besides the planned one: those
    that were read back, or that it found if it was not completed, and those that its
    undo restores.
    """
    found = entry.act.before if entry.found is None else entry.found
    return (*found, *(entry.undoing or ()))


def _needed_by(step: str, by: str) -> Refused:
    return Refused(
        "step-needed-by-others",
        f"{step} cannot be reverted alone: {by} depends on it",
        f"revert {by} first, or all changes: ovirt-rdma-host revert",
    )


def _by_others(sentence: str) -> Sentence:
    return Sentence("value-changed-by-others", sentence)


def _changed_since(newest: AppliedChange, now: _Present) -> Sentence:
    kind, why = kind_of_act(now.act), ""
    if not kind.is_text:
        ours = newest.found[0] if newest.found else newest.act.changes[0].after
        values = kind.value_text(now.reading.value), kind.value_text(ours)
        why = " (now {}, ours {})".format(*values)
    return _by_others(f"{describe(now.act)} was changed since by someone else{why}")


def _why_kept(entry: AppliedChange, to: Values) -> Optional[Sentence]:
    """Return the reason if ``to`` is somebody else's value, as was recorded before an
    interruption.
    """
    if to == entry.act.before:
        return None
    return _by_others(f"{describe(entry.act)} was changed since by someone else")


def is_undo_needed(host: HostEffects, group: Sequence[UndoChange]) -> bool:
    """Whether undoing ``group`` would change the host as it is now."""
    return not all(_is_restored(host, undo) for undo in group)


def finish(
    host: HostEffects,
    writer: JournalWriter,
    plan: UndoPlan,
    outcome: str,
    reason: str = "",
) -> RunResult:
    """Carry out ``plan``, and end its run with ``outcome``, or with PARTLY if a change
    could not be undone and is still applied. ``reason``, a clause, begins the run's
    sentence. Continues if a change cannot be undone, or the journal cannot be written
    any more.
    """
    undone = _Execution(host, writer, plan.by_run)
    undone.carry_out(plan)
    if undone.failed:
        outcome = PARTLY
    sentence = f"{reason}; {undone.summary}" if reason else undone.summary
    writer.end(plan.by_run, outcome, host.now(), sentence)
    done = () if reason else tuple(undone.steps)
    sentence += writer.unrecorded
    return RunResult(plan.by_run, outcome, sentence, done, tuple(undone.left))


def plan_rollback(host: HostEffects, ledger: Ledger, run: int) -> UndoPlan:
    """Return the plan that undoes all applied changes of ``run``."""
    scope = {entry.key for entry in ledger.applied if entry.run == run}
    return plan_undo(host, ledger, scope, run)


def roll_back(
    host: HostEffects, writer: JournalWriter, run: int, reason: str
) -> RunResult:
    """Undo all applied changes of ``run``, because of ``reason``, a clause. Returns
    ROLLED_BACK, or PARTLY, see :func:`finish`.
    """
    plan = plan_rollback(host, writer.ledger, run)
    return finish(host, writer, plan, ROLLED_BACK, reason)


@dataclass
class _Execution:
    """Carries out a plan. ``steps`` were undone, or nothing had to be done, in this
    order; ``left`` has what was left, or could not be undone.
    """

    host: HostEffects
    writer: JournalWriter
    by_run: int
    steps: list[str] = field(default_factory=list)
    left: list[Left] = field(default_factory=list)
    # The steps of changes that were undone, or deleted with one that was.
    closed: list[str] = field(default_factory=list)

    @property
    def failed(self) -> list[Left]:
        """What could not be undone."""
        return [left for left in self.left if left.failed]

    @property
    def summary(self) -> str:
        """Which values were restored, and which were not, as a clause."""
        if self.failed:
            failed = [f"{left.what} ({left.why})" for left in self.failed]
            return f"not restored: {', '.join(failed)}"
        if self.left:
            names = ", ".join(left.what for left in self.left)
            return f"all is as before, except {names}, which others have changed"
        return "all is as before"

    def carry_out(self, plan: UndoPlan) -> None:
        self.writer.record(*plan.released)
        # Recorded before anything is done: once the newer changes are closed, a value
        # that stays may look like one that an older change had set.
        self._record(undo for group in plan.groups for undo in group if undo.why)
        for group in plan.groups:
            self._undo_step(group)
        touched = [*self.closed, *(entry.act.step for entry in plan.released)]
        failed = {left.step for left in self.failed}
        self.steps = [step for step in dict.fromkeys(touched) if step not in failed]

    def _record(self, undone: Iterable[UndoChange]) -> None:
        """Record to which values changes are about to be undone."""
        self.writer.record(
            *(
                replace(undo.entry, undoing=undo.to, undoing_run=self.by_run)
                for undo in undone
            )
        )

    def _undo_step(self, group: Sequence[UndoChange]) -> None:
        """Undo the changes of one step, unless all values are restored already."""
        failed: dict[Key, EffectFailed] = {}
        if is_undo_needed(self.host, group):
            self._record(group)
            for undo in group:
                try:
                    if not _is_restored(self.host, undo):
                        self.host.undo(replace(undo.act, before=undo.to))
                except EffectFailed as error:
                    failed[undo.entry.key] = error
            for undo in group:
                if undo.entry.key not in failed and not _is_restored(
                    self.host, undo, settled=True
                ):
                    failed[undo.entry.key] = self._not_restored(undo)
        for undo in group:
            self._close(undo, failed.get(undo.entry.key))

    def _close(self, undo: UndoChange, error: Optional[EffectFailed]) -> None:
        act = undo.act
        if error:
            # The sentence of the error names the property and the reason.
            fix = error.fix or kind_of_act(act).manual_fix(undo.to[0])
            self._leave(act, Sentence(error.id, str(error)), fix, failed=True)
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
            self._leave(act, undo.why)
        self.closed += [part.act.step for part in undo.going_with]
        self.closed.append(act.step)

    def _leave(
        self, act: AtomicChange, why: Sentence, fix: str = "", *, failed: bool = False
    ) -> None:
        """Report once that a change is left, or could not be undone."""
        if (why, failed) not in [(left.why, left.failed) for left in self.left]:
            self.left.append(Left(act.step, describe(act), why, fix, failed))

    def _not_restored(self, undo: UndoChange) -> EffectFailed:
        act, kind = undo.act, kind_of_act(undo.act)
        reading = self.host.read(act.changes[0], act.uuid, act.place)
        now = reading.problem or f"it is {kind.value_text(reading.value)}"
        wanted = kind.value_text(undo.to[0], "its earlier text")
        return EffectFailed(
            "value-not-restored",
            f"{describe(act)} was not restored to {wanted}: {now}",
        )


def _is_restored(host: HostEffects, undo: UndoChange, *, settled: bool = False) -> bool:
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
    lowered = settled and _follows_group(host, change)
    return lowered and _may_be_group_mtu(clamped, reading.value)
