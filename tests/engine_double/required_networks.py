# SPDX-License-Identifier: GPL-2.0-or-later
"""Required networks: what a host that comes up is held to.

NetworkClusterHelper.java and HostNetworkTopologyPersisterImpl.java of ovirt-engine
4.5.7: a required network becomes operational when all hosts that are up have it; only
then a host without it is made non_operational, when its capabilities are read.
"""

from __future__ import annotations

from typing import Optional

from engine_double.host_life import ON_UP
from engine_double.host_nics import out_of_sync
from engine_double.hosts_of_the_world import SimHost
from engine_double.world import SimCluster, World


def set_operational(
    world: World, cluster: SimCluster, network: Optional[str] = None
) -> None:
    """Say anew which networks (or this one) all hosts that are up have."""
    up = [
        host
        for host in world.hosts.values()
        if host.cluster == cluster.id and host.status == "up"
    ]
    for row in cluster.networks.values():
        if network not in (None, row.network):
            continue
        if not row.required:
            row.operational = True
        elif up:
            row.operational = all(has(host, row.network) for host in up)


def has(host: SimHost, network: str) -> bool:
    return any(one.network == network for one in host.attachments)


def missing_networks(world: World, host: SimHost) -> list[str]:
    """The names of the networks for whose lack a host becomes non_operational."""
    return [
        world.networks[row.network].name
        for row in world.clusters[host.cluster].networks.values()
        if row.required and row.operational and not has(host, row.network)
    ]


def comply(world: World, host: SimHost, correlation_id: Optional[str]) -> str:
    """Hold a host that comes up to its cluster's networks; gives what it lacks."""
    missing = missing_networks(world, host)
    if missing:
        cluster = world.clusters[host.cluster].name
        world.log.record(
            519,
            "warning",
            f"Host {host.name} does not comply with the cluster {cluster} networks, "
            f"the following networks are missing on host: '{','.join(missing)}'",
            host=host.id,
            correlation_id=correlation_id,
        )
        return ", ".join(missing)
    set_operational(world, world.clusters[host.cluster])
    differ = out_of_sync(world, host)
    if differ:
        world.log.record(
            1110,
            "warning",
            f"Host {host.name}'s following network(s) are not synchronized with their "
            f"Logical Network configuration: {','.join(differ)}.",
            host=host.id,
            correlation_id=correlation_id,
        )
    return ""


ON_UP.append(comply)
