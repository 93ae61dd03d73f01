# SPDX-License-Identifier: GPL-2.0-or-later
"""Domains in their data center: attach, detach, activate, deactivate, and statuses."""

from __future__ import annotations

from typing import Optional

from ovirtsdk4 import types

from engine_double.answers import Answer, Missing, Refusal, created, done, listed
from engine_double.behaviours import Behaviour, behaviour
from engine_double.host_life import choose_spm, set_non_operational
from engine_double.mounts import MountFailure, connect_domains, disconnect
from engine_double.routing import Call, known, route
from engine_double.views import domain_view
from engine_double.world import SimDataCenter, SimDomain, World

_SD = "bll/storage/domain"
_ATTACH = f"{_SD}/AttachStorageDomainToPoolCommand.java"
_ACTIVATE = f"{_SD}/ActivateStorageDomainCommand.java"
_DEACTIVATE = f"{_SD}/DeactivateStorageDomainCommand.java"
_WITH_UPDATE = f"{_SD}/DeactivateStorageDomainWithOvfUpdateCommand.java"
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


def _found(call: Call) -> SimDomain:
    known(call.world.data_centers, call.ids["dc"])
    domain: SimDomain = known(call.world.domains, call.ids["domain"])
    if domain.data_center != call.ids["dc"]:
        raise Missing(domain.id)
    return domain


@route("GET", "/datacenters/{dc}/storagedomains")
def list_attached(call: Call) -> Answer:
    world, name = call.world, call.ids["dc"]
    known(world.data_centers, name)
    found = world.domains_of(name)
    shown = [domain_view(world, one, name) for one in found]
    for one in found:
        world.transitions.shown(one.id)
    return listed("storage_domains", shown)


@route("GET", "/datacenters/{dc}/storagedomains/{domain}")
def get_attached(call: Call) -> types.StorageDomain:
    domain = _found(call)
    view = domain_view(call.world, domain, domain.data_center)
    call.world.transitions.shown(domain.id)
    return view


@route(
    "POST", "/datacenters/{dc}/storagedomains", root="storage_domain", fields=("id",)
)
def attach(call: Call) -> Answer:
    world = call.world
    centre = known(world.data_centers, call.ids["dc"])
    domain = known(world.domains, call.body.id)
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
        return Refusal(400)
    return Refusal(400, *(failure.text for failure in failures.values()))


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


@route("POST", "/datacenters/{dc}/storagedomains/{domain}/deactivate", root="action")
def deactivate(call: Call) -> Answer:
    world, domain = call.world, _found(call)
    check_deactivation(world, domain)
    begin_deactivation(world, domain, call.correlation_id)
    return done()


# -- what is refused beforehand

_RELATION = "bll/validator/storage/StorageDomainToPoolRelationValidator.java"
IN_PROCESS = behaviour(
    "DOMAIN-03",
    "Of a domain that is locked, activating, detaching or preparing for maintenance, "
    "the refusal says that a related operation is in progress, with 409.",
    f"{_SD}/StorageDomainCommandBase.java:174-187",
    "common/businessentities/StorageDomainStatus.java:36-38",
)
STATUS = behaviour(
    "DOMAIN-04",
    "Domains are deactivated from active and inactive, activated from inactive, "
    "unknown and maintenance, and detached from maintenance.",
    f"{_DEACTIVATE}:216-227",
    f"{_SD}/ActivateStorageDomainCommand.java:215-226",
    f"{_SD}/StorageDomainCommandBase.java:112-117",
)
MASTER_UP = behaviour(
    "DOMAIN-05",
    "A domain that is not master is attached, detached and activated only while the "
    "master is active.",
    f"{_SD}/StorageDomainCommandBase.java:200-209",
    f"{_ATTACH}:333-335",
)
HOST_UP = behaviour(
    "DOMAIN-06",
    "A domain is attached and activated only where a host of the data center is up.",
    "bll/storage/StorageHandlingCommandBase.java:195-202",
)
DETACHED_LAST = behaviour(
    "DOMAIN-07",
    "The master is detached only as the last domain.",
    f"{_SD}/StorageDomainCommandBase.java:122-131",
)
ONE_CENTRE = behaviour(
    "DOMAIN-08",
    "A data domain that is attached is not attached again.",
    f"{_RELATION}:102-110",
)
HOSTED_ENGINE = behaviour(
    "DOMAIN-12",
    "The hosted engine's domain, whatever its name, is not deactivated.",
    f"{_DEACTIVATE}:152-154",
    "dbscripts/create_views.sql:695-706",
    "dbscripts/create_views.sql:743-747",
)
MASTER_STAYS = behaviour(
    "DOMAIN-13",
    "The master is not deactivated while only domains without data are active beside "
    "it, or while another domain is locked.",
    f"{_DEACTIVATE}:239-259",
)
IN_USE = behaviour(
    "DOMAIN-14",
    "A domain is not deactivated while running VMs have leases on it, or run from it.",
    f"{_DEACTIVATE}:161-171",
)
_BUSY = ("locked", "preparing_for_maintenance", "activating", "detaching")


