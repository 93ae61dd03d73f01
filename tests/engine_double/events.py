# SPDX-License-Identifier: GPL-2.0-or-later
"""The audit log over REST: reading it, searching it, adding events from outside.

facts/engine.md, section 6. The newest event comes first; ``from`` gives those with a
greater id (BackendEventsResource.java).
"""

from __future__ import annotations

from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Refusal, created, listed
from engine_double.event_log import ENGINE, SimEvent
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import with_href
from engine_double.world import World

# EXTERNAL_EVENT_NORMAL, _WARNING, _ERROR, EXTERNAL_ALERT (AuditLogType.java).
_CODES = {"normal": 9801, "warning": 9802, "error": 9803, "alert": 9804}
# MaxAuditLogMessageLength.
_LONGEST = 10_000


@route("GET", "/events", query=("search", "from", "max", "case_sensitive"))
def list_events(call: Call) -> Any:
    found = sorted(call.world.log.events, key=lambda one: one.id, reverse=True)
    after = call.query.get("from")
    if after is not None:
        found = [one for one in found if one.id > int(after)]
    world = call.world
    fields = {
        "id": lambda one: one.id,
        "type": lambda one: one.code,
        "severity": lambda one: one.severity,
        "correlation_id": lambda one: one.correlation_id,
        "message": lambda one: one.description,
        "event_host": lambda one: _name(world.hosts, one.host),
        "host.name": lambda one: _name(world.hosts, one.host),
        "event_storage": lambda one: _name(world.domains, one.domain),
        "storage.name": lambda one: _name(world.domains, one.domain),
    }
    found = matching(call.query.get("search", ""), found, fields)
    return listed("events", [_shown(world, one) for one in call.first(found)])


@route("GET", "/events/{event}")
def get_event(call: Call) -> Any:
    events = {str(one.id): one for one in call.world.log.events}
    return _shown(call.world, known(events, call.ids["event"]))


@route(
    "POST",
    "/events",
    root="event",
    fields=(
        "origin",
        "severity",
        "custom_id",
        "description",
        "flood_rate",
        "log_on_host",
        "host.id",
        "host.external_status",
        "storage_domain.id",
        "storage_domain.external_status",
        "cluster.id",
        "data_center.id",
        "vm.id",
        "user.id",
    ),
)
def add_event(call: Call) -> Any:
    world, sent = call.world, call.body
    for name in ("origin", "severity", "custom_id", "description"):
        if getattr(sent, name) is None:
            raise Refusal(400, f"Event [{name}] required for add", reason="Incomplete")
    if sent.origin.lower() == ENGINE.lower():
        raise Refusal(400, "Illegal Origin for External Event : oVirt")
    if any(
        (one.origin, one.custom_id) == (sent.origin, sent.custom_id)
        for one in world.log.events
    ):
        raise Refusal(
            400,
            "Cannot add External Event. External Event with this custom id already "
            "exists.",
        )
    about = {
        "host": _about(world.hosts, sent.host),
        "domain": _about(world.domains, sent.storage_domain),
        "cluster": _about(world.clusters, sent.cluster),
        "data_center": _about(world.data_centers, sent.data_center),
    }
    severity = sent.severity.value
    event = world.log.record(
        _CODES[severity],
        severity,
        _short(sent.description),
        correlation_id=call.correlation_id,
        origin=sent.origin,
        custom_id=sent.custom_id,
        **about,
    )
    for one, objects in (
        (sent.host, world.hosts),
        (sent.storage_domain, world.domains),
    ):
        if one is not None and one.external_status is not None:
            objects[one.id].external_status = one.external_status.value
    return created(_shown(world, event))


def _about(objects: Any, sent: Any) -> Optional[str]:
    """The id that an event is about; one that there is not is refused."""
    if sent is None:
        return None
    name: Optional[str] = sent.id
    if name not in objects:
        raise Refusal(400, f"There is no {name}.")
    return name


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _name(objects: Any, name: Optional[str]) -> Optional[str]:
    return objects[name].name if name in objects else None


def _shown(world: World, one: SimEvent) -> types.Event:
    host = world.hosts.get(one.host or "")
    domain = world.domains.get(one.domain or "")
    return with_href(
        types.Event(
            id=str(one.id),
            index=one.id,
            code=one.code,
            severity=types.LogSeverity(one.severity),
            description=one.description,
            time=one.time,
            origin=one.origin,
            custom_id=one.custom_id,
            flood_rate=30,
            correlation_id=one.correlation_id,
            host=types.Host(id=host.id, name=host.name) if host else None,
            storage_domain=(
                types.StorageDomain(id=domain.id, name=domain.name) if domain else None
            ),
            cluster=types.Cluster(id=one.cluster) if one.cluster else None,
            data_center=types.DataCenter(id=one.data_center)
            if one.data_center
            else None,
        ),
        f"/events/{one.id}",
    )
