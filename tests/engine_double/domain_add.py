# SPDX-License-Identifier: GPL-2.0-or-later
"""Handle POST /storagedomains: make a domain, or import one that the export holds."""

from __future__ import annotations

import re
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double import connection_rules
from engine_double.answers import Answer, Missing, Refusal, created
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import connect, disconnect, report_failure
from engine_double.routing import Call, route
from engine_double.views import domain_view
from engine_double.world import SimConnection, SimDomain, World, new_id

_REST = "restapi/resource/BackendStorageDomainsResource.java"
_DOMAIN = "bll/storage/domain"
COMPLETE = behaviour(
    "DOMAIN-21",
    "A domain that is added wants host, type and storage, and a name unless it is an "
    "import: 400, Incomplete parameters.",
    f"{_REST}:272-306",
    f"{_REST}:111-114",
)
ROW_IN_USE = behaviour(
    "DOMAIN-22",
    "A row that has a domain accepts no second one: 409.",
    f"{_DOMAIN}/AddStorageDomainCommon.java:35-58",
)
NAME = behaviour(
    "DOMAIN-37",
    "The name of a domain has 50 characters at most, which are letters, digits, '_' "
    "and '-', and no dot: 400.",
    "common/businessentities/StorageDomainStatic.java:27-29",
    "common/utils/ValidationUtils.java:27",
    f"{_DOMAIN}/StorageDomainCommandBase.java:155-164",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:646",
)
UNKNOWN_YET = behaviour(
    "DOMAIN-39",
    "The answer that a domain was added shows it as unknown; read, it is unattached.",
    "mapper/StorageDomainMapper.java:137",
    f"{_REST}:456-461",
)
NAME_IN_USE = behaviour(
    "DOMAIN-23",
    "The name of a domain is used once: 409.",
    f"{_DOMAIN}/AddStorageDomainCommand.java:219-221",
)
NO_SUCH_ROW = behaviour(
    "DOMAIN-36",
    "An add with a row that there is not: 500, not 404.",
    f"{_REST}:496-509",
)
ANY_HOST = behaviour(
    "DOMAIN-24",
    "With a row of its own, an add does not look at the host's status: one that is in "
    "maintenance mounts and makes the domain.",
    "bll/storage/StorageHandlingCommandBase.java:182-193",
    f"{_DOMAIN}/AddStorageDomainCommand.java:175-178",
)
WORDLESS = behaviour(
    "DOMAIN-25",
    "An add with a row of its own whose mount fails: 400 without a word, '[]'; only "
    "events tell.",
    f"{_DOMAIN}/AddStorageDomainCommand.java:141-147",
    "restapi/resource/BackendResource.java:251-256",
)
IMPORTED = behaviour(
    "DOMAIN-26",
    "An add silently becomes an import if the host has mounted the export "
    "and a domain lies there that the engine does not know.",
    f"{_REST}:97-109",
    f"{_DOMAIN}/GetExistingStorageDomainListQuery.java:35-70",
)
NOT_EMPTY = behaviour(
    "DOMAIN-27",
    "Where the host has not mounted it yet, a domain on the export is not seen, and "
    "VDSM refuses to make another: 400.",
    f"{_DOMAIN}/GetExistingStorageDomainListQuery.java:37-43",
    f"{_DOMAIN}/AddStorageDomainCommand.java:110-115",
)
OWN_ID = behaviour(
    "DOMAIN-28",
    "The id that an add brings is forgotten, but for an import: that is looked for by "
    "it, and one that is not there is 500.",
    f"{_DOMAIN}/AddStorageDomainCommand.java:75",
    f"{_DOMAIN}/AddExistingFileStorageDomainCommand.java:61-66",
    "bll/CommandBase.java:808-811",
)
ROW_GOES = behaviour(
    "DOMAIN-29",
    "A row that an add made goes when the add is refused later; one that it was given "
    "stays.",
    f"{_REST}:116-122",
)
FAILED_ADD = behaviour(
    "DOMAIN-30",
    "Event 957 tells of an add that failed while it was carried out; a refusal "
    "beforehand writes no event.",
    f"{_DOMAIN}/AddStorageDomainCommand.java:170-172",
    "bll/CommandBase.java:423-427",
)

_NAME = re.compile(r"[0-9a-zA-Z_-]+\Z")


