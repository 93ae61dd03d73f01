# SPDX-License-Identifier: GPL-2.0-or-later
"""``revert``: all that is held is taken back, or what is held of one step."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional

from ovirt_rdma.host.effects.door import Door
from ovirt_rdma.host.effects.journal import Journal
from ovirt_rdma.host.effects.journal_records import DONE, PARTLY, REVERT, Begin, End
from ovirt_rdma.host.effects.ledger import JournalAct, Ledger, Run
from ovirt_rdma.host.effects.notes import Notes, iso
from ovirt_rdma.host.effects.open_runs import (
    refuse_while_awaiting,
    refuse_while_interrupted,
)
from ovirt_rdma.host.effects.revert_users import who_is_cut_off
from ovirt_rdma.host.effects.roll_back import what_came_of_it
from ovirt_rdma.host.effects.run_result import Listener, Refused, RunResult
from ovirt_rdma.host.effects.run_signals import held_signals
from ovirt_rdma.host.effects.take_back import not_back_yet, take_back, undo_plan
from ovirt_rdma.host.effects.undo_plan import Key, UndoPlan, key_of
from ovirt_rdma.host.facts import Facts


def revert(
    host: Door,
    journal: Journal,
    facts: Facts,
    listener: Listener,
    *,
    only: Optional[str] = None,
    allow_link_down: bool = False,
    by: str = "",
) -> RunResult:
    """Take back what is held: all, or that of the step with the id ``only``. The caller
    holds the lock, and has called :func:`.recover.recover`.

    Returns DONE, also where values of others were left (``left``), or PARTLY where
    something could not be set back and is still held; ``run`` is None where nothing
    is held. Raises Refused where that would take a link down that somebody uses
    (``facts`` say who) and ``allow_link_down`` is false, for a step of which nothing
    is held, or which another step builds on, and for one step as long as a run awaits
    confirmation; JournalProblem where the journal cannot be used. Nothing was done
    then.
    """
    with held_signals():
        notes = Notes(journal, listener)
        ledger = notes.ledger
        _check(ledger, only)
        if not ledger.held:
            return RunResult(None, DONE, "nothing is held: there is nothing to revert")
        run = ledger.next_run
        plan = undo_plan(host, ledger.held, _scope(ledger.held, only), run)
        _refuse_blocked(plan)
        if not allow_link_down:
            _refuse_users(host, plan, facts)
        notes.must(Begin(run, REVERT, iso(host.now()), host.boot_id(), by, only=only))
        result = _carry_out(host, notes, plan, run)
        notes.compact()
        return result


def finish_revert(host: Door, notes: Notes, run: Run) -> RunResult:
    """Go on with the revert ``run``, which was interrupted: it was asked for with all
    that belongs to it.
    """
    return _carry_out(host, notes, rest_of_revert(host, notes.ledger, run), run.number)


def rest_of_revert(host: Door, ledger: Ledger, run: Run) -> UndoPlan:
    """Return what is left to do of the revert ``run``, which was interrupted."""
    scope = _scope(ledger.held, run.begin.only)
    return undo_plan(host, ledger.held, scope, run.number)


def _scope(held: Sequence[JournalAct], only: Optional[str]) -> set[Key]:
    return {key_of(entry) for entry in held if only in (None, entry.act.step)}


def _check(ledger: Ledger, only: Optional[str]) -> None:
    refuse_while_interrupted(ledger)
    if only is None:
        return
    refuse_while_awaiting(ledger)
    steps = dict.fromkeys(entry.act.step for entry in ledger.held)
    if only not in steps:
        held = f"held are {', '.join(steps)}" if steps else "nothing is held"
        raise Refused(f"nothing is held of {only}", held)


def _refuse_blocked(plan: UndoPlan) -> None:
    if plan.blocked:
        step = plan.blocked[0].entry.act.step
        by = ", ".join(dict.fromkeys(one.by.act.step for one in plan.blocked))
        raise Refused(
            f"{step} cannot be taken back alone: {by} rests on it",
            "take that back first, or all of it: ovirt-rdma-host revert",
        )


def users_told(host: Door, plan: UndoPlan, facts: Facts) -> list[str]:
    """Return a sentence for each step that ``plan`` would cut users off by."""
    groups = [group for group in plan.groups if not_back_yet(host, group)]
    return [
        f"{step} takes the link down for {', '.join(users)}"
        for step, users in who_is_cut_off(groups, facts)
    ]


def _refuse_users(host: Door, plan: UndoPlan, facts: Facts) -> None:
    lines = users_told(host, plan, facts)
    if lines:
        raise Refused(
            "\n".join(["nothing was changed: there are users", *lines]),
            "put the host into maintenance, detach the engine's networks that are "
            "named, and run this again; or allow it with --allow-link-down",
        )


def _carry_out(host: Door, notes: Notes, plan: UndoPlan, run: int) -> RunResult:
    undone = take_back(host, notes, plan, run)
    outcome = PARTLY if undone.failed else DONE
    sentence = what_came_of_it(undone)
    notes.may(End(run, outcome, iso(host.now()), sentence))
    sentence += notes.what_is_missing
    return RunResult(run, outcome, sentence, tuple(undone.steps), tuple(undone.left))
