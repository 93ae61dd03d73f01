# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan the undo of applied changes: to which values, in which order, and what is left.

**Order.** Changes are undone in reverse order: run by run, step by step, change by
change. Each property is set to its value before that change, not at once to the value
before all changes, because the order matters: an MTU of 9000 is only possible in
connected mode, a mode sets an MTU and turns offloads off and on, a new port MTU
recreates the netdevs. So each intermediate state is one that the host was in before,
and a value that is restored already is not skipped ahead of its turn either, see
:mod:`.rollback`.

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

Pure, except :func:`follows_group`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.host.changes.journal import AppliedChange
from ovirt_rdma.host.changes.kinds.base import Reading
from ovirt_rdma.host.changes.kinds.kind import Property
from ovirt_rdma.host.changes.kinds.model import AtomicChange, HostBackend, Values
from ovirt_rdma.host.changes.kinds.registry import (
    describe,
    kind_of,
    kind_of_act,
)
from ovirt_rdma.host.changes.kinds.sysfs import MODE_FILE, MTU_FILE
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.ipoib import DATAGRAM, GROUP_MTUS
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.base import SYSFS, Change

_GROUP_MTUS = frozenset(str(mtu) for mtu in GROUP_MTUS)


def follows_group(host: HostBackend, change: Change) -> bool:
    """Whether ``change`` is for the MTU of a netdev that is in datagram mode."""
    kind = kind_of(change)
    if kind.sysfs_file != MTU_FILE:
        return False
    target = f"{NET_CLASS}/{kind.netdev}/{MODE_FILE}"
    mode = Change(SYSFS, target, None, DATAGRAM)
    return kind_of(mode).same(DATAGRAM, host.read(mode).value)


def may_be_group_mtu(change: Change, value: Optional[str]) -> bool:
    """Whether ``value`` may be ``change.after``, lowered to the MTU of the broadcast
    group; only for a change that is ``clamped``.
    """
    of_group = value is not None and value.strip() in _GROUP_MTUS
    return change.clamped and of_group and kind_of(change).accepts(value)


Key = tuple[int, int]
"""The run and number of a change."""


@dataclass(frozen=True)
class Present:
    """The present state of a change. ``act`` has the present names, ``reading`` the
    value of its first change. ``gone``: its netdev, profile or unit no longer exists.
    ``lowered``: the kernel may have lowered the number (an MTU in datagram mode).
    """

    act: AtomicChange
    reading: Reading
    gone: bool = False
    lowered: bool = False


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
class Released:
    """Nothing has to be done for ``entry``, because of ``why``."""

    entry: AppliedChange
    why: Sentence


@dataclass(frozen=True)
class Blocked:
    """``entry`` cannot be undone alone: ``by``, a later change, depends on it."""

    entry: AppliedChange
    by: AppliedChange


@dataclass(frozen=True)
class UndoPlan:
    """``groups``, and the changes in each, in the order in which they are undone."""

    groups: tuple[tuple[UndoChange, ...], ...] = ()
    released: tuple[Released, ...] = ()
    blocked: tuple[Blocked, ...] = ()


def key_of(entry: AppliedChange) -> Key:
    """Return the run and number of a change, by which an undo plan refers to it."""
    return entry.run, entry.number


def split_at_foreign_value(
    acts: Sequence[AppliedChange],
) -> tuple[Sequence[AppliedChange], Sequence[AppliedChange]]:
    """Return the changes ``acts`` of one property, the oldest first, in two parts: from
    before somebody else last changed it, and from after that.
    """
    for position in range(len(acts) - 1, 0, -1):
        if not _follows(acts[position], acts[position - 1], acts[0]):
            return acts[:position], acts[position:]
    return (), acts


def may_be_ours(own: Sequence[AppliedChange], now: Present, by_run: int) -> bool:
    """Whether the value ``now`` may come from ``own``, our changes of a property since
    somebody else last changed it, or from their undo by ``by_run``.
    """
    change, value = now.act.changes[0], now.reading.value
    known = [change.after, *undo_values(own[0], by_run), *_left_by(own[-1])]
    if any(kind_of(change).same(own_value, value) for own_value in known):
        return True
    return now.lowered and may_be_group_mtu(change, value)


