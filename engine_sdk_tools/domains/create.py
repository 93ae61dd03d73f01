# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``domain create``, carry it out, and roll it back if a part of it fails.

The plan is pure: the checks of the request and its export, and the requests. The engine
checks only the names of options, and cuts off what is too long for its database. Other
mistakes would show only when hosts mount the domain, one by one. The plan continues an
interrupted run.

If the export already holds a domain, the engine imports it silently instead of creating
one, and no call shows that beforehand. So the connection is made first, without a host:
then VDSM refuses an export that is not empty (nfsSD, ``_preCreateValidation``). And the
request has a domain id of our own, which the engine ignores for a new domain and does
not find for an existing one (AddExistingFileStorageDomainCommand).

The activation of a domain that is not the master succeeds as soon as one host has
mounted it; others stay up until the domain monitoring makes them non-operational
(RefreshPoolSingleAsyncOperation.java:55-88, IrsProxyImpl.java:1550). So the hosts are
asked, and the engine's events are read: VDSM's answer to a mount is in 996, with its
message for the connection, and in 188, with host and domains (StorageHelperBase.java:
181-193, ConnectStorageServerVDSCommand.java:99-102). 967 reports that an attached
domain could not be activated (AttachStorageDomainToPoolCommand.java:282-289). None has
our correlation id, so events after the newest one before the change are matched by
their names. A rollback follows the order that the engine allows: maintenance, detach,
remove the domain, then the connection.
"""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Collection, Iterator, Mapping, Sequence
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
    TimeoutProblem,
    step,
    types,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session, events_since, newest_event
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    InUse,
    host_problems,
    nfs_export,
    no_report,
    sharing,
    transports_in_use,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport, reports_of
from ovirt_rdma.engine_sdk_tools.job import Undo, Undone, made, undo
from ovirt_rdma.engine_sdk_tools.model import (
    NFS_VERSIONS,
    DataCenter,
    Domain,
    Engine,
    Host,
    StorageConnection,
    check,
    counted,
    listed,
    pick,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.networks.nics import is_unusable_address
from ovirt_rdma.engine_sdk_tools.reader import connection_of
from ovirt_rdma.host.errors import ExitCode, Problem, Sentence
from ovirt_rdma.host.export import (
    RDMA,
    TCP,
    Export,
    ExportProblem,
    MountOptions,
    OptionsProblem,
    engine_problems,
    is_rdma,
    netid_for,
    nfs_check,
)
from ovirt_rdma.host.policy.model import DEFAULT_PORT

# StorageDomainNameSizeLimit.
LONGEST_NAME = 50
# storage_server_connections.connection is varchar(250).
LONGEST_EXPORT = 250
# ValidationUtils.NO_SPECIAL_CHARACTERS, which the name of a domain must match
# (StorageDomainStatic.java:27): fewer characters than for other objects.
_IN_NAMES = re.compile("[0-9A-Za-z_-]")
# NfsMountPointConstraint.java:17-27: the patterns for a server that is no IPv6 address,
# and for a path. An IPv4 address may have leading zeros; one with a number above 255
# may match as a name.
_LABEL = "(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_BYTE = r"(?:25[0-5]|2[0-4]\d|[01]\d\d|\d?\d)"
_SERVER = re.compile(
    rf"(?:{_BYTE}\.){{3}}{_BYTE}|{_LABEL}|(?:{_LABEL}\.)+[A-Za-z0-9]{{2,63}}", re.ASCII
)
_PATH = re.compile(r"/(?:(?:.*?[/\\])?[^./|^\\]+(?:\.[^\\]*)?/?)?")


def read_export(text: str) -> tuple[Optional[Export], list[Sentence]]:
    """Return the export, and why the engine would refuse it."""
    try:
        export = Export.parse(text)
    except ExportProblem as problem:
        return None, [Sentence(problem.id, f"{problem}; {problem.fix}")]
    return export, list(_unfit(export))


def export_in_use(engine: Engine, export: Export, name: str) -> Iterator[Sentence]:
    """Refuse an export that another domain than ``name`` has, in any notation."""
    used = {d.connection.id: d for d in engine.domains if d.connection is not None}
    for row in engine.connections:
        if not export.same_as(nfs_export(row)):
            continue
        domain = used.get(row.id)
        if domain is not None and domain.name != name:
            yield Sentence(
                "export-in-use",
                f"{row.export} is already the export of the domain {domain.name}; an "
                "export holds one domain",
            )


def name_problems(name: str) -> Iterator[Sentence]:
    """Yield why the engine would refuse ``name`` for a domain."""
    if not 1 <= len(name) <= LONGEST_NAME:
        yield Sentence(
            "domain-name-length",
            f"the name of a domain must have 1 to {LONGEST_NAME} characters, this has "
            f"{len(name)}",
        )
    odd = sorted({c for c in name if not _IN_NAMES.match(c)})
    if odd:
        shown = " ".join(repr(c) for c in odd)
        yield Sentence(
            "domain-name-characters",
            "the name of a domain can only have ASCII letters, digits, '_' and '-', "
            f"not {shown}",
        )


def options_for(
    export: Export, transport: str, asked: str
) -> tuple[str, list[Sentence]]:
    """Return the mount options for ``transport``, with those ``asked`` for, and why
    they cannot be used. For RDMA, netid (``rdma6`` for an IPv6 address) and port are
    added if missing.
    """
    options = MountOptions.parse(asked)
    problems = [Sentence("mount-options-conflict", c) for c in options.conflicts()]
    if any(c.isspace() for c in asked):
        sentence = "the mount options contain a blank"
        problems.append(Sentence("mount-options-with-blank", sentence))
    try:
        port = options.port
    except OptionsProblem as problem:
        return asked, [*problems, Sentence(problem.id, str(problem))]
    netid, wanted = options.netid, netid_for(RDMA, ipv6=":" in export.server)
    other = "mount-options-other-transport"
    if netid is not None and is_rdma(netid) != (transport == RDMA):
        sentence = f"the mount options request {netid}, not {transport.upper()}: "
        problems.append(Sentence(other, sentence + "remove that, or give --transport"))
    elif netid is not None and transport == RDMA and netid != wanted:
        sentence = f"the server's address needs proto={wanted}, not {netid}"
        problems.append(Sentence("mount-options-other-netid", sentence))
    if transport == RDMA and port == 0:
        sentence = "port=0 asks the server's rpcbind, which does not know RDMA; write "
        sentence += f"port={DEFAULT_PORT}"
        problems.append(Sentence("mount-options-port-zero", sentence))
    elif transport == TCP and port == DEFAULT_PORT:
        sentence = f"port {DEFAULT_PORT} is for NFS over RDMA, not for TCP"
        problems.append(Sentence(other, sentence))
    added = []
    if transport == RDMA:
        added += [] if netid else [f"proto={wanted}"]
        added += [] if port else [f"port={DEFAULT_PORT}"]
    text = ",".join(filter(None, [asked, *added]))
    refused = (Sentence("mount-options-refused", p) for p in engine_problems(text))
    return text, [*problems, *refused]


def _unfit(export: Export) -> Iterator[Sentence]:
    text, server, address = str(export), export.server, export.address
    named = "." not in server if ":" in server else _SERVER.fullmatch(server)
    zone = "%" in server
    for id, wrong, sentence in (
        (
            "export-characters-refused",
            not text.isascii() or any(c.isspace() for c in text),
            "the engine accepts only ASCII without blanks",
        ),
        (
            "export-address-zone",
            zone,
            "the engine accepts no address with a zone; a link-local address is a "
            "different server for each host anyway",
        ),
        # StorageDomainMapper.setPath splits there.
        (
            "export-path-refused",
            ":" in export.path,
            "the engine cuts off a path at ':'",
        ),
        (
            "export-server-refused",
            server.isascii() and not named,
            "the engine accepts only server names whose parts have letters, digits and "
            "inside '-', the last of several parts at least two characters and no '-'; "
            "and IPv6 addresses only in hexadecimal digits",
        ),
        (
            "export-path-refused",
            not _PATH.fullmatch(export.path),
            "the engine accepts no path that ends in '\\', or whose last part begins "
            "with '.' or has '|' or '^'",
        ),
        (
            "export-address-reserved",
            address is not None and is_unusable_address(address) and not zone,
            "no server has this address for each host: it is loopback, multicast, "
            "link-local, unspecified or reserved",
        ),
        (
            "export-too-long",
            len(text) > LONGEST_EXPORT,
            f"it has {len(text)} characters; the engine stores at most "
            f"{LONGEST_EXPORT}",
        ),
    ):
        if wrong:
            yield Sentence(id, f"export {text!r}: {sentence}")


# Statuses of a domain that is active, or becomes active by itself.
_UNDER_WAY = ("active", "locked", "activating", "unknown", None)


def existing_domain(
    engine: Engine, name: str, row: StorageConnection, center: DataCenter, to: str
) -> tuple[Optional[Domain], list[Sentence]]:
    """Return the domain that an earlier run has made, if any, or why ``name`` cannot be
    used. ``to`` is the transport that is asked for.
    """
    domain = next((d for d in engine.domains if d.name == name), None)
    if domain is None:
        return None, []
    present = domain.connection
    wanted = replace(row, id=present.id if present else "")
    same = present is not None and replace(present, timeo=None, retrans=None) == wanted
    if not same or domain.type != "data":
        has = (
            f" ({present.export}, {present.mount_options or 'no options'})"
            if present
            else ""
        )
        sentence = f"the domain {name} already exists{has}; use another name"
        if present and present.export == row.export and domain.type == "data":
            convert = f"ovirt-rdma domain convert {shlex.quote(name)} --to {to}"
            sentence += f", or convert it: {convert} --rolling"
        return None, [Sentence("domain-exists", sentence)]
    if domain.data_center not in (None, center.id):
        sentence = f"the domain {name} is attached to another data center"
        return None, [Sentence("domain-in-other-data-center", sentence)]
    if domain.data_center is not None and domain.status not in _UNDER_WAY:
        sentence = (
            f"the domain {name} already exists and is {status_words(domain.status)}: "
            "activate it"
        )
        return None, [Sentence("domain-not-active", sentence)]
    return domain, []


def existing_connection(
    engine: Engine, export: Export, row: StorageConnection
) -> tuple[StorageConnection, list[Sentence]]:
    """Return ``row`` with the id of a connection without a domain, which an interrupted
    run leaves, if there is one, or why it cannot be used.
    """
    used = {d.connection.id for d in engine.domains if d.connection is not None}
    for known in engine.connections:
        its_export = nfs_export(known)
        if known.id in used or its_export is None or str(its_export) != str(export):
            continue
        if known == replace(row, id=known.id):
            return known, []
        sentence = (
            f"the engine has a connection to {known.export} without a domain, with "
            f"{known.nfs_version or 'no version'} and "
            f"{known.mount_options or 'no mount options'}: remove it first (id "
            f"{known.id})"
        )
        return row, [Sentence("connection-left-over", sentence)]
    return row, []


_READY = ("up", "uninitialized")
# --dry-run shows it in place of an id that only the engine knows.
NEW = "NEW"


@dataclass(frozen=True)
class DomainRequest:
    """The arguments of ``domain create``. ``nfs_version`` as people write it: ``4.2``.
    ``host`` creates the domain; None: the SPM, or else a host that is up.
    """

    name: str
    export: str
    data_center: str
    nfs_version: str = "4.2"
    transport: str = RDMA
    host: Optional[str] = None
    mount_options: str = ""


@dataclass(frozen=True)
class DomainPlan:
    """The plan. ``row`` is the requested connection; its id is that of one that an
    earlier run left, or "". ``domain`` is the existing domain, if any.

    ``hosts`` are those that will mount it; ``mark`` is the id that prevents an import.
    ``warnings`` are sentences.
    """

    name: str
    data_center: DataCenter
    host: Host
    row: StorageConnection
    transport: str
    hosts: tuple[Host, ...]
    domain: Optional[Domain] = None
    mark: str = ""
    warnings: tuple[str, ...] = ()

    @property
    def attached(self) -> bool:
        """Whether the domain is already attached."""
        return self.domain is not None and self.domain.data_center is not None

    @property
    def nothing(self) -> bool:
        """Whether there is nothing to do: the domain is active."""
        return self.attached and bool(self.domain and self.domain.status == "active")

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan for people."""
        options = self.row.mount_options or "no mount options"
        return (
            f"domain {self.name} on {self.row.export}, over {self.transport}",
            f"NFS version {self.row.nfs_version}, {options}",
            f"created by {self.host.name}, attached to {self.data_center.name}, "
            f"mounted by {counted(len(self.hosts), 'host')}",
        )

    @property
    def document(self) -> dict[str, object]:
        """The plan for programs."""
        return {
            "name": self.name,
            "export": self.row.export,
            "transport": self.transport,
            "nfs_version": self.row.nfs_version,
            "mount_options": self.row.mount_options,
            "host": self.host.name,
            "warnings": list(self.warnings),
        }

    @property
    def calls(self) -> tuple[Call, ...]:
        """The requests to the engine, in their order."""
        calls = []
        if self.domain is None:
            if not self.row.id:
                calls.append(self.connecting())
            calls.append(self.adding(self.row.id or NEW))
        if not self.attached:
            calls.append(self.attaching(self.domain.id if self.domain else NEW))
        return tuple(calls)

    def connecting(self) -> Call:
        """Return the call that makes the connection; it mounts nothing."""
        row = self.row
        connection = types.StorageConnection(
            type=types.StorageType.NFS,
            address=row.address,
            path=row.path,
            nfs_version=types.NfsVersion(row.nfs_version),
        )
        if row.mount_options:
            connection.mount_options = row.mount_options
        doing = f"making the storage connection to {row.export}"
        body = {"connection": connection}
        return Call("storageconnections", "add", doing, body, self.name)

    def adding(self, connection: str) -> Call:
        """Return the call that creates the domain on the storage."""
        domain = types.StorageDomain(
            id=self.mark,
            name=self.name,
            type=types.StorageDomainType.DATA,
            host=types.Host(id=self.host.id),
            storage=types.HostStorage(id=connection, type=types.StorageType.NFS),
        )
        doing = f"creating the domain {self.name} on {self.host.name}"
        body = {"storage_domain": domain}
        return Call("storagedomains", "add", doing, body, self.name)

    def attaching(self, domain: str) -> Call:
        """Return the call that attaches the domain and activates it."""
        doing = f"attaching {self.name} to {self.data_center.name}"
        path = f"datacenters/{self.data_center.id}/storagedomains"
        body = {"storage_domain": types.StorageDomain(id=domain)}
        return Call(path, "add", doing, body, self.name)


