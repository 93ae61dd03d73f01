# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out ``network attach``, batch by batch.

Each host is read before the change and verified after it. A host on which the network
is not as requested is rolled back by itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem, LostAnswer
from ovirt_rdma.engine_sdk_tools.api.progress import Listener, step
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.api.session import Session, in_parallel
from ovirt_rdma.engine_sdk_tools.model import Engine, Host
from ovirt_rdma.engine_sdk_tools.networks.attach_plan import (
    NOTHING,
    OPTION,
    AttachPlan,
    HostAttach,
    attachment_of,
    back_call,
    commit_call,
    differences,
    fix_for,
    plan_host,
    read_declared,
)
from ovirt_rdma.engine_sdk_tools.reader import host_of
from ovirt_rdma.host.exit_code import ExitCode

# The outcomes of a host.
DONE = "done"
UNCHANGED = "nothing to do"
AS_BEFORE = "as before"
FAILED = "failed"
NOT_BEGUN = "not begun"

# The engine reads the host again after a change: check this often, at this interval.
_LOOKS = 3
_BETWEEN_S = 2.0


@dataclass(frozen=True)
class HostResult:
    """``outcome`` is one of the constants above; ``sentence`` says why it is not DONE.

    AS_BEFORE: refused, or rolled back. FAILED: the host was changed, or its state is
    unknown.
    """

    host: str
    nic: str
    address: str
    outcome: str
    sentence: str = ""
    fix: str = ""


@dataclass(frozen=True)
class AttachResult:
    """The result of each host, in host order; ``network`` is the network's name."""

    network: str
    rows: tuple[HostResult, ...]

    @property
    def summary(self) -> str:
        """How many hosts have the network."""
        good = sum(row.outcome in (DONE, UNCHANGED) for row in self.rows)
        return f"network {self.network} is on {good} of {len(self.rows)} hosts"

    @property
    def exit_code(self) -> ExitCode:
        """ROLLED_BACK: none is done, all as before; FAILED: not all as before."""
        outcomes = {row.outcome for row in self.rows}
        good = {DONE, UNCHANGED}
        if outcomes <= good:
            return ExitCode.DONE
        if outcomes & good:
            return ExitCode.SOME
        return ExitCode.FAILED if FAILED in outcomes else ExitCode.ROLLED_BACK


def attach_network(
    session: Session,
    plan: AttachPlan,
    listener: Listener,
    *,
    batch: int = 1,
    keep_going: bool = False,
) -> AttachResult:
    """Carry out ``plan``, ``batch`` hosts at a time.

    After a batch in which a host failed, no other host is started, unless
    ``keep_going``. Raises nothing for a single host.
    """
    listener.plan(tuple(row.host.name for row in plan.todo), len(plan.todo))
    results = {r.host.name: _result(r, UNCHANGED) for r in plan.rows}
    todo = list(plan.todo)
    results.update({row.host.name: _result(row, NOT_BEGUN) for row in todo})
    while todo:
        now, todo = todo[:batch], todo[batch:]
        done = in_parallel(
            lambda row: _attach_host(session, plan, row, listener), now, max(1, batch)
        )
        results.update({result.host: result for result in done})
        bad = [r for r in done if r.outcome not in (DONE, UNCHANGED)]
        if bad and todo and not keep_going:
            listener.note(
                f"stopped after {', '.join(r.host for r in bad)}: {len(todo)} hosts "
                "not started"
            )
            break
    rows = tuple(results[row.host.name] for row in plan.rows)
    return AttachResult(plan.network.name, rows)


def declared_properties(
    session: Session, engine: Engine, hosts: Sequence[Host]
) -> dict[str, dict[str, str]]:
    """Read which custom properties the cluster levels of ``hosts`` declare."""
    used = {host.cluster for host in hosts}
    levels = sorted({c.version for c in engine.clusters if c.id in used and c.version})
    declared = {}
    for level in levels:
        doing = f"reading the custom properties of level {level}"
        read = Read(f"options/{OPTION}", doing, "get", {"version": level})
        option = session.read(read)
        texts = [value.value or "" for value in option.values or ()]
        declared[level] = read_declared(";".join(texts))
    return declared


def _attach_host(
    session: Session, plan: AttachPlan, row: HostAttach, listener: Listener
) -> HostResult:
    with step(listener, plan.call(row).doing, row.host.name) as now:
        try:
            result = _attach(session, plan, row)
        except EngineProblem as error:
            result = _result(row, FAILED, str(error), error.fix)
        now.problem = result.sentence
    return result


