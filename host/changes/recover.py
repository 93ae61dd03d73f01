# SPDX-License-Identifier: GPL-2.0-or-later
"""Roll back a run that was killed or that nobody confirmed."""

from __future__ import annotations

from typing import Callable, Optional

from ovirt_rdma.host.changes.journal import Journal, JournalWriter, Ledger, Run
from ovirt_rdma.host.changes.kinds.model import (
    PARTLY,
    REVERT,
    HostBackend,
    Listener,
    Refused,
    RunResult,
)
from ovirt_rdma.host.changes.revert import finish_revert, links_in_use, rest_of_revert
from ovirt_rdma.host.changes.rollback import plan_rollback, roll_back
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.system.signals import delayed_signals


def recover(
    host: HostBackend,
    journal: Journal,
    now: float,
    listener: Listener,
    facts: Optional[Callable[[], Facts]] = None,
) -> Optional[RunResult]:
    """Roll back an interrupted run, or finish it if it is a revert. Roll back a run
    that awaits confirmation if its deadline has passed (``now``, seconds since 1970
    UTC) or the host was booted since. The caller has the lock.

    ``facts`` reads the host, because somebody may have started to use a netdev whose
    link goes down in the rollback. Without it users are not checked.

    Returns the result, None if no run was open. Raises Refused, with nothing done,
    where ``facts`` show such users; JournalProblem.
    """
    with delayed_signals(end_after=True):
        writer = JournalWriter(journal, listener)
        results = []
        run = writer.ledger.interrupted
        if run and facts:
            _refuse_users(host, writer.ledger, run, facts())
        if run and run.verb == REVERT:
            writer.say(f"run {run.number}, a revert, was interrupted; finishing it")
            results.append(finish_revert(host, writer, run))
        elif run:
            reason = f"run {run.number} was interrupted"
            writer.say(f"{reason}; rolling it back")
            results.append(roll_back(host, writer, run.number, reason))
        run = writer.ledger.awaiting
        reason = _why_roll_back(host, run, now) if run else ""
        if run and reason:
            writer.say(f"{reason}; rolling it back")
            results.append(roll_back(host, writer, run.number, reason))
    return _together(results)


def roll_back_unconfirmed(
    host: HostBackend, journal: Journal, run: int, listener: Listener
) -> Optional[RunResult]:
    """Roll back the run with that number if it still awaits confirmation, whatever its
    deadline is. The caller has the lock, and has called :func:`recover`.

    Returns None if it does not await confirmation. Raises JournalProblem.
    """
    with delayed_signals():
        writer = JournalWriter(journal, listener)
        awaiting = writer.ledger.awaiting
        if awaiting is None or awaiting.number != run:
            return None
        return roll_back(host, writer, run, f"run {run} was not confirmed")


def may_be_rolled_back(ledger: Ledger, number: int) -> bool:
    """Whether run ``number``, which has a timeout, may still be rolled back: it awaits
    confirmation, is running, or a revert of it is. Pure.
    """
    run, opened = ledger.run(number), ledger.interrupted
    if run is None or run.confirm_by is None or run.confirmed:
        return False
    if opened and (opened.number == number or opened.verb == REVERT):
        return True
    return run.awaits_confirmation


def _refuse_users(host: HostBackend, ledger: Ledger, run: Run, facts: Facts) -> None:
    reverts = run.verb == REVERT
    plan = (
        rest_of_revert(host, ledger, run)
        if reverts
        else plan_rollback(host, ledger, run.number)
    )
    reasons = links_in_use(host, plan, facts)
    if reasons:
        ends = "finished" if reverts else "rolled back"
        raise Refused(
            "netdevs-in-use",
            f"run {run.number} was interrupted, and was not {ends}: the interfaces "
            "are in use",
            "put the host into maintenance, detach the engine's networks that are "
            "named, then: ovirt-rdma-host apply; or allow it: ovirt-rdma-host apply "
            "--allow-link-down",
            reasons=reasons,
        )


def _why_roll_back(host: HostBackend, run: Run, now: float) -> str:
    """Return, as a clause, why ``run``, which awaits confirmation, must be rolled back
    now, or "".
    """
    limit, boot = run.confirm_by, host.boot_id()
    if limit is not None and now >= limit:
        return f"run {run.number} was not confirmed in time"
    if boot and boot != run.boot:
        return f"run {run.number} was not confirmed before the host was booted"
    if any(run.number in (act.undoing_run, act.undone_by) for act in run.acts):
        return f"the rollback of run {run.number} was interrupted"
    return ""


def _together(results: list[RunResult]) -> Optional[RunResult]:
    if len(results) < 2:
        return results[0] if results else None
    first, last = results
    outcome = PARTLY if PARTLY in (first.outcome, last.outcome) else last.outcome
    sentence = f"{first.sentence}; {last.sentence}"
    return RunResult(
        last.run, outcome, sentence, first.done + last.done, first.left + last.left
    )
