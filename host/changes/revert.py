# SPDX-License-Identifier: GPL-2.0-or-later
"""Revert applied changes, and roll back a run that was killed or not confirmed.

A revert is refused if it would take down the link of a netdev that is in use. Before a
profile or P_Key child is deleted, networks and addresses that somebody has set up on it
since count as uses too: nmstate puts the engine's network into the profile that it
finds, which may be ours.

``change_status`` says for ``status`` what is applied, and what a revert would leave.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Callable, Optional

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.gate import link_in_use
from ovirt_rdma.host.changes.journal import (
    Journal,
    JournalProblem,
    JournalWriter,
    Ledger,
    Run,
    iso,
    refuse_while_awaiting,
    refuse_while_interrupted,
)
from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    PARTLY,
    REVERT,
    Listener,
    Refused,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.registry import kind_of_act
from ovirt_rdma.host.changes.undo import (
    UndoChange,
    UndoPlan,
    finish,
    is_undo_needed,
    plan_rollback,
    plan_undo,
    roll_back,
)
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import NetdevUsers
from ovirt_rdma.host.rules.base import LINK_DOWN
from ovirt_rdma.host.rules.profiles import static_addresses
from ovirt_rdma.host.system.signals import delayed_signals


def interrupted_users(
    groups: Iterable[Sequence[UndoChange]], facts: Facts
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each step whose undo takes links down that are in use, with the users as
    text. Pure.

    Besides link-down steps, these are those whose undo takes a link down only.
    """
    users = NetdevUsers(facts)
    for group in groups:
        kinds = [(undo.act, kind_of_act(undo.act)) for undo in group]
        if not any(a.effect == LINK_DOWN or k.undo_interrupts for a, k in kinds):
            continue
        texts = [text for _, kind in kinds for text in kind.interrupts(users)]
        for _, kind in kinds:
            name = kind.made_netdev or kind.netdev
            if kind.is_maker and name:
                texts += _set_up_on(users.carriers(name), facts)
        if texts:
            yield group[0].act.step, tuple(dict.fromkeys(texts))


def _set_up_on(names: Collection[str], facts: Facts) -> Iterator[str]:
    """Yield the addresses of these netdevs that are of no logical network. Others have
    set them up: we made the profile or child without any.
    """
    carrying = {network.southbound for network in facts.ovirt_networks}
    for netdev in facts.netdevs:
        if netdev.name in names and netdev.name not in carrying:
            for address in static_addresses(netdev):
                yield f"address: {address} on {netdev.name}"


def revert(
    host: HostEffects,
    journal: Journal,
    facts: Facts,
    listener: Listener,
    *,
    only: Optional[str] = None,
    allow_link_down: bool = False,
    by: str = "",
) -> RunResult:
    """Revert the applied changes: all, or those of the step with the id ``only``. The
    caller has the lock, and has called :func:`recover`.

    Returns DONE, also if values of others were left (``left``), or PARTLY if a change
    could not be undone and is still applied; ``run`` is None if nothing is applied.
    Raises Refused where it would take down a link that is in use (according to
    ``facts``) and ``allow_link_down`` is False, for a step that has no applied changes,
    for a step that another one depends on, and for a single step while a run awaits
    confirmation; JournalProblem where the journal cannot be used. Nothing was done
    then.
    """
    with delayed_signals():
        writer = JournalWriter(journal, listener)
        ledger = writer.ledger
        _check(ledger, only)
        if not ledger.applied:
            return RunResult(None, DONE, "there are no changes to revert")
        plan = _plan_revert(host, ledger, only, ledger.next_run)
        reasons = [] if allow_link_down else _links_in_use(host, plan, facts)
        if reasons:
            raise Refused(
                "netdevs-in-use",
                "refused: the interfaces are in use",
                "put the host into maintenance, detach the engine's networks that are "
                "named, and run this again; or allow it with --allow-link-down",
                reasons=reasons,
            )
        at, boot = iso(host.now()), host.boot_id()
        writer.begin(Run(plan.by_run, REVERT, at, boot, by, only=only))
        return finish(host, writer, plan, DONE)


def _plan_revert(
    host: HostEffects, ledger: Ledger, only: Optional[str], by_run: int
) -> UndoPlan:
    scope = {e.key for e in ledger.applied if only in (None, e.act.step)}
    return plan_undo(host, ledger, scope, by_run)


