# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve /storagedomains: domains without a status, their addition on a row that is
there, or the import of one that the export holds, their disks and their removal; and
the virtual machines.
"""

from __future__ import annotations

import re
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Answer, Missing, Refusal, created, listed
from engine_double.behaviours import behaviour
from engine_double.mounts import connect, disconnect, report_failure
from engine_double.routing import Call, known, matching, route
from engine_double.views import domain_view, follow_links, reference, with_href
from engine_double.world import SimConnection, SimDomain, SimHost, World, new_id

_DOMAIN = "bll/storage/domain"


@route("GET", "/storagedomains")
def list_domains(call: Call) -> Answer:
    world = call.world
    shown = [
        follow_links(world, "storagedomains", call.follow, one, domain_view(world, one))
        for one in world.domains.values()
    ]
    return listed("storage_domains", shown)


@route("GET", "/storagedomains/{domain}")
def get_domain(call: Call) -> types.StorageDomain:
    found = known(call.world.domains, call.ids["domain"])
    return domain_view(call.world, found)


# -- adding

_REST = "restapi/resource/BackendStorageDomainsResource.java"
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
    fields=("id", "storage.type"),
    wants=("name", "type", "host.id", "storage.id"),
)
def add_domain(call: Call) -> Answer:
    world, body = call.world, call.body
    host = known(world.hosts, body.host.id)
    row = known(world.connections, body.storage.id)
    if not world.does(ANY_HOST) and host.status != "up":
        raise Refusal(409, f"Cannot add Storage. Host {host.name} must be Up.")
    if not host.reachable:
        raise Refusal(400, "Network error during communication with the Host.")
    found = _add(call, row, host, _check_add(call, row, host))
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


def _check_add(call: Call, row: SimConnection, host: SimHost) -> Optional[str]:
    """Check the request; return the id of the domain to import, if any."""
    world, body = call.world, call.body
    there = world.export(row.export).domain
    # The engine searches for domains on the mounts that the host has now.
    seen = row.export in host.mounts or not world.does(NOT_EMPTY)
    existing = there if there and seen and there not in world.domains else None
    if existing and not world.does(IMPORTED):
        existing = world.export(row.export).domain = None
    _check_name(world, body.name)
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


def _add(
    call: Call, row: SimConnection, host: SimHost, existing: Optional[str]
) -> SimDomain:
    world, body = call.world, call.body
    server = world.export(row.export)
    failure = connect(world, host, row)
    refusal = None
    if failure:
        about = {"correlation_id": call.correlation_id, "named": body.name}
        report_failure(world, host, row, failure, **about)
        refusal = Refusal(400, *([] if world.does(WORDLESS) else [failure.text]))
    elif server.domain and not existing:
        refusal = Refusal(400, "The selected storage path is not empty.")
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
        name=body.name,
        type=body.type.value,
        storage_type=row.type,
        connection=row.id,
    )
    world.domains[found.id] = found
    return found


# -- disks

OF_HOSTED_ENGINE = behaviour(
    "DOMAIN-16",
    "The hosted engine's domain has disks with content types of their own, whatever "
    "its name; other data domains have their OVF stores.",
    "common/businessentities/storage/DiskContentType.java:15-18",
    "restapi/resource/AbstractBackendStorageDomainDisksResource.java:40-60",
)
_HOSTED_ENGINE = (
    ("he_virtio_disk", "hosted_engine"),
    ("he_sanlock", "hosted_engine_sanlock"),
    ("he_metadata", "hosted_engine_metadata"),
    ("HostedEngineConfigurationImage", "hosted_engine_configuration"),
)


@route("GET", "/storagedomains/{domain}/disks")
def list_disks(call: Call) -> Answer:
    found = known(call.world.domains, call.ids["domain"])
    named: list[tuple[str, str]] = []
    if found.type == "data" and found.data_center:
        named += [("OVF_STORE", "ovf_store")] * 2
    if found.hosted_engine and call.world.does(OF_HOSTED_ENGINE):
        named += _HOSTED_ENGINE
    named += [(name, "data") for name in found.disks]
    shown = [
        _disk(found, number, *words) for number, words in enumerate(named, start=1)
    ]
    return listed("disks", shown)


def _disk(found: SimDomain, number: int, name: str, content: str) -> types.Disk:
    made = new_id(f"disk {found.id} {number}")
    disk = types.Disk(
        id=made,
        name=name,
        content_type=types.DiskContentType(content),
    )
    return with_href(disk, f"/disks/{made}")


# -- removing

REMOVAL_HOST = behaviour(
    "DOMAIN-31",
    "The removal of a domain requires a host, and that Up: 400 without one, 409.",
    "restapi/resource/BackendStorageDomainResource.java:134-139",
    f"{_DOMAIN}/RemoveStorageDomainCommand.java:124-138",
)
ATTACHED = behaviour(
    "DOMAIN-32",
    "A domain that is attached cannot be removed: 409.",
    f"{_DOMAIN}/RemoveStorageDomainCommand.java:150-152",
)
FORMATTED = behaviour(
    "DOMAIN-33",
    "A removal with format mounts the export on the host first; where that fails: 400 "
    "without a word, and the domain stays.",
    f"{_DOMAIN}/RemoveStorageDomainCommand.java:68-82",
)
STAYS_MOUNTED = behaviour(
    "DOMAIN-34",
    "A removal without format leaves the mounts as they are; with format, the named "
    "host gives its own up.",
    f"{_DOMAIN}/RemoveStorageDomainCommand.java:68-91",
)
ROW_REMOVED = behaviour(
    "DOMAIN-35",
    "The row of a domain of files is removed with it.",
    "bll/storage/connection/FileStorageHelper.java:66-75",
)


@route("DELETE", "/storagedomains/{domain}", query=("host", "format"))
def remove_domain(call: Call) -> None:
    world = call.world
    found = known(world.domains, call.ids["domain"])
    host = _removing_host(world, found, call.query.get("host"))
    if call.flag("format"):
        _format(world, found, host, call.correlation_id)
    if not world.does(STAYS_MOUNTED):
        for each in world.hosts.values():
            disconnect(world, each, found.connection)
    if world.does(ROW_REMOVED):
        world.connections.pop(found.connection or "", None)
    del world.domains[found.id]
    world.transitions.stop(found.id)
    world.log.record(
        960,
        "normal",
        f"Storage Domain {found.name} was removed.",
        correlation_id=call.correlation_id,
    )


def _removing_host(
    world: World, found: SimDomain, named: Optional[str]
) -> Optional[SimHost]:
    host = next((h for h in world.hosts.values() if named in (h.id, h.name)), None)
    if world.does(REMOVAL_HOST):
        if named is None:
            raise Refusal(400, reason="host parameter is missing")
        if host is None:
            raise Missing(named)
        if host.status != "up":
            raise Refusal(409, f"Cannot remove Storage. Host {host.name} is not up.")
    if found.data_center and world.does(ATTACHED):
        raise Refusal(409, "Cannot remove Storage. It is attached to a data center.")
    return host


def _format(
    world: World, found: SimDomain, host: Optional[SimHost], correlation_id: Any
) -> None:
    row = world.connections.get(found.connection or "")
    if row is None:
        return
    failure = connect(world, host, row) if host else None
    if host and failure and world.does(FORMATTED):
        report_failure(world, host, row, failure, found, correlation_id)
        raise Refusal(400)
    world.export(row.export).domain = None
    if host:
        disconnect(world, host, row.id)


# -- virtual machines


def _vm_view(world: World, name: str) -> types.Vm:
    """Return a running VM, which has only a name in the world."""
    found = new_id(f"vm {name}")
    view = types.Vm(id=found, name=name, status=types.VmStatus.UP)
    affinity = types.VmAffinity.MIGRATABLE
    for host in world.hosts.values():
        if name in host.vms:
            if name in host.pinned_vms:
                affinity = types.VmAffinity.PINNED
            if name in host.manual_vms:
                affinity = types.VmAffinity.USER_MIGRATABLE
            if name in host.inactive_vms:
                view.status = types.VmStatus.PAUSED
            view.host = reference(types.Host, "hosts", host.id)
            view.cluster = reference(types.Cluster, "clusters", host.cluster)
    view.placement_policy = types.VmPlacementPolicy(affinity=affinity)
    return with_href(view, f"/vms/{found}")


@route("GET", "/vms", query=("search",))
def list_vms(call: Call) -> Answer:
    names = {name for host in call.world.hosts.values() for name in host.vms}
    fields = {"status": lambda name: "up"}
    found = matching(call.query.get("search", ""), sorted(names), fields)
    return listed("vms", [_vm_view(call.world, name) for name in found])


@route("GET", "/storagedomains/{domain}/vms")
def list_vms_of_domain(call: Call) -> Answer:
    found = known(call.world.domains, call.ids["domain"])
    return listed("vms", [_vm_view(call.world, name) for name in found.running_vms])
