# SPDX-License-Identifier: GPL-2.0-or-later
"""``network attach``, carried out: batch by batch, each host read before, verified
after, and taken back by itself where the network is not on it as asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem, LostAnswer
from ovirt_rdma.engine_sdk_tools.api.parallel import in_parallel
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.model import Engine, Host
from ovirt_rdma.engine_sdk_tools.networks.attach_calls import (
    NOTHING,
    HostAttach,
    attachment_of,
    back_call,
    commit_call,
    differences,
    fix_for,
)
from ovirt_rdma.engine_sdk_tools.networks.attach_plan import AttachPlan, plan_host
from ovirt_rdma.engine_sdk_tools.networks.checks import OPTION, read_declared
from ovirt_rdma.engine_sdk_tools.reader import host_of

# What became of a host.
DONE = "done"
UNCHANGED = "nothing to do"
AS_BEFORE = "as before"
FAILED = "failed"
NOT_BEGUN = "not begun"

# The engine reads the host again after a change; this often we look, so far apart.
_LOOKS = 3
_BETWEEN_S = 2.0


@dataclass(frozen=True)
class HostResult:
    """``outcome`` is one of this module's words; ``sentence`` says why it is not DONE.

    AS_BEFORE: it was refused, or taken back. FAILED: it is not as it was, or that is
    not known.
    """

    host: str
    nic: str
    address: str
    outcome: str
    sentence: str = ""
    fix: str = ""


@dataclass(frozen=True)
class AttachResult:
    """What became of each host, in host order."""

    rows: tuple[HostResult, ...]

    @property
    def exit_code(self) -> int:
        """0 all done, 5 some, 6 none and all as before, 1 none and not all so."""
        outcomes = {row.outcome for row in self.rows}
        good = {DONE, UNCHANGED}
        if outcomes <= good:
            return 0
        if outcomes & good:
            return 5
        return 1 if FAILED in outcomes else 6


def attach_network(
    session: Session,
    plan: AttachPlan,
    listener: Listener,
    *,
    batch: int = 1,
    keep_going: bool = False,
) -> AttachResult:
    """Do what ``plan`` says, ``batch`` hosts at a time.

    After a batch in which one failed nothing new is begun, unless ``keep_going``.
    Raises nothing for one host.
    """
    listener.plan(tuple(row.host.name for row in plan.todo), len(plan.todo))
    results = {r.host.name: _result(r, UNCHANGED) for r in plan.rows}
    todo = list(plan.todo)
    results.update({row.host.name: _result(row, NOT_BEGUN) for row in todo})
    while todo:
        now, todo = todo[:batch], todo[batch:]
        done = in_parallel(
            lambda row: _one(session, plan, row, listener), now, max(1, batch)
        )
        results.update({result.host: result for result in done})
        bad = [r for r in done if r.outcome not in (DONE, UNCHANGED)]
        if bad and todo and not keep_going:
            listener.note(
                f"stopped after {', '.join(r.host for r in bad)}: {len(todo)} not begun"
            )
            break
    return AttachResult(tuple(results[row.host.name] for row in plan.rows))


def declared_properties(
    session: Session, engine: Engine, hosts: Sequence[Host]
) -> dict[str, dict[str, str]]:
    """Read which custom properties the cluster levels of ``hosts`` declare."""
    used = {host.cluster for host in hosts}
    levels = sorted({c.version for c in engine.clusters if c.id in used and c.version})
    found = {}
    for level in levels:
        doing = f"reading the custom properties of level {level}"
        read = Read(f"options/{OPTION}", doing, "get", {"version": level})
        option = session.read(read)
        texts = [one.value or "" for one in option.values or ()]
        found[level] = read_declared(";".join(texts))
    return found


def _one(
    session: Session, plan: AttachPlan, row: HostAttach, listener: Listener
) -> HostResult:
    step = plan.call(row).doing
    listener.begin(step, row.host.name)
    try:
        result = _attach(session, plan, row)
    except EngineProblem as error:
        result = _result(row, FAILED, str(error), error.fix)
    listener.end(step, row.host.name, result.sentence)
    return result


def _attach(session: Session, plan: AttachPlan, row: HostAttach) -> HostResult:
    """Look, act, look again; back where it is not as it should be."""
    network = plan.network
    host = _read(session, row.host)
    fresh, against = plan_host(plan, host, row.address)
    if fresh is None or against:
        sentence = f"it has changed since it was planned: {'; '.join(against)}"
        return _result(row, AS_BEFORE, sentence)
    if fresh.act == NOTHING:
        return _result(row, DONE)
    trouble: Optional[EngineProblem] = None
    try:
        session.perform(plan.call(fresh))
    except LostAnswer as error:
        trouble = error
    except EngineProblem as error:
        # VDSM went back by itself, or the engine never asked it.
        return _back(session, plan, fresh, str(error), error.fix)
    try:
        wrong = _settled(session, plan, fresh)
    except EngineProblem as error:
        begun = str(trouble) if trouble else f"{network.name} was put on it"
        sentence = f"{begun}; that is not verified: {error}"
        return _result(row, FAILED, sentence, error.fix)
    if wrong:
        why = "; ".join(wrong)
        fix = fix_for(attachment_of(_read(session, row.host), network.id))
        lost = f"{trouble}; " if trouble else ""
        sentence = f"{lost}{network.name} is not in sync: {why}"
        return _back(session, plan, fresh, sentence, fix)
    if trouble is not None:
        # Whether it was committed, the API does not tell; once more does no harm.
        session.perform(commit_call(row.host))
    return _result(row, DONE)


def _settled(session: Session, plan: AttachPlan, row: HostAttach) -> list[str]:
    """Return what is not as asked for, after some patience."""
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


def _back(
    session: Session, plan: AttachPlan, row: HostAttach, sentence: str, fix: str
) -> HostResult:
    """Bring the host back to what it had; ``sentence`` says why."""
    host = _read(session, row.host)
    call = _call_back(host, plan, row)
    if call is None:
        return _result(row, AS_BEFORE, sentence, fix)
    try:
        session.perform(call)
    except EngineProblem as error:
        host = _read(session, row.host)
        if _call_back(host, plan, row) is not None:
            by_hand = (
                f"in the engine, Setup Host Networks of {row.host.name}: bring "
                f"{plan.network.name} back to what it was by hand"
            )
            told = f"{sentence}; it could not be taken back: {error}"
            return _result(row, FAILED, told, by_hand)
        if isinstance(error, LostAnswer):
            # As above: else the network would be there again after a reboot.
            session.perform(commit_call(row.host))
    return _result(row, AS_BEFORE, sentence, fix)


def _call_back(host: Host, plan: AttachPlan, row: HostAttach) -> Optional[Call]:
    """Return the call that makes ``host`` what it was; None where it is so."""
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
    words = {"follow": "nics,network_attachments"}
    read = Read(f"hosts/{host.id}", f"reading {host.name}", "get", words)
    return host_of(session.read(read), nics=True, attachments=True, hooks=False)


def _result(
    row: HostAttach, outcome: str, sentence: str = "", fix: str = ""
) -> HostResult:
    return HostResult(
        row.host.name, row.chosen.target, str(row.address), outcome, sentence, fix
    )
