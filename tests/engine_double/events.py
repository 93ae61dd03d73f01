# SPDX-License-Identifier: GPL-2.0-or-later
"""The audit log over REST: reading it, searching it, adding events from outside.

The newest event comes first; ``from`` gives those with a greater id
(restapi/resource/AbstractBackendCollectionResource.java:56-61).
"""

from __future__ import annotations

from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.actions import Failure
from engine_double.answers import Refusal, created, listed
from engine_double.behaviours import behaviour
from engine_double.event_log import ENGINE, SimEvent
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import with_href
from engine_double.world import World

_ADD = "bll/AddExternalEventCommand.java"
ALL_WORDS = behaviour(
    "EVENT-01",
    "An event of a client requires origin, severity, custom_id and description.",
    "restapi/resource/BackendEventsResource.java:62-69",
)
OWN_ORIGIN = behaviour(
    "EVENT-02",
    "An event of a client cannot have the engine's own origin, in any case of letters.",
    f"{_ADD}:42-46",
)
ONCE = behaviour(
    "EVENT-03",
    "An event with the same origin and custom_id as another is refused.",
    f"{_ADD}:47-51",
)
ID_IN_BODY = behaviour(
    "EVENT-04",
    "An event of a client has the correlation id that is in its body; that of the "
    "request does not count.",
    "mapper/EventMapper.java:199-201",
    "dal/dal/dbbroker/auditloghandling/AuditLogableBase.java:121-126",
)
FLOODED = behaviour(
    "EVENT-05",
    "A second event with flood_rate 0, of the same severity, user and objects, is "
    "dropped for 30 s after the first: 400 without a message. External statuses in it "
    "are set all the same. Without a flood_rate, which is 30 then, or with another, "
    "nothing is dropped.",
    "dal/dal/dbbroker/auditloghandling/EventFloodRegulator.java:44-55",
    "dal/dal/dbbroker/auditloghandling/EventKeyComposer.java:26-37",
    "common/businessentities/AuditLog.java:82",
    f"{_ADD}:68-98",
)
FLOOD_S = 30.0
NEWEST_FIRST = behaviour(
    "EVENT-06",
    "Lists of events begin with the newest; from gives those with a greater id.",
    "search/SearchObjectAutoCompleter.java:392-393",
)
# EXTERNAL_EVENT_NORMAL, _WARNING, _ERROR, EXTERNAL_ALERT (AuditLogType.java).
_CODES = {"normal": 9801, "warning": 9802, "error": 9803, "alert": 9804}
# MaxAuditLogMessageLength.
_LONGEST = 10_000


@route("GET", "/events", query=("search", "from", "max", "case_sensitive"))
def list_events(call: Call) -> Any:
    newest_first = call.world.does(NEWEST_FIRST)
    found = sorted(call.world.log.events, key=lambda one: one.id, reverse=newest_first)
    after = call.query.get("from")
    if after is not None:
        found = [one for one in found if one.id > int(after)]
    world = call.world
    fields = {
        "id": lambda one: one.id,
        "type": lambda one: one.code,
        "severity": lambda one: one.severity,
        "correlation_id": lambda one: one.correlation_id,
        # AuditLogConditionFieldAutoCompleter.java: ORIGIN, the column "origin".
        "origin": lambda one: one.origin,
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
        "correlation_id",
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
        if getattr(sent, name) is None and world.does(ALL_WORDS):
            raise Refusal(400, f"Event [{name}] required for add", reason="Incomplete")
    origin, custom_id = sent.origin or "", sent.custom_id or 0
    if origin.lower() == ENGINE.lower() and world.does(OWN_ORIGIN):
        raise Refusal(400, "Illegal Origin for External Event : oVirt")
    known_already = {(one.origin, one.custom_id) for one in world.log.events}
    if (origin, custom_id) in known_already and world.does(ONCE):
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
    severity = sent.severity.value if sent.severity else "normal"
    _set_external_statuses(world, sent)
    if _drops(world, severity, sent, about):
        raise Failure(400)
    of_body = world.does(ID_IN_BODY)
    event = world.log.record(
        _CODES[severity],
        severity,
        _short(sent.description or ""),
        correlation_id=sent.correlation_id if of_body else call.correlation_id,
        origin=origin,
        custom_id=custom_id,
        **about,
    )
    return created(_shown(world, event))


def _set_external_statuses(world: World, sent: types.Event) -> None:
    for one, objects in (
        (sent.host, world.hosts),
        (sent.storage_domain, world.domains),
    ):
        if one is not None and one.external_status is not None:
            objects[one.id].external_status = one.external_status.value


def _drops(
    world: World, severity: str, sent: types.Event, about: dict[str, Optional[str]]
) -> bool:
    """Whether an equal event was accepted a moment ago."""
    if sent.flood_rate != 0 or not world.does(FLOODED):
        return False
    until: dict[Any, float] = world.more.setdefault("flooded", {})
    # The double has one user at a time.
    key = (severity, *sorted(about.items(), key=str))
    if until.get(key, world.now()) > world.now():
        return True
    until[key] = world.now() + FLOOD_S
    return False


def _about(objects: Any, sent: Any) -> Optional[str]:
    """Return the id of the event's object; refuse a missing object."""
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
