# SPDX-License-Identifier: GPL-2.0-or-later
"""/storagedomains: domains as such, without a status; adding and removing them.

Facts/engine.md, section 1.4. Beside it the virtual machines, which may be in a
domain's way.
"""

from __future__ import annotations

from typing import Any, Optional

from ovirtsdk4 import types

from engine_double import connection_rules
from engine_double.answers import Answer, Missing, Refusal, created, listed
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import disconnect
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import domain_view, follow_links, reference, with_href
from engine_double.world import SimConnection, SimDomain, World, new_id

_LIST = ("search", "max", "case_sensitive", "filter")


@route("GET", "/storagedomains", query=_LIST, follow=("storage_connections",))
def list_domains(call: Call) -> Answer:
    world = call.world
    fields = {
        "name": lambda d: d.name,
        "type": lambda d: d.type,
        "datacenter": lambda d: (
            world.data_centers[d.data_center].name if d.data_center else ""
        ),
    }
    found = matching(call.query.get("search", ""), world.domains.values(), fields)
    return listed("storage_domains", [_shown(call, one) for one in call.first(found)])


@route(
    "GET",
    "/storagedomains/{domain}",
    query=("filter",),
    follow=("storage_connections",),
)
def get_domain(call: Call) -> types.StorageDomain:
    return _shown(call, known(call.world.domains, call.ids["domain"]))


def _shown(call: Call, found: SimDomain) -> types.StorageDomain:
    view = domain_view(call.world, found)
    follow_links(call.world, "storagedomains", call.follow, found, view)
    return view


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
    _check_complete(body)
    host = connection_rules.host_named(world, body.host)
    made: Optional[SimConnection] = None
    if body.storage.id:
        row = known(world.connections, body.storage.id)
    else:
        row = connection_rules.from_body(body.storage)
        made = connection_rules.add(world, row, host, call.correlation_id)
    about = {"correlation_id": call.correlation_id, "host": host.id}
    try:
        found = _add(call, row, host)
    except Refusal:
        if made is not None:
            disconnect(world, host, made.id)
            del world.connections[made.id]
        text = f"Storage Domain {body.name} could not be added."
        world.log.record(957, "error", text, **about)
        raise
    text = f"Storage Domain {found.name} was added."
    world.log.record(956, "normal", text, domain=found.id, **about)
    return created(domain_view(world, found))


def _check_complete(body: Any) -> None:
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
    if missing:
        raise Refusal(
            400,
            f"StorageDomain [{', '.join(missing)}] required for add",
            reason="Incomplete parameters",
        )


def _add(call: Call, row: SimConnection, host: SimHost) -> SimDomain:
    world, body = call.world, call.body
    if not body.name:
        raise Refusal(400, "Cannot add Storage. The storage name may not be empty.")
    if any(d.name == body.name for d in world.domains.values()):
        raise Refusal(409, "Cannot add Storage. The storage name is in use already.")
    if world.domains_using(row.id):
        raise Refusal(409, "Cannot add Storage. The connection has a domain already.")
    connection_rules.check_up(host)
    server = world.export(row.export)
    # The engine looks for domains on what the host has mounted by now; what it then
    # mounts, VDSM's nfsSD._preCreateValidation looks at.
    seen = row.export in host.mounts
    connection_rules.mount_refused(world, host, row, call.correlation_id)
    if server.domain and not seen:
        raise Refusal(
            400, f"Storage domain is not empty - requires cleaning: {row.export}"
        )
    # AddExistingFileStorageDomainCommand looks for the id that was sent.
    if server.domain and body.id not in (None, server.domain):
        raise Refusal(400, f"Storage domain does not exist: {body.id}")
    # An add at a path with a domain in it becomes an import, without a word.
    name = server.domain or new_id()
    if name in world.domains:
        raise Refusal(409, "Cannot add Storage. This domain is in the engine already.")
    server.domain = name
    found = SimDomain(
        id=name,
        name=body.name,
        type=body.type.value,
        storage_type=row.type,
        connection=row.id,
        comment=body.comment or "",
        description=body.description or "",
    )
    world.domains[found.id] = found
    return found


