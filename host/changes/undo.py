# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan how applied changes are undone, and whose a value is. Pure.

What the kernel makes of an MTU in datagram mode: no more than the broadcast group
has, which may change at any time (ipoib_change_mtu and ipoib_mcast_join_finish,
Linux 6.1).

What :mod:`.undo` looks at, and what it plans. Data.

Whose value it is that a property has: what our acts on it, one after the other, may
have left there, and where somebody else changed it between two of them. Pure.

What an act found is ours only where that act was not done to its end, or where all goes
back to it. Otherwise it is what somebody has set, also where an earlier act of ours had
set the same: an act that is taken back is noted so before.

What is taken back, to which values, in which order; and what is left, and why. Pure.

The order is that of doing, backwards: run by run, step by step, act by act. Each act
goes back to what its property had before it, not at once to what it had before all of
them, because the way matters: an MTU of 9000 is only to be had in connected mode, a
mode sets an MTU and turns offloads off and on, a new port MTU makes netdevs anew. Each
state on the way back is one that the host was in. So a value that is back already is
not skipped ahead of its turn either, see :mod:`.take_back`.

The acts of a step are taken back in one go. In the middle of that, and of doing it, one
act alters what another set, and a value that is neither the earlier nor ours is the
kernel's doing. At any other time it is somebody else's: it is left, in all runs, also
where the rest of its step is taken back.

What was changed by somebody between two runs of ours goes back to what they had set:
that is the operator's value, not the one from before the first run. What sysfs and
ethtool had is forgotten at a boot, by the kernel: after one, a value of neither side
is the kernel's own, and needs nothing.

What we made (a profile, a P_Key child) is deleted whole, and what was changed in it
afterwards goes with it. A loaded module stays.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.host.changes.kinds.base import Reading
from ovirt_rdma.host.changes.kinds.model import Act, Door
from ovirt_rdma.host.changes.kinds.properties import (
    Property,
    came_true,
    file_of,
    goes_with,
    is_maker,
    is_volatile,
    netdev_of,
    property_of,
    said,
    same_value,
    shown_act,
)
from ovirt_rdma.host.changes.ledger import JournalAct
from ovirt_rdma.host.policy.model import DATAGRAM
from ovirt_rdma.host.rules.base import FILE, MODULE, SYSFS, Change
from ovirt_rdma.host.rules.infiniband.limits import GROUP_MTUS

_GROUP_MTUS = frozenset(str(mtu) for mtu in GROUP_MTUS)


def follows_group(host: Door, change: Change) -> bool:
    """Whether ``change`` is of the MTU of a netdev that is in datagram mode."""
    if file_of(change) != "mtu":
        return False
    mode = Change(SYSFS, f"/sys/class/net/{netdev_of(change)}/mode", None, DATAGRAM)
    return same_value(mode, DATAGRAM, host.read(mode).value)


def may_be_groups(change: Change, value: Optional[str]) -> bool:
    """Whether ``value`` may be what the group left of ``change.after``, where that may
    be ``clamped``. Pure.
    """
    of_group = value is not None and value.strip() in _GROUP_MTUS
    return change.clamped and of_group and came_true(change, value)


Key = tuple[int, int]
"""An act's run and number."""
Values = tuple[Optional[str], ...]


@dataclass(frozen=True)
class Present:
    """What the host says of an act now. ``act`` has today's names. ``reading`` is of
    its first change. ``gone``: what it changed is not there any more. ``lowered``:
    the kernel may have made the number smaller (an MTU in datagram mode).
    """

    act: Act
    reading: Reading
    gone: bool = False
    lowered: bool = False


@dataclass(frozen=True)
class UndoAct:
    """``entry`` goes back to ``to``; ``act`` is its act with today's names. ``why``
    is not empty where that is somebody else's value, which stays. ``going_with`` are
    the acts that are undone with it, being changes of what it made.
    """

    entry: JournalAct
    act: Act
    to: Values
    why: str = ""
    going_with: tuple[JournalAct, ...] = ()


@dataclass(frozen=True)
class Released:
    """``entry`` needs nothing, because of ``why``; ``foreign``: it was changed by
    somebody, which is to be reported.
    """

    entry: JournalAct
    why: str
    foreign: bool = False


@dataclass(frozen=True)
class Blocked:
    """``entry`` cannot be taken back alone: ``by``, a later act, rests on it."""

    entry: JournalAct
    by: JournalAct


