# SPDX-License-Identifier: GPL-2.0-or-later
"""What the engine's events say of one domain's mounts.

VDSM's answer to a mount is in two events, and the engine gives neither a correlation
id: 996 has VDSM's words for the connection, and no host; 188 has the host, and the
domains by name (StorageHelperBase.java:181-193, ConnectStorageServerVDSCommand.java:
99-102). That a domain could not be activated after it was attached is 967, with a
correlation id of the engine's own (AttachStorageDomainToPoolCommand.java:282-289). So
they are known by their place, after what was the newest before, and by what they name.
"""

from __future__ import annotations

import re
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.engine_errors import EngineProblem
from ovirt_rdma.engine_sdk_tools.event_log import (
    ReadsEvents,
    events_since,
    newest_event,
)

_STORAGE_DOMAIN_ERROR = 996
_CONNECTION_FAILED = 188
_NOT_ACTIVATED = 967
_BAD = ("error", "alert")


class MountEvents:
    """The events on the mounts of ``domain``, a name, on ``export``: those after the
    one with the id ``after``, or from its making on. ``problem`` says why there are
    none, where they cannot be read.
    """

    def __init__(
        self,
        session: ReadsEvents,
        domain: str,
        export: str,
        after: Optional[int] = None,
    ) -> None:
        self._session = session
        # Whole names: not data1 in data10, nor in old-data1.
        self._export = re.compile(rf"{re.escape(export)}(?![\w./-])")
        self._domain = re.compile(rf"(?<![\w-]){re.escape(domain)}(?![\w-])")
        self._after = after or 0
        self.problem = ""
        if after is None:
            try:
                self._after = newest_event(session)
            except EngineProblem as error:
                self.problem = str(error)

    def failed_hosts(self) -> dict[str, str]:
        """Return the hosts that could not mount it: their names by id."""
        found = {}
        for event in reversed(self._since()):
            host = event.host
            if event.code == _CONNECTION_FAILED and host is not None and host.id:
                name = host.name or host.id
                said = (event.description or "").replace(name, "", 1)
                if self._domain.search(_after_words(said)):
                    found[str(host.id)] = str(name)
        return found

    def said(self) -> tuple[str, ...]:
        """Return what the events say went wrong, each sentence once, the first first:
        of the mounts, and of what this session asked for.
        """
        sentences = [
            str(event.description)
            for event in self._since()
            if event.description and (self._of_mount(event) or self._of_ours(event))
        ]
        return tuple(dict.fromkeys(sentences))

    def _of_mount(self, event: Any) -> bool:
        if event.code == _STORAGE_DOMAIN_ERROR:
            return bool(self._export.search(event.description))
        named = event.code in (_CONNECTION_FAILED, _NOT_ACTIVATED)
        return named and bool(self._domain.search(event.description))

    def _of_ours(self, event: Any) -> bool:
        severity: Optional[str] = getattr(event.severity, "value", None)
        ours = event.correlation_id == self._session.correlation_id
        return ours and severity in _BAD

    def _since(self) -> list[Any]:
        """The events since then, the oldest first."""
        if self.problem:
            return []
        try:
            return events_since(self._session, self._after)
        except EngineProblem as error:
            self.problem = str(error)
            return []


def _after_words(text: str) -> str:
    """Return the names of domains in event 188: what comes after its fixed words, which
    may be names of domains too (AuditLogMessages.properties:525).
    """
    return text.rpartition(" Storage Domains ")[2]
