# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve data centers and clusters: their reads, the mark of an upgrade, which keeps
other programs off a cluster's hosts, and the additional features, which are registered
by SQL only, one row per cluster level.
"""

from __future__ import annotations

from dataclasses import dataclass

from ovirtsdk4 import types

from engine_double.answers import Answer, Missing, Refusal, done, listed
from engine_double.behaviours import behaviour
from engine_double.routing import Call, known, route
from engine_double.views import (
    cluster_view,
    data_center_view,
    follow_links,
    with_href,
)
from engine_double.world import World, new_id


@route("GET", "/datacenters")
def list_data_centers(call: Call) -> Answer:
    world, found = call.world, call.world.data_centers.values()
    shown = [
        follow_links(world, "datacenters", call.follow, dc, data_center_view(world, dc))
        for dc in found
    ]
    for dc in found:
        world.transitions.shown(dc.id)
    return listed("data_centers", shown)


@route("GET", "/datacenters/{dc}")
def get_data_center(call: Call) -> types.DataCenter:
    found = known(call.world.data_centers, call.ids["dc"])
    view = data_center_view(call.world, found)
    call.world.transitions.shown(found.id)
    return view


@route("GET", "/clusters", follow=("networks",))
def list_clusters(call: Call) -> Answer:
    world = call.world
    return listed(
        "clusters",
        [
            follow_links(world, "clusters", call.follow, one, cluster_view(world, one))
            for one in world.clusters.values()
        ],
    )


# -- upgrades

STARTED = behaviour(
    "CLUSTER-01",
    "The start of an upgrade marks the cluster with the correlation id of the body, or "
    "else of the request, and writes event 892. A cluster that is marked: 400, and "
    "event 893.",
    "restapi/resource/BackendClusterResource.java:76-97",
    "bll/StartClusterUpgradeCommand.java:45-67",
    "common/action/ClusterUpgradeParameters.java:40-47",
    "dbscripts/clusters_sp.sql:553-579",
)
FINISHED = behaviour(
    "CLUSTER-02",
    "The finish of an upgrade clears the mark, whoever has set it, and writes event "
    "894; it is 200 also without a mark.",
    "bll/FinishClusterUpgradeCommand.java:36-56",
    "dbscripts/clusters_sp.sql:607-621",
)
ID_STAYS = behaviour(
    "CLUSTER-03",
    "The correlation id of an upgrade is shown after its end, too.",
    "mapper/ClusterMapper.java:289-296",
    "dbscripts/clusters_sp.sql:607-621",
)
RESTARTED = behaviour(
    "CLUSTER-04",
    "A restart of the engine clears the marks of all clusters.",
    "bll/Backend.java:261",
    "bll/ClusterUpgradeRunningCleanupManager.java:26-30",
)


@route(
    "POST",
    "/clusters/{cluster}/upgrade",
    root="action",
    fields=("upgrade_action", "correlation_id"),
)
def upgrade(call: Call) -> Answer:
    world, action = call.world, call.body.upgrade_action
    found = known(world.clusters, call.ids["cluster"])
    about = {"correlation_id": call.correlation_id, "cluster": found.id}
    if action == types.ClusterUpgradeAction.START:
        if found.upgrade_in_progress and world.does(STARTED):
            said = f"Failed to set upgrade running flag on Host cluster {found.name}"
            world.log.record(893, "error", said, **about)
            said = f"Failed to set upgrade running flag on cluster '{found.id}'."
            raise Refusal(400, said)
        said = f"Successfully set upgrade running flag on Host cluster {found.name}"
        world.log.record(892, "normal", said, **about)
        found.upgrade_in_progress = True
        found.upgrade_correlation_id = call.body.correlation_id or call.correlation_id
    elif action == types.ClusterUpgradeAction.FINISH:
        if world.does(FINISHED):
            found.upgrade_in_progress = False
        if not world.does(ID_STAYS):
            found.upgrade_correlation_id = None
        said = f"Successfully cleared upgrade running flag on Host cluster {found.name}"
        world.log.record(894, "normal", said, **about)
    else:
        raise Missing(f"upgrade action {action}")
    return done()


def restart(world: World) -> None:
    """Clear the marks as the engine does when it starts."""
    for cluster in world.clusters.values() if world.does(RESTARTED) else ():
        cluster.upgrade_in_progress = False


# -- additional features

BARE = behaviour(
    "FEATURE-06",
    "A cluster's enabled feature shows its id and name, and no cluster level.",
    "mapper/ClusterFeaturesMapper.java:20-28",
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


@route("GET", "/clusterlevels/{level}/clusterfeatures")
def list_features(call: Call) -> Answer:
    level = call.ids["level"]
    where = f"/clusterlevels/{level}/clusterfeatures"
    found = registered(call.world).values()
    shown = [_shown(one, where) for one in found if one.version == level]
    return listed("cluster_features", shown)


@route("GET", "/clusters/{cluster}/enabledfeatures")
def list_enabled(call: Call) -> Answer:
    world = call.world
    cluster = known(world.clusters, call.ids["cluster"])
    where = f"/clusters/{cluster.id}/enabledfeatures"
    every = registered(world)
    shown = [_shown(every[name], where) for name in sorted(cluster.features)]
    for view in shown if world.does(BARE) else ():
        view.cluster_level = None
    return listed("cluster_features", shown)


def _shown(feature: SimFeature, where: str) -> types.ClusterFeature:
    return with_href(
        types.ClusterFeature(
            id=feature.id,
            name=feature.name,
            cluster_level=types.ClusterLevel(id=feature.version),
        ),
        f"{where}/{feature.id}",
    )
