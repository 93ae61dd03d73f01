# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve data centers and clusters: their reads, and the mark of an upgrade, which keeps
other programs off a cluster's hosts.
"""

from __future__ import annotations

from ovirtsdk4 import types

from engine_double.answers import Answer, Missing, Refusal, done, listed
from engine_double.behaviours import behaviour
from engine_double.routing import Call, known, route
from engine_double.views import (
    cluster_view,
    data_center_view,
    follow_links,
)
from engine_double.world import World


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
