# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out ``domain create``, and roll it back if a part of it fails.

The engine's status shows it too late: the activation of a domain that is not the master
succeeds as soon as one host has mounted it, and a host without it stays up until the
domain monitoring makes it non-operational (RefreshPoolSingleAsyncOperation.java:55-88,
IrsProxyImpl.java:1550). So the hosts are asked, and the engine's events are read.

VDSM's answer to a mount is in two events, both without a correlation id: 996 has VDSM's
message for the connection, and no host; 188 has the host, and the domains by name
(StorageHelperBase.java:181-193, ConnectStorageServerVDSCommand.java:99-102). Event 967
reports that an attached domain could not be activated, with a correlation id of the
engine's own (AttachStorageDomainToPoolCommand.java:282-289). So events are matched by
their names, among those after the newest one before the change.

The run makes the connection, creates the domain, attaches it, waits until it is active
and proves its transport on the hosts that can be asked. A rollback follows the order
that the engine allows: maintenance, detach, remove the domain, then the connection.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Optional

from ovirt_rdma.engine_sdk_tools.api.request import (
    MISSING,
    SEE_LOG,
    Call,
    EngineProblem,
    Listener,
    LostAnswer,
    Read,
    step,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session, events_since, newest_event
from ovirt_rdma.engine_sdk_tools.domains.create_plan import DomainPlan
from ovirt_rdma.engine_sdk_tools.domains.transport import no_report, transports_in_use
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport, reports_of
from ovirt_rdma.engine_sdk_tools.job import Undo, after_lost, undo
from ovirt_rdma.engine_sdk_tools.model import Domain, Host, listed, status_words
from ovirt_rdma.engine_sdk_tools.reader import connection_of
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.export import nfs_check

_STORAGE_DOMAIN_ERROR = 996
_CONNECTION_FAILED = 188
_ACTIVATION_FAILED = 967
_BAD = ("error", "alert")


class MountEvents:
    """The events on mounts of ``domain`` (a name) with ``export``, after the
    construction of this object. ``problem`` is the reason if they cannot be read.
    """

    def __init__(self, session: Session, domain: str, export: str) -> None:
        self._session = session
        # Match whole names: not data1 in data10 or old-data1.
        self._export = re.compile(rf"{re.escape(export)}(?![\w./-])")
        self._domain = re.compile(rf"(?<![\w-]){re.escape(domain)}(?![\w-])")
        self._after = 0
        self.problem = ""
        try:
            self._after = newest_event(session)
        except EngineProblem as error:
            self.problem = str(error)

    def failed_hosts(self) -> dict[str, str]:
        """Return the hosts that could not mount the domain: their names by id."""
        hosts = {}
        for event in reversed(self._since()):
            host = event.host
            if event.code == _CONNECTION_FAILED and host is not None and host.id:
                name = host.name or host.id
                text = (event.description or "").replace(name, "", 1)
                if self._domain.search(_domain_names(text)):
                    hosts[str(host.id)] = str(name)
        return hosts

    def said(self) -> tuple[str, ...]:
        """Return the events on failed mounts and on failed requests of this session,
        each sentence once, the oldest first.
        """
        sentences = [
            str(event.description)
            for event in self._since()
            if event.description and (self._of_mount(event) or self._of_ours(event))
        ]
        return tuple(dict.fromkeys(sentences))

    def _of_mount(self, event: Any) -> bool:
        if event.code == _STORAGE_DOMAIN_ERROR:
            return bool(self._export.search(event.description))
        named = event.code in (_CONNECTION_FAILED, _ACTIVATION_FAILED)
        return named and bool(self._domain.search(event.description))

    def _of_ours(self, event: Any) -> bool:
        severity: Optional[str] = getattr(event.severity, "value", None)
        ours = event.correlation_id == self._session.correlation_id
        return ours and severity in _BAD

    def _since(self) -> list[Any]:
        """Return the events, the oldest first."""
        if self.problem:
            return []
        try:
            return events_since(self._session, self._after)
        except EngineProblem as error:
            self.problem = str(error)
            return []


def _domain_names(text: str) -> str:
    """Return the end of event 188, with the names of domains. Words of its fixed
    beginning may be names of domains too (AuditLogMessages.properties:525).
    """
    return text.rpartition(" Storage Domains ")[2]


# Wait this long before a missing mount counts: the engine has the host's answer by
# then, but may repeat its request to a host that was busy.
MOUNT_S = 60.0
_AGAIN_S = 10.0
# What the engine does with a host that cannot mount the domain (0000_config.sql:645).
NOT_MOUNTED_LATER = (
    "a host that cannot mount it becomes non-operational after about 5 minutes "
    "(StorageDomainFailureTimeoutInMinutes)"
)
_UP, _FELL = "up", "non_operational"


@dataclass(frozen=True)
class ProvenHost:
    """A host's transport, ``rdma`` or ``tcp``; None if unproven, with the reason in
    ``sentence``. ``mounted`` is None if unknown.
    """

    host: str
    transport: Optional[str]
    sentence: str
    fix: str = ""
    mounted: Optional[bool] = None


@dataclass(frozen=True)
class Mounted:
    """The result for all ``hosts``. ``fell`` are those that were up and became
    non-operational; ``failed`` are sentences on those that did not mount the domain.
    """

    hosts: tuple[ProvenHost, ...]
    fell: tuple[Host, ...] = ()
    failed: tuple[str, ...] = ()


def hosts_mounted(
    session: Session,
    door: Optional[HostAccess],
    hosts: Sequence[Host],
    domain: Domain,
    events: Optional[MountEvents] = None,
) -> Mounted:
    """Determine which of ``hosts``, all of which were up, have mounted ``domain``.

    ``events`` are those since before it was attached; None for a domain of an earlier
    run. A host without the mount and without an event is asked again for MOUNT_S.
    """
    named = events.failed_hosts() if events else {}
    now = _with_status(session, hosts)
    reports = _Reports(door, domain)
    reports.ask(now)
    until = session.clock() + MOUNT_S
    while events and session.clock() < until:
        slow = [h for h in now if reports.without(h) and h.id not in named]
        if not slow:
            break
        session.sleep(_AGAIN_S)
        now = _with_status(session, hosts)
        ids = {host.id for host in slow}
        reports.ask([host for host in now if host.id in ids])
    fell = tuple(host for host in now if host.status == _FELL)
    failed = _failed(domain, now, fell, reports, named)
    return Mounted(tuple(reports.known[host.id] for host in now), fell, tuple(failed))


def unverified_sentence(hosts: Sequence[ProvenHost]) -> str:
    """Return a sentence on hosts for which ``mounted`` is unknown; "" for none."""
    names = [host.host for host in hosts if host.mounted is None]
    return f"not verified on {listed(names)}: {NOT_MOUNTED_LATER}" if names else ""


class _Reports:
    """The hosts' own reports on the domain; ``known`` is by the id of the host."""

    def __init__(self, door: Optional[HostAccess], domain: Domain) -> None:
        self._door, self._domain = door, domain
        self.known: dict[str, ProvenHost] = {}

    def ask(self, hosts: Sequence[Host]) -> None:
        for host, report in self._reports(hosts):
            used = transports_in_use(host, report, [self._domain])[0]
            cell = used.cell
            self.known[host.id] = ProvenHost(
                host.name, used.transport, cell.sentence, cell.fix, used.mounted
            )

    def without(self, host: Host) -> bool:
        """Whether the host is up and reports that it has not mounted the domain."""
        return host.status == _UP and self.known[host.id].mounted is False

    def _reports(self, hosts: Sequence[Host]) -> Iterator[tuple[Host, HostReport]]:
        if self._door is None:
            return ((host, no_report(host)) for host in hosts)
        return reports_of(hosts, self._door)


def _with_status(session: Session, hosts: Sequence[Host]) -> list[Host]:
    """Return ``hosts`` with their present status."""
    status = {
        host.id: str(getattr(host.status, "value", "")) or None
        for host in session.read(Read("hosts", "reading the hosts"))
    }
    return [replace(host, status=status.get(host.id)) for host in hosts]


def _failed(
    domain: Domain,
    hosts: Sequence[Host],
    fell: Sequence[Host],
    reports: _Reports,
    named: Mapping[str, str],
) -> Iterator[str]:
    export = domain.connection.export if domain.connection else domain.name
    down = {host.id for host in fell}
    if fell:
        names = listed([host.name for host in fell])
        yield f"{names} could not mount {export} and became non-operational"
    # A host's report is newer than an event: the engine connects twice.
    mounted = {i for i, host in reports.known.items() if host.mounted}
    by_event = [name for i, name in named.items() if i not in down | mounted]
    if by_event:
        yield (
            f"{listed(by_event)} could not mount {export}, according to the engine's "
            "events"
        )
    without = [
        host.name for host in hosts if reports.without(host) and host.id not in named
    ]
    if without:
        yield (
            f"{listed(without)} did not mount {export}, although {domain.name} is "
            "active in the engine"
        )


MAINTENANCE_S = 600.0
_DOWN = ("maintenance", "unattached")


def _undoing(run: _Run) -> list[Undo]:
    """Return how to undo what was made, in the order in which it was made."""
    plan, session = run.plan, run.session
    name, center = plan.name, plan.data_center
    undoing = []
    if run.made_connection:
        # As a rule, the engine has removed it with the domain.
        path = f"storageconnections/{run.made_connection}"
        doing = f"removing the connection to {plan.row.export} again"
        by_hand = f"remove the storage connection {run.made_connection}"
        undoing.append(Undo(Call(path, "remove", doing, {}, name), by_hand))
    if run.made_domain:
        # Its folder on the export goes too. It is ours: it cannot be an import.
        words = {"host": plan.host.name, "format": True}
        doing = f"removing the domain {name} again"
        call = Call(f"storagedomains/{run.domain}", "remove", doing, words, name)
        by_hand = f"remove the domain {name}, and {plan.left_over(run.domain)}"
        undoing.append(Undo(call, by_hand, first=True))
    if run.attached:
        path = f"datacenters/{center.id}/storagedomains/{run.domain}"
        by_hand = f"move {name} to maintenance and detach it from {center.name}"
        call = Call(path, "remove", f"detaching {name} again", {}, name)
        undoing.append(Undo(call, by_hand, first=True))
        read = Read(path, f"reading {name}", "get")
        doing = f"moving {name} to maintenance again"
        call = Call(path, "deactivate", doing, {}, name)
        wait = partial(session.wait_until, read, _is_down, doing, MAINTENANCE_S)
        try:
            down = _is_down(session.read(read, patience_s=0.0))
        except EngineProblem as error:
            # Of others, the next request finds out the same.
            down = error.kind == MISSING
        if not down:
            undoing.append(Undo(call, by_hand, wait, first=True))
    return undoing


def _status(domain: Any) -> str:
    return str(getattr(domain.status, "value", ""))


def _is_down(domain: Any) -> Optional[bool]:
    return True if _status(domain) in _DOWN else None


# The attachment mounts the domain on every host; VDSM gives a mount about 3 minutes.
ACTIVE_S = 900.0
# If the answer to the attachment was lost, the engine may be between attaching and
# activating: then it shows maintenance too, for a moment.
SETTLED_S = 60.0
_ACTIVE = "active"
# The statuses after a failed activation during the attachment; the engine does not try
# again (AttachStorageDomainToPoolCommand.java:221).
_NOT_ACTIVATED = ("maintenance", "inactive")


@dataclass(frozen=True)
class DomainMade:
    """The result; ``made`` is False if there was nothing to do. ``hosts`` are all hosts
    that were up.
    """

    id: str
    transport: str
    made: bool
    hosts: tuple[ProvenHost, ...] = ()

    @property
    def not_verified(self) -> tuple[str, ...]:
        """The hosts for which it is unknown whether they have mounted the domain."""
        return tuple(host.host for host in self.hosts if host.mounted is None)

    @property
    def exit_code(self) -> ExitCode:
        """SOME if the domain is active, but not mounted on a host, or over another
        transport there; else DONE.
        """
        wrong = [
            host
            for host in self.hosts
            if host.transport not in (None, self.transport) or host.mounted is False
        ]
        return ExitCode.SOME if wrong else ExitCode.DONE


def create_domain(
    session: Session,
    door: Optional[HostAccess],
    plan: DomainPlan,
    listener: Listener,
) -> DomainMade:
    """Carry out ``plan``; prove the transport on the hosts if there is a ``door``.

    Raises Problem if a part failed, after the rollback; the message names what could
    not be rolled back.
    """
    listener.plan((plan.name,), len(plan.calls) + 2)
    run = _Run(session, plan, listener)
    if plan.nothing:
        mounted = run.look(door)
        return DomainMade(run.domain, plan.transport, False, mounted.hosts)
    events = MountEvents(session, plan.name, plan.row.export)
    try:
        run.make()
        run.activate()
        mounted = run.look(door, events)
        run.fell = mounted.fell
        if mounted.failed:
            reason = "; ".join(mounted.failed)
            fix = f"on each host that is named: {nfs_check(plan.row.export)}"
            raise Problem("domain-not-mounted", reason, fix)
    except Problem as error:
        explained = _with_events(events, error, plan)
        undone = undo(session, _undoing(run), listener)
        # The hosts that fell because of it are activated.
        again = undo(session, [_activation(h) for h in reversed(run.fell)], listener)
        raise undone.then(again).told(explained) from error
    if events.problem:
        listener.note(
            f"the engine's events on failed mounts are unknown: {events.problem}"
        )
    return DomainMade(run.domain, plan.transport, True, mounted.hosts)


def _activation(host: Host) -> Undo:
    doing = f"activating {host.name} again"
    call = Call(f"hosts/{host.id}", "activate", doing, {}, host.name)
    return Undo(call, f"activate {host.name}")


class _Run:
    """The parts of a run, each reported to the listener.

    ``domain`` is the domain's id, once known; ``made_connection`` that of the
    connection if the run has made it. ``fell`` are hosts that became non-operational
    because of it.
    """

    def __init__(self, session: Session, plan: DomainPlan, listener: Listener) -> None:
        self.session, self.plan, self._listener = session, plan, listener
        self.domain = plan.domain.id if plan.domain else ""
        self.made_connection = ""
        self.made_domain = self.attached = False
        self.fell: tuple[Host, ...] = ()

    def make(self) -> None:
        """Make the connection and the domain, unless they exist."""
        plan = self.plan
        if self.domain:
            return
        row = plan.row.id
        if not row:
            row = self._made(plan.connecting(), lambda: _row_like(self.session, plan))
            self.made_connection = row
        self.domain = self._made(
            plan.adding(row), lambda: _domain_named(self.session, plan.name)
        )
        self.made_domain = True

    def activate(self) -> None:
        """Attach the domain, unless it is attached, and wait until it is active.

        Raises EngineProblem if the activation has failed for good.
        """
        plan = self.plan
        answered = not plan.attached and self._attached()
        doing = f"activating {plan.name}"
        path = f"datacenters/{plan.data_center.id}/storagedomains/{self.domain}"
        read = Read(path, f"reading {plan.name}", "get")
        since: Optional[float] = None

        def final(domain: Any) -> Optional[str]:
            """Active, or for a while not activated."""
            nonlocal since
            status, now = _status(domain), self.session.clock()
            if status not in _NOT_ACTIVATED:
                since = None
                return status if status == _ACTIVE else None
            since = now if since is None else since
            settled_s = 0.0 if answered else SETTLED_S
            return status if now - since >= settled_s else None

        with step(self._listener, doing, plan.name):
            status = self.session.wait_until(read, final, doing, ACTIVE_S)
            if status != _ACTIVE:
                sentence = (
                    f"{plan.name} is attached, but could not be activated: it is "
                    f"{status_words(status)}"
                )
                raise Problem("domain-not-active", sentence)

    def look(
        self, door: Optional[HostAccess], events: Optional[MountEvents] = None
    ) -> Mounted:
        """Check whether the hosts have mounted it; ``events`` as for hosts_mounted."""
        plan = self.plan
        doing = f"proving {plan.name} on its hosts"
        domain = Domain(
            self.domain,
            plan.name,
            "data",
            "nfs",
            plan.data_center.id,
            _ACTIVE,
            connection=plan.row,
        )
        with step(self._listener, doing, plan.name) as now:
            mounted = hosts_mounted(self.session, door, plan.hosts, domain, events)
            now.problem = "; ".join(mounted.failed)
        return mounted

    def _made(self, call: Call, look: Callable[[], str]) -> str:
        """Perform ``call``; return the id of the new object, which ``look`` finds if
        the answer was lost.
        """
        with step(self._listener, call.doing, call.subject):
            try:
                return str(self.session.perform(call).id)
            except LostAnswer as lost:
                return after_lost(lost, look)

    def _attached(self) -> bool:
        """Attach the domain; return whether the engine has answered. If so, it has
        tried to activate the domain too.
        """
        call = self.plan.attaching(self.domain)
        # From here on the domain may be attached, whatever the answer.
        self.attached = True
        with step(self._listener, call.doing, call.subject):
            try:
                self.session.perform(call)
            except LostAnswer as error:
                # The wait for an active domain will show if it is not attached.
                self._listener.note(str(error))
                return False
        return True


def _row_like(session: Session, plan: DomainPlan) -> str:
    """Return the id of the connection that equals the plan's, "" if there is none."""
    read = Read("storageconnections", "reading the storage connections")
    for connection in session.read(read):
        row = connection_of(connection)
        if row is not None and row == replace(plan.row, id=row.id):
            return row.id
    return ""


def _domain_named(session: Session, name: str) -> str:
    for domain in session.read(Read("storagedomains", "reading the storage domains")):
        if domain.name == name:
            return str(domain.id)
    return ""


def _with_events(events: MountEvents, error: Problem, plan: DomainPlan) -> Problem:
    """Return ``error`` with the sentences of the engine's events on it: the reason that
    the engine's log would have.
    """
    sentences = events.said()
    if not sentences:
        return error
    fix = error.fix
    if fix == SEE_LOG:
        fix = f"on {plan.host.name}: {nfs_check(plan.row.export)}"
    return Problem(error.id, "\n".join([str(error), *sentences]), fix)
