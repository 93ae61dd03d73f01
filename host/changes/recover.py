# SPDX-License-Identifier: GPL-2.0-or-later
"""What a run that was killed, or that nobody confirmed, has left is taken back."""

from __future__ import annotations

from typing import Callable, Optional

from ovirt_rdma.host.changes.journal import Journal, Notes
from ovirt_rdma.host.changes.kinds.model import (
    PARTLY,
    REVERT,
    Door,
    Listener,
    Refused,
    RunResult,
)
from ovirt_rdma.host.changes.ledger import Ledger, Run
from ovirt_rdma.host.changes.revert import finish_revert, rest_of_revert, users_told
from ovirt_rdma.host.changes.rollback import plan_roll_back, roll_back
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.system.signals import held_signals


def recover(
    host: Door,
    journal: Journal,
    now: float,
    listener: Listener,
    facts: Optional[Callable[[], Facts]] = None,
) -> Optional[RunResult]:
    """Take back what an interrupted run did, finish an interrupted revert, take back a
    run whose time to be confirmed is over (``now``, seconds since 1970 UTC) or that
    is of an earlier boot. The caller holds the lock.

    ``facts`` reads the host: since the interruption somebody may have come to use a
    netdev whose link goes down by that. Without it users are not looked at.

    Returns what came of it, None where nothing was open. Raises Refused, with nothing
    done, where ``facts`` tell of such users; JournalProblem.
    """
    with held_signals(end_after=True):
        notes = Notes(journal, listener)
        found = []
        run = notes.ledger.interrupted
        if run and facts:
            _refuse_users(host, notes.ledger, run, facts())
        if run and run.begin.verb == REVERT:
            notes.say(f"run {run.number}, a revert, was interrupted: it is finished")
            found.append(finish_revert(host, notes, run))
        elif run:
            reason = f"run {run.number} was interrupted"
            notes.say(f"{reason}: it is taken back")
            found.append(roll_back(host, notes, run.number, reason))
        run = notes.ledger.awaiting
        reason = _why_over(host, run, now) if run else ""
        if run and reason:
            notes.say(f"{reason}: it is taken back")
            found.append(roll_back(host, notes, run.number, reason))
        notes.compact()
    return _together(found)


def roll_back_unconfirmed(
    host: Door, journal: Journal, run: int, listener: Listener
) -> Optional[RunResult]:
    """Take the run with that number back if it still awaits confirmation, whatever the
    time is. The caller holds the lock, and has called :func:`recover`.

    Returns None where it awaits none (any more). Raises JournalProblem.
    """
    with held_signals():
        notes = Notes(journal, listener)
        awaiting = notes.ledger.awaiting
        if awaiting is None or awaiting.number != run:
            return None
        return roll_back(host, notes, run, f"run {run} was not confirmed")


def may_be_taken_back(ledger: Ledger, number: int) -> bool:
    """Whether run ``number`` waits to be confirmed, or for its own end, or is being
    taken back. Pure.
    """
    run, opened = ledger.run(number), ledger.interrupted
    if run is None or run.begin.confirm_by is None or run.confirmed:
        return False
    if opened and (opened.number == number or opened.begin.verb == REVERT):
        return True
    return run.awaits_confirmation


def _refuse_users(host: Door, ledger: Ledger, run: Run, facts: Facts) -> None:
    reverts = run.begin.verb == REVERT
    plan = (
        rest_of_revert(host, ledger, run)
        if reverts
        else plan_roll_back(host, ledger, run.number)
    )
    lines = users_told(host, plan, facts)
    if lines:
        ends = "finished" if reverts else "taken back"
        first = f"run {run.number} was interrupted, and is not {ends}: there are users"
        raise Refused(
            "netdevs-in-use",
            "\n".join([first, *lines]),
            "put the host into maintenance, detach the engine's networks that are "
            "named, then: ovirt-rdma-host apply; or allow it: ovirt-rdma-host apply "
            "--allow-link-down",
        )


def _why_over(host: Door, run: Run, now: float) -> str:
    """Say why ``run``, which awaits confirmation, is to be taken back, or nothing."""
    limit, boot = run.begin.confirm_by, host.boot_id()
    if limit is not None and now >= limit:
        return f"run {run.number} was not confirmed in time"
    if boot and boot != run.begin.boot:
        return f"run {run.number} was not confirmed before the host was booted"
    if any(run.number in (act.undoing_run, act.undone_by) for act in run.acts):
        return f"run {run.number} was being taken back"
    return ""


def _together(found: list[RunResult]) -> Optional[RunResult]:
    if len(found) < 2:
        return found[0] if found else None
    first, last = found
    outcome = PARTLY if PARTLY in (first.outcome, last.outcome) else last.outcome
    sentence = f"{first.sentence}; {last.sentence}"
    return RunResult(
        last.run, outcome, sentence, first.done + last.done, first.left + last.left
    )
