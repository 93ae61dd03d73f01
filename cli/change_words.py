# SPDX-License-Identifier: GPL-2.0-or-later
"""What the journal has, in words for people: changes and their values."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.ledger import JournalAct, Ledger
from ovirt_rdma.host.effects.properties import makes_profile, shown, shown_act
from ovirt_rdma.host.rules.ipoib_settings import NEW
from ovirt_rdma.host.rules.rule import FILE, PROFILE, Change


def value_of(change: Change, value: Optional[str]) -> str:
    """Return a value of what ``change`` sets, in few words: no file is quoted."""
    if value is None:
        return "none"
    if change.kind == FILE:
        lines = value.count("\n") + bool(value and not value.endswith("\n"))
        return f"a file of {lines} line{'' if lines == 1 else 's'}"
    return value if value else "empty"


def values_of(
    act: Act, found: Optional[tuple[Optional[str], ...]]
) -> Iterator[tuple[Change, Optional[str], Optional[str]]]:
    """Yield each change of ``act`` with the value before it, and the one that was found
    after; without ``found`` the one that it was to have.
    """
    for number, change in enumerate(act.changes):
        before = act.before[number] if number < len(act.before) else change.before
        after = change.after
        if found is not None and number < len(found):
            after = found[number]
        yield change, before, after


def changes_in_words(one: JournalAct, *, back: bool = False) -> Iterator[str]:
    """Yield what an act changed: ``mtu of ib0: 2044 -> 65520``; ``back``: the other way
    round, and only what there is to set back. A new profile is one thing.
    """
    if makes_profile(one.act):
        yield f"{shown_act(one.act)}: {'removed' if back else 'made'}"
        return
    for change, before, after in values_of(one.act, one.found):
        if back and before == after:
            continue
        pair = (after, before) if back else (before, after)
        values = " -> ".join(value_of(change, value) for value in pair)
        yield f"{_named(change)}: {values}"


def _named(change: Change) -> str:
    if change.kind == PROFILE and change.target.startswith(NEW):
        return f"{change.name} of the new profile of {change.target[len(NEW) :]}"
    return shown(change)


def held_steps(ledger: Ledger) -> list[str]:
    """Return the ids of the steps of which something is held, in their order."""
    return list(dict.fromkeys(one.act.step for one in ledger.held))
