# SPDX-License-Identifier: GPL-2.0-or-later
"""What the journal says: one record a line, each on disk before the next thing is done.
Data.

Begin, then for each step a Doing of every act before the first of them, and a Done of
each after it was read back, then End. An act that is taken back, by a rollback or by
``revert``, gets an Undoing before, those of a step together, and an Undone after. A
journal whose last run has no End was interrupted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.effects.act import Act

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