@route(
    "POST",
    "/storagedomains",
    root="storage_domain",
    fields=(
        *("id", "name", "type", "description", "comment", "host.id", "host.name"),
        *("storage_format", "wipe_after_delete", "discard_after_delete", "backup"),
        *(f"storage.{name}" for name in ("id", *connection_rules.FIELDS)),
    ),
)
def add_domain(call: Call) -> Answer:
    world, body = call.world, call.body
    _check_complete(world, body)
    host = connection_rules.host_named(world, body.host)
    made: Optional[SimConnection] = None
    if body.storage.id:
        row = _row(world, body.storage.id)
        if not world.does(ANY_HOST) and host.status != "up":
            raise Refusal(409, f"Cannot add Storage. Host {host.name} must be Up.")
        if not host.reachable:
            raise Refusal(400, "Network error during communication with the Host.")
    else:
        row = connection_rules.from_body(body.storage)
        made = connection_rules.add(world, row, host, call.correlation_id)
    try:
        name = _check_add(call, row, host)
        found = _add(call, row, host, name)
    except Refusal:
        if made is not None or not world.does(ROW_GOES):
            disconnect(world, host, row.id)
            del world.connections[row.id]
        raise
    return _added(call, host, found)


def _added(call: Call, host: SimHost, found: SimDomain) -> Answer:
    world = call.world
    world.log.record(
        956,
        "normal",
        f"Storage Domain {found.name} was added.",
        domain=found.id,
        correlation_id=call.correlation_id,
        host=host.id,
    )
    view = domain_view(world, found)
    if world.does(UNKNOWN_YET):
        view.status = types.StorageDomainStatus.UNKNOWN
    return created(view)


def _row(world: World, name: str) -> SimConnection:
    row = world.connections.get(name)
    if row is not None:
        return row
    if not world.does(NO_SUCH_ROW):
        raise Missing(name)
    raise Refusal(500, f"Can't find storage server connection for id '{name}'.")


def _check_complete(world: World, body: Any) -> None:
    missing = [name for name in ("host", "type", "storage") if not getattr(body, name)]
    storage = body.storage
    if storage is not None and not storage.id:
        kind = storage.type.value if storage.type else None
        wanted = {"nfs": ("address", "path"), "posixfs": ("path", "vfs_type")}
        if kind is None:
            missing.append("storage.type")
        elif kind not in wanted:
            raise Refusal(400, "The double adds domains of NFS and POSIX only.")
        else:
            missing += [n for n in wanted[kind] if not getattr(storage, n)]
    if missing and world.does(COMPLETE):
        raise _incomplete(*missing)


def _incomplete(*missing: str) -> Refusal:
    return Refusal(
        400,
        f"StorageDomain [{', '.join(missing)}] required for add",
        reason="Incomplete parameters",
    )


def _check_add(call: Call, row: SimConnection, host: SimHost) -> Optional[str]:
    """Check the request; return the id of the domain to import, if any."""
    world, body = call.world, call.body
    there = world.export(row.export).domain
    # The engine searches for domains on the mounts that the host has now.
    seen = row.export in host.mounts or not world.does(NOT_EMPTY)
    existing = there if there and seen and there not in world.domains else None
    if existing and not world.does(IMPORTED):
        existing = world.export(row.export).domain = None
    if not existing and not body.name:
        raise _incomplete("name")
    named = body.name or world.export(row.export).domain_name
    _check_name(world, named)
    if not existing:
        if world.domains_using(row.id) and world.does(ROW_IN_USE):
            raise Refusal(409, "Cannot add Storage. The connection has a domain.")
    elif body.id not in (None, existing) and world.does(OWN_ID):
        raise Refusal(500, "General command validation failure.")
    return existing


def _check_name(world: World, named: str) -> None:
    if world.does(NAME) and not _NAME.match(named):
        raise Refusal(400, "The name has characters that it may not have.")
    if world.does(NAME) and len(named) > 50:
        raise Refusal(400, "Cannot add Storage. The name is too long.")
    if world.does(NAME_IN_USE) and any(d.name == named for d in world.domains.values()):
        raise Refusal(409, "Cannot add Storage. The storage name is in use already.")


def _not_empty() -> Refusal:
    return Refusal(400, "The selected storage path is not empty.")


def _add(
    call: Call, row: SimConnection, host: SimHost, existing: Optional[str]
) -> SimDomain:
    world, body = call.world, call.body
    server = world.export(row.export)
    failure = connect(world, host, row)
    refusal = None
    if failure:
        about = {"correlation_id": call.correlation_id, "named": body.name or ""}
        report_failure(world, host, row, failure, **about)
        refusal = Refusal(400, *([] if world.does(WORDLESS) else [failure.text]))
    elif server.domain and not existing:
        refusal = _not_empty()
    if refusal and world.does(FAILED_ADD):
        text = f"Storage Domain {body.name} could not be added."
        about = {"correlation_id": call.correlation_id, "host": host.id}
        world.log.record(957, "error", text, **about)
    if refusal:
        raise refusal
    name = existing or (new_id() if world.does(OWN_ID) else body.id or new_id())
    server.domain = name
    found = SimDomain(
        id=name,
        name=body.name or server.domain_name,
        type=body.type.value,
        storage_type=row.type,
        connection=row.id,
        comment=body.comment or "",
        description=body.description or "",
    )
    world.domains[found.id] = found
    return found