@route(
    "DELETE",
    "/storagedomains/{domain}",
    query=("host", "format", "destroy"),
)
def remove_domain(call: Call) -> None:
    world = call.world
    found = known(world.domains, call.ids["domain"])
    if not call.flag("destroy"):
        _check_removable(world, found, call.query.get("host"))
    if call.flag("format"):
        row = world.connections.get(found.connection or "")
        if row:
            world.export(row.export).domain = None
    for host in world.hosts.values():
        disconnect(world, host, found.connection)
    # The row of a file domain goes with it.
    world.connections.pop(found.connection or "", None)
    del world.domains[found.id]
    world.transitions.stop(found.id)
    world.log.record(
        960,
        "normal",
        f"Storage Domain {found.name} was removed.",
        correlation_id=call.correlation_id,
    )


def _check_removable(world: World, found: SimDomain, named: Optional[str]) -> None:
    host = next((h for h in world.hosts.values() if named in (h.id, h.name)), None)
    if host is None:
        raise Refusal(400, "Cannot remove Storage. An invalid host was named.")
    if host.status != "up":
        raise Refusal(409, f"Cannot remove Storage. Host {host.name} is not up.")
    if found.data_center:
        raise Refusal(409, "Cannot remove Storage. It is attached to a data center.")


# -- virtual machines


def vm_view(world: World, name: str) -> types.Vm:
    """A running VM; the world knows it by its name."""
    found = new_id(f"vm {name}")
    view = types.Vm(id=found, name=name, status=types.VmStatus.UP)
    for host in world.hosts.values():
        if name in host.vms:
            view.host = reference(types.Host, "hosts", host.id)
            view.cluster = reference(types.Cluster, "clusters", host.cluster)
    for domain in world.domains.values():
        if name in domain.leases:
            view.lease = types.StorageDomainLease(
                storage_domain=reference(
                    types.StorageDomain, "storagedomains", domain.id
                )
            )
    return with_href(view, f"/vms/{found}")


def _vm_names(world: World) -> list[str]:
    of_hosts = [name for host in world.hosts.values() for name in host.vms]
    of_domains = [
        name
        for d in world.domains.values()
        for name in (*d.running_vms, *d.leases, *d.cds_in_use)
    ]
    return sorted({*of_hosts, *of_domains})


@route("GET", "/vms", query=(*_LIST, "all_content"))
def list_vms(call: Call) -> Answer:
    world = call.world

    def host_of(name: str) -> str:
        return next((h.name for h in world.hosts.values() if name in h.vms), "")

    def domain_of(name: str) -> str:
        using = (d.name for d in world.domains.values() if name in d.running_vms)
        return next(using, "")

    fields = {
        "name": str,
        "host": host_of,
        "status": lambda name: "up",
        "storage": domain_of,
        "storage.name": domain_of,
    }
    found = matching(call.query.get("search", ""), _vm_names(world), fields)
    return listed("vms", [vm_view(world, name) for name in call.first(found)])


@route("GET", "/vms/{vm}", query=("all_content", "filter"))
def get_vm(call: Call) -> types.Vm:
    for name in _vm_names(call.world):
        if new_id(f"vm {name}") == call.ids["vm"]:
            return vm_view(call.world, name)
    raise Missing(call.ids["vm"])


@route("GET", "/storagedomains/{domain}/vms", query=("max", "unregistered"))
def list_vms_of_domain(call: Call) -> Answer:
    found = known(call.world.domains, call.ids["domain"])
    if call.flag("unregistered"):
        return listed("vms", [])
    names = call.first(found.running_vms)
    return listed("vms", [vm_view(call.world, name) for name in names])
