# SPDX-License-Identifier: GPL-2.0-or-later
"""Bring hosts up: by activation, by the engine's autorecovery, and after a reboot.

The engine shows a host as up, and only then connects its storage: HostMonitoring.java
and InitVdsOnUpCommand.java.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Optional, Union

from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.mounts import connect_domains, disconnect_all
from engine_double.spm import choose_spm, lose_spm
from engine_double.transitions import After, Stage
from engine_double.world import SimDomain, World

UP_FIRST = behaviour(
    "UP-01",
    "A host is shown as up before its storage is connected, for as long as that takes; "
    "if it fails, the host goes from up to non_operational, and event 13 is not "
    "written.",
    "vdsbroker/monitoring/HostMonitoring.java:111-119",
    "bll/InitVdsOnUpCommand.java:193-196",
    "bll/InitVdsOnUpCommand.java:291-326",
)
OWN_ID = behaviour(
    "UP-02",
    "Event 13 and what the engine tells of a host that comes up have a correlation id "
    "of the engine's own, not that of the activation.",
    "bll/VdsEventListener.java:333-338",
    "bll/job/ExecutionHandler.java:771-780",
)
INACTIVE_TOO = behaviour(
    "UP-03",
    "A host that comes up has to connect domains that are inactive or unknown, too.",
    "bll/storage/pool/ConnectHostToStoragePoolServerCommandBase.java:53-63",
)
IGNORED = behaviour(
    "UP-09",
    "A host that comes up tries ISO and export domains too, and is up where that "
    "fails; events 188 and 996 tell.",
    "bll/storage/pool/ConnectHostToStoragePoolServersCommand.java:94-114",
)
WAITS = behaviour(
    "UP-04",
    "Activation waits until the engine has connected or disconnected the host's "
    "storage.",
    "bll/ActivateVdsCommand.java:65",
    "vdsbroker/VdsManager.java:361-404",
)
NO_NAMES = behaviour(
    "UP-05",
    "Where a host that comes up cannot connect its storage, event 522 does not name "
    "the domains; events 994 and 995 come with it.",
    "bll/InitVdsOnUpCommand.java:317-324",
    "bll/storage/pool/ConnectHostToStoragePoolServersCommand.java:53-56",
)

NOTHING = behaviour(
    "UP-08",
    "Of a data center that is uninitialized or in maintenance, a host that comes up "
    "connects nothing.",
    "bll/InitVdsOnUpCommand.java:294-299",
)

# Requirements for a host that comes up, called with (world, host, correlation id): each
# returns the reason why the host becomes non_operational, or "". Networks and features
# add theirs.
ON_UP: list[Callable[[World, SimHost, Optional[str]], str]] = []
# Called when a host has lost its uncommitted settings.
ON_REBOOT: list[Callable[[World, SimHost], None]] = []


def begin_activation(
    world: World, host: SimHost, correlation_id: Optional[str], code: int = 16
) -> None:
    if world.does(WAITS):
        end_storage_work(world, host)
    host.connecting = host.disconnecting = False
    text = f"Activation of host {host.name} was initiated."
    world.log.record(code, "normal", text, correlation_id=correlation_id, host=host.id)
    host.status = "unassigned"
    own = world.own_correlation_id() if world.does(OWN_ID) else correlation_id
    world.transitions.begin(host.id, *_coming_up(world, host, own))


def _coming_up(
    world: World, host: SimHost, correlation_id: Optional[str]
) -> list[Union[Stage, After]]:
    def initialize() -> None:
        if not host.reachable:
            host.status = "non_responsive"
            world.transitions.stop(host.id)
            return
        # Only while it is not Up: vdsbroker/monitoring/HostMonitoring.java:139-147,
        # vdsbroker/VdsManager.java:874-885.
        host.features = set(host.reported_features)
        host.status = "initializing"
        if not complies(world, host, correlation_id):
            world.transitions.stop(host.id)

    def up() -> None:
        host.status = "up"
        host.connecting = True
        host.more["connecting_id"] = correlation_id
        if not world.does(UP_FIRST):
            connect_storage(world, host)

    def connect() -> None:
        connect_storage(world, host)

    return [initialize, up, After(max(1, world.connecting_reads), connect)]


def connect_storage(world: World, host: SimHost) -> None:
    """Finish the engine's work for a host that is up, unless it is finished."""
    if not host.connecting:
        return
    host.connecting = False
    if host.status not in ("up", "preparing_for_maintenance"):
        # A test says otherwise.
        return
    world.transitions.stop(host.id)
    correlation_id = host.more.pop("connecting_id", None)
    domains = _to_connect(world, host)
    failed = connect_domains(world, host, domains, correlation_id)
    missed = [
        d
        for d in domains
        if d.id in failed
        and (d.type not in ("iso", "export") or not world.does(IGNORED))
        and (d.status == "active" or world.does(INACTIVE_TOO))
    ]
    about: dict[str, Any] = {"correlation_id": correlation_id, "host": host.id}
    if missed:
        _storage_missing(world, host, missed, about)
        return
    choose_spm(world, world.data_center_of(host))
    text = f"Status of host {host.name} was set to {host.status}."
    world.log.record(13, "normal", text, **about)


