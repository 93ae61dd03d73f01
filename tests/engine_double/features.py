# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve the additional features of clusters, with the defects of REST.

They are registered by SQL only, one row per cluster level.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Refusal, created, listed
from engine_double.behaviours import behaviour
from engine_double.host_life import ON_UP
from engine_double.hosts_of_the_world import SimHost
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import SimCluster, World, new_id

_REST = "restapi/resource"
WIPED = behaviour(
    "FEATURE-01",
    "Each update of a cluster disables every additional feature that the call does not "
    "bring itself, and by REST it brings one at most.",
    "bll/UpdateClusterCommand.java:661-678",
    f"{_REST}/BackendClusterEnabledFeaturesResource.java:52-67",
)
UP_HOSTS = behaviour(
    "FEATURE-02",
    "A feature is not enabled while a host that is up lacks it, which goes by the name "
    "that is sent: 400.",
    "bll/validator/ClusterValidator.java:380-407",
)
REGISTERED = behaviour(
    "FEATURE-03",
    "A feature that is not registered fails in the data base only: 400, Internal "
    "Engine Error.",
    "dbscripts/create_tables.sql:2083-2087",
    "bll/CommandBase.java:1190-1198",
)
HELD_TO = behaviour(
    "FEATURE-04",
    "A host without an enabled feature becomes non_operational when its capabilities "
    "are read; event 4149 names the first that it lacks.",
    "bll/HandleVdsVersionCommand.java:88-101",
)
ALL_REMOVED = behaviour(
    "FEATURE-05",
    "The removal of a feature disables all of them, and is 200 for one that is not "
    "enabled too.",
    f"{_REST}/BackendClusterEnabledFeatureResource.java:40-44",
    f"{_REST}/BackendClusterFeatureHelper.java:49-60",
)
BARE = behaviour(
    "FEATURE-06",
    "A cluster's enabled feature shows its id and name, and no cluster level.",
    "mapper/ClusterFeaturesMapper.java:20-28",
)
NOT_WHILE_UP = behaviour(
    "FEATURE-07",
    "What a host says of its features is taken over only while it is not up: not at a "
    "refresh of one that is.",
    "vdsbroker/VdsManager.java:839-846",
    "vdsbroker/VdsManager.java:874-885",
)


@dataclass(frozen=True)
class SimFeature:
    """A row of cluster_features; ``version`` is the cluster level, as ``4.7``."""

    id: str
    name: str
    version: str


def register(world: World, name: str, *versions: str) -> list[SimFeature]:
    """Register a feature for these levels, as the SQL of an admin does."""
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
    return [_enabled(world, cluster, every[one]) for one in sorted(cluster.features)]


def wipe(world: World, cluster: SimCluster, *kept: str) -> None:
    """Change a cluster's features as any update by REST does.

    ``kept`` are the ids that the call brings.
    """
    if not world.does(WIPED):
        kept = (*cluster.features, *kept)
    cluster.features = set(kept)


def missing_features(world: World, host: SimHost) -> list[str]:
    """The names of the enabled features that the engine thinks the host lacks."""
    every = registered(world)
    enabled = {every[one].name for one in world.clusters[host.cluster].features}
    return sorted(enabled - host.features)


def take_over(world: World, host: SimHost) -> None:
    """Store a host's features as the engine does when it reads the capabilities."""
    if host.status != "up" or not world.does(NOT_WHILE_UP):
        host.features = set(host.reported_features)


def comply(world: World, host: SimHost, correlation_id: Optional[str]) -> str:
    """Check a host that comes up for its cluster's features; return what is missing."""
    missing = missing_features(world, host) if world.does(HELD_TO) else []
    for name in missing[:1]:
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
    world = call.world
    cluster = known(world.clusters, call.ids["cluster"])
    for host in world.hosts.values() if world.does(UP_HOSTS) else ():
        up = host.cluster == cluster.id and host.status == "up"
        if up and call.body.name not in host.features:
            raise Refusal(
                400,
                "Cannot enable new Cluster feature when there are active hosts which "
                "don't support the selected feature.",
            )
    feature = registered(world).get(call.body.id or "")
    if feature is None:
        if world.does(REGISTERED):
            raise Refusal(400, "Internal Engine Error")
        feature = SimFeature(call.body.id, call.body.name or "", cluster.version)
        registered(world)[feature.id] = feature
    wipe(world, cluster, feature.id)
    return created(_enabled(world, cluster, feature))


@route("DELETE", "/clusters/{cluster}/enabledfeatures/{feature}")
def disable(call: Call) -> Any:
    cluster = known(call.world.clusters, call.ids["cluster"])
    if call.world.does(ALL_REMOVED):
        wipe(call.world, cluster)
    else:
        cluster.features.discard(call.ids["feature"])
    return None


def _enabled(
    world: World, cluster: SimCluster, feature: SimFeature
) -> types.ClusterFeature:
    view = _shown(feature, f"/clusters/{cluster.id}/enabledfeatures")
    if world.does(BARE):
        view.cluster_level = None
    return view


def _shown(feature: SimFeature, where: str) -> types.ClusterFeature:
    return with_href(
        types.ClusterFeature(
            id=feature.id,
            name=feature.name,
            cluster_level=types.ClusterLevel(id=feature.version),
        ),
        f"{where}/{feature.id}",
    )
