# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run is asked for, whom it tells how it goes, and what comes of it. Data."""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Callable, Optional, Protocol

from ovirt_rdma.host.effects.journal_records import APPLY
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.problem import Problem


class Refused(Problem):
    """The run would not be safe, or was overtaken: nothing was done."""

    exit_code = 4


class Listener(Protocol):
    """Is told how a run goes. An OSError of its own (a closed pipe) stops nothing."""

    def doing(self, step_id: str, sentence: str) -> None:
        """A step begins."""

    def done(self, step_id: str, before: str, after: str) -> None:
        """It is done and read back; the values are the step's own words."""

    def note(self, sentence: str) -> None:
        """Something that the operator should know."""


def _nothing(run: int) -> None:
    pass


def _new_uuid() -> str:
    return str(uuid.uuid4())


@dataclass(frozen=True)
class RunRequest:
    """``verb`` is one of the journal's, ``by`` says for people who asked, ``policy`` is
    its digest. ``facts`` are those that the steps were decided from: they say where
    netdevs are.

    ``confirm_by`` as in the journal. ``begun`` is called with the run's number before
    the first effect, to set a timer: where it raises Problem, nothing is done.
    ``prove`` reads the host again after the last effect and returns the ids of the
    steps that are still planned; None: what was read back after each act is enough.
    ``new_uuid`` gives out the UUIDs of new profiles.
    """

    verb: str = APPLY
    by: str = ""
    policy: str = ""
    facts: Optional[Facts] = None
    confirm_by: Optional[int] = None
    begun: Callable[[int], None] = _nothing
    prove: Optional[Callable[[], Collection[str]]] = None
    new_uuid: Callable[[], str] = _new_uuid


@dataclass(frozen=True)
class Left:
    """``what`` (a property in words) of ``step`` was left as it is, or ``what`` is
    empty and the whole step was. ``why`` is a sentence without a full stop.
    ``failed``: it should have been set back and could not; ``fix`` says how to by hand.
    """

    step: str
    what: str
    why: str
    fix: str = ""
    failed: bool = False


@dataclass(frozen=True)
class RunResult:
    """``run`` is its number, None where there was nothing to do and no run was begun.

    ``outcome`` is the journal's: DONE, ROLLED_BACK or PARTLY. ``done`` are the ids of
    the steps that were done (of a revert: that were taken back; of what was rolled
    back: none), in the order in which that was. ``left`` is what was left, and why.
    ``sentence`` says it all, without a full stop.
    """

    run: Optional[int]
    outcome: str
    sentence: str
    done: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
