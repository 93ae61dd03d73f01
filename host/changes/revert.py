# SPDX-License-Identifier: GPL-2.0-or-later
"""Revert all applied changes, or those of one step.

A revert is refused if it would take down the link of a netdev that is in use. Before a
profile or P_Key child is deleted, networks and addresses that somebody has set up on it
since count as uses too: nmstate puts the engine's network into the profile that it
finds, which may be ours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.changes.gate import link_in_use
from ovirt_rdma.host.changes.journal import (
    AppliedChange,
    Journal,
    JournalWriter,
    Ledger,
    Run,
    iso,
    refuse_while_awaiting,
    refuse_while_interrupted,
)
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    PARTLY,
    REVERT,
    HostBackend,
    Listener,
    Refused,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.registry import kind_of_act
from ovirt_rdma.host.changes.rollback import (
    carry_out_undo,
    is_undo_needed,
    undo_plan,
    undo_summary,
)
from ovirt_rdma.host.changes.undo import Key, UndoChange, UndoPlan, key_of
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
    host: HostBackend,
    journal: Journal,
    facts: Facts,
    listener: Listener,
    *,
    only: Optional[str] = None,
    allow_link_down: bool = False,
    by: str = "",
) -> RunResult:
    """Revert the applied changes: all, or those of the step with the id ``only``. The
    caller has the lock, and has called :func:`.recover.recover`.

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
        run = ledger.next_run
        plan = undo_plan(host, ledger.applied, _scope(ledger.applied, only), run)
        _refuse_blocked(plan)
        if not allow_link_down:
            _refuse_users(host, plan, facts)
        writer.begin(Run(run, REVERT, iso(host.now()), host.boot_id(), by, only=only))
        return _carry_out(host, writer, plan, run)


def finish_revert(host: HostBackend, writer: JournalWriter, run: Run) -> RunResult:
    """Finish the revert ``run``, which was interrupted, with the steps that were
    requested then. The caller has checked users.
    """
    return _carry_out(
        host, writer, rest_of_revert(host, writer.ledger, run), run.number
    )


def rest_of_revert(host: HostBackend, ledger: Ledger, run: Run) -> UndoPlan:
    """Return the plan for the rest of the revert ``run``, which was interrupted."""
    scope = _scope(ledger.applied, run.only)
    return undo_plan(host, ledger.applied, scope, run.number)


def _scope(applied: Sequence[AppliedChange], only: Optional[str]) -> set[Key]:
    return {key_of(entry) for entry in applied if only in (None, entry.act.step)}


def _check(ledger: Ledger, only: Optional[str]) -> None:
    refuse_while_interrupted(ledger)
    if only is None:
        return
    refuse_while_awaiting(ledger)
    steps = dict.fromkeys(entry.act.step for entry in ledger.applied)
    if only not in steps:
        fix = "list the runs: ovirt-rdma-host history"
        if steps:
            fix = f"steps that can be reverted: {', '.join(steps)}"
        raise Refused("step-not-applied", f"step {only} has no changes to revert", fix)


def _refuse_blocked(plan: UndoPlan) -> None:
    if plan.blocked:
        step = plan.blocked[0].entry.act.step
        by = ", ".join(dict.fromkeys(entry.by.act.step for entry in plan.blocked))
        raise Refused(
            "step-needed-by-others",
            f"{step} cannot be reverted alone: {by} depends on it",
            f"revert {by} first, or all changes: ovirt-rdma-host revert",
        )


def links_in_use(host: HostBackend, plan: UndoPlan, facts: Facts) -> list[Sentence]:
    """Return a sentence for each step whose undo takes down a link in use."""
    groups = [group for group in plan.groups if is_undo_needed(host, group)]
    return [link_in_use(*entry) for entry in interrupted_users(groups, facts)]


def _refuse_users(host: HostBackend, plan: UndoPlan, facts: Facts) -> None:
    reasons = links_in_use(host, plan, facts)
    if reasons:
        raise Refused(
            "netdevs-in-use",
            "refused: the interfaces are in use",
            "put the host into maintenance, detach the engine's networks that are "
            "named, and run this again; or allow it with --allow-link-down",
            reasons=reasons,
        )


def _carry_out(
    host: HostBackend, writer: JournalWriter, plan: UndoPlan, run: int
) -> RunResult:
    undone = carry_out_undo(host, writer, plan, run)
    outcome = PARTLY if undone.failed else DONE
    sentence = undo_summary(undone)
    writer.end(run, outcome, host.now(), sentence)
    sentence += writer.unrecorded
    return RunResult(run, outcome, sentence, tuple(undone.steps), tuple(undone.left))
