# SPDX-License-Identifier: GPL-2.0-or-later
"""What is taken back, to which values, in which order; and what is left, and why. Pure.

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

from ovirt_rdma.host.effects.ledger import JournalAct
from ovirt_rdma.host.effects.own_values import at_the_last_break, back_to, may_be_ours
from ovirt_rdma.host.effects.properties import (
    Property,
    goes_with,
    is_maker,
    is_volatile,
    property_of,
    said,
    shown_act,
)
from ovirt_rdma.host.effects.undo_plan import (
    Blocked,
    Key,
    Present,
    Released,
    UndoAct,
    UndoPlan,
    Values,
    key_of,
)
from ovirt_rdma.host.rules.rule import FILE, MODULE


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
