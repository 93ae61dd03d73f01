# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve storage connections: rows with mount options, and the rules for changes.

Rows are added for NFS and without a host, and changed without one: a host in the
request would mount there, and move the domain to maintenance.
"""

from __future__ import annotations

import dataclasses
import ipaddress
import re

from ovirtsdk4 import types

from engine_double.answers import Answer, Mistake, Refusal, created, listed
from engine_double.behaviours import behaviour
from engine_double.mounts import TCP, asked_for
from engine_double.routing import Call, known, route
from engine_double.views import connection_view
from engine_double.world import SimConnection, World, new_id

_ROW = "bll/storage/connection"
_UPDATE = f"{_ROW}/UpdateStorageServerConnectionCommand.java"
MOUNT_POINT = behaviour(
    "CONN-01",
    "An NFS row requires SERVER:/PATH, without spaces, and IPv6 in brackets: 400.",
    f"{_ROW}/ConnectStorageToVdsCommand.java:106-108",
    "common/validation/NfsMountPointConstraint.java:17-42",
)
MANAGED = behaviour(
    "CONN-03",
    "Mount options that the engine sets itself are refused, in any case of letters: "
    "400. An item with two '=' is not looked at.",
    f"{_ROW}/ConnectStorageToVdsCommand.java:207-230",
    "utils/StringMapUtils.java:29-36",
)
LONGEST = behaviour(
    "CONN-04",
    "More than 500 characters of mount options, or 250 of SERVER:/PATH, fail in the "
    "data base only: 400, Internal Engine Error.",
    "dbscripts/create_tables.sql:2061-2075",
    "bll/CommandBase.java:1190-1198",
    "restapi/util/ErrorMessageHelper.java:27-42",
)
KNOWN_EXPORT = behaviour(
    "CONN-05",
    "SERVER:/PATH that another row has is refused, whatever the options: 409.",
    f"{_ROW}/AddStorageServerConnectionCommand.java:85-93",
    f"{_ROW}/UpdateStorageServerConnectionCommand.java:103-110",
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
SPLIT_AT_COLONS = behaviour(
    "CONN-16",
    "A change that does not bring both address and path takes what is missing from the "
    "row, split at each colon: IPv6 and a path with a colon get lost.",
    "mapper/StorageDomainMapper.java:215-231",
)
IN_USE = behaviour(
    "CONN-17",
    "A row that a domain uses cannot be removed: 409.",
    f"{_ROW}/RemoveStorageServerConnectionCommand.java:60-66",
)

NFS_MANAGED = frozenset(
    {
        "timeo",
        "retrans",
        "vfs_type",
        "protocol_version",
        "nfsvers",
        "vers",
        "minorversion",
        "addr",
        "clientaddr",
    }
)
POSIXFS_MANAGED = frozenset({"vfs_type", "addr", "clientaddr"})
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_SERVER = re.compile(rf"(?:{_LABEL}|(?:{_LABEL}\.)+[A-Za-z0-9]{{2,63}})\Z")
# It does not check leading zeros.
_BYTE = "(?:25[0-5]|2[0-4][0-9]|[01][0-9][0-9]|[0-9]?[0-9])"
_IPV4 = re.compile(rf"(?:{_BYTE}\.){{3}}{_BYTE}\Z")
# The last part begins with no dot, and no part of it may be empty at the end.
_PATH = re.compile(r"/(?:(?:.*?[/\\])?[^./|^\\]+(?:\.[^\\]*)?/?)?\Z")


def check(world: World, connection: SimConnection) -> None:
    """Check a row by the engine's rules; raises Refusal (400)."""
    good = connection.type != "nfs" or _is_mount_point(connection.export)
    if world.does(MOUNT_POINT) and not good:
        raise Refusal(400, "Storage Connection format is invalid.")
    managed = NFS_MANAGED if connection.type == "nfs" else POSIXFS_MANAGED
    found = [key for key in _keys(connection.mount_options or "") if key in managed]
    if world.does(MANAGED) and found:
        raise Refusal(
            400,
            "Cannot edit Storage Connection. Custom mount options contain the "
            f"following duplicate managed options: {', '.join(found)}.",
        )


