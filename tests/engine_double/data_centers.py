# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve /api, data centers and clusters: reads, and PUT of a cluster."""

from __future__ import annotations

from ovirtsdk4 import types

from engine_double.answers import Answer, listed
from engine_double.features import wipe
from engine_double.permissions import user_view
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import (
    cluster_view,
    data_center_view,
    follow_links,
    followed,
)
from engine_double.world import World

_LIST = ("search", "max", "case_sensitive", "filter")
_FOLLOW = ("clusters", "networks", "storage_domains")


@route("GET", "/")
def api(call: Call) -> types.Api:
    major, minor, build = map(int, call.world.version.split("."))
    version = types.Version(
        full_version=f"{call.world.version}-1.el9",
        major=major,
        minor=minor,
        build=build,
        revision=0,
    )
    return types.Api(
        authenticated_user=user_view(call),
        product_info=types.ProductInfo(
            name=call.world.product, vendor="ovirt.org", version=version
        ),
    )


@route("GET", "/datacenters", query=_LIST, follow=_FOLLOW)
def list_data_centers(call: Call) -> Answer:
    fields = {"name": lambda dc: dc.name, "status": lambda dc: dc.status}
    search = call.query.get("search", "")
    found = call.first(matching(search, call.world.data_centers.values(), fields))
    shown = [
        follow_links(
            call.world, "datacenters", call.follow, dc, data_center_view(call.world, dc)
        )
        for dc in found
    ]
    for dc in found:
        call.world.transitions.shown(dc.id)
    return listed("data_centers", shown)


@route("GET", "/datacenters/{dc}", query=("filter",), follow=_FOLLOW)
def get_data_center(call: Call) -> types.DataCenter:
    found = known(call.world.data_centers, call.ids["dc"])
    view = data_center_view(call.world, found)
    follow_links(call.world, "datacenters", call.follow, found, view)
    call.world.transitions.shown(found.id)
    return view


@followed("datacenters", "clusters")
def clusters_of(world: World, dc: object) -> list[types.Cluster]:
    inside = [c for c in world.clusters.values() if c.data_center == dc.id]  # type: ignore[attr-defined]
    return [cluster_view(world, one) for one in inside]


@route("GET", "/datacenters/{dc}/clusters", query=_LIST)
def list_clusters_of(call: Call) -> Answer:
    found = known(call.world.data_centers, call.ids["dc"])
    return listed("clusters", call.first(clusters_of(call.world, found)))


@route("GET", "/clusters", query=_LIST, follow=("networks", "enabled_features"))
def list_clusters(call: Call) -> Answer:
    world = call.world
    fields = {
        "name": lambda c: c.name,
        "datacenter": lambda c: world.data_centers[c.data_center].name,
    }
    found = matching(call.query.get("search", ""), world.clusters.values(), fields)
    return listed(
        "clusters",
        [
            follow_links(world, "clusters", call.follow, one, cluster_view(world, one))
            for one in call.first(found)
        ],
    )


@route(
    "GET",
    "/clusters/{cluster}",
    query=("filter",),
    follow=("networks", "enabled_features"),
)
def get_cluster(call: Call) -> types.Cluster:
    found = known(call.world.clusters, call.ids["cluster"])
    view = cluster_view(call.world, found)
    follow_links(call.world, "clusters", call.follow, found, view)
    return view


@route(
    "PUT", "/clusters/{cluster}", root="cluster", fields=("name", "description", "id")
)
def update_cluster(call: Call) -> types.Cluster:
    found = known(call.world.clusters, call.ids["cluster"])
    if call.body.name:
        found.name = call.body.name
    wipe(call.world, found)
    return cluster_view(call.world, found)
