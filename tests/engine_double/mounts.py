# SPDX-License-Identifier: GPL-2.0-or-later
"""Connect and disconnect the storage of a simulated host.

A host with the add-on and a policy that names the export mounts by that policy,
otherwise by the engine's storage connection, as stock VDSM does (the keys that
lib/vdsm/storage/storageServer.py reads, 4.50.7, lines 1037-1056). The kernel decides
the result: NFS 4 mounts of one server with the same minor version share one connection,
so that all have the transport of the first. Stock VDSM does not check that; the add-on
unmounts what violates require-rdma.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Optional

from engine_double.behaviours import behaviour
from engine_double.world import SimConnection, SimDomain, SimHost, World

NAMELESS = behaviour(
    "EVENT-21",
    "Event 996, VDSM's words on a mount, names the export only: it has no host, no "
    "domain and no correlation id.",
    "bll/storage/connection/StorageHelperBase.java:181-195",
)
HOST_ONLY = behaviour(
    "EVENT-22",
    "Event 188, the host that could not mount, has no correlation id; it is written "
    "where a domain uses the row.",
    "vdsbroker/vdsbroker/ConnectStorageServerVDSCommand.java:82-104",
)
_CALL = "vdsbroker/vdsbroker/ConnectStorageServerVDSCommand.java"
HOST_FIRST = behaviour(
    "EVENT-23",
    "Of a mount that failed, event 188 is written before event 996.",
    f"{_CALL}:45-52",
    "bll/storage/connection/FileStorageHelper.java:52-64",
)
TOGETHER = behaviour(
    "EVENT-24",
    "One event 188 names all domains that a host could not mount in one call, with "
    "commas; a host that comes up is asked for the master, and then for each kind.",
    f"{_CALL}:82-104",
    "bll/storage/pool/ConnectHostToStoragePoolServersCommand.java:90-98",
)
HOSTED_ENGINE_STAYS = behaviour(
    "HOST-21",
    "Maintenance takes all mounts away, but the hosted engine's.",
    "bll/storage/pool/DisconnectHostFromStoragePoolServersCommand.java:64-83",
)

# lib/vdsm/storage/exception.py of VDSM 4.50.7, line 1269; the engine's
# common/errors/EngineError.java:255.
MOUNT_FAILED = 477

REQUIRE_RDMA, PREFER_RDMA, TCP = "require-rdma", "prefer-rdma", "tcp"


@dataclass(frozen=True)
class MountFailure:
    """VDSM's error code and message."""

    code: int
    text: str


def connect(
    world: World, host: SimHost, connection: SimConnection
) -> Optional[MountFailure]:
    """Mount ``connection`` on ``host``; an export that is mounted stays as it is."""
    if connection.type not in ("nfs", "posixfs"):
        return None
    export = connection.export
    if export in host.mounts:
        return None
    server = world.export(export)
    asked = asked_for(host, connection)
    rdma_works = host.rdma_ready and server.rdma and server.answers
    over_rdma = asked == REQUIRE_RDMA or (asked == PREFER_RDMA and rdma_works)
    works = rdma_works if over_rdma else server.answers
    # The server is asked over the transport that is wanted, before the kernel sees
    # that it is known already.
    got = transport_of(world, host, connection, "rdma" if over_rdma else "tcp")
    broken = got != "rdma" and rule_of(host, connection) == REQUIRE_RDMA
    if not works or broken:
        return MountFailure(MOUNT_FAILED, "Problem while trying to mount target")
    host.mounts[export] = got
    return None


def transport_of(
    world: World, host: SimHost, connection: SimConnection, wanted: str
) -> str:
    """Return ``wanted``, unless the kernel shares a connection of the other transport:
    storage/mounts.py. Other addresses of a server are not modelled.
    """
    version = nfs_version(connection)
    if version == "3":
        return wanted
    rows = {row.export: row for row in world.connections.values()}
    mine = _server(connection.export)
    there = [
        transport
        for export, transport in host.mounts.items()
        if _server(export) == mine and nfs_version(rows.get(export)) == version
    ]
    return wanted if wanted in there or not there else there[0]


def nfs_version(connection: Optional[SimConnection]) -> str:
    """``3``, ``4.1``; mount.nfs uses the highest if no minor version is given."""
    told = (connection.nfs_version or "") if connection else ""
    for option in ((connection.mount_options or "") if connection else "").split(","):
        name, _, value = option.strip().partition("=")
        if name in ("vers", "nfsvers"):
            told = value
    version = told.lstrip("v").replace("_", ".")
    return version if version in ("3", "4.0", "4.1") else "4.2"


def _server(export: str) -> str:
    return export.rpartition(":/")[0].lower()


