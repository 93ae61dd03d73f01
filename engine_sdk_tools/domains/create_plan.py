# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``domain create``: the checks of the request and its export, and the requests to
the engine. Pure.

The engine checks only the names of options, and cuts off what is too long for its
database. Other mistakes would show only when hosts mount the domain, one by one.

The plan continues an interrupted run. If the export already holds a domain, the engine
silently imports it instead of creating one, and no call shows that beforehand (the
search for unregistered domains is for block storage only). Two measures prevent an
import. The connection is made first, without a host: then VDSM refuses an export that
is not empty (nfsSD, ``_preCreateValidation``). And the request has a domain id of our
own, which the engine ignores for a new domain and does not find for an existing one
(AddExistingFileStorageDomainCommand).
"""

from __future__ import annotations

import re
import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call, types
from ovirt_rdma.engine_sdk_tools.domains.transport import (
    host_problems,
    nfs_export,
    sharing,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import (
    DataCenter,
    Domain,
    Engine,
    Host,
    StorageConnection,
    check,
    listed,
    pick,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.networks.nics import is_unusable_address
from ovirt_rdma.host.errors import Sentence
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
    rf"(?:{_BYTE}\.){{3}}{_BYTE}|{_LABEL}|(?:{_LABEL}\.)+[A-Za-z0-9]{{2,63}}",
    re.ASCII,
)
_PATH = re.compile(r"/(?:(?:.*?[/\\])?[^./|^\\]+(?:\.[^\\]*)?/?)?")
# The API's name of each version. Not auto: VDSM would use the options of vdsm.conf, and
# nolock.
NFS_VERSIONS = {"3": "v3", "4": "v4", "4.0": "v4_0", "4.1": "v4_1", "4.2": "v4_2"}


def read_export(text: str) -> tuple[Optional[Export], list[Sentence]]:
    """Return the export, and why the engine would refuse it."""
    try:
        export = Export.parse(text)
    except ExportProblem as problem:
        return None, [Sentence(problem.id, f"{problem}; {problem.fix}")]
    return export, list(_unfit(export))


def address_of(export: Export) -> str:
    """Return the server in the form of the API: an IPv6 address in brackets."""
    return f"[{export.server}]" if ":" in export.server else export.server


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
    """Return the mount options for ``transport`` (``rdma``, ``tcp``), including those
    ``asked`` for, and why they cannot be used.

    For RDMA, netid and port are added unless they are in ``asked``; an export with an
    IPv6 address needs ``rdma6``.
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
        users = f"{len(self.hosts)} host{'' if len(self.hosts) == 1 else 's'}"
        return (
            f"domain {self.name} on {self.row.export}, over {self.transport}",
            f"NFS version {self.row.nfs_version}, {options}",
            f"created by {self.host.name}, attached to {self.data_center.name}, "
            f"mounted by {users}",
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
    """Return the plan for ``request``.

    Raises Problem for names that do not exist, and ChecksFailed with every reason
    against the request.
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
    address = address_of(export)
    row = StorageConnection("", "nfs", address, export.path, version, options)
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
    name: Optional[str],
    hosts: Sequence[Host],
    up: Sequence[Host],
    center: DataCenter,
) -> tuple[Optional[Host], list[Sentence]]:
    """Return the host that creates the domain, ``name`` if that is given, or why there
    is none.
    """
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
