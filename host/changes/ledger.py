# SPDX-License-Identifier: GPL-2.0-or-later
"""What the journal says is applied now, and which runs are open.

What the journal's records come to: the runs, what is still held of them, and what
is open. Pure.

What an open run keeps another one from doing. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional

from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    Act,
    Begin,
    Confirmed,
    Doing,
    Done,
    End,
    Record,
    Refused,
    Undoing,
    Undone,
)


class WrongOrder(ValueError):
    """The records are not those of one journal; the text says why, as a clause."""


@dataclass(frozen=True)
class JournalAct:
    """An act of a run as the journal has it.

    ``found`` is what was read back, None where it was not done to its end.
    ``undoing`` are the values that it is being taken back to, by the run
    ``undoing_run``, None where nobody began to. ``undone_by`` is the run that it was
    undone in, and ``why`` says why it needed nothing, or was left.
    """

    run: int
    number: int
    act: Act
    boot: str
    found: Optional[tuple[Optional[str], ...]] = None
    undoing: Optional[tuple[Optional[str], ...]] = None
    undoing_run: Optional[int] = None
    undone_by: Optional[int] = None
    why: str = ""

    @property
    def held(self) -> bool:
        """Whether it was, or may have been, done and was not taken back."""
        return self.undone_by is None

    @property
    def group(self) -> tuple[int, str]:
        """Run and step: what is taken back in one go."""
        return self.run, self.act.step


@dataclass(frozen=True)
class Run:
    """A run: what its Begin says, its acts, and how it ended.

    ``outcome`` and ``ended`` (ISO 8601, UTC) are None where it was interrupted.
    ``confirmed`` is when the operator confirmed it.
    """

    number: int
    begin: Begin
    acts: tuple[JournalAct, ...] = ()
    confirmed: Optional[str] = None
    outcome: Optional[str] = None
    ended: Optional[str] = None
    sentence: str = ""

    @property
    def held(self) -> tuple[JournalAct, ...]:
        """Its acts that are held."""
        return tuple(act for act in self.acts if act.held)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether it is done, may still be confirmed, and is taken back otherwise."""
        return (
            self.begin.confirm_by is not None
            and self.confirmed is None
            and self.outcome == DONE
            and bool(self.held)
        )


@dataclass(frozen=True)
class Ledger:
    """All runs, the newest last."""

    runs: tuple[Run, ...] = ()

    @property
    def next_run(self) -> int:
        """The number for a new run."""
        return self.runs[-1].number + 1 if self.runs else 1

    @cached_property
    def held(self) -> tuple[JournalAct, ...]:
        """All acts that are held, in the order in which they were done."""
        return tuple(act for run in self.runs for act in run.held)

    @property
    def interrupted(self) -> Optional[Run]:
        """The run that has not ended."""
        return next((run for run in self.runs if run.outcome is None), None)

    @property
    def awaiting(self) -> Optional[Run]:
        """The run that awaits confirmation."""
        found = [run for run in self.runs if run.awaits_confirmation]
        return found[-1] if found else None

    def run(self, number: int) -> Optional[Run]:
        """Return the run with that number."""
        return next((run for run in self.runs if run.number == number), None)


def fold(records: Iterable[Record]) -> Ledger:
    """Return what ``records`` come to. Raises WrongOrder."""
    runs: dict[int, Run] = {}
    acts: dict[int, dict[int, JournalAct]] = {}
    for record in records:
        if isinstance(record, Begin):
            if record.run in runs or (runs and record.run < max(runs)):
                raise WrongOrder(f"run {record.run} begins after run {max(runs)}")
            runs[record.run] = Run(record.run, record)
            acts[record.run] = {}
            continue
        if record.run not in runs:
            raise WrongOrder(f"run {record.run} has no beginning")
        run = runs[record.run]
        if isinstance(record, Confirmed):
            runs[record.run] = replace(run, confirmed=record.at)
        elif isinstance(record, End):
            runs[record.run] = replace(
                run, outcome=record.outcome, ended=record.at, sentence=record.sentence
            )
        elif isinstance(record, Doing):
            if record.number != len(acts[record.run]):
                raise WrongOrder(f"an act of run {record.run} is missing")
            acts[record.run][record.number] = JournalAct(
                record.run, record.number, record.act, run.begin.boot
            )
        else:
            if record.number not in acts[record.run]:
                raise WrongOrder(f"run {record.run} has no act {record.number}")
            known = acts[record.run][record.number]
            acts[record.run][record.number] = _after(known, record)
    return Ledger(
        tuple(replace(run, acts=tuple(acts[n].values())) for n, run in runs.items())
    )


def _after(act: JournalAct, record: Record) -> JournalAct:
    if isinstance(record, Done):
        return replace(act, found=record.found)
    if isinstance(record, Undoing):
        return replace(act, undoing=record.to, undoing_run=record.by_run)
    if isinstance(record, Undone):
        return replace(act, undone_by=record.by_run, why=record.why)
    raise TypeError(record)


def refuse_while_interrupted(ledger: Ledger) -> None:
    """Raise Refused where a run was interrupted and is not taken back yet."""
    run = ledger.interrupted
    if run:
        raise Refused(
            "run-interrupted",
            f"run {run.number} has not ended, and could not be taken back; nothing "
            "was changed",
            "see what the journal cannot note, then: ovirt-rdma-host revert",
        )


def refuse_while_awaiting(ledger: Ledger) -> None:
    """Raise Refused where a run awaits confirmation."""
    run = ledger.awaiting
    if run:
        raise Refused(
            "run-awaits-confirmation",
            f"run {run.number} awaits confirmation; nothing was changed",
            "ovirt-rdma-host confirm, or take it back: ovirt-rdma-host revert",
        )
