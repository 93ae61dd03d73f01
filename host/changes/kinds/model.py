# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run needs of the host, and what it records, as data.

What is done in one go: a change, or those that make a new profile together. Data.

What the engine needs of a host: :class:`.host_effects.HostEffects`, or what stands
in for it in a test. Data.

What the journal says: one record a line, each on disk before the next thing is done.
Data.

Begin, then for each step a Doing of every act before the first of them, and a Done of
each after it was read back, then End. An act that is taken back, by a rollback or by
``revert``, gets an Undoing before, those of a step together, and an Undone after. A
journal whose last run has no End was interrupted.

What a run is asked for, whom it tells how it goes, and what comes of it. Data.
"""

from __future__ import annotations

import uuid
from collections.abc import Collection
from dataclasses import dataclass
from typing import Callable, Optional, Protocol, Union

from ovirt_rdma.host.changes.kinds.base import Reading
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.rules.base import Change


@dataclass(frozen=True)
class Place:
    """Which hardware a netdev or adapter is, by what stays when names change.

    ``guid`` is the port's and ``pkey`` that of a P_Key child (IPoIB); ``pci`` the PCI
    address, with ``port`` from 1 where it is about a port. ``netdev`` is the name that
    the netdev had.
    """

    netdev: Optional[str] = None
    guid: Optional[str] = None
    pkey: Optional[str] = None
    pci: Optional[str] = None
    port: Optional[int] = None


@dataclass(frozen=True)
class Act:
    """One effect. ``changes`` is one Change; or all those that make a new profile,
    which comes into being whole or not at all.

    ``step`` is the id and ``effect`` the class of the step that it is of, ``reason``
    the step's sentence. ``uuid`` is the profile's, given out before it is made, where
    the target of the changes is ``new:NETDEV``. ``before`` are the values that the
    host had before the run, one a change: None where there was nothing. ``lasting``
    says that something else keeps the value over a boot (a profile, a file): what is
    not is set again by our units (``ovirt-rdma-host unit netdev``).
    """

    step: str
    effect: str
    reason: str
    changes: tuple[Change, ...]
    before: tuple[Optional[str], ...] = ()
    uuid: Optional[str] = None
    place: Optional[Place] = None
    lasting: bool = True


class Door(Protocol):
    """Reads a property, does an act, takes it back; see there for each."""

    def refusal(self, change: Change) -> str:
        """Say why ``change`` is none that our rules give, or nothing."""

    def read(
        self,
        change: Change,
        uuid: Optional[str] = None,
        place: Optional[Place] = None,
    ) -> Reading:
        """Return the present value of what ``change`` changes."""

    def do(self, act: Act) -> None:
        """Carry ``act`` out. Raises EffectFailed."""

    def undo(self, act: Act) -> None:
        """Take ``act`` back, to ``act.before``. Raises EffectFailed."""

    def gone(self, act: Act) -> bool:
        """Whether what ``act`` changed is not there any more."""

    def present(self, act: Act) -> Act:
        """Return ``act`` with the names that its netdev has now."""

    def boot_id(self) -> str:
        """Return the kernel's boot id."""

    def now(self) -> float:
        """Return the time in seconds since 1970 UTC."""


# Of the records in this module. Counted up when an older version could misread them.
SCHEMA_VERSION = 1

# Verbs that a run can be of.
APPLY = "apply"
REVERT = "revert"
HOOK = "hook"
PARTITIONS = "partitions"
VERBS = (APPLY, REVERT, HOOK, PARTITIONS)

# Outcomes of a run.
DONE = "done"
ROLLED_BACK = "rolled back"
# Not everything could be taken back; what could not is still held.
PARTLY = "partly rolled back"
OUTCOMES = (DONE, ROLLED_BACK, PARTLY)


@dataclass(frozen=True)
class Begin:
    """A run begins. ``at`` is ISO 8601 in UTC, ``boot`` the kernel's boot id.

    ``by`` says for people who asked for it (``ovirt-rdma-host apply``, a hook's name).
    ``policy`` is the policy's digest. ``confirm_by`` is when an unconfirmed run is
    rolled back, in seconds since 1970 UTC; None where nobody has to confirm.
    ``only`` is the step that ``revert STEP`` names.
    """

    run: int
    verb: str
    at: str
    boot: str
    by: str = ""
    policy: str = ""
    confirm_by: Optional[int] = None
    only: Optional[str] = None
    schema_version: int = SCHEMA_VERSION


@dataclass(frozen=True)
class Doing:
    """Act ``number`` (from 0) of ``run`` is about to be done. All acts of a step are
    noted before its first: one can have an effect on what another sets.
    """

    run: int
    number: int
    act: Act


@dataclass(frozen=True)
class Done:
    """It was done and read back: ``found`` is what the host says then, one value a
    change.
    """

    run: int
    number: int
    found: tuple[Optional[str], ...] = ()


@dataclass(frozen=True)
class Undoing:
    """Act ``number`` of ``run`` is about to be taken back in the run ``by_run``, to the
    values ``to``, one a change: those that it had before, or somebody else's, which
    stay.
    """

    run: int
    number: int
    by_run: int
    to: tuple[Optional[str], ...] = ()


@dataclass(frozen=True)
class Undone:
    """Act ``number`` of ``run`` is held no more: it was set back, in the run
    ``by_run``; or it needs nothing, or was left, and ``why`` says so.
    """

    run: int
    number: int
    by_run: int
    why: str = ""


@dataclass(frozen=True)
class Confirmed:
    """The operator confirmed ``run``."""

    run: int
    at: str


@dataclass(frozen=True)
class End:
    """``run`` has ended; ``sentence`` says why where it was not DONE. A run that is
    taken back because nobody confirmed it ends a second time.
    """

    run: int
    outcome: str
    at: str
    sentence: str = ""


Record = Union[Begin, Doing, Done, Undoing, Undone, Confirmed, End]


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