def _check_status(
    world: World, domain: SimDomain, action: str, allowed: tuple[str, ...]
) -> None:
    if domain.status in allowed or not world.does(STATUS):
        return
    if domain.status in _BUSY and world.does(IN_PROCESS):
        said = "Related operation is currently in progress. Please try again later."
    else:
        said = f"The relevant Storage Domain's status is {domain.status}."
    raise Refusal(409, f"Cannot {action} Storage. {said}")


def _check_master(world: World, data_center: str) -> None:
    masters = [d for d in world.domains_of(data_center) if d.master]
    if world.does(MASTER_UP) and not any(d.status == "active" for d in masters):
        raise Refusal(409, "The master Storage Domain is not active.")


def _check_host(world: World, data_center: str) -> None:
    up = [h for h in world.hosts_of(data_center) if h.status == "up"]
    if not up and world.does(HOST_UP):
        raise Refusal(409, "There is no active Host in the Data Center.")


def check_attaching(world: World, centre: SimDataCenter, domain: SimDomain) -> None:
    _check_host(world, centre.id)
    if domain.data_center and world.does(ONE_CENTRE):
        raise Refusal(409, "Cannot attach Storage. It is in a data center already.")
    if centre.status != "uninitialized":
        _check_master(world, centre.id)


def check_detaching(world: World, domain: SimDomain) -> None:
    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    _check_status(world, domain, "detach", ("maintenance",))
    if not domain.master:
        _check_master(world, domain.data_center or "")
    elif others and world.does(DETACHED_LAST):
        raise Refusal(409, "Cannot detach the master while there are other domains.")


def check_activation(world: World, domain: SimDomain) -> None:
    allowed = ("inactive", "unknown", "maintenance", "preparing_for_maintenance")
    _check_status(world, domain, "activate", allowed)
    if not domain.master:
        _check_master(world, domain.data_center or "")
    _check_host(world, domain.data_center or "")


def check_deactivation(world: World, domain: SimDomain) -> None:
    """Refuse as DeactivateStorageDomainCommand.java does, in its order."""
    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    active = [d for d in others if d.status == "active"]
    _check_status(world, domain, "deactivate", ("active", "inactive"))
    against: list[tuple[Behaviour, object, str]] = [
        (HOSTED_ENGINE, domain.hosted_engine, "It is the hosted engine's storage."),
        (
            MASTER_STAYS,
            domain.master and active and not any(d.type == "data" for d in active),
            "The master cannot go while only domains without data stay active.",
        ),
        (
            MASTER_STAYS,
            domain.master and any(d.status in _BUSY for d in others),
            "The master cannot go while other domains are locked.",
        ),
        (
            IN_USE,
            domain.leases,
            f"Running VMs have leases on it: {', '.join(domain.leases)}.",
        ),
        (IN_USE, domain.running_vms, "There are running virtual machines on it."),
    ]
    for one, found, said in against:
        if found and world.does(one):
            raise Refusal(409, f"Cannot deactivate Storage. {said}")


# -- its next status, with the effects on hosts

_REFRESH = "bll/storage/pool/RefreshPoolSingleAsyncOperation.java"
MASTER_ONLY = behaviour(
    "DOMAIN-01",
    "A host that cannot mount a domain that is attached or activated becomes "
    "non_operational at once only where that is the master; else it stays up.",
    f"{_REFRESH}:55-88",
    f"{_ACTIVATE}:170-193",
)
TWO_STEPS = behaviour(
    "ATTACH-04",
    "A domain that is deactivated is shown as locked for its OVF update, and as "
    "preparing_for_maintenance until no host uses it.",
    f"{_WITH_UPDATE}:76-87",
    f"{_DEACTIVATE}:311-320",
    "vdsbroker/irsbroker/IrsProxyImpl.java:427-448",
)
HANDED_OVER = behaviour(
    "ATTACH-06",
    "Where the master is deactivated, another data domain becomes the master.",
    f"{_DEACTIVATE}:322-332",
)
LAST_MASTER = behaviour(
    "ATTACH-07",
    "With the last master its data center goes to maintenance, and the mount on the "
    "SPM host stays.",
    f"{_DEACTIVATE}:353-363",
    f"{_DEACTIVATE}:410-412",
)
NO_ID = behaviour(
    "ATTACH-08",
    "Event 1029, that a domain is in maintenance, has no correlation id; of the last "
    "master it is not written.",
    "vdsbroker/irsbroker/IrsProxyImpl.java:448-453",
    f"{_DEACTIVATE}:415-424",
)
UNKNOWN = behaviour(
    "ATTACH-09",
    "When the engine restarts during the OVF update, the domain is unknown, with event "
    "1009, until its hosts have reported it.",
    f"{_WITH_UPDATE}:81",
    f"{_WITH_UPDATE}:171-174",
)
MASTER_LOCKED = behaviour(
    "ATTACH-10",
    "A master that is activated is shown as locked, another domain as activating.",
    f"{_ACTIVATE}:106-109",
)
SYNCHRONOUS = behaviour(
    "ATTACH-14",
    "The activation of a domain is answered when it is active; only other clients see "
    "it locked or activating meanwhile, as while it is attached.",
    f"{_ACTIVATE}:106-144",
    f"{_SD}/AttachStorageDomainToPoolCommand.java:219-224",
    "restapi/resource/BackendResource.java:178-192",
)


