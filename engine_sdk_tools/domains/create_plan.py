# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan ``domain create``: check the request, and make the engine's requests. Pure.

The plan continues an interrupted run. If the export already holds a domain, the engine
silently imports it instead of creating one, and no call shows that beforehand (the
search for unregistered domains is for block storage only). Two measures prevent an
import. The connection is made first, without a host: then VDSM refuses an export that
is not empty (nfsSD, ``_preCreateValidation``). And the request has a domain id of our
own, which the engine ignores for a new domain and does not find for an existing one
(AddExistingFileStorageDomainCommand).
"""

from __future__ import annotations

import shlex
import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.api.sdk import types
from ovirt_rdma.engine_sdk_tools.domains.export_checks import (
    NFS_VERSIONS,
    address_of,
    export_in_use,
    name_problems,
    options_for,
    read_export,
)
from ovirt_rdma.engine_sdk_tools.domains.host_checks import host_problems
from ovirt_rdma.engine_sdk_tools.domains.transport import nfs_export
from ovirt_rdma.engine_sdk_tools.domains.trunking import sharing
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import (
    DataCenter,
    Domain,
    Engine,
    Host,
    StorageConnection,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.names import listed, pick
from ovirt_rdma.engine_sdk_tools.refusals import check
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.mount_options import RDMA

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
    def users(self) -> str:
        """The hosts that will use the domain, in words: ``2 hosts``."""
        return f"{len(self.hosts)} host{'' if len(self.hosts) == 1 else 's'}"

    @property
    def lines(self) -> tuple[str, ...]:
        """The plan for people."""
        options = self.row.mount_options or "no mount options"
        return (
            f"domain {self.name} on {self.row.export}, over {self.transport}",
            f"NFS version {self.row.nfs_version}, {options}",
            f"created by {self.host.name}, attached to {self.data_center.name}, "
            f"mounted by {self.users}",
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

    def left_over(self, domain: str) -> str:
        """Return what is left on the storage if the domain cannot be removed."""
        return f"on the server the folder {domain} below {self.row.path}"

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
    refusals += _data_center_problems(center)
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
        shared = sharing(row, others, up, reports, request.transport)
        refusals += shared.offenders
        warnings += shared.warnings
        fix = shared.fix if shared.offenders else ""
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


def _data_center_problems(center: DataCenter) -> Iterator[Sentence]:
    """Yield why no domain can be attached to ``center``."""
    if center.status not in _READY:
        yield Sentence(
            "data-center-status",
            f"data center {center.name} is {status_words(center.status)}; it must be "
            "up to attach a domain",
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