def _storage_missing(
    world: World, host: SimHost, missed: list[SimDomain], about: dict[str, Any]
) -> None:
    names = ", ".join(d.name for d in missed)
    if world.does(NO_NAMES):
        names = "<UNKNOWN>"
        text = f"Host {host.name} could not be connected to its storage servers."
        world.log.record(994, "warning", text, **about)
        text = f"Host {host.name} could not be connected to its storage pool."
        world.log.record(995, "warning", text, **about)
    else:
        about["domain"] = missed[0].id
    set_non_operational(world, host, names, about)


def set_non_operational(
    world: World, host: SimHost, names: str, about: dict[str, Any]
) -> None:
    """Make a host non-operational that does not see these domains: event 522."""
    host.status = "non_operational"
    host.connecting = False
    world.transitions.stop(host.id)
    lose_spm(world, host)
    world.log.record(
        522,
        "warning",
        f"Host {host.name} does not see the Storage Domain(s) {names} of its data "
        "center and becomes Non-Operational.",
        **{**about, "host": host.id},
    )


def end_storage_work(world: World, host: SimHost) -> None:
    """Let the engine finish connecting or disconnecting, during which it has a lock."""
    connect_storage(world, host)
    disconnect_storage(world, host)


def disconnect_storage(world: World, host: SimHost) -> None:
    """Finish the engine's work for a host in maintenance."""
    if host.disconnecting and host.status == "maintenance":
        world.transitions.stop(host.id)
        disconnect_all(world, host)
    host.disconnecting = False


def complies(world: World, host: SimHost, correlation_id: Optional[str]) -> bool:
    """Check the requirements of its cluster; False: the host is non_operational now."""
    for check in ON_UP:
        if check(world, host, correlation_id):
            host.status = "non_operational"
            lose_spm(world, host)
            return False
    return True


def recover(world: World) -> None:
    """Activate what is non_operational, as AutoRecoveryManager does regularly."""
    with world.lock:
        for host in world.hosts.values():
            if host.status == "non_operational":
                begin_activation(world, host, world.own_correlation_id(), 9502)


def _to_connect(world: World, host: SimHost) -> list[SimDomain]:
    centre = world.data_centers[world.data_center_of(host)]
    if centre.status in ("uninitialized", "maintenance") and world.does(NOTHING):
        return []
    connected = ("active", "unknown", "inactive")
    return [d for d in world.domains_of(centre.id) if d.status in connected]


def reboot(world: World, host: SimHost) -> None:
    """Restart the host: VMs, mounts and uncommitted settings are lost.

    A host that was in maintenance comes back to it; another goes through
    non_responsive to up, and mounts everything again.
    """
    with world.lock:
        host.mounts.clear()
        host.vms.clear()
        host.connecting = host.disconnecting = False
        for lose in ON_REBOOT:
            lose(world, host)
        if host.status in ("maintenance", "preparing_for_maintenance"):
            return
        host.status = "non_responsive"
        lose_spm(world, host)

        def back() -> None:
            host.status = "unassigned"

        stages = _coming_up(world, host, world.own_correlation_id())
        world.transitions.begin(host.id, back, *stages)
