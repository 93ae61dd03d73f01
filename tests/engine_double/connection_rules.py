# SPDX-License-Identifier: GPL-2.0-or-later
"""Check storage connections by the engine's rules, and add them."""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Optional

from engine_double.answers import Missing, Refusal, Unknown
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import connect, report_failure
from engine_double.world import SimConnection, World, new_id

_ROW = "bll/storage/connection"
MOUNT_POINT = behaviour(
    "CONN-01",
    "An NFS row requires SERVER:/PATH, without spaces, and IPv6 in brackets: 400.",
    f"{_ROW}/ConnectStorageToVdsCommand.java:106-108",
    "common/validation/NfsMountPointConstraint.java:17-42",
)
NUMBERS = behaviour(
    "CONN-02",
    "nfs_timeo is from 1 to 6000, nfs_retrans from 0 to 32767: 400.",
    "common/businessentities/StorageServerConnections.java:174-188",
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
HOST_UP = behaviour(
    "CONN-06",
    "A row that is added with a host requires that host Up, and that is checked last: "
    "409.",
    f"{_ROW}/AddStorageServerConnectionCommand.java:95-105",
)
MOUNTED = behaviour(
    "CONN-07",
    "A row that is added with a host is mounted there; if that fails, the row is not "
    "kept, and VDSM's words come with 400.",
    f"{_ROW}/AddStorageServerConnectionCommand.java:45-55",
)
NO_SUCH_HOST = behaviour(
    "REST-21",
    "A host that a body or a query word names and that there is not: 404 with a fault, "
    "unlike the object of the address.",
    "restapi/resource/AbstractBackendResource.java:408-416",
    "restapi/resource/BaseBackendResource.java:234-241",
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
FIELDS = (
    "address",
    "path",
    "type",
    "nfs_version",
    "nfs_timeo",
    "nfs_retrans",
    "mount_options",
    "vfs_type",
)
_OF_NFS = ("nfs_version", "nfs_timeo", "nfs_retrans", "mount_options")
_LABEL = r"(?!-)[A-Za-z0-9-]{1,63}(?<!-)"
_SERVER = re.compile(rf"(?:{_LABEL}|(?:{_LABEL}\.)+[A-Za-z0-9]{{2,63}})\Z")
# It does not check leading zeros.
_BYTE = "(?:25[0-5]|2[0-4][0-9]|[01][0-9][0-9]|[0-9]?[0-9])"
_IPV4 = re.compile(rf"(?:{_BYTE}\.){{3}}{_BYTE}\Z")
# The last part begins with no dot, and no part of it may be empty at the end.
_PATH = re.compile(r"/(?:(?:.*?[/\\])?[^./|^\\]+(?:\.[^\\]*)?/?)?\Z")


def check(world: World, connection: SimConnection) -> None:
    """Check a row by the engine's rules; raises Refusal (400)."""
    # Bean validation comes before the checks of the command.
    if world.does(NUMBERS):
        timeo, retrans = connection.nfs_timeo, connection.nfs_retrans
        if timeo is not None and not 1 <= timeo <= 6000:
            raise Refusal(400, "NFS Timeout should be between 1 and 6000")
        if retrans is not None and not 0 <= retrans <= 32767:
            raise Refusal(400, "NFS Retransmissions should be between 0 and 32767")
    good = connection.type != "nfs" or _is_mount_point(connection.export)
    if world.does(MOUNT_POINT) and not good:
        raise Refusal(400, "Storage Connection format is invalid.")
    if connection.type == "posixfs" and not connection.vfs_type:
        raise Refusal(400, "A POSIX compliant connection needs its VFS type.")
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


def host_named(world: World, named: Any) -> SimHost:
    """Return the host that a body names by id or by name; raises Unknown."""
    for host in world.hosts.values():
        if named.id == host.id or (named.id is None and named.name == host.name):
            return host
    raise no_such_host(world, named.id or named.name)


def no_such_host(world: World, named: str) -> Exception:
    """Return the answer to a request that names a missing host."""
    return Unknown(named) if world.does(NO_SUCH_HOST) else Missing(named)


def add(
    world: World,
    connection: SimConnection,
    host: Optional[SimHost],
    correlation_id: Optional[str],
) -> SimConnection:
    """Check and store a new row; with ``host``, which must be Up, mount it there."""
    check(world, connection)
    check_new_export(world, connection)
    if host is not None and host.status != "up" and world.does(HOST_UP):
        raise Refusal(
            409, f"Cannot add Storage Connection. The host {host.name} must be Up."
        )
    if host is not None and world.does(MOUNTED):
        failure = connect(world, host, connection)
        if failure:
            report_failure(
                world, host, connection, failure, correlation_id=correlation_id
            )
            raise Refusal(400, failure.text)
    check_fits(world, connection)
    world.connections[connection.id] = connection
    return connection


def from_body(body: Any, name: str = "") -> SimConnection:
    """Return the row of a StorageConnection or HostStorage."""
    kind = body.type.value
    found = SimConnection(name or new_id(), kind, body.address or "", body.path or "")
    for field in _OF_NFS:
        value = getattr(body, field)
        if field == "nfs_version" and value is not None:
            value = value.value
        if kind == "nfs" or field == "mount_options":
            setattr(found, field, value)
    found.vfs_type = body.vfs_type if kind != "nfs" else None
    return found
