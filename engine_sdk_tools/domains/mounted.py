# SPDX-License-Identifier: GPL-2.0-or-later
"""Determine whether hosts have mounted a new domain, and over which transport.

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
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.api.events import (
    events_since,
    newest_event,
)
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.domains.transport import transports_in_use
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport, reports_of
from ovirt_rdma.engine_sdk_tools.model import Domain, Host
from ovirt_rdma.engine_sdk_tools.names import listed

_STORAGE_DOMAIN_ERROR = 996
_CONNECTION_FAILED = 188
_NOT_ACTIVATED = 967
_BAD = ("error", "alert")


class MountEvents:
    """The events on mounts of ``domain`` (a name) with ``export``, after the event with
    the id ``after``, or after the construction of this object.

    ``problem`` is the reason if they cannot be read.
    """

    def __init__(
        self,
        session: EngineSession,
        domain: str,
        export: str,
        after: Optional[int] = None,
    ) -> None:
        self._session = session
        # Match whole names: not data1 in data10 or old-data1.
        self._export = re.compile(rf"{re.escape(export)}(?![\w./-])")
        self._domain = re.compile(rf"(?<![\w-]){re.escape(domain)}(?![\w-])")
        self._after = after or 0
        self.problem = ""
        if after is None:
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
        named = event.code in (_CONNECTION_FAILED, _NOT_ACTIVATED)
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
_UP, _DOWN = "up", "non_operational"


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
    session: EngineSession,
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
    fell = tuple(host for host in now if host.status == _DOWN)
    failed = _failed(domain, now, fell, reports, named)
    return Mounted(tuple(reports.known[host.id] for host in now), fell, tuple(failed))


def not_verified(hosts: Sequence[ProvenHost]) -> tuple[str, ...]:
    """Return the names of the hosts for which ``mounted`` is unknown."""
    return tuple(host.host for host in hosts if host.mounted is None)


def unverified_sentence(hosts: Sequence[ProvenHost]) -> str:
    """Return a sentence on hosts for which ``mounted`` is unknown; "" for none."""
    names = not_verified(hosts)
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
            return ((host, _not_asked(host)) for host in hosts)
        return reports_of(hosts, self._door)


def _not_asked(host: Host) -> HostReport:
    fix = "allow access to the hosts over SSH, to prove the transport"
    return HostReport(host.name, problem="the host was not asked", fix=fix)


def _with_status(session: EngineSession, hosts: Sequence[Host]) -> list[Host]:
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
