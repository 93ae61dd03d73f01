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

**Created objects.** A profile, P_Key child or VFs that we made are deleted as a whole,
with all later changes to them; another number of VFs is somebody else's. What was set
in them had no value before, so it is not undone alone. A loaded module stays.

An undo is planned when it is made, and carried out by ``finish``. Each change is
recorded before it is undone, and verified afterwards. An undo can be interrupted
anywhere and started again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional

from ovirt_rdma.host.changes.journal import (
    DONE,
    PARTLY,
    REVERT,
    ROLLED_BACK,
    JournalWriter,
    Ledger,
    Left,
    Run,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.kind import (
    NO_VALUE,
    AtomicChange,
    EffectFailed,
    Kind,
    Property,
    Reading,
    Values,
)
from ovirt_rdma.host.changes.kinds.netdev import MODE_FILE, MTU_FILE
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of, kind_of_act
from ovirt_rdma.host.errors import Refused, Sentence
from ovirt_rdma.host.facts.infiniband import DATAGRAM, GROUP_MTUS, partition_of
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


@dataclass
class UndoChange:
    """A change that is applied, its present state, and how it is undone.

    ``act`` is the change of ``entry`` with the present names, ``reading`` the value of
    its first change. ``wanted``: it is one of those to undo.

    It is undone to the values ``to``; None: nothing has to be done. ``why`` is set if
    these are somebody else's values, which stay. ``parts`` are the later changes of
    what it made, which are removed with it; ``is_part``: it is one of these. ``failed``
    is why it could not be undone.
    """

    entry: AtomicChange
    act: AtomicChange
    reading: Reading = NO_VALUE
    wanted: bool = False
    to: Optional[Values] = None
    why: Optional[Sentence] = None
    parts: Sequence[UndoChange] = ()
    is_part: bool = False
    failed: Optional[EffectFailed] = None

    @cached_property
    def kind(self) -> Kind:
        """The kind of the change."""
        return kind_of_act(self.act)

    @property
    def value(self) -> Optional[str]:
        """The first of the values ``to``."""
        return self.to[0] if self.to else None

    def is_restored(self, host: HostEffects, *, settled: bool = False) -> bool:
        """Whether the host has the value that is restored. If the step is ``settled``,
        a value that the kernel has lowered counts too.
        """
        value, reading = self.value, self.read(host)
        if reading.problem:
            return False
        if self.kind.same(value, reading.value):
            return True
        clamped = replace(self.kind.change, after=value, clamped=True)
        lowered = settled and _follows_group(host, clamped)
        return lowered and _may_be_group_mtu(clamped, reading.value)

    def is_done(self, host: HostEffects) -> bool:
        """Whether nothing is left to do: the value is restored, and no undo that does
        more after that has failed or was interrupted.
        """
        begun = self.entry.undoing is not None and not self.why
        return self.is_restored(host) and not (begun and self.kind.undo_goes_on)

    def read(self, host: HostEffects) -> Reading:
        """Return the value of its first change now."""
        return host.read(self.act.changes[0], self.act.uuid, self.act.place)


class Undo:
    """The undo by ``run``: a revert of all applied changes, or of those of its step
    ``only``; or a rollback, of its own. The run may itself have been interrupted
    before. Reads the values of all applied changes. Raises Refused where another step,
    which it does not undo, depends on one.

    ``groups``, and the changes in each, are in the order in which they are undone.
    ``released`` are changes for which nothing has to be done. ``left`` is what
    ``finish`` has left or could not undo.
    """

    def __init__(self, host: HostEffects, ledger: Ledger, run: Run) -> None:
        self._reverts, self._by_run = run.verb == REVERT, run.number
        self.released: list[AtomicChange] = []
        self.left: list[Left] = []
        self._host, self._boot = host, host.boot_id()
        self._applied: list[UndoChange] = []
        readings: dict[Property, Reading] = {}
        for entry in ledger.applied:
            reverted = self._reverts and run.only in (None, entry.step)
            wanted = reverted or entry.run == run.number
            undo = UndoChange(entry, host.present(entry), wanted=wanted)
            sets = undo.kind.sets
            if sets not in readings:
                readings[sets] = undo.read(host)
            undo.reading = readings[sets]
            self._applied.append(undo)
        self._plan_makers()
        chains: dict[Property, list[UndoChange]] = {}
        for undo in self._applied:
            if undo.to is not None or undo.is_part:
                continue
            if undo.kind.stays:
                self._release([undo], undo.kind.stays)
            elif host.gone(undo.act):
                self._release([undo], f"{undo.kind.describe()} no longer exists")
            else:
                chains.setdefault(undo.kind.sets, []).append(undo)
        for chain in chains.values():
            self._plan_property(chain)
        groups: dict[tuple[int, str], list[UndoChange]] = {}
        for undo in reversed(self._applied):
            if undo.to is not None:
                groups.setdefault(undo.entry.group, []).append(undo)
        self.groups = tuple(groups.values())

    @property
    def whys(self) -> tuple[Sentence, ...]:
        """Why somebody else's values stay."""
        undone = (undo for group in self.groups for undo in group)
        return tuple(dict.fromkeys(undo.why for undo in undone if undo.why))

    def is_needed(self, group: Sequence[UndoChange]) -> bool:
        """Whether undoing ``group`` would change the host as it is now."""
        return not all(undo.is_done(self._host) for undo in group)

    def _plan_makers(self) -> None:
        """Plan the removal of what we made, with the later changes to it."""
        for maker in self._applied:
            if not maker.kind.is_maker or not maker.wanted or maker.is_part:
                continue
            parts = [
                part
                for part in self._applied
                if part is not maker and _owns(maker, part) and not part.is_part
            ]
            for part in parts:
                part.is_part, part.to = True, None
            if self._is_made_anew(maker):
                _leave([maker], maker.reading.value, _changed_since(maker))
                self._release(parts, "what it was set in is gone")
                continue
            maker.parts = parts
            maker.to = (None,) * len(maker.act.changes)

    def _is_made_anew(self, maker: UndoChange) -> bool:
        """Whether somebody else has removed what ``maker`` made, and made other things
        there: another number of VFs. A profile that was changed is still ours.

        In a run that did not complete it, a smaller number is its own: a driver may
        enable fewer VFs than asked (bnxt_sriov_enable(), broadcom/bnxt/bnxt_sriov.c).
        """
        kind, value = maker.kind, maker.reading.value
        fewer = maker.entry.found is None and not self._rebooted(maker)
        asked = replace(kind, change=replace(kind.change, clamped=fewer))
        same = (one for one in self._applied if one.kind.sets == kind.sets)
        ours = (None, *(one.act.changes[0].after for one in same))
        found = asked.accepts(value) or any(kind.same(one, value) for one in ours)
        return not (found or kind.needs_uuid)

    def _release(self, undone: Iterable[UndoChange], why: str) -> None:
        self.released += [
            replace(undo.entry, undone_by=self._by_run, why=why)
            for undo in undone
            if undo.wanted or undo.is_part
        ]

    def _plan_property(self, chain: list[UndoChange]) -> None:
        """Plan the undo of the applied changes of one property, the oldest first."""
        ours = [undo for undo in chain if undo.wanted]
        if not ours:
            return
        now = chain[-1]
        later = chain[chain.index(ours[0]) :]
        if later != ours:
            step = ours[0].act.step
            by = next(undo.act.step for undo in later if not undo.wanted)
            raise Refused(
                "step-needed-by-others",
                f"{step} cannot be reverted alone: {by} depends on it",
                f"revert {by} first, or all changes: ovirt-rdma-host revert",
            )
        # The two parts have different values to restore.
        older, own = _split_at_foreign_value(ours)
        if not now.reading.problem and not self._is_ours(own, now):
            if self._rebooted(now):
                why = "it has the kernel's own value since the host's boot"
                self._release(ours, why)
            else:
                _leave(ours, now.reading.value, _changed_since(now))
            return
        for undo in own:
            undo.to = self._undo_values(undo.entry)
            if undo.to == (None,) and undo.kind.is_volatile:
                self._refuse_without(undo)
                undo.to = None
                self._release([undo], "it had no value before")
            elif undo.to != undo.entry.before:
                # Recorded before an interruption.
                what = undo.kind.describe()
                undo.why = _by_others(f"{what} was changed since by someone else")
        if older:
            self._plan_older(older, own[0].entry, now)

    def _refuse_without(self, undo: UndoChange) -> None:
        """Raise Refused if ``undo`` set what another step made, which stays."""
        step = undo.act.step
        for maker in self._applied if self._reverts else ():
            if maker.kind.is_maker and not maker.wanted and _owns(maker, undo):
                raise Refused(
                    "step-set-what-we-made",
                    f"{step} cannot be reverted alone: it set what {maker.act.step} "
                    "made, which had no value before",
                    f"revert {maker.act.step}, or all changes: ovirt-rdma-host revert",
                )

    def _plan_older(
        self, older: Sequence[UndoChange], entry: AtomicChange, now: UndoChange
    ) -> None:
        """Plan for changes from before somebody set what ``entry`` found."""
        value = entry.before[0]
        text = now.kind.value_text(value)
        left = f"{now.kind.describe()} was {text} before run {entry.run}, which is kept"
        if now.kind.is_volatile and older[-1].entry.boot != entry.boot:
            self._release(older, left)
        else:
            _leave(older, value, _by_others(f"{left}: someone else had set it"))

    def _is_ours(self, own: Sequence[UndoChange], now: UndoChange) -> bool:
        """Whether the value ``now`` may come from ``own``, our changes of a property
        since somebody else last changed it, or from their undo by this run.
        """
        newest = own[-1].entry
        mine = now.kind.is_volatile and not self._rebooted(own[-1])
        if mine and self._in_the_middle(newest):
            return True
        known = (*self._undo_values(own[0].entry), *_left_by(newest))
        change = now.act.changes[0]
        lowered = _follows_group(self._host, change)
        return _is_one_of(change, now.reading.value, known, lowered=lowered)

    def _undo_values(self, entry: AtomicChange) -> Values:
        """Return the values that the undo of ``entry`` restores; those that this run
        has recorded, if it was interrupted in the undo.
        """
        if entry.undoing is not None and entry.undoing_run == self._by_run:
            return entry.undoing
        return entry.before

    def _in_the_middle(self, entry: AtomicChange) -> bool:
        """Whether this run was doing or undoing the step of ``entry``."""
        return any(
            other.undoing_run == self._by_run
            or (other.run == self._by_run and other.found is None)
            for other in (undo.entry for undo in self._applied)
            if other.group == entry.group
        )

    def _rebooted(self, undo: UndoChange) -> bool:
        other = bool(self._boot) and undo.entry.boot != self._boot
        return undo.kind.is_volatile and other

    def finish(self, writer: JournalWriter, reason: str = "") -> RunResult:
        """Carry out the undo, and end its run: a revert with DONE, another with
        ROLLED_BACK, or with PARTLY if a change could not be undone and is still
        applied. ``reason``, of a rollback, is a clause that begins the run's sentence.
        Continues if a change cannot be undone, or the journal cannot be written any
        more.
        """
        outcome = DONE if self._reverts else ROLLED_BACK
        writer.record(*self.released)
        # Recorded before anything is done: once the newer changes are closed, a value
        # that stays may look like one that an older change had set.
        self._record(writer, (u for group in self.groups for u in group if u.why))
        closed = [step for group in self.groups for step in self._undo(writer, group)]
        failed = [left for left in self.left if left.failed]
        sentence = "all is as before"
        if failed:
            outcome = PARTLY
            texts = [f"{left.what} ({left.why})" for left in failed]
            sentence = f"not restored: {', '.join(texts)}"
        elif self.left:
            names = ", ".join(left.what for left in self.left)
            sentence += f", except {names}, which others have changed"
        if reason:
            sentence = f"{reason}; {sentence}"
        writer.end(self._by_run, outcome, self._host.now(), sentence)
        sentence += writer.unrecorded
        steps = dict.fromkeys([*closed, *(entry.step for entry in self.released)])
        bad = {left.step for left in failed}
        done = () if reason else tuple(step for step in steps if step not in bad)
        return RunResult(self._by_run, outcome, sentence, done, tuple(self.left))

    def _record(self, writer: JournalWriter, undone: Iterable[UndoChange]) -> None:
        """Record to which values changes are about to be undone."""
        by_run = self._by_run
        writer.record(
            *(replace(u.entry, undoing=u.to, undoing_run=by_run) for u in undone)
        )

    def _undo(self, writer: JournalWriter, group: Sequence[UndoChange]) -> list[str]:
        """Undo the changes of one step, unless all values are restored already. Return
        the steps of the changes that were undone, or deleted with one that was.
        """
        if self.is_needed(group):
            self._record(writer, group)
            for undo in group:
                try:
                    if not undo.is_done(self._host):
                        self._host.undo(undo.act.with_before(undo.to or ()))
                except EffectFailed as error:
                    undo.failed = error
            for undo in group:
                if not (undo.failed or undo.is_restored(self._host, settled=True)):
                    undo.failed = self._not_restored(undo)
        closed = []
        for undo in group:
            bad = undo.failed
            what, why, fix = undo.kind.describe(), undo.why, ""
            if bad:
                # The sentence of the error names the property and the reason.
                fix = bad.fix or undo.kind.manual_fix(undo.value)
                why = Sentence(bad.id, str(bad))
            else:
                together = f"removed with {what}"
                ended = [(part.entry, together) for part in undo.parts]
                ended.append((undo.entry, why or ""))
                writer.record(
                    *(replace(e, undone_by=self._by_run, why=said) for e, said in ended)
                )
                closed += [entry.step for entry, _ in ended]
            # Each reason once.
            known = [(left.why, left.failed) for left in self.left]
            if why and (why, bool(bad)) not in known:
                self.left.append(Left(undo.act.step, what, why, fix, bool(bad)))
        return closed

    def _not_restored(self, undo: UndoChange) -> EffectFailed:
        kind, reading = undo.kind, undo.read(self._host)
        now = reading.problem or f"it is {kind.value_text(reading.value)}"
        wanted = kind.value_text(undo.value)
        return EffectFailed(
            "value-not-restored",
            f"{kind.describe()} was not restored to {wanted}: {now}",
        )


def _leave(undone: Iterable[UndoChange], value: Optional[str], why: Sentence) -> None:
    for undo in undone:
        undo.to, undo.why = (value,), why


def _owns(maker: UndoChange, part: UndoChange) -> bool:
    """Whether ``part`` has changed what ``maker`` made; also in a P_Key child that has
    another name than the one that it was given.
    """
    if maker.kind.owns(part.kind):
        return True
    parent, place = maker.entry.place, part.entry.place
    made = maker.kind.made_netdev and not part.kind.outlives_netdev
    if not (made and parent and place and place.guid and place.guid == parent.guid):
        return False
    pkey = parent.pkey or maker.act.changes[0].after
    return bool(place.pkey) and partition_of(place.pkey) == partition_of(pkey)


def _split_at_foreign_value(
    ours: Sequence[UndoChange],
) -> tuple[Sequence[UndoChange], Sequence[UndoChange]]:
    """Return the changes ``ours`` of one property, the oldest first, in two parts: from
    before somebody else last changed it, and from after that.
    """
    acts = [undo.entry for undo in ours]
    for position in range(len(acts) - 1, 0, -1):
        entry, older = acts[position], acts[position - 1]
        known = (*acts[0].before, *_left_by(older))
        if not _is_one_of(older.changes[0], entry.before[0], known, lowered=True):
            return ours[:position], ours[position:]
    return (), ours


def _is_one_of(
    change: Change, value: Optional[str], known: Values, *, lowered: bool
) -> bool:
    """Whether ``value`` is what ``change`` sets or one of the ``known`` values; if it
    may be ``lowered``, also that of the broadcast group.
    """
    kind = kind_of(change)
    if any(kind.same(one, value) for one in (change.after, *known)):
        return True
    return lowered and _may_be_group_mtu(change, value)


def _left_by(entry: AtomicChange) -> Values:
    """Return the values that ``entry`` may have left, besides the planned one: those
    that were read back, or that it found if it was not completed, and those that its
    undo restores.
    """
    found = entry.before if entry.found is None else entry.found
    return (*found, *(entry.undoing or ()))


def _by_others(sentence: str) -> Sentence:
    return Sentence("value-changed-by-others", sentence)


def _changed_since(now: UndoChange) -> Sentence:
    kind, found = now.kind, now.entry.found
    value = kind.value_text(now.reading.value)
    ours = kind.value_text(found[0] if found else now.entry.changes[0].after)
    what = f"{kind.describe()} was changed since by someone else"
    return _by_others(f"{what} (now {value}, ours {ours})")
