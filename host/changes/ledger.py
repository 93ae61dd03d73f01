# SPDX-License-Identifier: GPL-2.0-or-later
"""Derive from the journal's records which changes are applied and which runs are open.

Refuse a new run while another one was interrupted or awaits confirmation. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Optional

from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    AtomicChange,
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
    """The records do not follow each other as one journal's; the text says why, as a
    clause.
    """


@dataclass(frozen=True)
class AppliedChange:
    """A change of a run, as the journal has it.

    ``found`` are the values that were read back, None if it was not completed. While
    it is undone, ``undoing`` are the values that the run ``undoing_run`` sets, else
    None. ``undone_by`` is the run in which it was undone. ``why`` says why it was left,
    or nothing had to be done.
    """

    run: int
    number: int
    act: AtomicChange
    boot: str
    found: Optional[tuple[Optional[str], ...]] = None
    undoing: Optional[tuple[Optional[str], ...]] = None
    undoing_run: Optional[int] = None
    undone_by: Optional[int] = None
    why: str = ""

    @property
    def is_applied(self) -> bool:
        """Whether it is applied: it was made, or may have been, and was not undone."""
        return self.undone_by is None

    @property
    def group(self) -> tuple[int, str]:
        """Run and step: the changes that are undone together."""
        return self.run, self.act.step


@dataclass(frozen=True)
class Run:
    """A run: its Begin record, its changes, and how it ended.

    ``outcome`` and ``ended`` (ISO 8601, UTC) are None while it is running, or if it was
    interrupted. ``confirmed`` is when the operator confirmed it.
    """

    number: int
    begin: Begin
    acts: tuple[AppliedChange, ...] = ()
    confirmed: Optional[str] = None
    outcome: Optional[str] = None
    ended: Optional[str] = None
    sentence: str = ""

    @property
    def applied(self) -> tuple[AppliedChange, ...]:
        """Its changes that are applied."""
        return tuple(act for act in self.acts if act.is_applied)

    @property
    def awaits_confirmation(self) -> bool:
        """Whether it is done and will be rolled back unless it is confirmed."""
        return (
            self.begin.confirm_by is not None
            and self.confirmed is None
            and self.outcome == DONE
            and bool(self.applied)
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
    def applied(self) -> tuple[AppliedChange, ...]:
        """All changes that are applied, in the order in which they were made."""
        return tuple(act for run in self.runs for act in run.applied)

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


def fold(records: Iterable[Record]) -> Ledger:
    """Return the ledger of ``records``. Raises WrongOrder."""
    runs: dict[int, Run] = {}
    acts: dict[int, dict[int, AppliedChange]] = {}
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
                raise WrongOrder(f"a change of run {record.run} is missing")
            acts[record.run][record.number] = AppliedChange(
                record.run, record.number, record.act, run.begin.boot
            )
        else:
            if record.number not in acts[record.run]:
                raise WrongOrder(f"run {record.run} has no change {record.number}")
            known = acts[record.run][record.number]
            acts[record.run][record.number] = _after(known, record)
    return Ledger(
        tuple(replace(run, acts=tuple(acts[n].values())) for n, run in runs.items())
    )


def _after(act: AppliedChange, record: Record) -> AppliedChange:
    if isinstance(record, Done):
        return replace(act, found=record.found)
    if isinstance(record, Undoing):
        return replace(act, undoing=record.to, undoing_run=record.by_run)
    if isinstance(record, Undone):
        return replace(act, undone_by=record.by_run, why=record.why)
    raise TypeError(record)


def refuse_while_interrupted(ledger: Ledger) -> None:
    """Raise Refused where a run was interrupted and is not rolled back yet."""
    run = ledger.interrupted
    if run:
        raise Refused(
            "run-interrupted",
            f"run {run.number} was interrupted, and could not be rolled back; nothing "
            "was changed",
            "find out why the journal cannot be written, then: ovirt-rdma-host revert",
        )


def refuse_while_awaiting(ledger: Ledger) -> None:
    """Raise Refused where a run awaits confirmation."""
    run = ledger.awaiting
    if run:
        raise Refused(
            "run-awaits-confirmation",
            f"run {run.number} awaits confirmation",
            "ovirt-rdma-host confirm, or to undo it: ovirt-rdma-host revert",
        )