@dataclass(frozen=True)
class UndoPlan:
    """``groups`` in the order in which they are taken back, the acts of each too."""

    groups: tuple[tuple[UndoAct, ...], ...] = ()
    released: tuple[Released, ...] = ()
    blocked: tuple[Blocked, ...] = ()


def key_of(entry: JournalAct) -> Key:
    """Return what an undo plan calls an act by."""
    return entry.run, entry.number


def at_the_last_break(
    acts: Sequence[JournalAct],
) -> tuple[Sequence[JournalAct], Sequence[JournalAct]]:
    """Return those of ``acts``, which are of one property, the oldest first, that are
    older than the last change by somebody else, and the rest.
    """
    for position in range(len(acts) - 1, 0, -1):
        if not _follows(acts[position], acts[position - 1], acts[0]):
            return acts[:position], acts[position:]
    return (), acts


def may_be_ours(own: Sequence[JournalAct], now: Present, by_run: int) -> bool:
    """Whether ``own``, the acts of a property since the last change by somebody else,
    left what there is ``now``, or are taken back already by ``by_run``.
    """
    change, value = now.act.changes[0], now.reading.value
    known = [change.after, *back_to(own[0], by_run), *_left_by(own[-1])]
    if any(same_value(change, one, value) for one in known):
        return True
    return now.lowered and may_be_groups(change, value)


def back_to(entry: JournalAct, by_run: int) -> Values:
    """Return what ``entry`` goes back to; where ``by_run`` was broken off in the middle
    of that, as it had noted.
    """
    if entry.undoing is not None and entry.undoing_run == by_run:
        return entry.undoing
    return entry.act.before


def _follows(entry: JournalAct, older: JournalAct, oldest: JournalAct) -> bool:
    """Whether ``entry`` found what ``older`` had set, or all from ``oldest`` on taken
    back.
    """
    change = older.act.changes[0]
    before = entry.act.before[0] if entry.act.before else None
    known = [change.after, *oldest.act.before, *_left_by(older)]
    if any(same_value(change, one, before) for one in known):
        return True
    return may_be_groups(change, before)


def _left_by(entry: JournalAct) -> Values:
    """Return what ``entry`` may have left beside what it was to set: what was read
    back, or what it found where it was not done; what it was being taken back to.
    """
    found = entry.act.before if entry.found is None else entry.found
    return (*found, *(entry.undoing or ()))


def plan_undo(
    held: Sequence[JournalAct],
    scope: Collection[Key],
    present: Mapping[Key, Present],
    boot: str,
    by_run: int,
) -> UndoPlan:
    """Return what to undo of ``held``, all that is held in the order of doing: those
    acts that are in ``scope``. ``present`` has all of ``held``; ``boot`` is the
    kernel's boot id now, "" where it does not tell. ``by_run`` is the run that takes
    them back: it may itself have been interrupted in the middle of that.
    """
    plan = _Plan(held, scope, present, boot, by_run)
    plan.makers()
    plan.settle()
    return plan.result()


