# SPDX-License-Identifier: GPL-2.0-or-later
"""Waiting for a host on its way to maintenance, and back: when that has failed, or has
really ended. The host's status alone tells neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.event_log import (
    DETECTED,
    ReadsEvents,
    events_since,
    newest_event,
    reasons,
)

# An evacuation that does not go on is called off after so long: the engine tries it
# again every 300 s (HostPreparingForMaintenanceIdleTime), so five times.
STUCK_S = 1500.0
# A transfer of a disk image keeps a host from maintenance too, with no virtual machine
# on it (VirtMonitoringStrategy.java:69-75), and nothing but engine.log tells.
IN_USE_S = 7200.0
# GENERIC_ERROR_MESSAGE: what a deactivation is refused with, also at the engine's own
# tries again (MaintenanceNumberOfVdssCommand.java:447-458).
NOT_TO_MAINTENANCE = 14001
# The status up is shown before the storage is connected, which takes 180 s a domain at
# most (vdsTimeout); after so long without the engine's event it is looked at anyway.
SETTLE_S = 1800.0


class WaitsForHosts(ReadsEvents, Protocol):
    """What waiting needs of a session."""

    def clock(self) -> float:
        """See Session."""


class Evacuation:
    """The evacuation of the host with the id ``host``; ``after`` is the id of the
    newest event before it was asked for.

    It goes on as long as a virtual machine migrates, or their number falls. That the
    engine failed to move one is no end: it tries again by itself.
    """

    def __init__(self, session: WaitsForHosts, host: str, after: int) -> None:
        self.left: Optional[int] = None
        self._session = session
        self._host = host
        self._after = after or newest_event(session)
        self._since = session.clock()

    def failed(self, found: Any) -> str:
        """Return why it does not come about, "" while it may. ``found`` is the SDK's
        host, preparing for maintenance.
        """
        summary = found.summary
        left = (summary.total or 0) if summary else 0
        migrating = (summary.migrating or 0) if summary else 0
        now = self._session.clock()
        if left != self.left or migrating:
            self.left, self._since = left, now
        if now - self._since < (STUCK_S if left else IN_USE_S):
            return ""
        minutes = f"{(now - self._since) / 60:.0f} minutes"
        if not left:
            return (
                f"no virtual machine is left on it, and the engine has kept it in use "
                f"for {minutes}: an image transfer (upload, download, backup) may run"
            )
        events = events_since(self._session, self._after)
        said = reasons(events, self._host) or _without_host(events)
        reason = f"says: {said[-1]}" if said else "gives no reason"
        machines = f"{left} virtual machine{'s' * (left != 1)}"
        return f"{machines} stayed on it for {minutes}; the engine {reason}"


def _without_host(events: Sequence[Any]) -> list[str]:
    """Return what the engine says of hosts that it does not name."""
    refused = [event for event in events if event.code == NOT_TO_MAINTENANCE]
    return [str(event.description) for event in refused if event.description]


class Activation:
    """The activation of the host with the id ``host``; ``after`` is the id of the
    newest event before it, None where it was not we who activated it.

    ``connected``: the engine has reported that the host connected its storage.
    """

    def __init__(self, session: WaitsForHosts, host: str, after: Optional[int]) -> None:
        self.connected = False
        self._session = session
        self._host = host
        self._after = after
        self._up_since: Optional[float] = None

    def over(self) -> bool:
        """Whether a host that is shown as up now has ended its activation, or there is
        no more sense in waiting for the engine to say so.
        """
        if self._after is None:
            return True
        events = events_since(self._session, self._after, self._host)
        self.connected = any(event.code == DETECTED for event in events)
        now = self._session.clock()
        if self._up_since is None:
            self._up_since = now
        return self.connected or now - self._up_since >= SETTLE_S
