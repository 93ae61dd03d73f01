# SPDX-License-Identifier: GPL-2.0-or-later
"""``domain create``, carried out: connection, domain, attachment, until it is active;
its transport proven on hosts that tell; all taken back where a part fails.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.call import Call, Read
from ovirt_rdma.engine_sdk_tools.domain_create import DomainPlan
from ovirt_rdma.engine_sdk_tools.domain_transport import look
from ovirt_rdma.engine_sdk_tools.domain_undo import undo_domain
from ovirt_rdma.engine_sdk_tools.engine_errors import (
    EngineProblem,
    LostAnswer,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import Domain, Host
from ovirt_rdma.engine_sdk_tools.host_report import HostDoor
from ovirt_rdma.engine_sdk_tools.progress import Listener
from ovirt_rdma.engine_sdk_tools.report_stream import reports_of
from ovirt_rdma.engine_sdk_tools.sdk_records import connection_of
from ovirt_rdma.engine_sdk_tools.session import Session
from ovirt_rdma.engine_sdk_tools.undo import after_lost
from ovirt_rdma.host.problem import Problem

# The attachment mounts on every host; VDSM gives a mount up to 3 minutes or so.
ACTIVE_S = 900.0
# STORAGE_DOMAIN_ERROR and VDS_STORAGES_CONNECTION_FAILED: what VDSM said of a mount.
_MOUNT_EVENTS = (996, 188)


@dataclass(frozen=True)
class ProvenHost:
    """A host's transport, ``rdma`` or ``tcp``; None: not proven, the sentence says
    why.
    """

    host: str
    transport: Optional[str]
    sentence: str
    fix: str = ""


@dataclass(frozen=True)
class DomainMade:
    """``made`` is False where there was nothing to do. ``hosts`` have the proof."""

    id: str
    transport: str
    made: bool
    hosts: tuple[ProvenHost, ...] = ()

    @property
    def exit_code(self) -> int:
        """5 where the domain is active and a host has it over another transport."""
        wrong = [h for h in self.hosts if h.transport not in (None, self.transport)]
        return 5 if wrong else 0


@dataclass
class Traces:
    """What this run has made so far, by id; ``fell`` are hosts that it took down."""

    connection: str = ""
    domain: str = ""
    attached: bool = False
    fell: tuple[Host, ...] = ()


def create_domain(
    session: Session, door: Optional[HostDoor], plan: DomainPlan, listener: Listener
) -> DomainMade:
    """Do what ``plan`` says; prove the transport where ``door`` leads to hosts.

    Raises Problem where a part failed, after what was made is gone again; its message
    says what is not.
    """
    listener.plan((plan.name,), len(plan.calls) + 2)
    traces = Traces()
    try:
        domain = (
            plan.domain.id if plan.domain else _made(session, plan, traces, listener)
        )
        if not plan.attached:
            _step(session, plan.attaching(domain), listener, traces)
        _wait_active(session, plan, domain, listener)
        _check_hosts(session, plan, traces)
    except Problem as error:
        told = _with_events(session, error)
        raise undo_domain(session, plan, traces, listener).told(told) from error
    found = Domain(
        domain,
        plan.name,
        "data",
        "nfs",
        plan.data_center.id,
        "active",
        connection=plan.row,
    )
    proven = _proof(door, plan, found, listener)
    return DomainMade(domain, plan.transport, not plan.nothing, proven)


def _made(
    session: Session, plan: DomainPlan, traces: Traces, listener: Listener
) -> str:
    connection = plan.row.id
    if not connection:
        connection = _connection(session, plan, listener)
        traces.connection = connection
    call = plan.adding(connection)
    listener.begin(call.doing, plan.name)
    try:
        domain = str(session.perform(call).id)
    except LostAnswer as lost:
        domain = after_lost(lost, lambda: _domain_named(session, plan.name))
    traces.domain = domain
    listener.end(call.doing, plan.name)
    return domain


def _connection(session: Session, plan: DomainPlan, listener: Listener) -> str:
    call = plan.connecting()
    listener.begin(call.doing, plan.name)
    try:
        found = str(session.perform(call).id)
    except LostAnswer as lost:
        found = after_lost(lost, lambda: _row_like(session, plan))
    listener.end(call.doing, plan.name)
    return found


def _row_like(session: Session, plan: DomainPlan) -> str:
    """Return the id of the row that was made although the answer was lost."""
    read = Read("storageconnections", "reading the storage connections")
    for one in session.read(read):
        row = connection_of(one)
        if row is not None and row == replace(plan.row, id=row.id):
            return row.id
    return ""


def _domain_named(session: Session, name: str) -> str:
    for one in session.read(Read("storagedomains", "reading the storage domains")):
        if one.name == name:
            return str(one.id)
    return ""


def _step(session: Session, call: Call, listener: Listener, traces: Traces) -> None:
    listener.begin(call.doing, call.about)
    # From here on it may be attached, whatever the answer.
    traces.attached = True
    try:
        session.perform(call)
    except LostAnswer as error:
        # If it is not, waiting for it to be active tells.
        listener.note(str(error))
    listener.end(call.doing, call.about)


def _wait_active(
    session: Session, plan: DomainPlan, domain: str, listener: Listener
) -> None:
    doing = f"activating {plan.name}"
    listener.begin(doing, plan.name)
    path = f"datacenters/{plan.data_center.id}/storagedomains/{domain}"
    session.wait_until(
        Read(path, f"reading {plan.name}", "get"), _active, doing, ACTIVE_S
    )
    listener.end(doing, plan.name)


def _active(found: Any) -> Optional[bool]:
    return True if str(getattr(found.status, "value", "")) == "active" else None


def _check_hosts(session: Session, plan: DomainPlan, traces: Traces) -> None:
    """Raise Problem where a host that was up could not mount it and went down."""
    was_up = {host.id: host for host in plan.hosts}
    fell = []
    for one in session.read(Read("hosts", "reading the hosts")):
        status = str(getattr(one.status, "value", ""))
        if one.id in was_up and status == "non_operational":
            fell.append(was_up[one.id])
    if fell:
        traces.fell = tuple(fell)
        names = ", ".join(host.name for host in fell)
        raise EngineProblem(
            f"{names} could not mount {plan.row.export} and went non-operational",
            "broken",
            fix="'ovirt-rdma-host nfs check' on the host says what is missing",
        )


def _proof(
    door: Optional[HostDoor], plan: DomainPlan, domain: Domain, listener: Listener
) -> tuple[ProvenHost, ...]:
    if door is None:
        return ()
    doing = f"proving the transport of {plan.name}"
    listener.begin(doing, plan.name)
    proven = []
    for host, report in reports_of(plan.hosts, door):
        used = look(host, report, [domain])[0]
        cell = used.cell
        proven.append(ProvenHost(host.name, used.transport, cell.sentence, cell.fix))
    listener.end(doing, plan.name)
    return tuple(proven)


def _with_events(session: Session, error: Problem) -> Problem:
    """Return ``error`` with what the hosts said of their mounts, from the events."""
    words = {"search": f"correlation_id={session.correlation_id}", "max": 50}
    try:
        events = session.read(Read("events", "reading the events", words=words))
    except EngineProblem:
        return error
    said = [e.description for e in events if e.code in _MOUNT_EVENTS and e.description]
    if not said:
        return error
    lines = "\n".join(dict.fromkeys(said))
    return Problem(f"{error}\n{lines}", error.fix)
