# SPDX-License-Identifier: GPL-2.0-or-later
"""The additional features of clusters, with the defects that REST has there.

facts/engine.md, section 4: registered by SQL only, one row a cluster level; each call
that updates a cluster disables every feature that it does not bring itself; a host that
lacks an enabled one becomes non_operational when its capabilities are read.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Missing, Refusal, created, listed
from engine_double.host_life import ON_UP
from engine_double.hosts_of_the_world import SimHost
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import SimCluster, World, new_id


@dataclass(frozen=True)
class SimFeature:
    """A row of cluster_features; ``version`` is the cluster level, as ``4.7``."""

    id: str
    name: str
    version: str
    description: str = ""


def register(world: World, name: str, *versions: str) -> list[SimFeature]:
    """Enter a feature for these levels, as the SQL of an admin does."""
    new = [SimFeature(new_id(f"{name} {v}"), name, v) for v in versions]
    registered(world).update({one.id: one for one in new})
    return new


def registered(world: World) -> dict[str, SimFeature]:
    """All features that the engine knows, by their ids."""
    found: dict[str, SimFeature] = world.more.setdefault("features", {})
    return found


@followed("clusters", "enabled_features")
def enabled_of(world: World, cluster: SimCluster) -> list[types.ClusterFeature]:
    """The cluster's enabled features as the API shows them."""
    every = registered(world)
    where = f"/clusters/{cluster.id}/enabledfeatures"
    return [_shown(every[one], where) for one in sorted(cluster.features)]


def wipe(cluster: SimCluster, *kept: str) -> None:
    """What any update of a cluster by REST does to its features.

    ``kept`` are the ids that the call brings.
    """
    cluster.features = set(kept)


def missing_features(world: World, host: SimHost) -> list[str]:
    """The names of the enabled features that the engine thinks the host lacks."""
    every = registered(world)
    enabled = {every[one].name for one in world.clusters[host.cluster].features}
    return sorted(enabled - host.features)


def comply(world: World, host: SimHost, correlation_id: Optional[str]) -> str:
    """Hold a host that comes up to its cluster's features; gives what it lacks."""
    missing = missing_features(world, host)
    for name in missing:
        cluster = world.clusters[host.cluster].name
        world.log.record(
            4149,
            "error",
            f"Host {host.name} does not comply with the list of features supported by "
            f"cluster {cluster}. {name} is not supported by the Host",
            host=host.id,
            correlation_id=correlation_id,
        )
    return ", ".join(missing)


ON_UP.append(comply)


@route("GET", "/clusterlevels/{level}/clusterfeatures")
def list_features(call: Call) -> Any:
    level = call.ids["level"]
    where = f"/clusterlevels/{level}/clusterfeatures"
    found = registered(call.world).values()
    return listed(
        "cluster_features",
        [_shown(one, where) for one in found if one.version == level],
    )


@route("GET", "/clusters/{cluster}/enabledfeatures")
def list_enabled(call: Call) -> Any:
    cluster = known(call.world.clusters, call.ids["cluster"])
    return listed("cluster_features", enabled_of(call.world, cluster))


@route(
    "POST",
    "/clusters/{cluster}/enabledfeatures",
    root="cluster_feature",
    fields=("id", "name"),
)
def enable(call: Call) -> Any:
    """It wants id and name; the name is what hosts are held against."""
    world = call.world
    cluster = known(world.clusters, call.ids["cluster"])
    feature = registered(world).get(call.body.id or "")
    if feature is None or call.body.name != feature.name:
        raise Refusal(400, "The cluster feature needs its id and its name.")
    for host in world.hosts.values():
        up = host.cluster == cluster.id and host.status == "up"
        if up and feature.name not in host.features:
            raise Refusal(
                400,
                "Cannot enable new Cluster feature when there are active hosts which "
                "don't support the selected feature.",
            )
    wipe(cluster, feature.id)
    where = f"/clusters/{cluster.id}/enabledfeatures"
    return created(_shown(feature, where))


@route("DELETE", "/clusters/{cluster}/enabledfeatures/{feature}")
def disable(call: Call) -> Any:
    """Disables all of them, not only this one."""
    cluster = known(call.world.clusters, call.ids["cluster"])
    if call.ids["feature"] not in cluster.features:
        raise Missing(call.ids["feature"])
    wipe(cluster)
    return None


def _shown(feature: SimFeature, where: str) -> types.ClusterFeature:
    return with_href(
        types.ClusterFeature(
            id=feature.id,
            name=feature.name,
            description=feature.description,
            cluster_level=types.ClusterLevel(id=feature.version),
        ),
        f"{where}/{feature.id}",
    )
