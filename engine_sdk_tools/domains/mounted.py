# SPDX-License-Identifier: GPL-2.0-or-later
"""Find out whether hosts have mounted a new domain.

What the engine's events say of one domain's mounts.

VDSM's answer to a mount is in two events, and the engine gives neither a correlation
id: 996 has VDSM's words for the connection, and no host; 188 has the host, and the
domains by name (StorageHelperBase.java:181-193, ConnectStorageServerVDSCommand.java:
99-102). That a domain could not be activated after it was attached is 967, with a
correlation id of the engine's own (AttachStorageDomainToPoolCommand.java:282-289). So
they are known by their place, after what was the newest before, and by what they name.

Whether the hosts have mounted a domain that was just made, and over what.

The engine itself tells too late: the activation of a domain that is not the master
goes well as soon as one host has it, and a host without it stays up until the domain
monitoring takes it down (RefreshPoolSingleAsyncOperation.java:55-88,
IrsProxyImpl.java:1550). So hosts are asked, and the events are read.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.api.events import (
    ReadsEvents,
    events_since,
    newest_event,
)
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.domains.transport import look
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor, HostReport, reports_of
from ovirt_rdma.engine_sdk_tools.model import Domain, Host
from ovirt_rdma.engine_sdk_tools.names import listed

_STORAGE_DOMAIN_ERROR = 996
_CONNECTION_FAILED = 188
_NOT_ACTIVATED = 967
_BAD = ("error", "alert")


class MountEvents:
    """The events on the mounts of ``domain``, a name, on ``export``: those after the
    one with the id ``after``, or from its making on. ``problem`` says why there are
    none, where they cannot be read.
    """

    def __init__(
        self,
        session: ReadsEvents,
        domain: str,
        export: str,
        after: Optional[int] = None,
    ) -> None:
        self._session = session
        # Whole names: not data1 in data10, nor in old-data1.
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
        """Return the hosts that could not mount it: their names by id."""
        found = {}
        for event in reversed(self._since()):
            host = event.host
            if event.code == _CONNECTION_FAILED and host is not None and host.id:
                name = host.name or host.id
                said = (event.description or "").replace(name, "", 1)
                if self._domain.search(_after_words(said)):
                    found[str(host.id)] = str(name)
        return found

    def said(self) -> tuple[str, ...]:
        """Return what the events say went wrong, each sentence once, the first first:
        of the mounts, and of what this session asked for.
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
        """The events since then, the oldest first."""
        if self.problem:
            return []
        try:
            return events_since(self._session, self._after)
        except EngineProblem as error:
            self.problem = str(error)
            return []


def _after_words(text: str) -> str:
    """Return the names of domains in event 188: what comes after its fixed words, which
    may be names of domains too (AuditLogMessages.properties:525).
    """
    return text.rpartition(" Storage Domains ")[2]


# So long a host may take before a mount that is not there counts: the engine has its
# answer by then, but a host that was busy may be asked again by the engine itself.
MOUNT_S = 60.0
_AGAIN_S = 10.0
# What becomes of a host that nobody knows of (0000_config.sql:645).
LATER = (
    "the engine would take a host that cannot mount it down after some 5 minutes "
    "(StorageDomainFailureTimeoutInMinutes)"
)
_UP, _DOWN = "up", "non_operational"


@dataclass(frozen=True)
class ProvenHost:
    """A host's transport, ``rdma`` or ``tcp``; None: not proven, the sentence says
    why. ``mounted`` is None where nobody knows.
    """

    host: str
    transport: Optional[str]
    sentence: str
    fix: str = ""
    mounted: Optional[bool] = None


@dataclass(frozen=True)
class Mounted:
    """``hosts`` have what is known of each. ``fell`` are those that were up and went
    non-operational; ``failed`` are sentences on those that do not have the domain.
    """

    hosts: tuple[ProvenHost, ...]
    fell: tuple[Host, ...] = ()
    failed: tuple[str, ...] = ()


def hosts_mounted(
    session: Session,
    door: Optional[HostDoor],
    hosts: Sequence[Host],
    domain: Domain,
    events: Optional[MountEvents] = None,
) -> Mounted:
    """Say of each of ``hosts``, which were up, whether it has ``domain``.

    ``events`` are those since before it was attached; None where it has been there
    for long. A host that tells that it has not just mounted it, and of which no event
    says so, is asked again for MOUNT_S.
    """
    named = events.failed_hosts() if events else {}
    now = _as_they_are(session, hosts)
    reports = _Reports(door, domain)
    reports.ask(now)
    until = session.clock() + MOUNT_S
    while events and session.clock() < until:
        slow = [h for h in now if reports.without(h) and h.id not in named]
        if not slow:
            break
        session.sleep(_AGAIN_S)
        now = _as_they_are(session, hosts)
        ids = {host.id for host in slow}
        reports.ask([host for host in now if host.id in ids])
    fell = tuple(host for host in now if host.status == _DOWN)
    failed = _failed(domain, now, fell, reports, named)
    return Mounted(tuple(reports.known[host.id] for host in now), fell, tuple(failed))


def not_verified(hosts: Sequence[ProvenHost]) -> tuple[str, ...]:
    """Return the names of the hosts of which nobody knows whether they have it."""
    return tuple(host.host for host in hosts if host.mounted is None)


def what_is_open(hosts: Sequence[ProvenHost]) -> str:
    """Say of which hosts that is not known and what may come of it; "" for none."""
    names = not_verified(hosts)
    return f"not verified on {listed(names)}: {LATER}" if names else ""


class _Reports:
    """What hosts told of the domain; ``known`` by id."""

    def __init__(self, door: Optional[HostDoor], domain: Domain) -> None:
        self._door, self._domain = door, domain
        self.known: dict[str, ProvenHost] = {}

    def ask(self, hosts: Sequence[Host]) -> None:
        for host, report in self._told(hosts):
            used = look(host, report, [self._domain])[0]
            cell = used.cell
            self.known[host.id] = ProvenHost(
                host.name, used.transport, cell.sentence, cell.fix, used.mounted
            )

    def without(self, host: Host) -> bool:
        """Whether the host is up and has told that it does not have the domain."""
        return host.status == _UP and self.known[host.id].mounted is False

    def _told(self, hosts: Sequence[Host]) -> Iterator[tuple[Host, HostReport]]:
        if self._door is None:
            return ((host, _not_asked(host)) for host in hosts)
        return reports_of(hosts, self._door)


def _not_asked(host: Host) -> HostReport:
    fix = "let the command reach the hosts over SSH, to have it proven"
    return HostReport(host.name, problem="the host was not asked", fix=fix)


def _as_they_are(session: Session, hosts: Sequence[Host]) -> list[Host]:
    """Return ``hosts`` with the status that the engine shows now."""
    status = {
        one.id: str(getattr(one.status, "value", "")) or None
        for one in session.read(Read("hosts", "reading the hosts"))
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
        yield f"{names} could not mount {export} and went non-operational"
    # What a host shows is newer than an event: the engine connects twice.
    has = {i for i, told in reports.known.items() if told.mounted}
    said = [name for i, name in named.items() if i not in down | has]
    if said:
        yield f"{listed(said)} could not mount {export}, as the engine's events say"
    without = [
        host.name for host in hosts if reports.without(host) and host.id not in named
    ]
    if without:
        yield (
            f"{listed(without)} did not mount {export}, although the engine shows "
            f"{domain.name} active"
        )