def undo_values(entry: AppliedChange, by_run: int) -> Values:
    """Return the values that the undo of ``entry`` restores; those that ``by_run`` has
    recorded, if it was interrupted in the undo.
    """
    if entry.undoing is not None and entry.undoing_run == by_run:
        return entry.undoing
    return entry.act.before


def _follows(entry: AppliedChange, older: AppliedChange, oldest: AppliedChange) -> bool:
    """Whether ``entry`` found the value that ``older`` had set, or the one from before
    ``oldest``.
    """
    change = older.act.changes[0]
    before = entry.act.before[0] if entry.act.before else None
    known = [change.after, *oldest.act.before, *_left_by(older)]
    if any(kind_of(change).same(own_value, before) for own_value in known):
        return True
    return may_be_group_mtu(change, before)


def _left_by(entry: AppliedChange) -> Values:
    """Return the values that ``entry`` may have left, besides the planned one: those
    that were read back, or that it found if it was not completed, and those that its
    undo restores.
    """
    found = entry.act.before if entry.found is None else entry.found
    return (*found, *(entry.undoing or ()))


def plan_undo(
    applied: Sequence[AppliedChange],
    scope: Collection[Key],
    present: Mapping[Key, Present],
    boot: str,
    by_run: int,
) -> UndoPlan:
    """Plan the undo of those changes that are in ``scope``.

    ``applied`` are all applied changes in the order in which they were made, and
    ``present`` has the state of each. ``boot`` is the kernel's boot id now, "" if it is
    unknown. ``by_run`` is the run that undoes them; it may itself have been interrupted
    before.
    """
    plan = _Plan(applied, scope, present, boot, by_run)
    plan.plan_makers()
    plan.plan_properties()
    return plan.result()