def plan_domain_create(
    engine: Engine, reports: Mapping[str, HostReport], request: DomainRequest
) -> DomainPlan:
    """Return the plan for ``request``. Raises Problem for unknown names, and
    ChecksFailed with every reason against it.
    """
    center = pick("data center", request.data_center, engine.data_centers)
    hosts = engine.hosts_of(center.id)
    refusals = list(name_problems(request.name))
    export, problems = read_export(request.export)
    refusals += problems
    if center.status not in _READY:
        sentence = (
            f"data center {center.name} is {status_words(center.status)}; it must be "
            "up to attach a domain"
        )
        refusals.append(Sentence("data-center-status", sentence))
    up = tuple(host for host in hosts if host.status == "up")
    host, problem = _creating_host(request.host, hosts, up, center)
    refusals += problem
    version = NFS_VERSIONS.get(request.nfs_version)
    if version is None:
        allowed = ", ".join(NFS_VERSIONS)
        sentence = f"unknown NFS version {request.nfs_version!r}; allowed: {allowed}"
        refusals.append(Sentence("nfs-version-unknown", sentence))
    if export is None or version is None or host is None:
        check(refusals)
        raise AssertionError("each of them is a refusal")
    options, problems = options_for(export, request.transport, request.mount_options)
    refusals += problems
    # The API has IPv6 addresses in brackets.
    server = f"[{export.server}]" if ":" in export.server else export.server
    row = StorageConnection("", "nfs", server, export.path, version, options)
    domain, problems = existing_domain(
        engine, request.name, row, center, request.transport
    )
    refusals += problems
    if domain is None:
        refusals += export_in_use(engine, export, request.name)
        row, problems = existing_connection(engine, export, row)
        refusals += problems
    elif domain.connection is not None:
        row = domain.connection
    offenders, warnings = host_problems(up, reports, export, row, request.transport)
    refusals += offenders
    fix = ""
    if domain is None or domain.data_center is None:
        others = [d for d in engine.domains if d.data_center == center.id]
        against, possible, ways = sharing(row, others, up, reports, request.transport)
        refusals += against
        warnings += possible
        fix = ways if against else ""
    check(refusals, fix)
    away = [host.name for host in hosts if host.status != "up"]
    if away:
        warnings.append(f"not checked, because not up: {listed(away)}")
    return DomainPlan(
        request.name,
        center,
        host,
        row,
        request.transport,
        up,
        domain,
        str(uuid.uuid4()),
        tuple(warnings),
    )


