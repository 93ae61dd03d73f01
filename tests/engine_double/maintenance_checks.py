# SPDX-License-Identifier: GPL-2.0-or-later
"""Refuse to move a host to maintenance for the engine's reasons, in its order.

MaintenanceNumberOfVdssCommand.java of ovirt-engine 4.5.7, validate.
"""

from __future__ import annotations

from typing import Optional

from engine_double.answers import Refusal
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.world import World

_CLASS = "bll/MaintenanceNumberOfVdssCommand.java"
OPERATIONAL = behaviour(
    "MAINT-11",
    "A host that is coming up, being installed or rebooting cannot be deactivated.",
    f"{_CLASS}:305-311",
)
PINNED = behaviour(
    "MAINT-12",
    "A virtual machine that is pinned to its host keeps it from maintenance: 409, with "
    "its name.",
    f"{_CLASS}:335-336",
    f"{_CLASS}:346-353",
)
ALREADY = behaviour(
    "MAINT-13",
    "A host in maintenance cannot be deactivated: 409.",
    f"{_CLASS}:357-358",
)
CONTENDING = behaviour(
    "MAINT-14",
    "A host that contends for SPM cannot be deactivated: 409, to be tried again.",
    f"{_CLASS}:359-360",
)
SILENT = behaviour(
    "MAINT-15",
    "A host that does not respond cannot be deactivated while it has virtual machines "
    "or is SPM.",
    f"{_CLASS}:361-366",
)
TASKS = behaviour(
    "MAINT-16",
    "An SPM host that is up cannot be deactivated while its data center has tasks: "
    "409, to be tried again.",
    f"{_CLASS}:367-374",
)
OPERATIONS = behaviour(
    "MAINT-17",
    "A host with running operations cannot be deactivated: 409, to be tried again.",
    f"{_CLASS}:460-473",
)
ALONE = behaviour(
    "MAINT-18",
    "A host with virtual machines cannot be deactivated while no other host of its "
    "cluster is up.",
    f"{_CLASS}:392-437",
)
TOLD = behaviour(
    "MAINT-19",
    "Each deactivation that is refused beforehand is event 14001, without a host.",
    f"{_CLASS}:447-458",
)
HOSTED_ENGINE = behaviour(
    "MAINT-20",
    "The host on which the engine itself runs cannot be deactivated while no other "
    "host of the hosted engine is up.",
    f"{_CLASS}:321-333",
)
_MAINTAINABLE = (
    "up",
    "non_responsive",
    "error",
    "preparing_for_maintenance",
    "down",
    "non_operational",
    "install_failed",
    "maintenance",
)
_START = "Cannot switch Host to Maintenance mode."
# As in the engine, whose longer messages have line breaks.
_RETRY = "\nwait for operation to complete and retry."


def check_deactivation(
    world: World, host: SimHost, correlation_id: Optional[str]
) -> None:
    """Raise Refusal if ``host`` cannot move to maintenance."""
    said = _against(world, host)
    if said:
        if world.does(TOLD):
            world.log.record(14001, "error", said, correlation_id=correlation_id)
        raise Refusal(409, said)


def _against(world: World, host: SimHost) -> str:
    does = world.does
    if host.status not in _MAINTAINABLE and does(OPERATIONAL):
        return "Cannot switch Host to Maintenance mode, Host is not operational."
    if host.hosted_engine_vm in host.vms and does(HOSTED_ENGINE):
        up = [h for h in _others_up(world, host) if h.hosted_engine]
        if not up:
            return (
                "Cannot switch the Host(s) to Maintenance mode. None of the hosts that "
                "can run the engine VM is in Up state."
            )
    pinned = [vm for vm in host.vms if vm in host.pinned_vms]
    if pinned and does(PINNED):
        return (
            f"Cannot switch the following Hosts to Maintenance mode: {host.name}. "
            f"The non-migratable VMs are: {' , '.join(pinned)}."
        )
    if host.status == "maintenance" and does(ALREADY):
        return f"{_START} Host is already in Maintenance mode."
    if host.spm_contending and does(CONTENDING):
        # Time passes while it is asked again.
        world.transitions.shown(world.data_center_of(host))
        return f"{_START} Host is contending for Storage Pool Manager,{_RETRY}"
    if host.status == "non_responsive" and does(SILENT):
        if host.vms:
            return f"{_START} It does not respond and has running VMs."
        if host.spm:
            return f"{_START} It does not respond and is Storage Pool Manager."
    tasks = [t for d in world.domains_of(world.data_center_of(host)) for t in d.tasks]
    if host.spm and host.status == "up" and tasks and does(TASKS):
        return f"{_START} Host has asynchronous running tasks,{_RETRY}"
    if host.running_operations and does(OPERATIONS):
        return (
            f"Cannot switch Host {host.name} to Maintenance mode. Operations are "
            f"running on it: \n\n {', '.join(host.running_operations)} \n\n"
            "Please wait for the operations to complete and try again."
        )
    if host.vms and not _others_up(world, host) and does(ALONE):
        return (
            f"{host.name} has running VMs and cannot be switched to maintenance mode: "
            "no other host of its cluster is in UP state."
        )
    return ""


def _others_up(world: World, host: SimHost) -> list[SimHost]:
    return [
        other
        for other in world.hosts.values()
        if other.cluster == host.cluster and other is not host and other.status == "up"
    ]