def asked_for(host: SimHost, connection: SimConnection) -> str:
    """Return the transport of the host's rule, or of the engine's mount options."""
    rule = rule_of(host, connection)
    if rule:
        return rule
    options = (connection.mount_options or "").split(",")
    wanted = {"rdma", "proto=rdma", "proto=rdma6"}
    return REQUIRE_RDMA if wanted & {o.strip() for o in options} else TCP


def rule_of(host: SimHost, connection: SimConnection) -> str:
    """Return the transport of the host's rule, "" if no rule names the export."""
    if not host.addon or host.policy_text is None:
        return ""
    return _rule(host.policy_text, connection.export)


@functools.lru_cache(4096)
def _rule(policy_text: str, export: str) -> str:
    # Only if a test has a policy: it needs YAML.
    from support.engine.policy_files import split

    from ovirt_rdma.host.export import Export
    from ovirt_rdma.host.policy.model import rule_for

    match = rule_for(split(policy_text).parsed("policy").policy, Export.parse(export))
    return match.rule.transport if match else ""


@dataclass(frozen=True)
class Failed:
    """A row that a host could not mount, and the names of its domains."""

    row: SimConnection
    failure: MountFailure
    names: tuple[str, ...]
    domain: Optional[SimDomain] = None


def connect_domains(
    world: World,
    host: SimHost,
    domains: Iterable[SimDomain],
    correlation_id: Optional[str] = None,
) -> dict[str, MountFailure]:
    """Mount ``domains``; record events of failures, and return these by domain id."""
    failures = {}
    for call in _calls(domains):
        failed = []
        for domain in call:
            row = world.connections.get(domain.connection or "")
            failure = connect(world, host, row) if row else None
            if row and failure:
                failures[domain.id] = failure
                names = tuple(d.name for d in world.domains_using(row.id))
                failed.append(Failed(row, failure, names, domain))
        _report(world, host, failed, correlation_id)
    return failures


def _calls(domains: Iterable[SimDomain]) -> list[list[SimDomain]]:
    """Return the domains of each call: one for the master, then one per kind."""
    kinds: dict[str, list[SimDomain]] = {"master": [], "data": []}
    for domain in domains:
        kind = "master" if domain.master else domain.type
        kinds.setdefault(kind, []).append(domain)
    return [call for call in kinds.values() if call]


def report_failure(
    world: World,
    host: SimHost,
    connection: SimConnection,
    failure: MountFailure,
    domain: Optional[SimDomain] = None,
    correlation_id: Optional[str] = None,
    named: str = "",
) -> None:
    """Record the events 188 (the host) and 996 (VDSM's message).

    ``domain`` is the one that uses the row, ``named`` a new one's name.
    """
    users = [named] if named else [d.name for d in world.domains_using(connection.id)]
    failed = Failed(connection, failure, tuple(users), domain)
    _report(world, host, [failed], correlation_id)


def _report(
    world: World,
    host: SimHost,
    failed: Sequence[Failed],
    correlation_id: Optional[str],
) -> None:
    def of_vdsm() -> None:
        for one in failed:
            text = f"VDSM said of the connection {one.row.export}: {one.failure.text}"
            about = _about(host, one, correlation_id)
            world.log.record(
                996, "error", text, **({} if world.does(NAMELESS) else about)
            )

    if not world.does(HOST_FIRST):
        of_vdsm()
    together = [failed] if world.does(TOGETHER) else [[one] for one in failed]
    for some in together:
        _name_host(world, host, some, correlation_id)
    if world.does(HOST_FIRST):
        of_vdsm()


def _name_host(
    world: World,
    host: SimHost,
    failed: Sequence[Failed],
    correlation_id: Optional[str],
) -> None:
    names = [name for one in failed for name in one.names]
    about: dict[str, Any] = {"host": host.id}
    if not world.does(HOST_ONLY) and failed:
        about = _about(host, failed[0], correlation_id)
        names = names or [failed[0].row.export]
    if names:
        which = f"the Storage Domains {','.join(names)}"
        text = f"Host {host.name} failed to connect to {which}."
        world.log.record(188, "error", text, **about)


def _about(host: SimHost, one: Failed, correlation_id: Optional[str]) -> dict[str, Any]:
    return {
        "correlation_id": correlation_id,
        "host": host.id,
        "domain": one.domain.id if one.domain else None,
    }


def disconnect(world: World, host: SimHost, connection_id: Optional[str]) -> None:
    connection = world.connections.get(connection_id or "")
    if connection:
        host.mounts.pop(connection.export, None)


def disconnect_all(world: World, host: SimHost) -> None:
    """Disconnect all storage, as maintenance does."""
    kept = {
        world.connections[d.connection].export
        for d in world.domains.values()
        if d.hosted_engine and d.connection in world.connections
    }
    if not world.does(HOSTED_ENGINE_STAYS):
        kept = set()
    for export in set(host.mounts) - kept:
        del host.mounts[export]
