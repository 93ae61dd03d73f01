# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains in their data center: attach, detach, activate, deactivate, and statuses.

Facts/engine.md, sections 1.4 and 1.5.
"""

from __future__ import annotations

from ovirtsdk4 import types

from engine_double.answers import Answer, Missing, Refusal, created, done, listed
from engine_double.domain_life import (
    begin_activation,
    begin_deactivation,
    connect_up_hosts,
    record,
)
from engine_double.routing import Call, known, route
from engine_double.views import domain_view, followed
from engine_double.world import SimDataCenter, SimDomain, World

_BUSY = ("locked", "preparing_for_maintenance", "activating", "detaching")


def _found(call: Call) -> SimDomain:
    known(call.world.data_centers, call.ids["dc"])
    domain: SimDomain = known(call.world.domains, call.ids["domain"])
    if domain.data_center != call.ids["dc"]:
        raise Missing(domain.id)
    return domain


@route("GET", "/datacenters/{dc}/storagedomains", query=("max",))
def list_attached(call: Call) -> Answer:
    world, name = call.world, call.ids["dc"]
    known(world.data_centers, name)
    found = call.first(world.domains_of(name))
    return listed("storage_domains", _shown(world, found, name))


@followed("datacenters", "storage_domains")
def attached_to(world: World, data_center: SimDataCenter) -> list[types.StorageDomain]:
    """The domains of a data center as it sees them, with their statuses."""
    return _shown(world, world.domains_of(data_center.id), data_center.id)


def _shown(
    world: World, found: list[SimDomain], name: str
) -> list[types.StorageDomain]:
    shown = [domain_view(world, one, name) for one in found]
    for one in found:
        world.transitions.shown(one.id)
    return shown


@route("GET", "/datacenters/{dc}/storagedomains/{domain}")
def get_attached(call: Call) -> types.StorageDomain:
    domain = _found(call)
    view = domain_view(call.world, domain, domain.data_center)
    call.world.transitions.shown(domain.id)
    return view


@route(
    "POST",
    "/datacenters/{dc}/storagedomains",
    root="storage_domain",
    fields=("id", "name"),
)
def attach(call: Call) -> Answer:
    world = call.world
    centre = known(world.data_centers, call.ids["dc"])
    domain = _named(call)
    if domain.data_center:
        raise Refusal(409, "Cannot attach Storage. It is in a data center already.")
    one_only = {d.type for d in world.domains_of(centre.id)} & {"iso", "export"}
    if domain.type in one_only:
        raise Refusal(409, f"Cannot attach more than one {domain.type} domain.")
    up = [h for h in world.hosts_of(centre.id) if h.status == "up"]
    if not up:
        raise Refusal(409, "There is no active Host in the Data Center.")
    masters = [d for d in world.domains_of(centre.id) if d.master]
    if centre.status != "uninitialized" and not any(
        d.status == "active" for d in masters
    ):
        raise Refusal(409, "The master Storage Domain is not active.")
    if centre.status == "uninitialized" and domain.type != "data":
        raise Refusal(409, "The first domain of a data center must be a data domain.")
    failures = connect_up_hosts(world, domain, centre.id, call.correlation_id)
    if len(failures) == len(up):
        record(world, 963, "error", domain, "was not attached", call.correlation_id)
        raise Refusal(400, next(iter(failures.values())).text)
    domain.data_center = centre.id
    if centre.status == "uninitialized":
        domain.master = True
        centre.status = "up"
        up[0].spm = True
    record(world, 962, "normal", domain, "was attached", call.correlation_id)
    begin_activation(world, domain, "locked", failures, call.correlation_id)
    return created(domain_view(world, domain, centre.id))


def _named(call: Call) -> SimDomain:
    for domain in call.world.domains.values():
        if call.body.id == domain.id:
            return domain
        if call.body.id is None and call.body.name == domain.name:
            return domain
    if not call.body.id and not call.body.name:
        text = "StorageDomain [id|name] required for add"
        raise Refusal(400, text, reason="Incomplete parameters")
    raise Missing(call.body.id)


@route("DELETE", "/datacenters/{dc}/storagedomains/{domain}")
def detach(call: Call) -> None:
    world, domain = call.world, _found(call)
    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    if domain.status != "maintenance":
        raise Refusal(
            409,
            "Cannot detach Storage. The relevant Storage Domain's status is "
            f"{domain.status}.",
        )
    if domain.master and others:
        raise Refusal(409, "Cannot detach the master while there are other domains.")
    if not domain.master and not any(d.master and d.status == "active" for d in others):
        raise Refusal(409, "The master Storage Domain is not active.")
    record(world, 964, "normal", domain, "was detached", call.correlation_id)
    if domain.master:
        world.data_centers[call.ids["dc"]].status = "uninitialized"
    domain.data_center, domain.status, domain.master = None, "unattached", False


@route("POST", "/datacenters/{dc}/storagedomains/{domain}/activate", root="action")
def activate(call: Call) -> Answer:
    world, domain = call.world, _found(call)
    allowed = ("inactive", "unknown", "maintenance", "preparing_for_maintenance")
    if domain.status not in allowed:
        raise Refusal(
            409,
            "Cannot activate Storage. The relevant Storage Domain's status is "
            f"{domain.status}.",
        )
    masters = [d for d in world.domains_of(domain.data_center) if d.master]
    if not domain.master and not any(d.status == "active" for d in masters):
        raise Refusal(409, "The master Storage Domain is not active.")
    up = [h for h in world.hosts_of(domain.data_center) if h.status == "up"]
    if not up:
        raise Refusal(409, "There is no active Host in the Data Center.")
    failures = connect_up_hosts(world, domain, domain.data_center, call.correlation_id)
    if len(failures) == len(up):
        text = "was not activated"
        record(world, 967, "error", domain, text, call.correlation_id)
        raise Refusal(400, next(iter(failures.values())).text)
    # The master never shows the status activating.
    first = "locked" if domain.master else "activating"
    begin_activation(world, domain, first, failures, call.correlation_id)
    return done()


@route(
    "POST",
    "/datacenters/{dc}/storagedomains/{domain}/deactivate",
    root="action",
    fields=("force",),
)
def deactivate(call: Call) -> Answer:
    world, domain = call.world, _found(call)
    _check_deactivation(world, domain)
    begin_deactivation(world, domain, bool(call.body.force), call.correlation_id)
    return done()


def _check_deactivation(world: World, domain: SimDomain) -> None:
    """Refuse as DeactivateStorageDomainCommand.java does, in its order."""

    def refuse(said: str) -> None:
        raise Refusal(409, f"Cannot deactivate Storage. {said}")

    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    active = [d for d in others if d.status == "active"]
    if domain.status not in ("active", "inactive"):
        refuse(f"The relevant Storage Domain's status is {domain.status}.")
    if domain.image_transfers:
        refuse("Images are being uploaded or downloaded.")
    if domain.hosted_engine:
        refuse("It is the storage of the hosted engine.")
    if domain.master and active and not any(d.type == "data" for d in active):
        refuse("The master cannot go while only domains without data stay active.")
    if domain.master and any(d.status in _BUSY for d in others):
        refuse("The master cannot go while other domains are locked.")
    if domain.leases:
        refuse(f"Running VMs have leases on it: {', '.join(domain.leases)}.")
    if domain.cds_in_use:
        refuse(f"Running VMs have a CD of it: {', '.join(domain.cds_in_use)}.")
    if domain.running_vms:
        refuse("There are running virtual machines on it.")
    if world.spm_of(domain.data_center) is not None:
        tasks = list(domain.tasks)
        if domain.master:
            tasks += [task for other in others for task in other.tasks]
        if tasks and domain.type != "iso":
            refuse(f"There are running tasks: {', '.join(tasks)}.")
