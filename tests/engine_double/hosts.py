# SPDX-License-Identifier: GPL-2.0-or-later
"""/hosts: reading hosts, maintenance, activation and refresh."""

from __future__ import annotations

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, done, listed
from engine_double.behaviours import behaviour
from engine_double.features import take_over
from engine_double.host_life import begin_activation, complies, end_storage_work
from engine_double.hosts_of_the_world import SimHost
from engine_double.maintenance import begin_maintenance
from engine_double.maintenance_checks import check_deactivation
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import follow_links, host_view

FOLLOW = ("nics", "network_attachments", "hooks", "statistics", "unmanaged_networks")
_ACTIVATE = "bll/validator/HostValidator.java:136-148"
UP_ALREADY = behaviour(
    "UP-06",
    "A host that is up cannot be activated, also while its storage is not connected.",
    _ACTIVATE,
)
SILENT = behaviour(
    "UP-07", "A host that does not respond cannot be activated.", _ACTIVATE
)
_REFRESH = "bll/RefreshHostCapabilitiesCommand.java"
REFRESHED = behaviour(
    "HOST-03",
    "A refresh of a host that cannot be reached fails with 400 and event 607; others "
    "are event 606.",
    f"{_REFRESH}:39-44",
    f"{_REFRESH}:66-69",
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
    _time_passes(call)
    return listed("hosts", shown)


@route("GET", "/hosts/{host}", query=("filter", "all_content"), follow=FOLLOW)
def get_host(call: Call) -> types.Host:
    shown = _shown(call, known(call.world.hosts, call.ids["host"]))
    _time_passes(call)
    return shown


def _time_passes(call: Call) -> None:
    """Advance the move of SPM when hosts are read."""
    for centre in call.world.data_centers:
        call.world.transitions.shown(centre)


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
    check_deactivation(world, host, call.correlation_id)
    begin_maintenance(world, host, call.body.reason or "", call.correlation_id)
    return done()


@route("POST", "/hosts/{host}/activate", root="action")
def activate(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    if host.status == "up" and call.world.does(UP_ALREADY):
        raise Refusal(409, "Cannot activate Host. Host in Up status.")
    if host.status == "non_responsive" and call.world.does(SILENT):
        raise Refusal(409, "Cannot activate Host. Host is in non responsive state.")
    begin_activation(call.world, host, call.correlation_id)
    return done()


@route("POST", "/hosts/{host}/refresh", root="action")
def refresh(call: Call) -> Answer:
    host = known(call.world.hosts, call.ids["host"])
    about = {"correlation_id": call.correlation_id, "host": host.id}
    end_storage_work(call.world, host)
    if not host.reachable and call.world.does(REFRESHED):
        text = f"The capabilities of host {host.name} could not be refreshed."
        call.world.log.record(607, "error", text, **about)
        raise Refusal(400, text)
    take_over(call.world, host)
    text = f"The capabilities of host {host.name} were refreshed."
    call.world.log.record(606, "normal", text, **about)
    if host.status in ("up", "non_operational"):
        complies(call.world, host, call.correlation_id)
    return done()
