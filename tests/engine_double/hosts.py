# SPDX-License-Identifier: GPL-2.0-or-later
"""/hosts: reading hosts, maintenance, activation and refresh."""

from __future__ import annotations

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, done, listed
from engine_double.host_life import begin_activation, begin_maintenance, complies
from engine_double.hosts_of_the_world import SimHost
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import follow_links, host_view

FOLLOW = ("nics", "network_attachments", "hooks", "statistics", "unmanaged_networks")
_MAINTAINABLE = (
    "up",
    "non_responsive",
    "error",
    "preparing_for_maintenance",
    "down",
    "non_operational",
    "install_failed",
)


@route(
    "GET",
    "/hosts",
    query=("search", "max", "case_sensitive", "filter", "all_content"),
    follow=FOLLOW,
)
def list_hosts(call: Call) -> Answer:
    world = call.world
    fields = {
        "name": lambda h: h.name,
        "id": lambda h: h.id,
        "status": lambda h: h.status.replace("_", ""),
        "address": lambda h: h.address,
        "cluster": lambda h: world.clusters[h.cluster].name,
        "datacenter": lambda h: world.data_centers[world.data_center_of(h)].name,
    }
    found = matching(call.query.get("search", ""), world.hosts.values(), fields)
    shown = [_shown(call, host) for host in call.first(found)]
    return listed("hosts", shown)


@route("GET", "/hosts/{host}", query=("filter", "all_content"), follow=FOLLOW)
def get_host(call: Call) -> types.Host:
    return _shown(call, known(call.world.hosts, call.ids["host"]))


def _shown(call: Call, host: SimHost) -> types.Host:
    view = host_view(call.world, host)
    if not call.flag("all_content"):
        view.hosted_engine = None
    follow_links(call.world, "hosts", call.follow, host, view)
    call.world.transitions.shown(host.id)
    return view


@route(
    "POST",
    "/hosts/{host}/deactivate",
    root="action",
    fields=("reason", "stop_gluster_service"),
)
def deactivate(call: Call) -> Answer:
    world = call.world
    host = known(world.hosts, call.ids["host"])
    start = f"Cannot switch Host {host.name} to Maintenance mode."
    if host.status == "maintenance":
        raise Refusal(409, f"{start} It is in Maintenance already.")
    if host.status not in _MAINTAINABLE:
        raise Refusal(409, f"{start} Host is not operational.")
    if host.status == "non_responsive" and host.vms:
        raise Refusal(409, f"{start} It does not respond and has virtual machines.")
    if host.status == "non_responsive" and host.spm:
        raise Refusal(409, f"{start} It does not respond and is SPM.")
    tasks = [t for d in world.domains_of(world.data_center_of(host)) for t in d.tasks]
    if host.spm and host.status == "up" and tasks:
        raise Refusal(409, f"{start} It is SPM and has tasks: {', '.join(tasks)}.")
    others = [
        other
        for other in world.hosts.values()
        if other.cluster == host.cluster and other is not host and other.status == "up"
    ]
    if host.vms and not others:
        raise Refusal(409, f"{start} No other host can run its virtual machines.")
    begin_maintenance(world, host, call.body.reason or "", call.correlation_id)
    return done()


@route("POST", "/hosts/{host}/activate", root="action")
def activate(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    # HostValidator.validateStatusForActivation.
    if host.status == "up":
        raise Refusal(409, f"Cannot activate Host {host.name}. It is Up already.")
    if host.status == "non_responsive":
        raise Refusal(409, f"Cannot activate Host {host.name}. It does not respond.")
    begin_activation(call.world, host, call.correlation_id)
    return done()


@route("POST", "/hosts/{host}/refresh", root="action")
def refresh(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    about = {"correlation_id": call.correlation_id, "host": host.id}
    if not host.reachable:
        text = f"The capabilities of host {host.name} could not be refreshed."
        call.world.log.record(607, "error", text, **about)
        raise Refusal(400, text)
    if host.status != "up":
        host.features = set(host.reported_features)
    text = f"The capabilities of host {host.name} were refreshed."
    call.world.log.record(606, "normal", text, **about)
    if host.status in ("up", "non_operational"):
        complies(call.world, host, call.correlation_id)
    return done()
