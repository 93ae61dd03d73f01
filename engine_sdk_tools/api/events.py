# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the engine's audit log for the results of our requests.

The status of an object often does not show why a request was refused, that virtual
machines do not leave a host, or that a host which is up has connected its storage.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.sdk import types

# VDS_DETECTED: written when a host that is up has connected its storage, and not if
# that failed (InitVdsOnUpCommand.java:193-196, ovirt-engine 4.5.7). The status "up" is
# shown earlier (HostMonitoring.java:116-119). Hosts that do not become up get the event
# too (HostMonitoring.java:801-807), so it counts only for a host that is up.
DETECTED = 13
_MOST = 50
_MOST_OF_ORIGIN = 500


def newest_event(session: EngineSession) -> int:
    """Return the id of the newest event; 0 if there is none."""
    newest = _events(session, max=1)
    return int(newest[0].id) if newest else 0


def events_since(
    session: EngineSession, after: int, host: Optional[str] = None
) -> list[Any]:
    """Return the events newer than the one with the id ``after``, the oldest first:
    those about the host with the id ``host``, or all.
    """
    events = _events(session, from_=after)[::-1]
    return [event for event in events if host is None or _is_about(event, host)]


def events_of_ours(session: EngineSession) -> list[Any]:
    """Return the newest events that our requests caused, the oldest first."""
    search = f"correlation_id={session.correlation_id}"
    return _events(session, search=search, max=_MOST)[::-1]


def events_of_origin(session: EngineSession, origin: str) -> list[Any]:
    """Return the newest events that a program wrote as ``origin``, of any run and
    machine, the newest first (AuditLogConditionFieldAutoCompleter.java: ORIGIN).
    """
    return _events(session, search=f"origin={origin}", max=_MOST_OF_ORIGIN)


def reasons(events: Iterable[Any], host: Optional[str] = None) -> list[str]:
    """Return the texts of the warnings and errors among ``events``, each once: those
    about ``host``, or without it those that name no host.
    """
    bad = (
        types.LogSeverity.WARNING,
        types.LogSeverity.ERROR,
        types.LogSeverity.ALERT,
    )
    texts = [
        str(event.description)
        for event in events
        if event.severity in bad
        and event.description
        and (_is_about(event, host) if host else event.host is None)
    ]
    return list(dict.fromkeys(texts))


def _is_about(event: Any, host: str) -> bool:
    return event.host is not None and event.host.id == host


def _events(session: EngineSession, **words: Any) -> list[Any]:
    return list(session.read(Read("events", "reading the events", arguments=words)))
