# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep the journal: the runs that changed this host, each change with the value before;
and define the data of runs.

The journal is one JSON document with a digest. It is replaced as a whole, and is on
disk before the next thing is done: a power cut leaves the document from before or the
one from after. A damaged journal is refused, so that a person looks at it.

A run is recorded when it begins, each step before the first of its changes is made, and
each change after it was read back; then the run's end. For a change that is undone, the
values that are restored are recorded before, and that it is undone, after. A run
without an end was interrupted.

JournalWriter records a run and reports it to a listener. A change that cannot be
recorded is not made. A rollback continues without records: a full disk must not leave a
host half changed. After the first record that could not be written, none is written:
the journal then shows an open run, which the next one closes.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.errors import Problem, Refused, Sentence
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.system.files import (
    NotDurable,
    fix_for,
    make_folder,
    write_atomically,
)
from ovirt_rdma.host.system.json_codec import (
    Envelope,
    Records,
    WrongRecord,
    json_value,
    plain,
)
from ovirt_rdma.host.system.safe_file import read_own_file

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


class Listener:
    """Receives the progress of a run. This one gives ``say`` a line for each step that
    is done, at once, because the run may be killed later, and each note. An OSError
    that it raises (a closed pipe) does not stop the run.
    """

    def __init__(self, say: Callable[[str], object] = lambda line: None) -> None:
        self._say = say

    def doing(self, step_id: str, sentence: str) -> None:
        """Called when a step begins."""

    def done(self, step_id: str, before: str, after: str) -> None:
        """Called when a step is done and verified; the values are the step's texts."""
        self._say(f"{step_id}: {before} -> {after}")

    def note(self, sentence: str) -> None:
        """Called with a sentence that the operator should know."""
        self._say(sentence)


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
        return {**vars(self), "id": self.why.id}


@dataclass(frozen=True)
class RunResult:
    """``run`` is the run's number, None if there was nothing to do and no run began.

    ``outcome`` is the journal's: DONE, ROLLED_BACK or PARTLY. ``done`` are the ids of
    the steps that were done, in that order (of a revert: that are closed, some without
    an undo; of a rollback: none). ``left`` is what was left, and why. ``sentence`` is
    the summary, without a full stop.
    """

    run: Optional[int]
    outcome: str
    sentence: str
    done: tuple[str, ...] = ()
    left: tuple[Left, ...] = ()


# The newest runs, which the journal keeps besides open ones and those with changes that
# are applied.
RUNS_KEPT = 100
FILE_MODE = 0o600

DOCUMENT = Envelope("journal", digested="runs")
_records = Records("the journal")


