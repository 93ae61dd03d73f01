# SPDX-License-Identifier: GPL-2.0-or-later
"""Whether a host's virtual machines go away, while it goes to maintenance.

The host's status does not tell: it stays the same, and the engine tries again. Its
events do.
"""

from __future__ import annotations

from typing import Any, Protocol

from ovirt_rdma.engine_sdk_tools.call import Read

# VDS_MAINTENANCE_FAILED and USER_VDS_MAINTENANCE_MIGRATION_FAILED: facts of the engine.
_NOT_EVACUATED = (17, 602)
# The engine tries an evacuation again by itself; this many times it may fail.
_PATIENT_LOOKS = 5


class ReadsEvents(Protocol):
    """What it needs of a session."""

    def read(self, read: Read) -> Any:
        """See Session."""


class Evacuation:
    """Whether the engine says that a host's virtual machines do not go away, from its
    making on. The engine's own tries again have no correlation id of ours.
    """

    def __init__(self, session: ReadsEvents, host: str) -> None:
        self._session = session
        self._host = host
        newest = self._events(max=1)
        self._after = int(newest[0].id) if newest else 0

    def failed(self) -> str:
        """Return the engine's sentence, when it has failed often enough."""
        failures = [
            str(event.description or "")
            for event in self._events(from_=self._after)
            if event.code in _NOT_EVACUATED
            and event.host is not None
            and event.host.id == self._host
        ]
        if len(failures) < _PATIENT_LOOKS:
            return ""
        return failures[0] or "its virtual machines do not go away"

    def _events(self, **words: int) -> list[Any]:
        return list(
            self._session.read(Read("events", "reading the events", words=words))
        )
