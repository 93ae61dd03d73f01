# SPDX-License-Identifier: GPL-2.0-or-later
"""The double's audit log: what events.py serves, and what the rules record.

Codes and severities: AuditLogType.java of ovirt-engine 4.5.7; the wording is ours.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Optional

ENGINE = "oVirt"


@dataclass(frozen=True)
class SimEvent:
    """An event; ``host``, ``domain``, ``data_center`` and ``cluster`` are ids."""

    id: int
    code: int
    severity: str
    description: str
    time: datetime.datetime
    correlation_id: Optional[str] = None
    host: Optional[str] = None
    domain: Optional[str] = None
    data_center: Optional[str] = None
    cluster: Optional[str] = None
    origin: str = ENGINE
    custom_id: int = -1


@dataclass
class EventLog:
    """All events, oldest first; ids are unique and grow."""

    events: list[SimEvent] = field(default_factory=list)
    next_id: int = 100
    seconds: float = 0.0
    first_time: datetime.datetime = datetime.datetime(
        2026, 1, 1, tzinfo=datetime.timezone.utc
    )

    def record(
        self,
        code: int,
        severity: str,
        description: str,
        *,
        correlation_id: Optional[str] = None,
        host: Optional[str] = None,
        domain: Optional[str] = None,
        data_center: Optional[str] = None,
        cluster: Optional[str] = None,
        origin: str = ENGINE,
        custom_id: int = -1,
    ) -> SimEvent:
        """Record an event, with the next id and a time of its own."""
        age = datetime.timedelta(seconds=self.seconds + len(self.events))
        event = SimEvent(
            self.next_id,
            code,
            severity,
            description,
            self.first_time + age,
            correlation_id,
            host,
            domain,
            data_center,
            cluster,
            origin,
            custom_id,
        )
        # Other clients write to the log too: the ids of one client are not consecutive.
        self.next_id += 3
        self.events.append(event)
        return event

    def codes(self) -> list[int]:
        return [event.code for event in self.events]
