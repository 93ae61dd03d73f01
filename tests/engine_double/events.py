# SPDX-License-Identifier: GPL-2.0-or-later
"""The audit log over REST: reading it, searching it, adding events from outside.

The newest event comes first; ``from`` gives those with a greater id
(restapi/resource/AbstractBackendCollectionResource.java:56-61).
"""

from __future__ import annotations

from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Refusal, created, listed
from engine_double.behaviours import behaviour
from engine_double.routing import Call, matching, route
from engine_double.views import with_href
from engine_double.world import SimEvent, World

_ADD = "bll/AddExternalEventCommand.java"
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
    "dropped for 30 s after the first: 400 without a message. Without a flood_rate, "
    "which is 30 then, or with another, nothing is dropped.",
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


@route("GET", "/events", query=("search", "from", "max"))
def list_events(call: Call) -> Any:
    newest_first = call.world.does(NEWEST_FIRST)
    found = sorted(call.world.log.events, key=lambda one: one.id, reverse=newest_first)
    after = call.query.get("from")
    if after is not None:
        found = [one for one in found if one.id > int(after)]
    fields = {
        "correlation_id": lambda one: one.correlation_id,
        # AuditLogConditionFieldAutoCompleter.java: ORIGIN, the column "origin".
        "origin": lambda one: one.origin,
    }
    found = matching(call.query.get("search", ""), found, fields)
    most = int(call.query.get("max", len(found)))
    return listed("events", [_shown(call.world, one) for one in found[:most]])


@route(
    "POST",
    "/events",
    root="event",
    fields=("correlation_id", "flood_rate", "host.id"),
    wants=("origin", "severity", "custom_id", "description"),
)
def add_event(call: Call) -> Any:
    world, sent = call.world, call.body
    origin, custom_id = sent.origin, sent.custom_id
    known_already = {(one.origin, one.custom_id) for one in world.log.events}
    if (origin, custom_id) in known_already and world.does(ONCE):
        raise Refusal(
            400,
            "Cannot add External Event. External Event with this custom id already "
            "exists.",
        )
    host = sent.host.id if sent.host else None
    if host is not None and host not in world.hosts:
        raise Refusal(400, f"There is no {host}.")
    severity = sent.severity.value
    if _drops(world, severity, sent, host):
        raise Refusal(400)
    of_body = world.does(ID_IN_BODY)
    event = world.log.record(
        _CODES[severity],
        severity,
        _short(sent.description),
        correlation_id=sent.correlation_id if of_body else call.correlation_id,
        origin=origin,
        custom_id=custom_id,
        host=host,
    )
    return created(_shown(world, event))


def _drops(world: World, severity: str, sent: types.Event, host: Optional[str]) -> bool:
    """Whether an equal event was accepted a moment ago."""
    if sent.flood_rate != 0 or not world.does(FLOODED):
        return False
    until: dict[Any, float] = world.more.setdefault("flooded", {})
    # The double has one user at a time.
    key = severity, host
    if until.get(key, world.seconds) > world.seconds:
        return True
    until[key] = world.seconds + FLOOD_S
    return False


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 3]}..."


def _shown(world: World, one: SimEvent) -> types.Event:
    host = world.hosts.get(one.host or "")
    return with_href(
        types.Event(
            id=str(one.id),
            code=one.code,
            severity=types.LogSeverity(one.severity),
            description=one.description,
            time=one.time,
            origin=one.origin,
            custom_id=one.custom_id,
            correlation_id=one.correlation_id,
            host=types.Host(id=host.id, name=host.name) if host else None,
        ),
        f"/events/{one.id}",
    )
