# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's rules for a row of storage connections, and adding one.

Facts/engine.md, sections 1.1 and 1.2.
"""

from __future__ import annotations

import re
from typing import Any, Optional

from engine_double.answers import Missing, Refusal
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import connect, report_failure
from engine_double.world import SimConnection, World, new_id

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
# NfsMountPointConstraint.java: IPv4 or name, or IPv6 in brackets; no spaces.
_MOUNT_POINT = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+):/[^\s]*\Z", re.ASCII)


def check(connection: SimConnection) -> None:
    """Hold a row against the engine's rules; raises Refusal (400)."""
    if connection.type == "nfs" and not _MOUNT_POINT.match(connection.export):
        raise Refusal(400, "Storage Connection format is invalid.")
    if connection.type == "posixfs" and not connection.vfs_type:
        raise Refusal(400, "A POSIX compliant connection needs its VFS type.")
    if connection.nfs_timeo is not None and not 1 <= connection.nfs_timeo <= 6000:
        raise Refusal(400, "NFS Timeout should be between 1 and 6000")
    retrans = connection.nfs_retrans
    if retrans is not None and not 0 <= retrans <= 32767:
        raise Refusal(400, "NFS Retransmissions should be between 0 and 32767")
    options = connection.mount_options or ""
    managed = NFS_MANAGED if connection.type == "nfs" else POSIXFS_MANAGED
    found = [key for key in _keys(options) if key in managed]
    if found:
        raise Refusal(
            400,
            "Cannot edit Storage Connection. Custom mount options contain the "
            f"following duplicate managed options: {', '.join(found)}.",
        )
    if len(options) > 500:
        # varchar(500): no rule above the data base, which then fails.
        raise Refusal(500, "Internal Engine Error")


def _keys(options: str) -> list[str]:
    # StringMapUtils.java: an item with two "=" is not looked at.
    parts = [item.split("=") for item in options.split(",")]
    return [part[0].strip().lower() for part in parts if len(part) <= 2]


def check_new_export(world: World, connection: SimConnection) -> None:
    """Refuse SERVER:/PATH that another row has; options do not count."""
    for other in world.connections.values():
        same = other.export == connection.export and other.type != "iscsi"
        if same and other.id != connection.id:
            used = ", ".join(d.name for d in world.domains_using(other.id))
            raise Refusal(
                409,
                "Cannot do that with Storage Connection. Storage connection already "
                f"exists. It is {other.id}, of the storage domain {used or '(none)'}.",
            )


def host_named(world: World, named: Any) -> SimHost:
    """The host that a body names by id or by name; raises Missing."""
    for host in world.hosts.values():
        if named.id == host.id or (named.id is None and named.name == host.name):
            return host
    raise Missing(named.id or named.name)


def check_up(host: SimHost) -> None:
    if host.status != "up":
        raise Refusal(
            409, f"Cannot add Storage Connection. The host {host.name} must be Up."
        )


def mount_refused(
    world: World,
    host: SimHost,
    connection: SimConnection,
    correlation_id: Optional[str],
) -> None:
    """Mount on ``host``; raises Refusal (400) with VDSM's words if that fails."""
    failure = connect(world, host, connection)
    if failure:
        report_failure(world, host, connection, failure, correlation_id=correlation_id)
        raise Refusal(400, failure.text)


def add(
    world: World,
    connection: SimConnection,
    host: Optional[SimHost],
    correlation_id: Optional[str],
) -> SimConnection:
    """Check and keep a new row; with ``host``, which must be Up, mount it there."""
    check(connection)
    if host is not None:
        check_up(host)
    check_new_export(world, connection)
    if host is not None:
        mount_refused(world, host, connection, correlation_id)
    world.connections[connection.id] = connection
    return connection


def from_body(body: Any, name: str = "") -> SimConnection:
    """A row from a StorageConnection or HostStorage."""
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
