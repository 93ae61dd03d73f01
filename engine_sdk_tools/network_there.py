# SPDX-License-Identifier: GPL-2.0-or-later
"""What is there of a network that is asked for, and what its clusters have. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.engine_facts import Cluster, Engine, Host, Network
from ovirt_rdma.engine_sdk_tools.names import listed

MIGRATION = "migration"
MANAGEMENT = "management"


@dataclass(frozen=True)
class HadMigration:
    """The network that is a cluster's migration network now, with its ``usages`` there.
    The management network is none of these: the role falls back to it by itself.
    """

    cluster: Cluster
    network: Network
    usages: tuple[str, ...]


def other_kind(there: Network, mtu: int) -> Sequence[str]:
    """Say how the network that is there differs from what is asked for."""
    found = []
    if there.vm:
        found.append(
            f"there is a network {there.name}, and it is a VM network, which cannot be "
            "on InfiniBand: take another name, or clear 'VM network' for it"
        )
    if there.vlan is not None:
        found.append(
            f"there is a network {there.name} with the VLAN tag {there.vlan}, which "
            "InfiniBand does not have"
        )
    if mtu and (there.mtu or 1500) != mtu:
        found.append(
            f"there is a network {there.name} with MTU {there.mtu or 1500}, not {mtu}: "
            "change it in the engine, or ask for that MTU"
        )
    return found


def loses_migration(
    networks: Sequence[Network], clusters: Sequence[Cluster], name: str
) -> list[str]:
    """A cluster has one migration network: say which loses the role."""
    names = {cluster.id: cluster.name for cluster in clusters}
    return [
        f"{network.name} is no longer the migration network of {names[row.cluster]}"
        for network in networks
        for row in network.clusters
        if network.name != name and row.cluster in names and MIGRATION in row.usages
    ]


def had_migration(
    networks: Sequence[Network], clusters: Sequence[Cluster], name: str
) -> tuple[HadMigration, ...]:
    """Return whose the role is that ``name`` gets, to be given back if it comes to
    that.
    """
    by_id = {cluster.id: cluster for cluster in clusters}
    return tuple(
        HadMigration(by_id[row.cluster], network, row.usages)
        for network in networks
        for row in network.clusters
        if network.name != name
        and row.cluster in by_id
        and MIGRATION in row.usages
        and MANAGEMENT not in row.usages
    )


def no_migration(
    there: Optional[Network], clusters: Sequence[Cluster]
) -> Sequence[str]:
    """A network that is in a cluster already without the role keeps being without."""
    names = {cluster.id: cluster.name for cluster in clusters}
    return [
        f"{there.name} is in the cluster {names[row.cluster]} already, without the "
        "migration role: set it there in the engine (Manage Networks)"
        for row in (there.clusters if there else ())
        if there and row.cluster in names and MIGRATION not in row.usages
    ]


def to_require(
    engine: Engine, there: Optional[Network], clusters: Sequence[Cluster]
) -> tuple[list[Cluster], list[str]]:
    """Return the clusters all of whose hosts have the network, and what the others
    lack.
    """
    ready, told = [], []
    for cluster in clusters:
        rows = [r for r in (there.clusters if there else ()) if r.cluster == cluster.id]
        if rows and rows[0].required:
            continue
        lacking = [
            host.name
            for host in engine.hosts
            if host.cluster == cluster.id and not (there and _has(host, there))
        ]
        if lacking:
            told.append(
                f"it is not required in {cluster.name} yet: {listed(lacking)} "
                "must have it first (ovirt-rdma network attach)"
            )
        else:
            ready.append(cluster)
    return ready, told


def _has(host: Host, network: Network) -> bool:
    return any(a.network == network.id for a in host.attachments or ())
