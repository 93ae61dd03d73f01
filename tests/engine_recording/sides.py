# SPDX-License-Identifier: GPL-2.0-or-later
"""Collect the statuses and events that engine and double showed during a run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from engine_recording.answer_tree import Thing, moving, things_of
from engine_recording.compare import Found, Ids, Seen
from engine_recording.what_matters import EVENTS

# Statuses that last seconds: a poll may miss them, in the engine as in the double.
PASSING = {"unassigned", "initializing", "connecting", "locked", "activating"}
PASSING |= {"preparing_for_maintenance", "reboot"}
# Of a data center and its domains, while its SPM moves.
_SPM_MOVES = {"problematic", "contend", "unknown"}
PASSING |= _SPM_MOVES
# The engine is free to choose the host that becomes SPM.
_CHOICE = "spm.status"

# Key of a status: tag, id in the double, name of the status.
Key = tuple[str, str, str]


@dataclass
class Side:
    """The output of one side. ``been`` are the statuses of each object in order,
    ``after`` those that were seen after a kind of change, by (change, tag, word).
    """

    been: dict[Key, list[str]] = field(default_factory=dict)
    names: dict[str, str] = field(default_factory=dict)
    after: dict[tuple[str, str, str], set[str]] = field(default_factory=dict)
    events: dict[int, int] = field(default_factory=dict)

    def note(self, seen: Seen, ids: Ids, change: str, newest_only: bool) -> None:
        """Record the contents of an answer."""
        if (
            seen.status not in (200, 201)
            or "/xml" not in seen.media.lower()
            or not seen.body
        ):
            return
        tag, things = things_of(seen.body)
        if tag == "events":
            for one in things if not newest_only else ():
                self.events[int(one.id)] = int(one.first("code") or 0)
            return
        for one in _told(things):
            self.names[ids.of(one.id)] = one.name
            for word, status in moving(one):
                been = self.been.setdefault((one.tag, ids.of(one.id), word), [])
                if not been or been[-1] != status:
                    been.append(status)
                if one.tag not in ("job", "step"):
                    cause = "" if status in _SPM_MOVES else change
                    about = cause, one.tag, word
                    self.after.setdefault(about, set()).add(status)

    def last(self, key: Key) -> str:
        return self.been.get(key, [""])[-1]

    def codes(self) -> list[int]:
        """Return the relevant event codes in order, and forget them."""
        found = [self.events[number] for number in sorted(self.events)]
        return [code for code in found if code in EVENTS]


def _told(things: list[Thing]) -> Iterator[Thing]:
    for top in things:
        if top.tag == "action":
            continue
        if top.tag not in ("job", "step") or top.first("external") == "true":
            yield from top.all()


def behind(engine: Side, double: Side) -> bool:
    """Whether the double is not yet where the engine is."""
    if set(engine.codes()) - set(double.codes()):
        return True
    return any(
        key in double.been and double.last(key) != been[-1]
        for key, been in engine.been.items()
        if key[2] != _CHOICE
    )


def status_differences(engine: Side, double: Side) -> Iterator[Found]:
    """Compare a whole run: the lasting statuses of each object, and all seen ones."""
    for key, theirs in engine.been.items():
        ours = double.been.get(key, theirs)
        name = f"{engine.names[key[1]]}/{key[2]}"
        if key[2] == _CHOICE:
            if ours != theirs:
                yield "SPM", name, ", ".join(theirs), ", ".join(ours)
            continue
        lasting, same = _lasting(theirs), _lasting(ours)
        if lasting != same:
            yield "statuses", name, *_from_first_difference(lasting, same)
        elif theirs != ours:
            yield "passing status", name, ", ".join(theirs), ", ".join(ours)
    for about, theirs_seen in engine.after.items():
        never = theirs_seen - double.after.get(about, set())
        if never and about[2] != _CHOICE:
            change, tag, word = about
            yield (
                "never shown",
                f"{tag}/{word} after {change or 'any change'}",
                ", ".join(sorted(never)),
                ", ".join(sorted(double.after.get(about, set()))) or "nothing",
            )


def _lasting(been: list[str]) -> list[str]:
    found: list[str] = []
    for status in been:
        if status not in PASSING and found[-1:] != [status]:
            found.append(status)
    return found


def _from_first_difference(theirs: list[str], ours: list[str]) -> tuple[str, str]:
    at = 0
    while theirs[at : at + 1] == ours[at : at + 1] and at < len(theirs):
        at += 1
    before = "..., " if at > 1 else ""
    shown = [
        f"{before}{', '.join(side[max(0, at - 1) :]) or 'nothing'}"
        for side in (theirs, ours)
    ]
    return shown[0], shown[1]