@dataclass(frozen=True)
class Run:
    """A run, its changes, and how it ended. Times are ISO 8601 in UTC.

    ``at`` is when it began. ``by`` is for people: who started it (``ovirt-rdma-host
    apply``, a hook's name). ``policy`` is the policy's digest. ``confirm_by`` is when
    an unconfirmed run is rolled back, in seconds since 1970 UTC; None if no
    confirmation is needed. ``only`` is the step that ``revert STEP`` names.

    ``confirmed`` is when the operator confirmed it. ``outcome`` and ``ended`` are None
    while it is running, or if it was interrupted; ``sentence`` says why if the outcome
    is not DONE. A run that is rolled back because nobody confirmed it ends a second
    time.
    """

    number: int
    verb: str
    at: str
    by: str = ""
    policy: str = ""
    confirm_by: Optional[int] = None
    only: Optional[str] = None
    acts: tuple[AtomicChange, ...] = ()
    confirmed: Optional[str] = None
    outcome: Optional[str] = None
    ended: Optional[str] = None
    sentence: str = ""

    @property
    def applied(self) -> tuple[AtomicChange, ...]:
        """Its changes that are applied."""
        return tuple(act for act in self.acts if act.is_applied)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether it is done and will be rolled back unless it is confirmed."""
        return (
            self.confirm_by is not None
            and self.confirmed is None
            and self.outcome == DONE
            and bool(self.applied)
        )


@dataclass(frozen=True)
class Ledger:
    """All runs, the newest last: the content of the journal."""

    runs: tuple[Run, ...] = ()

    @property
    def next_run(self) -> int:
        """The number for a new run."""
        return self.runs[-1].number + 1 if self.runs else 1

    @cached_property
    def applied(self) -> tuple[AtomicChange, ...]:
        """All changes that are applied, in the order in which they were made."""
        return tuple(act for run in self.runs for act in run.applied)

    @property
    def applied_steps(self) -> tuple[str, ...]:
        """The ids of the steps that can be reverted, in their order."""
        return tuple(dict.fromkeys(entry.step for entry in self.applied))

    @property
    def interrupted(self) -> Optional[Run]:
        """The run that has not ended."""
        return next((run for run in self.runs if run.outcome is None), None)

    @property
    def awaiting(self) -> Optional[Run]:
        """The run that awaits confirmation."""
        awaiting = [run for run in self.runs if run.awaits_confirmation]
        return awaiting[-1] if awaiting else None

    def run(self, number: int) -> Optional[Run]:
        """Return the run with that number."""
        return next((run for run in self.runs if run.number == number), None)

    def with_run(self, run: Run) -> Ledger:
        """Return the ledger with ``run``, a new one or an earlier one's new state."""
        runs = {known.number: known for known in self.runs}
        runs[run.number] = run
        return Ledger(tuple(runs.values()))

    def with_changes(self, changes: Iterable[AtomicChange]) -> Ledger:
        """Return the ledger with the new states of ``changes``, or new changes."""
        runs = {run.number: run for run in self.runs}
        for change in changes:
            run = runs[change.run]
            acts = {**{act.number: act for act in run.acts}, change.number: change}
            runs[run.number] = replace(run, acts=tuple(acts.values()))
        return Ledger(tuple(runs.values()))

    def compacted(self, newest: int = RUNS_KEPT) -> Ledger:
        """Return it with the newest, open and applied runs."""
        old = len(self.runs) - newest
        return Ledger(
            tuple(
                run
                for number, run in enumerate(self.runs)
                if number >= old or run.applied or run.outcome is None
            )
        )


def refuse_while_open(
    ledger: Ledger,
    *,
    awaiting: bool = True,
    may_end: Callable[[Run], bool] = lambda run: False,
) -> None:
    """Raise Refused where a run was interrupted and is not rolled back yet, unless the
    caller ``may_end`` it, and, with ``awaiting``, where one awaits confirmation.
    """
    run = ledger.awaiting
    if run and awaiting:
        raise Refused(
            "run-awaits-confirmation",
            f"run {run.number} awaits confirmation",
            "ovirt-rdma-host confirm, or to undo it: ovirt-rdma-host revert",
        )
    run = ledger.interrupted
    if run and not may_end(run):
        raise Refused(
            "run-interrupted",
            f"run {run.number} ({run.by or run.verb}) was interrupted, and is not "
            "rolled back",
            "ovirt-rdma-host apply, or revert: each rolls it back first; if not, find "
            "out why the journal cannot be written",
        )


class JournalProblem(Problem):
    """The journal cannot be read or written."""


