# SPDX-License-Identifier: GPL-2.0-or-later
"""Whose value it is that a property has: what our acts on it, one after the other, may
have left there, and where somebody else changed it between two of them. Pure.

What an act found is ours only where that act was not done to its end, or where all goes
back to it. Otherwise it is what somebody has set, also where an earlier act of ours had
set the same: an act that is taken back is noted so before.
"""

from __future__ import annotations

from collections.abc import Sequence

from ovirt_rdma.host.effects.group_mtu import may_be_groups
from ovirt_rdma.host.effects.ledger import JournalAct
from ovirt_rdma.host.effects.same_value import same_value
from ovirt_rdma.host.effects.undo_plan import Present, Values


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
