# SPDX-License-Identifier: GPL-2.0-or-later
"""Bring hosts up, by activation and after a reboot; choose the storage pool manager
(SPM), and show its status while it moves.

The engine shows a host as up, and only then connects its storage: HostMonitoring.java
and InitVdsOnUpCommand.java.
"""

from __future__ import annotations

from typing import Any, Optional, Union

from engine_double.behaviours import behaviour
from engine_double.mounts import connect_domains, disconnect_all
from engine_double.world import After, SimDomain, SimHost, Stage, World

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

# host.more: nics and attachments as of the last commit, where later ones are not.
COMMITTED_NETWORKS = "committed_networks"


def begin_activation(
    world: World, host: SimHost, correlation_id: Optional[str]
) -> None:
    if world.does(WAITS):
        end_storage_work(world, host)
    host.connecting = host.disconnecting = False
    text = f"Activation of host {host.name} was initiated."
    world.log.record(16, "normal", text, correlation_id=correlation_id, host=host.id)
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
        host.status = "initializing"

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


def _to_connect(world: World, host: SimHost) -> list[SimDomain]:
    centre = world.data_centers[world.data_center_of(host)]
    if centre.status in ("uninitialized", "maintenance") and world.does(NOTHING):
        return []
    connected = ("active", "unknown", "inactive")
    return [d for d in world.domains_of(centre.id) if d.status in connected]


def lose_uncommitted(host: SimHost) -> None:
    """Restore the networks as of the last commit, as a boot does."""
    before = host.more.pop(COMMITTED_NETWORKS, None)
    if before is not None:
        host.nics, host.attachments = before


def reboot(world: World, host: SimHost) -> None:
    """Restart the host: VMs, mounts and uncommitted settings are lost.

    A host that was in maintenance comes back to it; another goes through
    non_responsive to up, and mounts everything again.
    """
    with world.lock:
        host.mounts.clear()
        host.vms.clear()
        host.connecting = host.disconnecting = False
        lose_uncommitted(host)
        if host.status in ("maintenance", "preparing_for_maintenance"):
            return
        host.status = "non_responsive"
        lose_spm(world, host)

        def back() -> None:
            host.status = "unassigned"

        stages = _coming_up(world, host, world.own_correlation_id())
        world.transitions.begin(host.id, back, *stages)


# -- the storage pool manager

MOVES = behaviour(
    "SPM-01",
    "When SPM has left a host, its data center is shown as problematic and then as "
    "contend, with the next host contending, before it is up with a new SPM.",
    "vdsbroker/irsbroker/IrsProxyImpl.java:302-316",
    "vdsbroker/irsbroker/IrsProxyImpl.java:1117-1125",
    "vdsbroker/irsbroker/IrsProxyImpl.java:348-356",
)


ALL_UNKNOWN = behaviour(
    "SPM-02",
    "While a data center is problematic, and until it is up again, its active domains "
    "are unknown.",
    "bll/storage/pool/SetStoragePoolStatusCommand.java:36-41",
    "vdsbroker/irsbroker/IrsProxyImpl.java:1277-1282",
)
SILENT = behaviour(
    "SPM-03",
    "An SPM that does not respond, and is not fenced, stays SPM: no other host takes "
    "over, the data center stays problematic and its domains unknown.",
    "vdsbroker/irsbroker/IrsProxyImpl.java:302-317",
    "vdsbroker/irsbroker/IrsProxyImpl.java:1083-1094",
)


def stop_responding(world: World, host: SimHost) -> None:
    """Let a host that has no power management stop responding."""
    host.reachable, host.status = False, "non_responsive"
    world.transitions.stop(host.id)
    if host.spm and world.does(SILENT):
        _problematic(world, world.data_center_of(host))
    else:
        lose_spm(world, host)


def lose_spm(world: World, host: SimHost) -> None:
    """Take SPM from ``host``; another Up host becomes SPM, if there is one."""
    host.spm_contending = False
    if host.spm:
        host.spm = False
        begin_moving(world, world.data_center_of(host))


def begin_moving(world: World, data_center: str) -> None:
    """Let the engine look for an SPM for a data center that has none."""
    centre = world.data_centers[data_center]
    if not world.does(MOVES) or centre.status not in ("up", "problematic", "contend"):
        choose_spm(world, data_center)
        return
    # As in the engine, the shown status stays until its next check.
    world.transitions.begin(
        data_center,
        lambda: _problematic(world, data_center),
        lambda: _contend(world, data_center),
        lambda: choose_spm(world, data_center),
    )


def _problematic(world: World, data_center: str) -> None:
    world.data_centers[data_center].status = "problematic"
    for domain in world.domains_of(data_center):
        if domain.status == "active" and world.does(ALL_UNKNOWN):
            domain.status = "unknown"


def _contend(world: World, data_center: str) -> None:
    if world.spm_of(data_center) is not None:
        return
    host = _next(world, data_center)
    if host is None:
        # It tries again; hosts that come up call choose_spm themselves.
        world.transitions.stop(data_center)
        return
    host.spm_contending = True
    world.data_centers[data_center].status = "contend"


def choose_spm(world: World, data_center: str) -> None:
    """Make an Up host SPM if there is none; a data center that waited is up."""
    centre = world.data_centers[data_center]
    if centre.status not in ("up", "problematic", "contend"):
        return
    spm = world.spm_of(data_center)
    if spm is not None and spm.status == "non_responsive" and world.does(SILENT):
        return
    if spm is None:
        host = _next(world, data_center)
        if host is None:
            return
        host.spm, host.spm_contending = True, False
    centre.status = "up"
    for domain in world.domains_of(data_center):
        # As its hosts report it when there is an SPM.
        if domain.status == "unknown" and not world.transitions.under_way(domain.id):
            domain.status = "active"


def _next(world: World, data_center: str) -> Optional[SimHost]:
    up = [h for h in world.hosts_of(data_center) if h.status == "up"]
    return next((h for h in up if h.spm_contending), up[0] if up else None)