def _creating_host(
    name: Optional[str], hosts: Sequence[Host], up: Sequence[Host], center: DataCenter
) -> tuple[Optional[Host], list[Sentence]]:
    """Return the host that creates the domain, or why there is none."""
    if name is not None:
        host = pick("host", name, hosts)
        if host.status == "up":
            return host, []
        sentence = (
            f"{host.name} is {status_words(host.status)}; the host that creates the "
            "domain must be up"
        )
        return None, [Sentence("host-status", sentence)]
    spm = next((host for host in up if host.spm == "spm"), None)
    if spm or up:
        return spm or up[0], []
    sentence = f"no host of data center {center.name} is up; one must create the domain"
    return None, [Sentence("no-host-up", sentence)]


# Carry it out.

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
        """Return events on failed mounts and our failed requests, each text once."""
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
    that were up. ``unread``: the engine could not be asked whether it is active;
    ``lost``: nor has it answered that the domain is attached.
    """

    id: str
    transport: str
    made: bool
    hosts: tuple[InUse, ...] = ()
    unread: bool = False
    lost: bool = False

    @property
    def result(self) -> str:
        """What is known of the domain, as the end of a sentence about it."""
        if self.unread:
            was = "may have been attached" if self.lost else "was attached"
            return f"{was}; that could not be verified"
        return "is active" if self.made else "is already active: nothing to do"

    @property
    def summary(self) -> str:
        """What is known of the domain and its hosts, as a sentence without a stop."""
        wrong = f"; not as requested on {listed(self.wrong)}" if self.wrong else ""
        return f"it {self.result}{wrong}"

    @property
    def wrong(self) -> tuple[str, ...]:
        """The hosts that have not mounted it, or over another transport."""
        return tuple(
            host.host
            for host in self.hosts
            if host.transport not in (None, self.transport) or host.mounted is False
        )

    @property
    def not_verified(self) -> tuple[str, ...]:
        """The hosts for which it is unknown whether they have mounted the domain."""
        return tuple(host.host for host in self.hosts if host.mounted is None)

    @property
    def exit_code(self) -> ExitCode:
        """SOME if a host has not mounted it, or over another transport, or if it may
        not be active; else DONE.
        """
        return ExitCode.SOME if self.wrong or self.unread else ExitCode.DONE


def create_domain(
    session: Session, access: Optional[HostAccess], plan: DomainPlan, listener: Listener
) -> DomainMade:
    """Carry out ``plan``; prove the transport with ``access``. Raises Problem if a part
    failed, after the rollback, with what could not be rolled back.
    """
    listener.plan((plan.name,), len(plan.calls) + 2)
    domain = plan.domain.id if plan.domain else ""
    run = _Run(session, plan, listener, access, domain)
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
        undoing, kept = run.undoing()
        undone = undo(session, undoing, listener).then(kept)
        # The hosts that fell because of it are activated.
        again = undo(session, [_activation(h) for h in reversed(run.fell)], listener)
        raise undone.then(again).told(explained) from error
    if events.problem:
        listener.note(
            f"the engine's events on failed mounts are unknown: {events.problem}"
        )
    known = run.hosts, run.unread, run.lost
    return DomainMade(run.domain, plan.transport, True, *known)


@dataclass
class _Run:
    """The parts of a run, each reported. ``domain`` is its id, once known,
    ``made_connection`` that of a new one; ``hosts`` have the transport in use, ``fell``
    became non-operational. ``unread`` and ``lost`` are those of DomainMade.
    """

    session: Session
    plan: DomainPlan
    listener: Listener
    access: Optional[HostAccess]
    domain: str
    made_connection: str = ""
    made_domain: bool = False
    attached: bool = False
    unread: bool = False
    lost: bool = False
    hosts: tuple[InUse, ...] = ()
    fell: tuple[Host, ...] = ()

    @property
    def _read(self) -> Read:
        """The reading of the attached domain."""
        center = self.plan.data_center.id
        path = f"datacenters/{center}/storagedomains/{self.domain}"
        return Read(path, f"reading {self.plan.name}", "get")

    def make(self) -> None:
        """Make the connection and the domain, unless they exist."""
        plan, session, listener = self.plan, self.session, self.listener
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
        """Attach the domain; wait until it is active, or unreadable. Raises Problem."""
        plan, session = self.plan, self.session
        if not plan.attached:
            call = plan.attaching(self.domain)
            # From here on the domain may be attached, whatever the answer.
            self.attached = True
            with step(self.listener, call.doing, call.subject):
                try:
                    session.perform(call)
                except LostAnswer as error:
                    # The wait for an active domain will show if it is not attached.
                    self.lost = True
                    self.listener.note(str(error))
        answered = not (plan.attached or self.lost)
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
            # An engine that has answered has tried to activate the domain too.
            settled_s = 0.0 if answered else SETTLED_S
            return status if now - since >= settled_s else None

        with step(self.listener, doing, plan.name):
            try:
                status = session.wait_until(self._read, final, doing, ACTIVE_S)
            except EngineProblem as error:
                if error.kind == MISSING or isinstance(error, TimeoutProblem):
                    raise
                # No reason to take a domain back that may be active: hosts will tell.
                unknown = f"whether {plan.name} is active is unknown"
                self.listener.note(f"{unknown}: {error.one_line}")
                self.unread = True
                return
            if status != _ACTIVE:
                sentence = (
                    f"{plan.name} is attached, but could not be activated: it is "
                    f"{status_words(status)}"
                )
                raise Problem("domain-not-active", sentence)

    def prove(self, events: Optional[MountEvents] = None) -> list[str]:
        """Return clauses on hosts that have not mounted the domain. ``events`` are
        those since before it was attached, None for an earlier run's. A host without
        the mount and without an event is asked again for MOUNT_S.
        """
        plan, session = self.plan, self.session
        named = events.failed_hosts() if events else {}
        used: dict[str, InUse] = {}

        def lacks(host: Host) -> bool:
            """Whether the host is up and reports that it has not mounted it."""
            up = host.status == "up"
            return up and used[host.id].mounted is False and host.id not in named

        with step(self.listener, f"proving {plan.name} on its hosts", plan.name) as it:
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
            active = f", although {plan.name} is active in the engine"
            active = "" if self.unread else active
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
                        f"did not mount {export}{active}",
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
        plan = self.plan
        rows: list[Any] = []
        try:
            rows = self.session.read(Read("hosts", "reading the hosts"))
        except EngineProblem as error:
            # No reason to take an active domain back.
            self.listener.note(f"the hosts' statuses are unknown: {error.one_line}")
        status = {host.id: _status(host) or None for host in rows}
        now = [replace(host, status=status.get(host.id)) for host in plan.hosts]
        asked = [host for host in now if host.id in ids]
        center = plan.data_center.id
        domain = Domain(self.domain, plan.name, "data", "nfs", center, _ACTIVE)
        domain = replace(domain, connection=plan.row)
        for host in asked:
            (used[host.id],) = transports_in_use(host, no_report(host), [domain])
        if self.access is None:
            return now
        try:
            for host, report in reports_of(asked, self.access):
                (used[host.id],) = transports_in_use(host, report, [domain])
        except Problem as error:
            self.listener.note(error.one_line)
        return now

    def _not_empty(self) -> str:
        """Return why the domain may hold disks that are not the engine's own, or ""."""
        path, name = f"storagedomains/{self.domain}/disks", self.plan.name
        own, would = types.DiskContentType.OVF_STORE, "which would go with it"
        try:
            disks = self.session.read(Read(path, f"reading the disks of {name}"))
        except EngineProblem as error:
            gone = error.kind == MISSING
            return "" if gone else f"{error}; it may have some, {would}"
        names = [disk.name or disk.id for disk in disks if disk.content_type != own]
        return f"{name} has disks by now, {would}: {listed(names)}" if names else ""

    def undoing(self) -> tuple[list[Undo], Undone]:
        """Return how to undo what was made, in the order in which it was made, and what
        is left because the domain may hold disks.
        """
        plan, session = self.plan, self.session
        name, center = plan.name, plan.data_center
        undoing, kept = list[Undo](), Undone()
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
            if why := self._not_empty():
                fixes = tuple(one.manual_fix for one in reversed(undoing))
                undoing, kept = [], Undone((), (f"not removed: {why}",), fixes)
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
        return undoing, kept


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
    """Return ``error`` with the reason that the engine's events have."""
    sentences = events.said()
    if not sentences:
        return error
    fix = error.fix
    if fix == SEE_LOG:
        fix = f"on {plan.host.name}: {nfs_check(plan.row.export)}"
    return Problem(error.id, "\n".join([str(error), *sentences]), fix)