def _check(ledger: Ledger, only: Optional[str]) -> None:
    refuse_while_interrupted(ledger)
    if only is None:
        return
    refuse_while_awaiting(ledger)
    if only not in ledger.applied_steps:
        fix = "list the runs: ovirt-rdma-host history"
        if ledger.applied_steps:
            fix = f"steps that can be reverted: {', '.join(ledger.applied_steps)}"
        raise Refused("step-not-applied", f"step {only} has no changes to revert", fix)


def _links_in_use(host: HostEffects, plan: UndoPlan, facts: Facts) -> list[Sentence]:
    """Return a sentence for each step whose undo takes down a link in use."""
    groups = [group for group in plan.groups if is_undo_needed(host, group)]
    return [link_in_use(*entry) for entry in interrupted_users(groups, facts)]


def recover(
    host: HostEffects,
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
        if run:
            results.append(_end_interrupted(host, writer, run, facts))
        run = writer.ledger.awaiting
        reason = _why_roll_back(host, run, now) if run else ""
        if run and reason:
            writer.say(f"{reason}; rolling it back")
            results.append(roll_back(host, writer, run.number, reason))
    return _together(results)


def _end_interrupted(
    host: HostEffects,
    writer: JournalWriter,
    run: Run,
    facts: Optional[Callable[[], Facts]],
) -> RunResult:
    reverts, interrupted = run.verb == REVERT, f"run {run.number} was interrupted"
    if reverts:
        plan = _plan_revert(host, writer.ledger, run.only, run.number)
    else:
        plan = plan_rollback(host, writer.ledger, run.number)
    reasons = _links_in_use(host, plan, facts()) if facts else []
    if reasons:
        ends = "finished" if reverts else "rolled back"
        raise Refused(
            "netdevs-in-use",
            f"{interrupted}, and was not {ends}: the interfaces are in use",
            "put the host into maintenance, detach the engine's networks that are "
            "named, then: ovirt-rdma-host apply; or allow it: ovirt-rdma-host apply "
            "--allow-link-down",
            reasons=reasons,
        )
    if reverts:
        writer.say(f"run {run.number}, a revert, was interrupted; finishing it")
        return finish(host, writer, plan, DONE)
    writer.say(f"{interrupted}; rolling it back")
    return roll_back(host, writer, run.number, interrupted)


def roll_back_unconfirmed(
    host: HostEffects, journal: Journal, run: int, listener: Listener
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


def _why_roll_back(host: HostEffects, run: Run, now: float) -> str:
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


@dataclass(frozen=True)
class ChangeStatus:
    """The applied changes and open runs of a host.

    The ids of the steps with applied changes come first. ``since`` is when the oldest
    of them was done (ISO 8601, UTC), and ``policies`` are the digests of the policies
    that they followed. ``interrupted`` is the number of the interrupted run,
    ``awaiting`` of the one that awaits confirmation until ``confirm_by`` (seconds since
    1970 UTC).

    ``kept`` has a sentence for each value that somebody has changed since, so that
    revert would leave it. ``at_boot`` is the number of values that our units set again
    at each boot. ``problem`` says why the journal cannot be read; then the rest is
    empty.
    """

    held: tuple[str, ...] = ()
    since: Optional[str] = None
    policies: tuple[str, ...] = ()
    interrupted: Optional[int] = None
    awaiting: Optional[int] = None
    confirm_by: Optional[int] = None
    kept: tuple[str, ...] = ()
    at_boot: int = 0
    problem: str = ""
    fix: str = ""


def change_status(host: HostEffects, journal: Journal) -> ChangeStatus:
    """Return the state of ``journal``, compared with ``host``. Reads only."""
    try:
        ledger = journal.ledger()
    except JournalProblem as problem:
        return ChangeStatus(problem=str(problem), fix=problem.fix)
    runs = [run for run in ledger.runs if run.applied]
    interrupted, awaiting = ledger.interrupted, ledger.awaiting
    kept: tuple[Sentence, ...] = ()
    # In the middle of a run a value may be neither ours nor somebody else's; the next
    # run recovers.
    if runs and not interrupted:
        kept = _plan_revert(host, ledger, None, ledger.next_run).whys
    return ChangeStatus(
        held=ledger.applied_steps,
        since=runs[0].at if runs else None,
        policies=tuple(dict.fromkeys(run.policy for run in runs)),
        interrupted=interrupted.number if interrupted else None,
        awaiting=awaiting.number if awaiting else None,
        confirm_by=awaiting.confirm_by if awaiting else None,
        kept=kept,
        at_boot=len(boot_settings(ledger)),
    )