def record(
    world: World,
    code: int,
    severity: str,
    domain: SimDomain,
    said: str,
    correlation_id: Optional[str],
) -> None:
    """Write an event about a domain and its data center."""
    centre = world.data_centers.get(domain.data_center or "")
    text = f"Storage Domain {domain.name} ({centre.name if centre else '-'}) {said}."
    world.log.record(
        code,
        severity,
        text,
        correlation_id=correlation_id,
        domain=domain.id,
        data_center=domain.data_center,
    )


def connect_up_hosts(
    world: World,
    domain: SimDomain,
    data_center: Optional[str],
    correlation_id: Optional[str],
) -> dict[str, MountFailure]:
    """Mount on every Up host; return the failures by host id."""
    failures = {}
    for host in world.hosts_of(data_center):
        if host.status == "up":
            failed = connect_domains(world, host, [domain], correlation_id)
            if failed:
                failures[host.id] = failed[domain.id]
    return failures


def show(world: World, domain: SimDomain, status: str) -> None:
    """Show ``status`` to other clients while the client of the request waits."""
    world.transitions.stop(domain.id)
    domain.status = status
    if world.does(SYNCHRONOUS):
        world.let_others_look(domain.id)


def end_activation(
    world: World,
    domain: SimDomain,
    failures: dict[str, MountFailure],
    correlation_id: Optional[str],
    *,
    at_once: bool,
) -> None:
    """Make it active; for a master, hosts with ``failures`` go non-operational."""

    def active() -> None:
        domain.status = "active"
        centre = world.data_centers[domain.data_center or ""]
        if domain.master:
            centre.status = "up"
            choose_spm(world, centre.id)
        record(world, 966, "normal", domain, "was activated", correlation_id)
        if domain.master or not world.does(MASTER_ONLY):
            about = {"correlation_id": correlation_id, "domain": domain.id}
            for name in failures:
                # A domain without disks may be missing:
                # bll/storage/pool/ConnectHostToStoragePoolServersCommand.java:97-98.
                host = world.hosts[name]
                if domain.type not in ("iso", "export") and host.status == "up":
                    set_non_operational(world, host, domain.name, about)

    if at_once:
        active()
    else:
        world.transitions.begin(domain.id, active)


def begin_deactivation(
    world: World, domain: SimDomain, correlation_id: Optional[str]
) -> None:
    """Lock it for the OVF update and until no host uses it, then maintenance."""
    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    domain.status = "locked"
    domain.ovf_update_runs = True

    def prepare() -> None:
        domain.ovf_update_runs = False
        domain.status = "preparing_for_maintenance"
        record(world, 968, "normal", domain, "is being deactivated", correlation_id)
        if domain.master and world.does(HANDED_OVER):
            for other in others:
                if other.type == "data" and other.status == "active":
                    domain.master, other.master = False, True
                    break
        if not world.does(TWO_STEPS):
            finish()

    def finish() -> None:
        last_master = domain.master and world.does(LAST_MASTER)
        for host in world.hosts_of(domain.data_center):
            # The explicit disconnect of the SPM host is left out for the last master.
            if not (last_master and host.spm):
                disconnect(world, host, domain.connection)
        domain.status = "maintenance"
        world.transitions.stop(domain.id)
        if last_master:
            world.data_centers[domain.data_center or ""].status = "maintenance"
            for host in world.hosts_of(domain.data_center):
                host.spm = False
        said = "is in maintenance: no host uses it any more"
        if not world.does(NO_ID):
            record(world, 1029, "normal", domain, said, correlation_id)
        elif not last_master:
            record(world, 1029, "normal", domain, said, None)

    world.transitions.begin(domain.id, prepare, finish)


def lose_ovf_updates(world: World) -> None:
    """Record event 1009 for domains that were being deactivated at a restart."""
    for domain in world.domains.values():
        if domain.ovf_update_runs:
            domain.ovf_update_runs = False
            _shown_as_unknown(world, domain)
            said = "was not deactivated: the engine restarted meanwhile"
            record(world, 1009, "warning", domain, said, None)


def _shown_as_unknown(world: World, domain: SimDomain) -> None:
    """Wait until its hosts have reported the domain, which makes it active."""

    def seen() -> None:
        domain.status = "active"

    if world.does(UNKNOWN):
        domain.status = "unknown"
        world.transitions.begin(domain.id, seen)
    else:
        seen()
        world.transitions.stop(domain.id)
