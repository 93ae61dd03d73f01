# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose the storage pool manager, and show its status while it moves."""

from __future__ import annotations

from typing import Optional

from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.world import World

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
UP_FIRST = behaviour(
    "SPM-04",
    "When that SPM responds again, the data center is up before the SPM has reported "
    "the domains: an attachment is refused once more.",
    "vdsbroker/irsbroker/IrsProxyImpl.java:349-383",
)


def stop_responding(world: World, host: SimHost) -> None:
    """Let a host that has no power management stop responding."""
    host.reachable, host.status = False, "non_responsive"
    world.transitions.stop(host.id)
    if host.spm and world.does(SILENT):
        _problematic(world, world.data_center_of(host))
    else:
        lose_spm(world, host)


def respond_again(world: World, host: SimHost) -> None:
    """Let a host be up again, with the mounts that it had."""
    host.reachable, host.status = True, "up"
    data_center = world.data_center_of(host)
    if world.does(UP_FIRST):
        world.data_centers[data_center].status = "up"
        world.transitions.begin(data_center, lambda: choose_spm(world, data_center))
    else:
        choose_spm(world, data_center)


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
