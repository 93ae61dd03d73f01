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
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Callable, Optional, TypeVar

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
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    InUse,
    no_report,
    transports_in_use,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport, reports_of
from ovirt_rdma.engine_sdk_tools.job import Undo, made, undo
from ovirt_rdma.engine_sdk_tools.model import (
    Domain,
    Host,
    StorageConnection,
    listed,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.reader import connection_of
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.export import nfs_check

_STORAGE_DOMAIN_ERROR = 996
_CONNECTION_FAILED = 188
_ACTIVATION_FAILED = 967
_OF_MOUNTS = (_STORAGE_DOMAIN_ERROR, _CONNECTION_FAILED, _ACTIVATION_FAILED)
_BAD = ("error", "alert")

_T = TypeVar("_T")


class MountEvents:
    """The events on mounts of ``domain`` (a name) with ``export``, after the
    construction of this object. ``problem`` is the reason if they cannot be read.
    """

    def __init__(self, session: Session, domain: str, export: str) -> None:
        self._session = session
        # Match whole names: not data1 in data10 or old-data1.
        self._export = re.compile(rf"{re.escape(export)}(?![\w./-])")
        self._domain = re.compile(rf"(?<![\w-]){re.escape(domain)}(?![\w-])")
        self.problem = ""
        self._after = self._read(lambda: newest_event(session), 0)

    def failed_hosts(self) -> dict[str, str]:
        """Return the hosts that could not mount the domain: their names by id."""
        hosts = {}
        for event in self._since():
            host = event.host
            if event.code == _CONNECTION_FAILED and host is not None and host.id:
                name = str(host.name or host.id)
                text = (event.description or "").replace(name, "", 1)
                # The names of domains are at its end; words of its beginning may be
                # names of domains too (AuditLogMessages.properties:525).
                if self._domain.search(text.rpartition(" Storage Domains ")[2]):
                    hosts[str(host.id)] = name
        return hosts

    def said(self) -> tuple[str, ...]:
        """Return the events on failed mounts and on failed requests of this session,
        each sentence once, the oldest first.
        """
        concern = (e for e in self._since() if e.description and self._concerns(e))
        return tuple(dict.fromkeys(str(event.description) for event in concern))

    def _concerns(self, event: Any) -> bool:
        name = self._export if event.code == _STORAGE_DOMAIN_ERROR else self._domain
        if event.code in _OF_MOUNTS and name.search(event.description):
            return True
        ours = event.correlation_id == self._session.correlation_id
        return ours and getattr(event.severity, "value", None) in _BAD

    def _since(self) -> list[Any]:
        """Return the events, the oldest first."""
        return self._read(lambda: events_since(self._session, self._after), [])

    def _read(self, read: Callable[[], _T], unknown: _T) -> _T:
        try:
            return unknown if self.problem else read()
        except EngineProblem as error:
            self.problem = str(error)
            return unknown


# Wait this long before a missing mount counts: the engine has the host's answer by
# then, but may repeat its request to a host that was busy.
MOUNT_S = 60.0
_AGAIN_S = 10.0
# What the engine does with a host that cannot mount the domain (0000_config.sql:645).
NOT_MOUNTED_LATER = (
    "a host that cannot mount it becomes non-operational after about 5 minutes "
    "(StorageDomainFailureTimeoutInMinutes)"
)


def unverified_sentence(hosts: Sequence[InUse]) -> str:
    """Return a sentence on hosts for which ``mounted`` is unknown; "" for none."""
    names = [host.host for host in hosts if host.mounted is None]
    return f"not verified on {listed(names)}: {NOT_MOUNTED_LATER}" if names else ""


MAINTENANCE_S = 600.0
_DOWN = ("maintenance", "unattached")
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
    hosts: tuple[InUse, ...] = ()

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
    run = _Run(session, plan, listener, door)
    if plan.nothing:
        run.prove()
        return DomainMade(run.domain, plan.transport, False, run.hosts)
    events = MountEvents(session, plan.name, plan.row.export)
    try:
        run.make()
        run.activate()
        failed = run.prove(events)
        if failed:
            reason = "; ".join(failed)
            fix = f"on each host that is named: {nfs_check(plan.row.export)}"
            raise Problem("domain-not-mounted", reason, fix)
    except Problem as error:
        explained = _with_events(events, error, plan)
        undone = undo(session, run.undoing(), listener)
        # The hosts that fell because of it are activated.
        again = undo(session, [_activation(h) for h in reversed(run.fell)], listener)
        raise undone.then(again).told(explained) from error
    if events.problem:
        listener.note(
            f"the engine's events on failed mounts are unknown: {events.problem}"
        )
    return DomainMade(run.domain, plan.transport, True, run.hosts)


class _Run:
    """The parts of a run, each reported to the listener.

    ``domain`` is the domain's id, once known; ``made_connection`` that of the
    connection if the run has made it. ``hosts`` are those that were up, with the
    transport in use; ``fell`` those that became non-operational because of it.
    """

    def __init__(
        self,
        session: Session,
        plan: DomainPlan,
        listener: Listener,
        door: Optional[HostAccess],
    ) -> None:
        self._session, self._plan, self._listener = session, plan, listener
        self._door = door
        self.domain = plan.domain.id if plan.domain else ""
        self.made_connection = ""
        self.made_domain = self.attached = False
        self.hosts: tuple[InUse, ...] = ()
        self.fell: tuple[Host, ...] = ()

    @property
    def _read(self) -> Read:
        """The reading of the attached domain."""
        center = self._plan.data_center.id
        path = f"datacenters/{center}/storagedomains/{self.domain}"
        return Read(path, f"reading {self._plan.name}", "get")

    def make(self) -> None:
        """Make the connection and the domain, unless they exist."""
        plan, session, listener = self._plan, self._session, self._listener
        if self.domain:
            return
        row = plan.row.id
        if not row:
            row = made(
                session, plan.connecting(), listener, lambda it: _is_row(it, plan.row)
            )
            self.made_connection = row
        self.domain = made(
            session, plan.adding(row), listener, lambda it: it.name == plan.name
        )
        self.made_domain = True

    def activate(self) -> None:
        """Attach the domain, unless it is attached, and wait until it is active.

        Raises EngineProblem if the activation has failed for good.
        """
        plan, session = self._plan, self._session
        # An engine that has answered has tried to activate the domain too.
        answered = False
        if not plan.attached:
            call = plan.attaching(self.domain)
            # From here on the domain may be attached, whatever the answer.
            self.attached = True
            with step(self._listener, call.doing, call.subject):
                try:
                    session.perform(call)
                    answered = True
                except LostAnswer as error:
                    # The wait for an active domain will show if it is not attached.
                    self._listener.note(str(error))
        doing = f"activating {plan.name}"
        since: Optional[float] = None

        def final(domain: Any) -> Optional[str]:
            """Active, or for a while not activated."""
            nonlocal since
            status, now = _status(domain), session.clock()
            if status not in _NOT_ACTIVATED:
                since = None
                return status if status == _ACTIVE else None
            since = now if since is None else since
            settled_s = 0.0 if answered else SETTLED_S
            return status if now - since >= settled_s else None

        with step(self._listener, doing, plan.name):
            status = session.wait_until(self._read, final, doing, ACTIVE_S)
            if status != _ACTIVE:
                sentence = (
                    f"{plan.name} is attached, but could not be activated: it is "
                    f"{status_words(status)}"
                )
                raise Problem("domain-not-active", sentence)

    def prove(self, events: Optional[MountEvents] = None) -> list[str]:
        """Find out which hosts have mounted the domain; return clauses on those that
        have not.

        ``events`` are those since before it was attached; None for a domain of an
        earlier run. A host without the mount and without an event is asked again for
        MOUNT_S.
        """
        plan, session = self._plan, self._session
        named = events.failed_hosts() if events else {}
        used: dict[str, InUse] = {}

        def lacks(host: Host) -> bool:
            """Whether the host is up and reports that it has not mounted it."""
            up = host.status == "up"
            return up and used[host.id].mounted is False and host.id not in named

        with step(self._listener, f"proving {plan.name} on its hosts", plan.name) as it:
            now = self._ask(used, {host.id for host in plan.hosts})
            until = session.clock() + MOUNT_S
            while events and any(map(lacks, now)) and session.clock() < until:
                session.sleep(_AGAIN_S)
                now = self._ask(used, {host.id for host in now if lacks(host)})
            self.hosts = tuple(used[host.id] for host in now)
            self.fell = tuple(h for h in now if h.status == "non_operational")
            # A host's report is newer than an event: the engine connects twice.
            known = {host.id for host in self.fell}
            known |= {id for id, host in used.items() if host.mounted}
            export = plan.row.export
            failed = [
                f"{listed(names)} {what}"
                for names, what in (
                    (
                        [host.name for host in self.fell],
                        f"could not mount {export} and became non-operational",
                    ),
                    (
                        [name for id, name in named.items() if id not in known],
                        f"could not mount {export}, according to the engine's events",
                    ),
                    (
                        [host.name for host in now if lacks(host)],
                        f"did not mount {export}, although {plan.name} is active in "
                        "the engine",
                    ),
                )
                if names
            ]
            it.problem = "; ".join(failed)
        return failed

    def _ask(self, used: dict[str, InUse], ids: Collection[str]) -> list[Host]:
        """Return the hosts with their present status; put into ``used``, by id, what
        those with ``ids`` report of the domain.
        """
        plan = self._plan
        status = {
            host.id: str(getattr(host.status, "value", "")) or None
            for host in self._session.read(Read("hosts", "reading the hosts"))
        }
        now = [replace(host, status=status.get(host.id)) for host in plan.hosts]
        asked = [host for host in now if host.id in ids]
        center = plan.data_center.id
        domain = Domain(self.domain, plan.name, "data", "nfs", center, _ACTIVE)
        domain = replace(domain, connection=plan.row)
        reports: Iterable[tuple[Host, HostReport]]
        if self._door is None:
            reports = ((host, no_report(host)) for host in asked)
        else:
            reports = reports_of(asked, self._door)
        for host, report in reports:
            (used[host.id],) = transports_in_use(host, report, [domain])
        return now

    def undoing(self) -> list[Undo]:
        """Return how to undo what was made, in the order in which it was made."""
        plan, session = self._plan, self._session
        name, center = plan.name, plan.data_center
        undoing = []
        if self.made_connection:
            # As a rule, the engine has removed it with the domain.
            path = f"storageconnections/{self.made_connection}"
            doing = f"removing the connection to {plan.row.export} again"
            by_hand = f"remove the storage connection {self.made_connection}"
            undoing.append(Undo(Call(path, "remove", doing, {}, name), by_hand))
        if self.made_domain:
            # Its folder on the export goes too. It is ours: it cannot be an import.
            words = {"host": plan.host.name, "format": True}
            doing = f"removing the domain {name} again"
            call = Call(f"storagedomains/{self.domain}", "remove", doing, words, name)
            folder = f"the folder {self.domain} below {plan.row.path}"
            by_hand = f"remove the domain {name}, and on the server {folder}"
            undoing.append(Undo(call, by_hand, first=True))
        if self.attached:
            read = self._read
            by_hand = f"move {name} to maintenance and detach it from {center.name}"
            call = Call(read.path, "remove", f"detaching {name} again", {}, name)
            undoing.append(Undo(call, by_hand, first=True))
            doing = f"moving {name} to maintenance again"
            call = Call(read.path, "deactivate", doing, {}, name)
            wait = partial(session.wait_until, read, _is_down, doing, MAINTENANCE_S)
            try:
                down = _is_down(session.read(read, patience_s=0.0))
            except EngineProblem as error:
                # Of others, the next request finds out the same.
                down = error.kind == MISSING
            if not down:
                undoing.append(Undo(call, by_hand, wait, first=True))
        return undoing


def _activation(host: Host) -> Undo:
    doing = f"activating {host.name} again"
    call = Call(f"hosts/{host.id}", "activate", doing, {}, host.name)
    return Undo(call, f"activate {host.name}")


def _status(domain: Any) -> str:
    return str(getattr(domain.status, "value", ""))


def _is_down(domain: Any) -> Optional[bool]:
    return True if _status(domain) in _DOWN else None


def _is_row(connection: Any, wanted: StorageConnection) -> bool:
    """Whether ``connection``, of the SDK, is ``wanted`` but for its id."""
    row = connection_of(connection)
    return row is not None and row == replace(wanted, id=row.id)


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
