# SPDX-License-Identifier: GPL-2.0-or-later
"""Move a host to maintenance: its virtual machines, its storage, SPM.

MaintenanceNumberOfVdssCommand.java, MaintenanceVdsCommand.java and
MigrateMultipleVmsCommand.java of ovirt-engine 4.5.7.
"""

from __future__ import annotations

from typing import Any, Optional

from engine_double.answers import Refusal
from engine_double.behaviours import behaviour
from engine_double.host_life import connect_storage, disconnect_storage, lose_spm
from engine_double.world import After, SimHost, World

BEFORE_DISCONNECT = behaviour(
    "MAINT-01",
    "A host is shown in maintenance before its storage is disconnected.",
    "vdsbroker/monitoring/HostMonitoring.java:107-124",
    "vdsbroker/monitoring/HostMonitoring.java:479-481",
    "bll/VdsEventListener.java:162-197",
)
NOT_ALL_GO = behaviour(
    "MAINT-02",
    "Where no host can take one of several virtual machines now, the deactivation "
    "fails with 400 and no message, and event 602 with the request's correlation id; "
    "the host stays preparing_for_maintenance, and the others go.",
    "bll/MigrateMultipleVmsCommand.java:142-143",
    "bll/MaintenanceVdsCommand.java:93-98",
    "bll/MaintenanceNumberOfVdssCommand.java:233-241",
    "restapi/resource/BackendResource.java:250-256",
)
NONE_GOES = behaviour(
    "MAINT-03",
    "Where no host can take any of its virtual machines now, the deactivation is "
    "refused with 409 and the scheduler's reasons, but the host is left in "
    "preparing_for_maintenance, with event 602.",
    "bll/MigrateMultipleVmsCommand.java:121-123",
    "bll/MaintenanceVdsCommand.java:95-98",
    "bll/MaintenanceNumberOfVdssCommand.java:203-209",
    "bll/scheduling/SchedulingManager.java:968-970",
)
RETRIES = behaviour(
    "MAINT-04",
    "The engine tries again by itself, every 300 s; where a virtual machine still "
    "cannot be scheduled it writes event 17, with a correlation id of its own.",
    "bll/VdsEventListener.java:440-444",
    "bll/MaintenanceVdsCommand.java:282-290",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:177",
)
MANUAL = behaviour(
    "MAINT-05",
    "A virtual machine that people only migrate goes when a user deactivates the host; "
    "where it is still there at a retry, the engine writes event 14001 only, without a "
    "host.",
    "bll/MaintenanceNumberOfVdssCommand.java:335-336",
    "bll/MaintenanceNumberOfVdssCommand.java:447-458",
    "bll/MaintenanceVdsCommand.java:164",
)
STARTED_IS_DONE = behaviour(
    "MAINT-06",
    "A migration that begins and fails counts as done: events 600, 620, and 15 at a "
    "retry, say that the host is in maintenance while it is not; only the virtual "
    "machine's event, 140, tells.",
    "bll/MigrateMultipleVmsCommand.java:145-176",
    "bll/MaintenanceVdsCommand.java:282-301",
    "bll/MigrateVmCommand.java:881-885",
)
NO_LAST_EVENT = behaviour(
    "MAINT-07",
    "When a host has come to maintenance, no event says so.",
    "vdsbroker/monitoring/HostMonitoring.java:876-894",
    "bll/VdsEventListener.java:162-168",
)
AT_ONCE = behaviour(
    "MAINT-08",
    "A host that is down or does not respond is in maintenance at once, and the engine "
    "does not disconnect its storage.",
    "bll/MaintenanceVdsCommand.java:101-105",
    "common/businessentities/VDSStatus.java:58-67",
)
SPM_FIRST = behaviour(
    "MAINT-09",
    "SPM leaves the host with the deactivation; if it cannot be stopped the answer is "
    "200, the host stays up, and event 27 tells, without a correlation id.",
    "vdsbroker/SetVdsStatusVDSCommand.java:37-60",
    "bll/MaintenanceNumberOfVdssCommand.java:128-138",
)
CONNECTS_FIRST = behaviour(
    "MAINT-10",
    "A host that is up and not connected yet can be deactivated; it is connected "
    "first, with event 13.",
    "bll/MaintenanceNumberOfVdssCommand.java:305-311",
    "vdsbroker/VdsManager.java:361-404",
)


def begin_maintenance(
    world: World, host: SimHost, reason: str, correlation_id: Optional[str]
) -> None:
    """Deactivate ``host`` for a user; raises Refusal if the engine refuses late."""
    about: dict[str, Any] = {"correlation_id": correlation_id, "host": host.id}
    if host.status in ("down", "non_responsive") and world.does(AT_ONCE):
        lose_spm(world, host)
        _record_done(world, host, reason, about)
        host.status = "maintenance"
        return
    if host.spm and world.does(SPM_FIRST) and not _stops_spm(world, host):
        return
    host.disconnecting = False
    host.status = "preparing_for_maintenance"
    refused = _send_away(world, host, by_user=True)
    if refused is None:
        _record_done(world, host, reason, about)
    else:
        text = f"Host {host.name} cannot be switched to maintenance: not all goes away."
        world.log.record(602, "warning", text, **about)
    if not world.does(CONNECTS_FIRST):
        host.connecting = False
    _wait_empty(world, host)
    if refused is not None:
        raise refused


