# SPDX-License-Identifier: GPL-2.0-or-later
"""Revert changes, unless something is in use.

Who would notice if steps were taken back: the users of the netdevs whose link goes
down by that. Of a profile or child that goes for good also whoever has set something
up on it since: nmstate puts the engine's network into the profile that it finds, ours.
Pure.

``revert``: all that is held is taken back, or what is held of one step.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.changes.journal import Journal, Notes, iso
from ovirt_rdma.host.changes.kinds.model import (
    DONE,
    PARTLY,
    REVERT,
    Act,
    Begin,
    Door,
    End,
    Listener,
    Refused,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.properties import (
    adapter_of,
    is_maker,
    made_netdev,
    netdev_of,
)
from ovirt_rdma.host.changes.ledger import (
    JournalAct,
    Ledger,
    Run,
    refuse_while_awaiting,
    refuse_while_interrupted,
)
from ovirt_rdma.host.changes.rollback import (
    not_back_yet,
    take_back,
    undo_plan,
    what_came_of_it,
)
from ovirt_rdma.host.changes.undo import Key, UndoAct, UndoPlan, key_of
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.base import LINK_DOWN, Change
from ovirt_rdma.host.rules.infiniband.settings import lasting_addresses
from ovirt_rdma.host.rules.reapply import needs_activation
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.system.signals import held_signals


def who_is_cut_off(
    groups: Iterable[Sequence[UndoAct]], facts: Facts
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each step that takes links down with their users, in words, where there
    are any. Besides link-down steps those are the ones that made a profile or child,
    and those that changed what NetworkManager activates an active profile for: earlier
    versions called some of these live.
    """
    view = View(facts, Policy())
    for group in groups:
        acts = [one.act for one in group]
        if not any(
            act.effect == LINK_DOWN
            or is_maker(act)
            or any(needs_activation(change) for change in act.changes)
            for act in acts
        ):
            continue
        names = {name for act in acts for name in _netdevs(act, view)}
        above = {upper for name in names for upper in view.above(name)}
        users = [
            f"{use.purpose}: {use.what}"
            for use in facts.netdev_uses
            if use.netdev in above
        ]
        if any(is_maker(act) for act in acts):
            made = {on for name in names for on in view.carriers(name)}
            users += _set_up_on(made, facts)
        if users:
            yield acts[0].step, tuple(dict.fromkeys(users))


def _set_up_on(names: Collection[str], facts: Facts) -> Iterator[str]:
    """Yield the engine's networks on these netdevs, and the addresses of the others.
    There were none when we made the profile or child, and it brings none itself.
    """
    networks = [net for net in facts.ovirt_networks if net.southbound in names]
    for network in networks:
        yield f"engine: network {network.name} on {network.southbound}"
    carrying = {network.southbound for network in networks}
    for netdev in facts.netdevs:
        if netdev.name in names and netdev.name not in carrying:
            for address in lasting_addresses(netdev):
                yield f"address: {address} on {netdev.name}"


def _netdevs(act: Act, view: View) -> Iterator[str]:
    change = act.changes[0]
    address = adapter_of(change)
    if address:
        for one in view.interfaces:
            if one.adapter and one.adapter.pci.address == address:
                yield one.name
        return
    name = made_netdev(act) or netdev_of(change) or _active_on(change, view)
    if name:
        yield name


def _active_on(change: Change, view: View) -> Optional[str]:
    manager = view.facts.network_manager
    profiles = manager.profiles if manager else ()
    return next((p.active_on for p in profiles if p.uuid == change.target), None)


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
        raise Refused("step-not-applied", f"nothing is held of {only}", held)


def _refuse_blocked(plan: UndoPlan) -> None:
    if plan.blocked:
        step = plan.blocked[0].entry.act.step
        by = ", ".join(dict.fromkeys(one.by.act.step for one in plan.blocked))
        raise Refused(
            "step-needed-by-others",
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
            "netdevs-in-use",
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
