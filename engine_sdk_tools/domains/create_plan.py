# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan the creation of a storage domain. Pure.

What is there of a domain that is asked for, as an earlier run leaves it. Pure.

``domain create``, planned: the checks before, and what the engine is asked for.
Pure.

The engine's add turns into an import, without a word, where the export holds a domain
already, and no call tells before (the search for unregistered domains is for block
storage only). So the connection is made first, without a host: then VDSM refuses an
export that is not empty (nfsSD, ``_preCreateValidation``). And the domain is asked for
with an id of our own, which the engine forgets for a new domain and does not find for
one that is there (AddExistingFileStorageDomainCommand): both ways it cannot be an
import.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Optional

from ovirtsdk4 import types

from ovirt_rdma.engine_sdk_tools.api.request import Call
from ovirt_rdma.engine_sdk_tools.domains.export_checks import (
    NFS_VERSIONS,
    address_of,
    known_already,
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
from ovirt_rdma.host.export import Export
from ovirt_rdma.storage.proof import RDMA

# Statuses of a domain that is active, or will be by itself.
_UNDER_WAY = ("active", "locked", "activating", "unknown", None)


def domain_there(
    engine: Engine, name: str, row: StorageConnection, center: DataCenter
) -> tuple[Optional[Domain], list[str]]:
    """Return what is there of the domain from an earlier run, or what is against the
    name.
    """
    found = next((d for d in engine.domains if d.name == name), None)
    if found is None:
        return None, []
    its = found.connection
    wanted = replace(row, id=its.id if its else "")
    same = its is not None and replace(its, timeo=None, retrans=None) == wanted
    if not same or found.type != "data":
        has = f" ({its.export}, {its.mount_options or 'no options'})" if its else ""
        return None, [
            f"there is a domain {name} already{has}; choose another name, or change "
            f"it: ovirt-rdma domain convert {name}"
        ]
    if found.data_center not in (None, center.id):
        return None, [f"the domain {name} is attached to another data center"]
    if found.data_center is not None and found.status not in _UNDER_WAY:
        shown = status_words(found.status)
        return None, [f"the domain {name} is there and {shown}: activate it"]
    return found, []


def left_over(
    engine: Engine, export: Export, row: StorageConnection
) -> tuple[StorageConnection, list[str]]:
    """Return the row with the id of a connection without a domain, as a run that was
    interrupted leaves it, or why that one cannot be used.
    """
    used = {d.connection.id for d in engine.domains if d.connection is not None}
    for one in engine.connections:
        its = nfs_export(one)
        if one.id in used or its is None or str(its) != str(export):
            continue
        if one == replace(row, id=one.id):
            return one, []
        return row, [
            f"the engine has a connection to {one.export} without a domain, with "
            f"{one.nfs_version or 'no version'} and "
            f"{one.mount_options or 'no mount options'}: remove it first (id {one.id})"
        ]
    return row, []


_READY = ("up", "uninitialized")
# Stands for an id that only the engine knows, in what --dry-run shows.
NEW = "NEW"


@dataclass(frozen=True)
class DomainRequest:
    """What is asked for. ``nfs_version`` as people write it: ``4.2``. ``host`` is the
    one that creates it, None: the SPM, or one that is up.
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
    """What has to be done. ``row`` is the connection as it is to be; its id is that of
    one that an earlier run left, or "". ``domain`` is what is there of the domain.

    ``hosts`` are those that mount it now; ``mark`` the id that makes an import
    impossible. ``warnings`` are sentences.
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
        """Whether it is attached already."""
        return self.domain is not None and self.domain.data_center is not None

    @property
    def nothing(self) -> bool:
        """Whether it is there, and active."""
        return self.attached and bool(self.domain and self.domain.status == "active")

    @property
    def calls(self) -> tuple[Call, ...]:
        """What would be asked of the engine."""
        calls = []
        if self.domain is None:
            if not self.row.id:
                calls.append(self.connecting())
            calls.append(self.adding(self.row.id or NEW))
        if not self.attached:
            calls.append(self.attaching(self.domain.id if self.domain else NEW))
        return tuple(calls)

    def connecting(self) -> Call:
        """The call that makes the connection; nothing is mounted by it."""
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
        words = {"connection": connection}
        return Call("storageconnections", "add", doing, words, self.name)

    def adding(self, connection: str) -> Call:
        """The call that creates the domain on the storage."""
        domain = types.StorageDomain(
            id=self.mark,
            name=self.name,
            type=types.StorageDomainType.DATA,
            host=types.Host(id=self.host.id),
            storage=types.HostStorage(id=connection, type=types.StorageType.NFS),
        )
        doing = f"creating the domain {self.name} by {self.host.name}"
        words = {"storage_domain": domain}
        return Call("storagedomains", "add", doing, words, self.name)

    def attaching(self, domain: str) -> Call:
        """The call that attaches the domain, which activates it too."""
        doing = f"attaching {self.name} to {self.data_center.name}"
        path = f"datacenters/{self.data_center.id}/storagedomains"
        words = {"storage_domain": types.StorageDomain(id=domain)}
        return Call(path, "add", doing, words, self.name)


def plan_domain_create(
    engine: Engine, reports: Mapping[str, HostReport], request: DomainRequest
) -> DomainPlan:
    """Return what has to be done for ``request``.

    Raises Problem for names that do not exist, and ChecksFailed with everything that
    is against it.
    """
    center = pick("data center", request.data_center, engine.data_centers)
    hosts = engine.hosts_of(center.id)
    against = list(name_problems(request.name))
    export, problems = read_export(request.export)
    against += problems
    against += _data_center_problems(center)
    up = tuple(host for host in hosts if host.status == "up")
    host, problem = _creator(request, hosts, up, center)
    against += problem
    version = NFS_VERSIONS.get(request.nfs_version)
    if version is None:
        allowed = ", ".join(NFS_VERSIONS)
        against.append(f"NFS version {request.nfs_version!r}; allowed: {allowed}")
    if export is None or version is None or host is None:
        check(against)
        raise AssertionError("each of them is a sentence")
    options, problems = options_for(export, request.transport, request.mount_options)
    against += problems
    address = address_of(export)
    row = StorageConnection("", "nfs", address, export.path, version, options)
    domain, problems = domain_there(engine, request.name, row, center)
    against += problems
    if domain is None:
        against += known_already(engine, export, request.name)
        row, problems = left_over(engine, export, row)
        against += problems
    elif domain.connection is not None:
        row = domain.connection
    offenders, warnings = host_problems(up, reports, export, row, request.transport)
    against += offenders
    fix = ""
    if domain is None or domain.data_center is None:
        others = [d for d in engine.domains if d.data_center == center.id]
        shared = sharing(row, others, up, reports, request.transport)
        against += shared.offenders
        warnings += shared.warnings
        fix = shared.fix if shared.offenders else ""
    check(against, fix)
    away = [one.name for one in hosts if one.status != "up"]
    if away:
        warnings.append(f"not up, so not checked: {listed(away)}")
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


def _data_center_problems(center: DataCenter) -> Iterator[str]:
    if center.status not in _READY:
        shown = status_words(center.status)
        yield (
            f"data center {center.name} is {shown}; a domain can be attached when it "
            "is up"
        )


def _creator(
    request: DomainRequest,
    hosts: Sequence[Host],
    up: Sequence[Host],
    center: DataCenter,
) -> tuple[Optional[Host], list[str]]:
    if request.host is not None:
        host = pick("host", request.host, hosts)
        if host.status == "up":
            return host, []
        shown = status_words(host.status)
        return None, [f"{host.name} is {shown}; a host that is up has to create it"]
    spm = next((host for host in up if host.spm == "spm"), None)
    if spm or up:
        return spm or up[0], []
    return None, [f"no host of data center {center.name} is up, and one has to create"]
