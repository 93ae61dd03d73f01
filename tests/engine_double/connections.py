# SPDX-License-Identifier: GPL-2.0-or-later
"""Storage connections: rows of mount options, and the rules for changing them.

Facts/engine.md, sections 1.1, 1.2 and 1.5.
"""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, created, listed
from engine_double.connection_rules import (
    FIELDS,
    add,
    check,
    check_new_export,
    from_body,
    host_named,
)
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import connect, disconnect, report_failure
from engine_double.routing import Call, known, route
from engine_double.views import connection_view, followed
from engine_double.world import SimConnection, SimDomain, World


@route("GET", "/storageconnections", query=("max",))
def list_connections(call: Call) -> Answer:
    rows = call.first(call.world.connections.values())
    return listed("storage_connections", [connection_view(call.world, c) for c in rows])


@route("GET", "/storageconnections/{connection}")
def get_connection(call: Call) -> types.StorageConnection:
    row = known(call.world.connections, call.ids["connection"])
    return connection_view(call.world, row)


@route(
    "POST",
    "/storageconnections",
    root="storage_connection",
    fields=(*FIELDS, "host.id", "host.name"),
)
def add_connection(call: Call) -> Answer:
    body = call.body
    wanted = {"nfs": ("address", "path"), "posixfs": ("path", "vfs_type")}
    kind = body.type.value if body.type else None
    missing = ["type"] if kind is None else []
    missing += [name for name in wanted.get(kind or "", ()) if not getattr(body, name)]
    if missing:
        raise Refusal(
            400,
            f"StorageConnection [{', '.join(missing)}] required for add",
            reason="Incomplete parameters",
        )
    if kind not in wanted:
        raise Refusal(400, "The double adds connections of NFS and POSIX only.")
    host = host_named(call.world, body.host) if body.host else None
    row = add(call.world, from_body(body), host, call.correlation_id)
    return created(connection_view(call.world, row))


@route(
    "PUT",
    "/storageconnections/{connection}",
    query=("force",),
    root="storage_connection",
    fields=(*FIELDS, "id", "host.id", "host.name"),
)
def update_connection(call: Call) -> types.StorageConnection:
    world = call.world
    row = known(world.connections, call.ids["connection"])
    new = _merged(row, call)
    host = host_named(world, call.body.host) if call.body.host else None
    check(new)
    if new.type != row.type:
        raise Refusal(400, "Cannot edit Storage Connection. Its type cannot change.")
    check_new_export(world, new)
    using = world.domains_using(row.id)
    if len(using) > 1:
        names = ",".join(d.name for d in using)
        raise Refusal(409, f"Several storage domains use this connection: {names}.")
    editable = ("maintenance", "unattached")
    if using and using[0].status not in editable and not call.flag("force"):
        raise Refusal(
            400,
            "Cannot edit Storage Connection. Storage domain "
            f"{using[0].name} should be in maintenance or unattached.",
        )
    if host is not None and using:
        _try_on_host(world, host, new, using[0], call.correlation_id)
    world.connections[row.id] = new
    return connection_view(world, new)


def _merged(row: SimConnection, call: Call) -> SimConnection:
    """The row with what the body says, as StorageDomainMapper.java merges it."""
    body, sent = call.body, call.sent
    new = dataclasses.replace(row)
    if "type" in sent:
        new.type = body.type.value
    if new.type == "nfs":
        # The mapper splits at every colon, which breaks IPv6 addresses.
        parts = row.export.split(":")
        new.address = body.address if "address" in sent else parts[0]
        new.path = body.path if "path" in sent else parts[1]
    elif "path" in sent:
        new.address = body.address or ""
        new.path = body.path
    if "mount_options" in sent:
        new.mount_options = body.mount_options or ""
    if "vfs_type" in sent and new.type != "nfs":
        new.vfs_type = body.vfs_type
    if new.type == "nfs":
        if "nfs_version" in sent:
            new.nfs_version = body.nfs_version.value
        new.nfs_timeo = body.nfs_timeo if "nfs_timeo" in sent else row.nfs_timeo
        new.nfs_retrans = body.nfs_retrans if "nfs_retrans" in sent else row.nfs_retrans
    return new


def _try_on_host(
    world: World,
    host: SimHost,
    new: SimConnection,
    domain: SimDomain,
    correlation_id: Optional[str],
) -> None:
    # UpdateStorageServerConnectionCommand.java, executeCommand: a failed mount does
    # not fail the update; the status becomes maintenance in any case; a mount that
    # worked is taken away again, be it the live one.
    failure = connect(world, host, new)
    if failure:
        report_failure(world, host, new, failure, domain, correlation_id)
    if domain.data_center:
        world.transitions.stop(domain.id)
        domain.status = "maintenance"
    if not failure:
        host.mounts.pop(new.export, None)


@route("DELETE", "/storageconnections/{connection}", query=("host",))
def remove_connection(call: Call) -> None:
    world = call.world
    row = known(world.connections, call.ids["connection"])
    using = world.domains_using(row.id)
    if using:
        names = ",".join(d.name for d in using)
        raise Refusal(409, f"Cannot remove Storage Connection. It is used by: {names}.")
    named = call.query.get("host")
    for host in world.hosts.values():
        if named in (host.id, host.name):
            disconnect(world, host, row.id)
    del world.connections[row.id]


@route("GET", "/storagedomains/{domain}/storageconnections", query=("max",))
def list_connections_of(call: Call) -> Answer:
    found = known(call.world.domains, call.ids["domain"])
    rows = call.first(connections_of(call.world, found))
    return listed("storage_connections", rows)


@followed("storagedomains", "storage_connections")
def connections_of(world: World, domain: Any) -> list[types.StorageConnection]:
    row = world.connections.get(domain.connection or "")
    return [connection_view(world, row)] if row else []