@dataclass
class _Plan:
    held: Sequence[JournalAct]
    scope: Collection[Key]
    present: Mapping[Key, Present]
    boot: str
    by_run: int
    going_with: dict[Key, list[JournalAct]] = field(default_factory=dict)
    to: dict[Key, tuple[Values, str]] = field(default_factory=dict)
    released: dict[Key, Released] = field(default_factory=dict)
    blocked: list[Blocked] = field(default_factory=list)

    def makers(self) -> None:
        """Settle what we made, and what goes with it."""
        going: set[Key] = set()
        for entry in self.held:
            now = self.present[key_of(entry)]
            if not is_maker(entry.act) or key_of(entry) not in self.scope:
                continue
            later = [
                one
                for one in self.held
                if goes_with(self.present[key_of(one)].act, now.act)
                and key_of(one) not in going
            ]
            going.update(key_of(one) for one in later)
            self.going_with[key_of(entry)] = later
            self.to[key_of(entry)] = ((None,) * len(entry.act.changes), "")
        for each in going:
            self.to.pop(each, None)
        self.going = going

    def settle(self) -> None:
        """Settle every other act: the held acts of a property, the oldest first."""
        chains: dict[Property, list[JournalAct]] = {}
        for entry in self.held:
            key, now = key_of(entry), self.present[key_of(entry)]
            if key in self.to or key in self.going:
                continue
            if entry.act.changes[0].kind == MODULE:
                self._release(entry, "a module stays loaded")
            elif now.gone:
                self._release(entry, f"{shown_act(now.act)} is not there any more")
            else:
                place = property_of(now.act.changes[0], now.act.uuid)
                chains.setdefault(place, []).append(entry)
        for chain in chains.values():
            self._chain(chain)

    def result(self) -> UndoPlan:
        """Return what was settled, the newest first."""
        groups: dict[tuple[int, str], list[UndoAct]] = {}
        for entry in reversed(self.held):
            key = key_of(entry)
            if key in self.to:
                to, why = self.to[key]
                act = self.present[key].act
                going_with = tuple(self.going_with.get(key, ()))
                one = UndoAct(entry, act, to, why, going_with)
                groups.setdefault(entry.group, []).append(one)
        return UndoPlan(
            tuple(tuple(group) for group in groups.values()),
            tuple(self.released.values()),
            tuple(self.blocked),
        )

    def _release(self, entry: JournalAct, why: str, foreign: bool = False) -> None:
        if key_of(entry) in self.scope:
            self.released[key_of(entry)] = Released(entry, why, foreign)

    def _chain(self, chain: list[JournalAct]) -> None:
        """Settle the held acts of one property."""
        ours = [entry for entry in chain if key_of(entry) in self.scope]
        if not ours:
            return
        newest = chain[-1]
        later = chain[chain.index(ours[0]) :]
        if later != ours:
            by = next(entry for entry in later if key_of(entry) not in self.scope)
            self.blocked.append(Blocked(ours[0], by))
            return
        # Its own acts have one value to go back to; the older ones another.
        older, own = at_the_last_break(ours)
        now = self.present[key_of(newest)]
        if not now.reading.problem and not self._is_ours(own, now):
            if self._rebooted(newest):
                for entry in ours:
                    self._release(
                        entry, "the kernel's own value, since the host's boot"
                    )
                return
            why = f"{shown_act(now.act)} was changed since by someone else"
            change = now.act.changes[0]
            if change.kind != FILE:
                value = said(change, now.reading.value)
                why += f" (now {value}, ours {said(change, _ours(newest))})"
            self._keep(ours, now.reading.value, why)
            return
        for entry in own:
            to = back_to(entry, self.by_run)
            if to == (None,) and is_volatile(entry.act.changes[0]):
                self._release(entry, "it had no value before: its netdev was ours")
            else:
                self.to[key_of(entry)] = (to, _why_kept(entry, to))
        if older:
            self._broken(older, own[0])

    def _broken(self, older: Sequence[JournalAct], entry: JournalAct) -> None:
        """Settle what is ``older`` than somebody else's change before ``entry``."""
        value = entry.act.before[0]
        what = shown_act(self.present[key_of(entry)].act)
        forgotten = is_volatile(entry.act.changes[0]) and older[-1].boot != entry.boot
        text = said(entry.act.changes[0], value)
        why = f"{what} was {text} before run {entry.run}, which is kept"
        if forgotten:
            for one in older:
                self._release(one, why)
        else:
            self._keep(older, value, f"{why}: someone else had set it")

    def _keep(
        self, entries: Sequence[JournalAct], value: Optional[str], why: str
    ) -> None:
        for entry in entries:
            self.to[key_of(entry)] = ((value,), why)

    def _is_ours(self, own: Sequence[JournalAct], now: Present) -> bool:
        newest = own[-1]
        volatile = is_volatile(now.act.changes[0])
        if volatile and not self._rebooted(newest) and self._in_the_middle(newest):
            return True
        return may_be_ours(own, now, self.by_run)

    def _in_the_middle(self, entry: JournalAct) -> bool:
        """Whether this run was doing the step of ``entry``, or taking it back."""
        group = [one for one in self.held if one.group == entry.group]
        return any(
            one.undoing_run == self.by_run
            or (one.run == self.by_run and one.found is None)
            for one in group
        )

    def _rebooted(self, entry: JournalAct) -> bool:
        volatile = is_volatile(entry.act.changes[0])
        return volatile and bool(self.boot) and entry.boot != self.boot


def _why_kept(entry: JournalAct, to: Values) -> str:
    """Say whose value ``to`` is where that was settled before an interruption."""
    if to == entry.act.before:
        return ""
    return f"{shown_act(entry.act)} was changed since by someone else"


def _ours(entry: JournalAct) -> Optional[str]:
    return entry.found[0] if entry.found else entry.act.changes[0].after