class Journal:
    """The journal of the host below ``root``. Writers need the lock of the host."""

    def __init__(self, root: Union[str, Path] = "/") -> None:
        self.path = under(root, JOURNAL)

    def ledger(self) -> Ledger:
        """Return its content; no runs if there is no journal.

        Raises JournalProblem where it cannot be read, is damaged, or was written by
        another version.
        """
        data = self._bytes()
        if data is None:
            return Ledger()
        try:
            return _records.read(Ledger, DOCUMENT.content(json_value(data)))
        except WrongRecord as wrong:
            raise JournalProblem(
                "journal-damaged",
                f"{self.path}: {wrong}",
                wrong.fix
                or "nothing is changed until this is fixed; restore it from a backup, "
                "or move it away, and keep it: it has the earlier values of this host",
            ) from None

    def write(self, ledger: Ledger) -> None:
        """Replace the content; it is on disk when this returns.

        Raises JournalProblem where it cannot be written; the journal is unchanged then.
        """
        data = DOCUMENT.text(plain(ledger), indent=None).encode("ascii")
        try:
            make_folder(self.path.parent)
            earlier = self._bytes()
            try:
                write_atomically(self.path, data, FILE_MODE)
            except NotDurable:
                # What is not certainly recorded is not done, so it must not be there.
                if earlier is None:
                    self.path.unlink()
                else:
                    write_atomically(self.path, earlier, FILE_MODE)
                raise
        except OSError as error:
            raise JournalProblem(
                "journal-not-written",
                f"{self.path} cannot be written: {error.strerror or error}",
                fix_for(error, self.path),
            ) from error

    def _bytes(self) -> Optional[bytes]:
        """Return the text; None if there is no journal."""
        try:
            return read_own_file(self.path)
        except FileNotFoundError:
            return None
        except PermissionError:
            raise JournalProblem(
                "not-root",
                f"{self.path} may be read by root only",
                "run this command as root",
            ) from None
        except OSError as error:
            raise JournalProblem(
                "journal-unreadable",
                f"{self.path} cannot be used: {error.strerror or error}",
                "nothing is changed until this is fixed; find out who changed it, and "
                "restore the journal: a regular file of root's with mode 0600",
            ) from None


class JournalWriter:
    """Records a run in the journal, and reports it to ``listener``.

    ``ledger`` is the content, also what could not be written; ``problem`` says why that
    was, or is empty. Raises JournalProblem where the journal is damaged.
    """

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal = journal
        self._listener = listener
        self.ledger = journal.ledger()
        self.problem = ""

    @property
    def unrecorded(self) -> str:
        """The end of a sentence about the run if not all of it could be recorded."""
        return f"; this is not in the journal: {self.problem}" if self.problem else ""

    def begin(self, run: Run) -> None:
        """Record that ``run`` begins. Raises JournalProblem."""
        self._write(self.ledger.compacted().with_run(run), must=True)

    def record(self, *changes: AtomicChange, must: bool = False) -> None:
        """Record ``changes``. If that is not possible, raise JournalProblem if it
        ``must`` be, else set ``problem``, and report it.
        """
        if changes:
            self._write(self.ledger.with_changes(changes), must=must)

    def end(
        self,
        number: int,
        outcome: str,
        now: float,
        sentence: str,
        *,
        must: bool = False,
    ) -> None:
        """Record that the run ``number`` has ended; ``must`` as for :meth:`record`."""
        (run,) = (run for run in self.ledger.runs if run.number == number)
        run = replace(run, outcome=outcome, ended=iso(now), sentence=sentence)
        self._write(self.ledger.with_run(run), must=must)

    def _write(self, ledger: Ledger, *, must: bool) -> None:
        if self.problem and must:
            raise JournalProblem("journal-not-written", self.problem)
        try:
            if not self.problem:
                self._journal.write(ledger)
        except JournalProblem as problem:
            if must:
                raise
            self.problem = str(problem)
            self.say(f"{problem}: the next run checks all of this again")
        self.ledger = ledger

    def doing(self, step_id: str, sentence: str) -> None:
        """Report that a step begins."""
        with suppress(OSError):
            self._listener.doing(step_id, sentence)

    def done(self, step_id: str, before: str, after: str) -> None:
        """Report that a step is done."""
        with suppress(OSError):
            self._listener.done(step_id, before, after)

    def say(self, sentence: str) -> None:
        """Report a sentence."""
        with suppress(OSError):
            self._listener.note(sentence)


def iso(seconds: float) -> str:
    """Return a time in seconds since 1970 UTC as ISO 8601, with whole seconds."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(seconds))
