# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve storage connections: rows with mount options, and the rules for changes."""

from __future__ import annotations

import dataclasses
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, created, listed
from engine_double.behaviours import behaviour
from engine_double.connection_rules import (
    FIELDS,
    add,
    check,
    check_fits,
    check_new_export,
    from_body,
    host_named,
    no_such_host,
)
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import TCP, asked_for, connect, disconnect, report_failure
from engine_double.routing import Call, known, route
from engine_double.views import connection_view, followed
from engine_double.world import SimConnection, SimDomain, World

_UPDATE = "bll/storage/connection/UpdateStorageServerConnectionCommand.java"
COMPLETE = behaviour(
    "CONN-08",
    "An NFS row that is added wants type, address and path, a POSIX one path and VFS "
    "type: 400, Incomplete parameters.",
    "restapi/resource/BackendStorageServerConnectionsResource.java:50-76",
)
SAME_TYPE = behaviour(
    "CONN-09", "The type of a row cannot change: 400.", f"{_UPDATE}:99-101"
)
ONE_DOMAIN = behaviour(
    "CONN-10",
    "A row that several domains use cannot be changed: 409, even with force.",
    f"{_UPDATE}:112-117",
)
EDITABLE = behaviour(
    "CONN-11",
    "A row is changed while its domain is in maintenance or unattached, else only with "
    "force: 400.",
    f"{_UPDATE}:145-153",
    f"{_UPDATE}:214-216",
)
ROW_ONLY = behaviour(
    "CONN-12",
    "A change without a host changes only the row: no host is informed, and the "
    "domain keeps its status.",
    f"{_UPDATE}:219-224",
    f"{_UPDATE}:242-254",
)
MAINTENANCE = behaviour(
    "CONN-13",
    "A change with a host leaves the domain in maintenance, also one that was active.",
    f"{_UPDATE}:243-248",
    f"{_UPDATE}:256-258",
)
CHANGED_ANYWAY = behaviour(
    "CONN-14",
    "A change with a host on which the mount fails is made all the same; only events "
    "tell.",
    f"{_UPDATE}:223-242",
)
TAKEN_AWAY = behaviour(
    "CONN-15",
    "A change with a host unmounts the export there again, even a live mount.",
    f"{_UPDATE}:249-251",
    f"{_UPDATE}:316-327",
)
SPLIT_AT_COLONS = behaviour(
    "CONN-16",
    "A change that does not bring both address and path takes what is missing from the "
    "row, split at each colon: IPv6 and a path with a colon get lost.",
    "mapper/StorageDomainMapper.java:215-231",
)
IN_USE = behaviour(
    "CONN-17",
    "A row that a domain uses cannot be removed: 409.",
    "bll/storage/connection/RemoveStorageServerConnectionCommand.java:60-66",
)
OTHER_ID = behaviour(
    "REST-24",
    "A change whose body brings another id than the address: 409, Broken immutability "
    "constraint.",
    "restapi/resource/AbstractBackendSubResource.java:108-114",
)
STAYS_MOUNTED = behaviour(
    "CONN-18",
    "A removed row stays mounted, but on the host that the request names.",
    "bll/storage/connection/RemoveStorageServerConnectionCommand.java:111-122",
)


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
    if missing and (kind is None or call.world.does(COMPLETE)):
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
    if call.body.id not in (None, row.id) and world.does(OTHER_ID):
        text = "Attempt to set immutable field: id"
        raise Refusal(409, text, reason="Broken immutability constraint")
    new = _merged(row, call)
    host = host_named(world, call.body.host) if call.body.host else None
    check(world, new)
    if new.type != row.type and world.does(SAME_TYPE):
        raise Refusal(400, "Cannot edit Storage Connection. Its type cannot change.")
    check_new_export(world, new)
    using = world.domains_using(row.id)
    if len(using) > 1 and world.does(ONE_DOMAIN):
        names = ",".join(d.name for d in using)
        raise Refusal(409, f"Several storage domains use this connection: {names}.")
    editable = ("maintenance", "unattached")
    may = call.flag("force") or not world.does(EDITABLE)
    if using and using[0].status not in editable and not may:
        raise Refusal(
            400,
            "Cannot edit Storage Connection. Storage domain "
            f"{using[0].name} should be in maintenance or unattached.",
        )
    check_fits(world, new)
    if host is not None and using:
        tried = _try_on_host(world, host, new, using[0], call.correlation_id)
        if not tried and not world.does(CHANGED_ANYWAY):
            return connection_view(world, row)
    world.connections[row.id] = new
    if host is None and not world.does(ROW_ONLY):
        for each in world.hosts.values():
            if each.mounts.pop(row.export, None):
                over_tcp = asked_for(each, new) == TCP
                each.mounts[new.export] = "tcp" if over_tcp else "rdma"
    return connection_view(world, new)


def _merged(row: SimConnection, call: Call) -> SimConnection:
    """Return the row with the changes of the body."""
    body, sent = call.body, call.sent
    new = dataclasses.replace(row)
    if "type" in sent:
        new.type = body.type.value
    if new.type == "nfs":
        parts = [row.address, row.path]
        if call.world.does(SPLIT_AT_COLONS):
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
) -> bool:
    """Mount it on the host and unmount it; return whether the mount succeeded."""
    failure = connect(world, host, new)
    if failure:
        report_failure(world, host, new, failure, domain, correlation_id)
    if domain.data_center and world.does(MAINTENANCE):
        world.transitions.stop(domain.id)
        domain.status = "maintenance"
    if not failure and world.does(TAKEN_AWAY):
        host.mounts.pop(new.export, None)
    return not failure


@route("DELETE", "/storageconnections/{connection}", query=("host",))
def remove_connection(call: Call) -> None:
    world = call.world
    row = known(world.connections, call.ids["connection"])
    named = call.query.get("host")
    hosts = [h for h in world.hosts.values() if named in (h.id, h.name)]
    if named and not hosts:
        raise no_such_host(world, named)
    using = world.domains_using(row.id)
    if using and world.does(IN_USE):
        names = ",".join(d.name for d in using)
        raise Refusal(409, f"Cannot remove Storage Connection. It is used by: {names}.")
    if not world.does(STAYS_MOUNTED):
        hosts = list(world.hosts.values())
    for host in hosts:
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
