# SPDX-License-Identifier: GPL-2.0-or-later
"""Refuse to attach, detach, activate or deactivate a domain, as the engine does."""

from __future__ import annotations

from typing import Optional

from engine_double.answers import Refusal
from engine_double.behaviours import Behaviour, behaviour
from engine_double.world import SimDataCenter, SimDomain, World

_SD = "bll/storage/domain"
_DEACTIVATE = f"{_SD}/DeactivateStorageDomainCommand.java"
_ATTACH = f"{_SD}/AttachStorageDomainToPoolCommand.java"
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
LAST_MASTER = behaviour(
    "DOMAIN-07",
    "The master is detached only as the last domain.",
    f"{_SD}/StorageDomainCommandBase.java:122-131",
)
ONE_CENTRE = behaviour(
    "DOMAIN-08",
    "A data domain that is attached is not attached again.",
    f"{_RELATION}:102-110",
)
ONE_ISO = behaviour(
    "DOMAIN-09",
    "A data center has one ISO domain and one export domain.",
    f"{_RELATION}:51-76",
)
FIRST_IS_DATA = behaviour(
    "DOMAIN-10",
    "The first domain of a data center is a data domain.",
    f"{_ATTACH}:329-332",
)
TRANSFERS = behaviour(
    "DOMAIN-11",
    "A domain is not deactivated while images of it are uploaded or downloaded.",
    f"{_DEACTIVATE}:201-214",
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
    "A domain is not deactivated while running VMs have leases or CDs on it, or run "
    "from it.",
    f"{_DEACTIVATE}:161-171",
)
TASKS = behaviour(
    "DOMAIN-15",
    "A domain other than ISO is not deactivated while it has tasks, the master not "
    "while any domain has.",
    f"{_DEACTIVATE}:173-188",
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
    one_only = {d.type for d in world.domains_of(centre.id)} & {"iso", "export"}
    if domain.type in one_only and world.does(ONE_ISO):
        raise Refusal(409, f"Cannot attach more than one {domain.type} domain.")
    if centre.status != "uninitialized":
        _check_master(world, centre.id)
    elif domain.type != "data" and world.does(FIRST_IS_DATA):
        raise Refusal(409, "The first domain of a data center must be a data domain.")


def check_detaching(world: World, domain: SimDomain) -> None:
    others = [d for d in world.domains_of(domain.data_center) if d is not domain]
    _check_status(world, domain, "detach", ("maintenance",))
    if not domain.master:
        _check_master(world, domain.data_center or "")
    elif others and world.does(LAST_MASTER):
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
    tasks = _tasks(world, domain, others)
    _check_status(world, domain, "deactivate", ("active", "inactive"))
    against: list[tuple[Behaviour, object, str]] = [
        (TRANSFERS, domain.image_transfers, "Images are uploaded or downloaded."),
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
        (
            IN_USE,
            domain.cds_in_use,
            f"Running VMs have a CD of it: {', '.join(domain.cds_in_use)}.",
        ),
        (IN_USE, domain.running_vms, "There are running virtual machines on it."),
        (TASKS, tasks, _about_tasks(tasks)),
    ]
    for one, found, said in against:
        if found and world.does(one):
            raise Refusal(409, f"Cannot deactivate Storage. {said}")


def _tasks(
    world: World, domain: SimDomain, others: list[SimDomain]
) -> Optional[list[str]]:
    # Without an SPM, tasks are unknown.
    if world.spm_of(domain.data_center) is None or domain.type == "iso":
        return None
    tasks = list(domain.tasks)
    if domain.master:
        tasks += [task for other in others for task in other.tasks]
    return tasks


def _about_tasks(tasks: Optional[list[str]]) -> str:
    names = ", ".join(tasks or ())
    return f"There are running tasks: {names}. Please wait until tasks will finish."