def _attach(session: Session, plan: AttachPlan, row: HostAttach) -> HostResult:
    """Read, change, verify; roll back where the result is not as planned."""
    network = plan.network
    host = _read(session, row.host)
    fresh, refusals = plan_host(plan, host, row.address)
    if fresh is None or refusals:
        sentence = f"the host has changed since the plan: {'; '.join(refusals)}"
        return _result(row, AS_BEFORE, sentence)
    if fresh.act == NOTHING:
        return _result(row, DONE)
    lost: Optional[LostAnswer] = None
    try:
        session.perform(plan.call(fresh))
    except LostAnswer as error:
        lost = error
    except EngineProblem as error:
        # VDSM has rolled back by itself, or the engine never asked it.
        return _roll_back(session, plan, fresh, str(error), error.fix)
    try:
        wrong = _settled(session, plan, fresh)
    except EngineProblem as error:
        change = str(lost) if lost else f"{network.name} was attached"
        sentence = f"{change}; that could not be verified: {error}"
        return _result(row, FAILED, sentence, error.fix)
    if wrong:
        why = "; ".join(wrong)
        fix = fix_for(attachment_of(_read(session, row.host), network.id))
        before = f"{lost}; " if lost else ""
        sentence = f"{before}{network.name} is not in sync: {why}"
        return _roll_back(session, plan, fresh, sentence, fix)
    if lost is not None:
        # The API does not show whether it was committed; a second commit is harmless.
        session.perform(commit_call(row.host))
    return _result(row, DONE)


def _settled(session: Session, plan: AttachPlan, row: HostAttach) -> list[str]:
    """Return the differences from the plan that remain after _LOOKS reads."""
    wrong: list[str] = []
    for look in range(_LOOKS):
        if look:
            session.sleep(_BETWEEN_S)
        wrong = differences(
            _read(session, row.host),
            plan.network.id,
            row.chosen.target,
            str(row.address),
            row.properties,
        )
        if not wrong:
            break
    return wrong


def _roll_back(
    session: Session, plan: AttachPlan, row: HostAttach, sentence: str, fix: str
) -> HostResult:
    """Restore the network configuration of the host; ``sentence`` says why."""
    host = _read(session, row.host)
    call = _rollback_call(host, plan, row)
    if call is None:
        return _result(row, AS_BEFORE, sentence, fix)
    try:
        session.perform(call)
    except EngineProblem as error:
        host = _read(session, row.host)
        if _rollback_call(host, plan, row) is not None:
            by_hand = (
                f"in the engine, Setup Host Networks of {row.host.name}: restore the "
                f"earlier settings of {plan.network.name} by hand"
            )
            message = f"{sentence}; it could not be rolled back: {error}"
            return _result(row, FAILED, message, by_hand)
        if isinstance(error, LostAnswer):
            # As above: without it, a reboot would bring the network back.
            session.perform(commit_call(row.host))
    return _result(row, AS_BEFORE, sentence, fix)


def _rollback_call(host: Host, plan: AttachPlan, row: HostAttach) -> Optional[Call]:
    """Return the call that restores ``host``; None if nothing has to change."""
    connectivity_s = plan.request.connectivity_s
    now = attachment_of(host, plan.network.id)
    bonds = {nic.name for nic in host.nics or ()}
    bond = row.chosen.target if row.chosen.new_bond else None
    bond = bond if bond in bonds else None
    if now is None and row.before is None and bond is None:
        return None
    names = {nic.id: nic.name for nic in host.nics or ()}
    if row.before is not None and now is not None:
        same = replace(now, in_sync=None, reported=(), nic=None) == replace(
            row.before, in_sync=None, reported=(), nic=None
        )
        if same and names.get(now.nic or "") == row.before_nic:
            return None
    return back_call(row, plan.network, now, bond, connectivity_s)


def _read(session: Session, host: Host) -> Host:
    query = {"follow": "nics,network_attachments"}
    read = Read(f"hosts/{host.id}", f"reading {host.name}", "get", query)
    return host_of(session.read(read), nics=True, attachments=True, hooks=False)


def _result(
    row: HostAttach, outcome: str, sentence: str = "", fix: str = ""
) -> HostResult:
    return HostResult(
        row.host.name, row.chosen.target, str(row.address), outcome, sentence, fix
    )
