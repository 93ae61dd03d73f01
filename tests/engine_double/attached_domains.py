# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains in their data center: attach, detach, activate, deactivate, and statuses.

Each behaviour below names its source in the engine.
"""

from __future__ import annotations

from ovirtsdk4 import types

from engine_double.actions import Failure
from engine_double.answers import Answer, Missing, Refusal, created, done, listed
from engine_double.behaviours import behaviour
from engine_double.domain_checks import (
    check_activation,
    check_attaching,
    check_deactivation,
    check_detaching,
)
from engine_double.domain_life import (
    MASTER_LOCKED,
    SYNCHRONOUS,
    begin_deactivation,
    connect_up_hosts,
    end_activation,
    record,
    show,
)
from engine_double.mounts import MountFailure
from engine_double.routing import Call, known, route
from engine_double.spm import choose_spm
from engine_double.views import domain_view, followed
from engine_double.world import SimDataCenter, SimDomain, World

_ATTACH = "bll/storage/domain/AttachStorageDomainToPoolCommand.java"
_ACTIVATE = "bll/storage/domain/ActivateStorageDomainCommand.java"
STAYS = behaviour(
    "ATTACH-01",
    "Where the activation after attaching fails, attaching has succeeded: 201, and the "
    "domain is in maintenance; the first of a data center is inactive.",
    f"{_ATTACH}:219-224",
    f"{_ATTACH}:282-289",
    "bll/storage/pool/AddStoragePoolWithStoragesCommand.java:232-253",
)
NO_WORDS = behaviour(
    "ATTACH-02",
    "Where no host can mount a domain that is attached or activated, the answer is 400 "
    "without a message.",
    f"{_ATTACH}:135-140",
    f"{_ACTIVATE}:113-118",
)
TWICE = behaviour(
    "ATTACH-11",
    "Attaching lets each host mount the domain twice, first for itself and then for "
    "the activation: a host that cannot is reported twice.",
    f"{_ATTACH}:135",
    f"{_ACTIVATE}:113",
)
AT_ONCE = behaviour(
    "ATTACH-12",
    "Attaching a domain activates it before the request is answered: the answer shows "
    "it active, and event 966 comes before 962.",
    f"{_ATTACH}:219-224",
    f"{_ATTACH}:282-289",
)
OF_ITS_OWN = behaviour(
    "ATTACH-13",
    "What the activation after attaching says (events 966, 967) has a correlation id "
    "of the engine's own.",
    f"{_ATTACH}:282-289",
    "bll/Backend.java:456-471",
)
NAMED = behaviour(
    "ATTACH-03",
    "A domain to be attached is named by its id or its name.",
    "restapi/resource/BackendAttachedStorageDomainsResource.java:51-59",
)


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
    """Return the domains of a data center, with their statuses there."""
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
    check_attaching(world, centre, domain)
    up = [h for h in world.hosts_of(centre.id) if h.status == "up"]
    domain.data_center = centre.id
    show(world, domain, "locked")
    failures = connect_up_hosts(world, domain, centre.id, call.correlation_id)
    if up and len(failures) == len(up):
        domain.data_center, domain.status = None, "unattached"
        record(world, 963, "error", domain, "was not attached", call.correlation_id)
        raise _no_host(world, failures)
    first = centre.status == "uninitialized"
    if first:
        domain.master = True
        centre.status = "up"
        choose_spm(world, centre.id)
    if not world.does(AT_ONCE):
        record(world, 962, "normal", domain, "was attached", call.correlation_id)
    own = world.own_correlation_id() if world.does(OF_ITS_OWN) else call.correlation_id
    if domain.activation_fails and world.does(STAYS):
        domain.status = "inactive" if first else "maintenance"
        record(world, 967, "error", domain, "was not activated", own)
    else:
        if not first:
            show(world, domain, "activating")
        if world.does(TWICE):
            failures = connect_up_hosts(world, domain, centre.id, own)
        end_activation(world, domain, failures, own, at_once=world.does(AT_ONCE))
    if world.does(AT_ONCE):
        record(world, 962, "normal", domain, "was attached", call.correlation_id)
    return created(domain_view(world, domain, centre.id))


def _no_host(world: World, failures: dict[str, MountFailure]) -> Refusal:
    """Return the refusal if every host failed; VDSM's message is only in the events."""
    if world.does(NO_WORDS):
        return Failure(400)
    return Failure(400, *(failure.text for failure in failures.values()))


def _named(call: Call) -> SimDomain:
    for domain in call.world.domains.values():
        if call.body.id == domain.id:
            return domain
        if call.body.id is None and call.body.name == domain.name:
            return domain
    if not call.body.id and not call.body.name and call.world.does(NAMED):
        text = "StorageDomain [id|name] required for add"
        raise Refusal(400, text, reason="Incomplete parameters")
    raise Missing(call.body.id)


@route("DELETE", "/datacenters/{dc}/storagedomains/{domain}")
def detach(call: Call) -> None:
    world, domain = call.world, _found(call)
    check_detaching(world, domain)
    record(world, 964, "normal", domain, "was detached", call.correlation_id)
    if domain.master:
        world.data_centers[call.ids["dc"]].status = "uninitialized"
    domain.data_center, domain.status, domain.master = None, "unattached", False


@route("POST", "/datacenters/{dc}/storagedomains/{domain}/activate", root="action")
def activate(call: Call) -> Answer:
    world, domain = call.world, _found(call)
    check_activation(world, domain)
    up = [h for h in world.hosts_of(domain.data_center) if h.status == "up"]
    before = domain.status
    locked = domain.master and world.does(MASTER_LOCKED)
    show(world, domain, "locked" if locked else "activating")
    failures = connect_up_hosts(world, domain, domain.data_center, call.correlation_id)
    if up and len(failures) == len(up):
        domain.status = before
        text = "was not activated"
        record(world, 967, "error", domain, text, call.correlation_id)
        raise _no_host(world, failures)
    at_once = world.does(SYNCHRONOUS)
    end_activation(world, domain, failures, call.correlation_id, at_once=at_once)
    return done()


@route(
    "POST",
    "/datacenters/{dc}/storagedomains/{domain}/deactivate",
    root="action",
    fields=("force",),
)
def deactivate(call: Call) -> Answer:
    world, domain = call.world, _found(call)
    check_deactivation(world, domain)
    begin_deactivation(world, domain, bool(call.body.force), call.correlation_id)
    return done()
