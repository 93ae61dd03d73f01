# SPDX-License-Identifier: GPL-2.0-or-later
"""Check required networks when the capabilities of a host are read."""

from __future__ import annotations

from collections.abc import Collection
from typing import Optional

from engine_double.behaviours import behaviour
from engine_double.world import SimCluster, SimHost, World

OPERATIONAL = behaviour(
    "NET-17",
    "A required network is operational only where all hosts of the cluster that are up "
    "have it; one that is not required always is.",
    "bll/network/cluster/NetworkClusterHelper.java:89-146",
)
HELD_TO = behaviour(
    "NET-18",
    "A host without a required network that is operational becomes non_operational "
    "(event 519) when its capabilities are read: when it comes up, at a refresh, and "
    "after a set-up of its networks.",
    "vdsbroker/vdsbroker/HostNetworkTopologyPersisterImpl.java:108-127",
    "vdsbroker/monitoring/NetworkMonitoringHelper.java:72-83",
    "bll/network/host/HostSetupNetworksCommand.java:955-974",
)
ANEW = behaviour(
    "NET-20",
    "The activation of a host determines again which required networks are "
    "operational, by the hosts that are up without it, and before it must have them.",
    "bll/ActivateVdsCommand.java:67-75",
)
AT_MAINTENANCE = behaviour(
    "NET-39",
    "The deactivation of a host determines again which required networks are "
    "operational, by the hosts that stay up.",
    "bll/MaintenanceNumberOfVdssCommand.java:243-252",
    "bll/network/cluster/NetworkClusterHelper.java:133-146",
)
ONLY_SET_UP = behaviour(
    "NET-54",
    "A set-up determines again which required networks are operational, only of those "
    "that it attaches to the host, not of those that it removes.",
    "bll/network/host/HostSetupNetworksCommand.java:938-949",
    "bll/network/host/HostSetupNetworksCommand.java:969-970",
)


def set_operational(
    world: World, cluster: SimCluster, networks: Optional[Collection[str]] = None
) -> None:
    """Determine again which networks (or these) all hosts that are up have."""
    up = [
        host
        for host in world.hosts.values()
        if host.cluster == cluster.id and host.status == "up"
    ]
    for row in cluster.networks.values():
        if networks is not None and row.network not in networks:
            continue
        if not row.required or not world.does(OPERATIONAL):
            row.operational = True
        elif up:
            row.operational = all(has(host, row.network) for host in up)


def has(host: SimHost, network: str) -> bool:
    return any(one.network == network for one in host.attachments)


def missing_networks(world: World, host: SimHost) -> list[str]:
    """Return the names of missing networks that make a host non_operational."""
    rows = world.clusters[host.cluster].networks.values()
    return [
        world.networks[row.network].name
        for row in rows
        if row.required and row.operational and not has(host, row.network)
    ]


def host_goes(world: World, host: SimHost) -> None:
    """Update the networks when ``host`` moves to maintenance for a user."""
    if world.does(AT_MAINTENANCE):
        set_operational(world, world.clusters[host.cluster])


def lacks(world: World, host: SimHost, correlation_id: Optional[str]) -> bool:
    """Check a host whose capabilities are read, with event 519 if it lacks one."""
    if host.status not in ("up", "non_operational") and world.does(ANEW):
        set_operational(world, world.clusters[host.cluster])
    missing = missing_networks(world, host)
    if not missing or not world.does(HELD_TO):
        return False
    cluster = world.clusters[host.cluster].name
    world.log.record(
        519,
        "warning",
        f"Host {host.name} does not comply with the cluster {cluster} networks, "
        f"the following networks are missing on host: '{','.join(missing)}'",
        host=host.id,
        correlation_id=correlation_id,
    )
    return True