@dataclass
class _Plan:
    applied: Sequence[AppliedChange]
    scope: Collection[Key]
    present: Mapping[Key, Present]
    boot: str
    by_run: int
    going_with: dict[Key, list[AppliedChange]] = field(default_factory=dict)
    to: dict[Key, tuple[Values, Optional[Sentence]]] = field(default_factory=dict)
    released: dict[Key, Released] = field(default_factory=dict)
    blocked: list[Blocked] = field(default_factory=list)

    def plan_makers(self) -> None:
        """Plan the removal of what we made, with the later changes to it."""
        parts: set[Key] = set()
        kinds = {key: kind_of_act(now.act) for key, now in self.present.items()}
        for entry in self.applied:
            maker = kinds[key_of(entry)]
            if not maker.is_maker or key_of(entry) not in self.scope:
                continue
            later = [
                part
                for part in self.applied
                if part is not entry
                and maker.owns(kinds[key_of(part)])
                and key_of(part) not in parts
            ]
            parts.update(key_of(part) for part in later)
            self.going_with[key_of(entry)] = later
            self.to[key_of(entry)] = ((None,) * len(entry.act.changes), None)
        for part_key in parts:
            self.to.pop(part_key, None)
        self.parts = parts

    def plan_properties(self) -> None:
        """Plan the undo of all other changes, property by property."""
        chains: dict[Property, list[AppliedChange]] = {}
        for entry in self.applied:
            key, now = key_of(entry), self.present[key_of(entry)]
            if key in self.to or key in self.parts:
                continue
            kind = kind_of_act(now.act)
            if kind.stays:
                self._release(entry, kind.stays)
            elif now.gone:
                gone = f"{describe(now.act)} no longer exists"
                self._release(entry, Sentence("target-gone", gone))
            else:
                chains.setdefault(kind.sets, []).append(entry)
        for chain in chains.values():
            self._plan_property(chain)

    def result(self) -> UndoPlan:
        """Return the plan, the newest changes first."""
        groups: dict[tuple[int, str], list[UndoChange]] = {}
        for entry in reversed(self.applied):
            key = key_of(entry)
            if key in self.to:
                to, why = self.to[key]
                act = self.present[key].act
                going_with = tuple(self.going_with.get(key, ()))
                undo = UndoChange(entry, act, to, why, going_with)
                groups.setdefault(entry.group, []).append(undo)
        return UndoPlan(
            tuple(tuple(group) for group in groups.values()),
            tuple(self.released.values()),
            tuple(self.blocked),
        )

    def _release(self, entry: AppliedChange, why: Sentence) -> None:
        if key_of(entry) in self.scope:
            self.released[key_of(entry)] = Released(entry, why)

    def _plan_property(self, chain: list[AppliedChange]) -> None:
        """Plan the undo of the applied changes of one property, the oldest first."""
        ours = [entry for entry in chain if key_of(entry) in self.scope]
        if not ours:
            return
        newest = chain[-1]
        later = chain[chain.index(ours[0]) :]
        if later != ours:
            by = next(entry for entry in later if key_of(entry) not in self.scope)
            self.blocked.append(Blocked(ours[0], by))
            return
        # The two parts have different values to restore.
        older, own = split_at_foreign_value(ours)
        now = self.present[key_of(newest)]
        if not now.reading.problem and not self._is_ours(own, now):
            if self._rebooted(newest):
                for entry in ours:
                    self._release(
                        entry,
                        Sentence(
                            "value-reset-at-boot",
                            "it has the kernel's own value since the host's boot",
                        ),
                    )
                return
            self._keep(ours, now.reading.value, _changed_since(newest, now))
            return
        for entry in own:
            to = undo_values(entry, self.by_run)
            if to == (None,) and kind_of_act(entry.act).is_volatile:
                why = "it had no value before: we had made its netdev"
                self._release(entry, Sentence("netdev-was-ours", why))
            else:
                self.to[key_of(entry)] = (to, _why_kept(entry, to))
        if older:
            self._plan_older(older, own[0])

    def _plan_older(self, older: Sequence[AppliedChange], entry: AppliedChange) -> None:
        """Plan for the changes from before somebody else set the value that ``entry``
        found.
        """
        value = entry.act.before[0]
        what = describe(self.present[key_of(entry)].act)
        kind = kind_of_act(entry.act)
        forgotten = kind.is_volatile and older[-1].boot != entry.boot
        text = kind.value_text(value)
        kept = f"{what} was {text} before run {entry.run}, which is kept"
        if forgotten:
            for old in older:
                self._release(old, Sentence("value-reset-at-boot", kept))
        else:
            why = f"{kept}: someone else had set it"
            self._keep(older, value, Sentence("value-changed-by-others", why))

    def _keep(
        self, entries: Sequence[AppliedChange], value: Optional[str], why: Sentence
    ) -> None:
        for entry in entries:
            self.to[key_of(entry)] = ((value,), why)

    def _is_ours(self, own: Sequence[AppliedChange], now: Present) -> bool:
        newest = own[-1]
        volatile = kind_of_act(now.act).is_volatile
        if volatile and not self._rebooted(newest) and self._in_the_middle(newest):
            return True
        return may_be_ours(own, now, self.by_run)

    def _in_the_middle(self, entry: AppliedChange) -> bool:
        """Whether this run was doing or undoing the step of ``entry``."""
        group = [other for other in self.applied if other.group == entry.group]
        return any(
            other.undoing_run == self.by_run
            or (other.run == self.by_run and other.found is None)
            for other in group
        )

    def _rebooted(self, entry: AppliedChange) -> bool:
        volatile = kind_of_act(entry.act).is_volatile
        return volatile and bool(self.boot) and entry.boot != self.boot


def _changed_since(newest: AppliedChange, now: Present) -> Sentence:
    kind, why = kind_of_act(now.act), ""
    if not kind.is_text:
        value, ours = (
            kind.value_text(now.reading.value),
            kind.value_text(_ours(newest)),
        )
        why = f" (now {value}, ours {ours})"
    return Sentence(
        "value-changed-by-others",
        f"{describe(now.act)} was changed since by someone else{why}",
    )


def _why_kept(entry: AppliedChange, to: Values) -> Optional[Sentence]:
    """Return the reason if ``to`` is somebody else's value, as was recorded before an
    interruption.
    """
    if to == entry.act.before:
        return None
    return Sentence(
        "value-changed-by-others",
        f"{describe(entry.act)} was changed since by someone else",
    )


def _ours(entry: AppliedChange) -> Optional[str]:
    return entry.found[0] if entry.found else entry.act.changes[0].after
