# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve /storagedomains: domains without a status, and their removal.

The virtual machines, which may prevent that, are here too.
"""

from __future__ import annotations

from typing import Any, Optional

from ovirtsdk4 import types

from engine_double import connection_rules
from engine_double.answers import Answer, Missing, Refusal, listed
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import connect, disconnect, report_failure
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import domain_view, follow_links, reference, with_href
from engine_double.world import SimDomain, World, new_id

_LIST = ("search", "max", "case_sensitive", "filter")

_DOMAIN = "bll/storage/domain"
REMOVAL_HOST = behaviour(
    "DOMAIN-31",
    "The removal of a domain requires a host, and that Up: 400 without one, 409.",
    "restapi/resource/BackendStorageDomainResource.java:134-139",
    f"{_DOMAIN}/RemoveStorageDomainCommand.java:124-138",
)
ATTACHED = behaviour(
    "DOMAIN-32",
    "A domain that is attached cannot be removed: 409; destroyed it can be, unless it "
    "is active.",
    f"{_DOMAIN}/RemoveStorageDomainCommand.java:150-152",
    f"{_DOMAIN}/ForceRemoveStorageDomainCommand.java:117-120",
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
ALL_VMS = behaviour(
    "DOMAIN-38",
    "The virtual machines of a domain are all that have a disk there, also those that "
    "are down.",
    "restapi/resource/BackendStorageDomainVmsResource.java:59-63",
    "dbscripts/vms_sp.sql:1835-1846",
)
ROW_REMOVED = behaviour(
    "DOMAIN-35",
    "The row of a domain of files is removed with it.",
    "bll/storage/connection/FileStorageHelper.java:66-75",
)


@route("GET", "/storagedomains", query=_LIST, follow=("disks", "storage_connections"))
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
    follow=("disks", "storage_connections"),
)
def get_domain(call: Call) -> types.StorageDomain:
    return _shown(call, known(call.world.domains, call.ids["domain"]))


def _shown(call: Call, found: SimDomain) -> types.StorageDomain:
    view = domain_view(call.world, found)
    follow_links(call.world, "storagedomains", call.follow, found, view)
    return view


@route(
    "DELETE",
    "/storagedomains/{domain}",
    query=("host", "format", "destroy"),
)
def remove_domain(call: Call) -> None:
    world = call.world
    found = known(world.domains, call.ids["domain"])
    if call.flag("destroy"):
        if found.status == "active" and world.does(ATTACHED):
            raise Refusal(409, "Cannot destroy Storage. Its status is Active.")
    else:
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
            raise connection_rules.no_such_host(world, named)
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


def vm_view(world: World, name: str) -> types.Vm:
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
    for domain in world.domains.values():
        if name in domain.leases:
            view.lease = types.StorageDomainLease(
                storage_domain=reference(
                    types.StorageDomain, "storagedomains", domain.id
                )
            )
    view.placement_policy = types.VmPlacementPolicy(affinity=affinity)
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
    views = [vm_view(call.world, name) for name in found.running_vms]
    # By the domain's id, set by tests.
    down = call.world.more.get("down_vms", {}).get(found.id, [])
    for name in down if call.world.does(ALL_VMS) else ():
        view = vm_view(call.world, name)
        view.status = types.VmStatus.DOWN
        views.append(view)
    return listed("vms", call.first(views))