def _stops_spm(world: World, host: SimHost) -> bool:
    if host.spm_stop_fails > 0:
        host.spm_stop_fails -= 1
        text = f"The status of host {host.name} did not change: SPM did not stop."
        world.log.record(27, "warning", text, host=host.id)
        return False
    lose_spm(world, host)
    return True


def _record_done(
    world: World, host: SimHost, reason: str, about: dict[str, Any]
) -> None:
    text = f"Host {host.name} was switched to Maintenance mode"
    if reason:
        world.log.record(600, "normal", f"{text} (Reason: {reason}).", **about)
    else:
        world.log.record(620, "normal", f"{text}.", **about)


def _send_away(world: World, host: SimHost, by_user: bool) -> Optional[Refusal]:
    """Begin the migrations; return the message if some cannot begin."""
    others = _others(world, host)
    unscheduled = [vm for vm in host.vms if vm in host.unscheduled_vms or not others]
    host.more["leaving"] = [vm for vm in host.vms if vm not in unscheduled]
    if not unscheduled:
        return None
    if host.more["leaving"]:
        return Refusal(400) if not by_user or world.does(NOT_ALL_GO) else None
    if by_user and not world.does(NONE_GOES):
        return None
    return Refusal(
        409,
        "There is no host that satisfies current scheduling constraints.",
        *(f"The host {other.name} did not satisfy a filter." for other in others),
    )


def _others(world: World, host: SimHost) -> list[SimHost]:
    """Return the hosts that could run its virtual machines."""
    return [
        other
        for other in world.hosts.values()
        if other.cluster == host.cluster and other is not host and other.status == "up"
    ]


def _wait_empty(world: World, host: SimHost) -> None:
    """Enter maintenance when no virtual machine is left; else try again."""

    def migrated() -> None:
        connect_storage(world, host)
        if host.status != "preparing_for_maintenance":
            return
        _migrate(world, host)
        if host.vms:
            world.transitions.begin(host.id, After(world.retry_reads, again))
        else:
            _in_maintenance(world, host)

    def again() -> None:
        _retry(world, host)
        migrated()

    world.transitions.begin(host.id, migrated)


def _migrate(world: World, host: SimHost) -> None:
    """Let those leave whose migration has begun, except those that hang."""
    others = _others(world, host)
    for number, name in enumerate(host.more.pop("leaving", [])):
        if name not in host.vms:
            continue
        if name in host.stuck_vms or not others:
            if world.does(STARTED_IS_DONE):
                text = f"Migration failed (VM: {name}, Source: {host.name})."
                code, severity = 140, "error"
            else:
                text = f"Host {host.name} stays: {name} does not go away."
                code, severity = 602, "warning"
            about = {"correlation_id": world.own_correlation_id(), "host": host.id}
            world.log.record(code, severity, text, **about)
            continue
        host.vms.remove(name)
        others[number % len(others)].vms.append(name)


def _retry(world: World, host: SimHost) -> None:
    """Do what the engine does every HostPreparingForMaintenanceIdleTime."""
    about: dict[str, Any] = {"correlation_id": world.own_correlation_id()}
    staying = [vm for vm in host.vms if vm in (*host.pinned_vms, *host.manual_vms)]
    if staying and world.does(MANUAL):
        names = " , ".join(staying)
        text = f"{host.name} cannot be switched to maintenance: {names} cannot migrate."
        world.log.record(14001, "error", text, **about)
        host.more["leaving"] = []
        return
    refused = _send_away(world, host, by_user=False)
    if refused is not None:
        if world.does(RETRIES):
            text = f"Host {host.name} could not be switched to Maintenance mode."
            world.log.record(17, "error", text, host=host.id, **about)
    elif world.does(STARTED_IS_DONE):
        text = f"Host {host.name} was switched to Maintenance Mode."
        world.log.record(15, "normal", text, host=host.id, **about)


def _in_maintenance(world: World, host: SimHost) -> None:
    host.status = "maintenance"
    # If the engine's SPM did not move first.
    lose_spm(world, host)
    if not world.does(NO_LAST_EVENT):
        text = f"Host {host.name} was switched to Maintenance Mode."
        world.log.record(15, "normal", text, host=host.id)
    if not host.reachable:
        return
    host.disconnecting = True
    if world.does(BEFORE_DISCONNECT):
        reads = max(1, world.connecting_reads)
        done = After(reads, lambda: disconnect_storage(world, host))
        world.transitions.begin(host.id, done)
    else:
        disconnect_storage(world, host)


# -- what is refused beforehand, in the order of MaintenanceNumberOfVdssCommand.java

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
    if host.running_operations and does(OPERATIONS):
        return (
            f"Cannot switch Host {host.name} to Maintenance mode. Operations are "
            f"running on it: \n\n {', '.join(host.running_operations)} \n\n"
            "Please wait for the operations to complete and try again."
        )
    if host.vms and not _others(world, host) and does(ALONE):
        return (
            f"{host.name} has running VMs and cannot be switched to maintenance mode: "
            "no other host of its cluster is in UP state."
        )
    return ""
