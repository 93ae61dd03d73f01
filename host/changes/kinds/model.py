# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the data of a run: changes, request, result, the protocols."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.rules.base import Change

Values = tuple[Optional[str], ...]
"""A value for each of some changes; None if there is none."""


@dataclass(frozen=True)
class Place:
    """Identifies a netdev or adapter by properties that stay when it is renamed.

    ``guid`` is the port's and ``pkey`` that of a P_Key child (IPoIB); ``pci`` is the
    PCI address, with ``port`` from 1 if it is for one port. ``netdev`` is the name that
    the netdev had.
    """

    netdev: Optional[str] = None
    guid: Optional[str] = None
    pkey: Optional[str] = None
    pci: Optional[str] = None
    port: Optional[int] = None


@dataclass(frozen=True)
class AtomicChange:
    """An atomic change: what is made, recorded and undone as one.

    ``changes`` is one Change, or all those that make a new profile, which is made
    completely or not at all. ``step`` is the step's id, and ``effect`` its class.
    ``uuid`` is the profile's, chosen before it is made, if the target of the changes is
    ``new:NETDEV``. ``before`` has the value from before the run for each change: None
    if there was none. ``lasting`` is True if a profile or file keeps the value over a
    boot; other values are set again by our units (``ovirt-rdma-host unit netdev``).
    """

    step: str
    effect: str
    changes: tuple[Change, ...]
    before: Values = ()
    uuid: Optional[str] = None
    place: Optional[Place] = None
    lasting: bool = True


# The verbs of runs.
APPLY = "apply"
REVERT = "revert"
HOOK = "hook"
PARTITIONS = "partitions"

# The outcomes of runs.
DONE = "done"
ROLLED_BACK = "rolled back"
# Some changes could not be undone, and are still applied.
PARTLY = "partly rolled back"


class Refused(Problem):
    """The run would be unsafe, or its plan is outdated; nothing was done.

    The message has the sentence, and below it a line for each of ``reasons``.
    """

    exit_code = ExitCode.REFUSED

    def __init__(
        self, id: str, sentence: str, fix: str = "", *, reasons: Sequence[Sentence] = ()
    ) -> None:
        super().__init__(id, "\n".join([sentence, *reasons]), fix)
        self._reasons = tuple(reasons)

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """The reasons, each with its own id."""
        return self._reasons


class Listener:
    """Receives the progress of a run; this one ignores it. An OSError that it raises (a
    closed pipe) does not stop the run.
    """

    def doing(self, step_id: str, sentence: str) -> None:
        """Called when a step begins."""

    def done(self, step_id: str, before: str, after: str) -> None:
        """Called when a step is done and verified; the values are the step's texts."""

    def note(self, sentence: str) -> None:
        """Called with a sentence that the operator should know."""


@dataclass(frozen=True)
class RunRequest:
    """The parameters of a run.

    ``verb``, ``by``, ``policy`` (its digest) and ``confirm_by`` are as in Run.
    ``facts`` are those from which the steps were decided; they identify netdevs.
    ``on_begin`` is called with the run's number before the first change, to set a
    timer: if it raises Problem, nothing is done. ``verify`` reads the host again after
    the last change and returns the ids of the steps that are still planned; None:
    reading back each change is enough. ``new_uuid`` returns the UUIDs of new profiles.
    """

    verb: str = APPLY
    by: str = ""
    policy: str = ""
    facts: Optional[Facts] = None
    confirm_by: Optional[int] = None
    on_begin: Callable[[int], object] = lambda run: None
    verify: Optional[Callable[[], Collection[str]]] = None
    new_uuid: Callable[[], object] = uuid.uuid4


@dataclass(frozen=True)
class Left:
    """``what`` (a property as text) of ``step`` was left unchanged, or the whole step
    if ``what`` is empty. ``why`` is a sentence without a full stop. ``failed``: it
    could not be undone; ``fix`` has the command that does it.
    """

    step: str
    what: str
    why: Sentence
    fix: str = ""
    failed: bool = False

    def document(self) -> dict[str, object]:
        """Return it for ``-o json``, with the ``id`` of ``why``."""
        return {
            "step": self.step,
            "what": self.what,
            "id": self.why.id,
            "why": self.why,
            "fix": self.fix,
            "failed": self.failed,
        }


@dataclass(frozen=True)
class RunResult:
    """``run`` is the run's number, None if there was nothing to do and no run began.

    ``outcome`` is the journal's: DONE, ROLLED_BACK or PARTLY. ``done`` are the ids of
    the steps that were done, in that order (of a revert: that were undone; of a
    rollback: none). ``left`` is what was left, and why. ``sentence`` is the summary,
    without a full stop.
    """

    run: Optional[int]
    outcome: str
    sentence: str
    done: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()