def _is_mount_point(export: str) -> bool:
    if not export.isascii() or re.search(r"\s", export):
        return False
    if export.startswith("["):
        server, _, path = export[1:].partition("]:")
        # It accepts none that ends like an IPv4 address.
        numbers = _is_ipv6(server) and "." not in server
        return numbers and bool(_PATH.match(path))
    server, _, path = export.partition(":")
    named = len(export) <= 254 and _SERVER.match(server)
    return bool(_PATH.match(path)) and bool(named or _IPV4.match(server))


def _is_ipv6(text: str) -> bool:
    try:
        return ipaddress.ip_address(text).version == 6
    except ValueError:
        return False


def check_fits(world: World, connection: SimConnection) -> None:
    """Check what only the database limits; raises Refusal (400)."""
    options, export = connection.mount_options or "", connection.export
    if world.does(LONGEST) and (len(options) > 500 or len(export) > 250):
        raise Refusal(400, "Internal Engine Error")


def _keys(options: str) -> list[str]:
    # Java's split drops empty parts at the end.
    parts = [item.rstrip("=").split("=") for item in options.split(",")]
    return [part[0].strip().lower() for part in parts if len(part) <= 2]


def check_new_export(world: World, connection: SimConnection) -> None:
    """Refuse SERVER:/PATH that another row has; options do not count."""
    for other in world.connections.values() if world.does(KNOWN_EXPORT) else ():
        same = other.export == connection.export and other.type != "iscsi"
        if same and other.id != connection.id:
            used = ", ".join(d.name for d in world.domains_using(other.id))
            raise Refusal(
                409,
                "Cannot do that with Storage Connection. Storage connection already "
                f"exists. It is {other.id}, of the storage domain {used or '(none)'}.",
            )


@route("GET", "/storageconnections")
def list_connections(call: Call) -> Answer:
    rows = call.world.connections.values()
    return listed("storage_connections", [connection_view(call.world, c) for c in rows])


@route(
    "POST",
    "/storageconnections",
    root="storage_connection",
    fields=("nfs_version", "mount_options"),
    wants=("type", "address", "path"),
)
def add_connection(call: Call) -> Answer:
    world, body = call.world, call.body
    if body.type != types.StorageType.NFS:
        raise Mistake(f"the double adds rows of NFS only, not of {body.type}")
    row = SimConnection(
        new_id(),
        "nfs",
        body.address,
        body.path,
        nfs_version=body.nfs_version.value if body.nfs_version else None,
        mount_options=body.mount_options,
    )
    check(world, row)
    check_new_export(world, row)
    check_fits(world, row)
    world.connections[row.id] = row
    return created(connection_view(world, row))


@route(
    "PUT",
    "/storageconnections/{connection}",
    query=("force",),
    root="storage_connection",
    fields=("address", "path", "mount_options"),
)
def update_connection(call: Call) -> types.StorageConnection:
    world = call.world
    row = known(world.connections, call.ids["connection"])
    new = _merged(row, call)
    check(world, new)
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
    world.connections[row.id] = new
    if not world.does(ROW_ONLY):
        for each in world.hosts.values():
            if each.mounts.pop(row.export, None):
                over_tcp = asked_for(each, new) == TCP
                each.mounts[new.export] = "tcp" if over_tcp else "rdma"
    return connection_view(world, new)


def _merged(row: SimConnection, call: Call) -> SimConnection:
    """Return the row with the changes of the body."""
    body, sent = call.body, call.sent
    new = dataclasses.replace(row)
    parts = [row.address, row.path]
    if row.type == "nfs" and call.world.does(SPLIT_AT_COLONS):
        parts = row.export.split(":")
    new.address = body.address if "address" in sent else parts[0]
    new.path = body.path if "path" in sent else parts[1]
    if "mount_options" in sent:
        new.mount_options = body.mount_options or ""
    return new


@route("DELETE", "/storageconnections/{connection}")
def remove_connection(call: Call) -> None:
    world = call.world
    row = known(world.connections, call.ids["connection"])
    using = world.domains_using(row.id)
    if using and world.does(IN_USE):
        names = ",".join(d.name for d in using)
        raise Refusal(409, f"Cannot remove Storage Connection. It is used by: {names}.")
    del world.connections[row.id]


@route("GET", "/storagedomains/{domain}/storageconnections")
def list_connections_of(call: Call) -> Answer:
    world = call.world
    found = known(world.domains, call.ids["domain"])
    row = world.connections.get(found.connection or "")
    shown = [connection_view(world, row)] if row else []
    return listed("storage_connections", shown)
