# SPDX-License-Identifier: GPL-2.0-or-later
"""What :mod:`.undo` looks at, and what it plans. Data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.effect import Reading
from ovirt_rdma.host.effects.ledger import JournalAct

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
