# SPDX-License-Identifier: GPL-2.0-or-later
"""Wait for a host on its way to maintenance, or out of it, and judge how that goes.

Evacuation and activation are judged with the engine's events, because the host's status
does not show if they have failed or are really complete.
"""

from __future__ import annotations

from typing import Any, Callable, Optional

from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.session import (
    DETECTED,
    Session,
    events_since,
    newest_event,
    reasons,
)
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    BROKEN_IN_S,
    BROKEN_OUT_S,
    host_is,
    status_words,
)

# An evacuation migrates all virtual machines, some at a time; one without progress is
# cancelled sooner (see Evacuation).
ENTER_S = 4 * 3600.0
# Host activation connects all storage; the engine gives VDSM 180 s per domain. The wait
# for a host that is shown as up is limited by SETTLE_S.
LEAVE_S = 3600.0
# The interval of notes that a wait continues; they also show that the run is alive.
STILL_S = 300.0
# What ends a wait for a host on its way in, and on its way out.
IN = ("maintenance", "up", "non_operational", "down")
OUT = ("up", "non_operational", "install_failed", "error", "maintenance")

# An evacuation without progress is cancelled after this time: the engine retries it
# every 300 s (HostPreparingForMaintenanceIdleTime), so five times.
STUCK_S = 1500.0
# A transfer of a disk image also keeps a host from maintenance, without a virtual
# machine on it (VirtMonitoringStrategy.java:69-75); only engine.log shows it.
IN_USE_S = 7200.0
# GENERIC_ERROR_MESSAGE: the event of a refused deactivation, also for the engine's own
# retries (MaintenanceNumberOfVdssCommand.java:447-458).
NOT_TO_MAINTENANCE = 14001
# The status up is shown before the storage is connected, which takes up to 180 s per
# domain (vdsTimeout); after this time the wait ends even without the engine's event.
SETTLE_S = 1800.0


class Evacuation:
    """The evacuation of the host with the id ``host``; ``after`` is the id of the
    newest event before the request.

    It makes progress while a virtual machine migrates or their number falls. A failed
    migration does not end it, because the engine retries by itself.
    """

    def __init__(self, session: Session, host: str, after: int) -> None:
        self.left: Optional[int] = None
        self._session = session
        self._host = host
        self._after = after or newest_event(session)
        self._since = session.clock()

    def failed(self, host: Any) -> str:
        """Return why it has failed, "" while it may still complete. ``host`` is the
        SDK's host, preparing for maintenance.
        """
        summary = host.summary
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
                "no virtual machine is left on it, but the engine has kept it in use "
                f"for {minutes}: an image transfer (upload, download, backup) may be "
                "running"
            )
        events = events_since(self._session, self._after)
        # A refused deactivation does not name its host.
        texts = reasons(events, self._host) or [
            str(event.description)
            for event in events
            if event.code == NOT_TO_MAINTENANCE and event.description
        ]
        reason = f"says: {texts[-1]}" if texts else "gives no reason"
        machines = f"{left} virtual machine{'s' * (left != 1)}"
        return f"{machines} stayed on it for {minutes}; the engine {reason}"


class Activation:
    """The activation of the host with the id ``host``; ``after`` is the id of the
    newest event before it, None if we did not activate it.
    """

    def __init__(self, session: Session, host: str, after: Optional[int]) -> None:
        self._session = session
        self._host = host
        self._after = after
        self._up_since: Optional[float] = None

    def over(self) -> bool:
        """Whether the activation of a host that is shown as up is complete, or the
        wait for the engine's report has timed out.
        """
        if self._after is None:
            return True
        events = events_since(self._session, self._after, self._host)
        connected = any(event.code == DETECTED for event in events)
        now = self._session.clock()
        if self._up_since is None:
            self._up_since = now
        return connected or now - self._up_since >= SETTLE_S


# Of the SDK's object and its status: why the wait has failed, "" for done, None for not
# yet.
Test = Callable[[Any, Optional[str]], Optional[str]]


def wait_until(
    session: Session,
    listener: Listener,
    read: Read,
    timeout_s: float,
    test: Test,
    *,
    host: str = "",
    entering: bool = False,
) -> str:
    """Wait until ``test`` of the object and its status is not None; return that. A
    ``host`` with this name is not waited for if it is broken for too long.
    """
    began = noted = well = session.clock()
    limit_s = BROKEN_IN_S if entering else BROKEN_OUT_S

    def arrived(resource: Any) -> Optional[str]:
        nonlocal noted, well
        now = session.clock()
        status = resource.status.value if resource.status else None
        if not host or not host_is(status, BROKEN):
            well = now
        elif now - well >= limit_s:
            shown = status_words(status)
            return f"{host} has been {shown} for {limit_s / 60:.0f} minutes"
        if now - noted >= STILL_S:
            noted = now
            minutes = f"{(now - began) / 60:.0f} minutes"
            listener.note(f"still {read.doing}, for {minutes}")
        return test(resource, status)

    return str(session.wait_until(read, arrived, read.doing, timeout_s))


def enter(
    session: Session, listener: Listener, name: str, read: Read, after: int
) -> str:
    """Wait until the host with this name is in maintenance, or no longer on the way
    there; return why it is not evacuated, "" if it is. ``after`` as for Evacuation.
    """
    evacuation = Evacuation(session, read.path.rpartition("/")[2], after)

    def test(host: Any, status: Optional[str]) -> Optional[str]:
        if status == "preparing_for_maintenance":
            why = evacuation.failed(host)
            return f"{name} is not evacuated: {why}" if why else None
        return "" if status in IN else None

    return wait_until(session, listener, read, ENTER_S, test, host=name, entering=True)


def leave(
    session: Session,
    listener: Listener,
    name: str,
    read: Read,
    after: Optional[int],
) -> str:
    """Wait until the host with this name is up with its storage connected, or has
    failed; return why it is not waited for, "" if it has arrived. ``after`` as for
    Activation.
    """
    activation = Activation(session, read.path.rpartition("/")[2], after)

    def test(host: Any, status: Optional[str]) -> Optional[str]:
        if status == "up" and not activation.over():
            return None
        return "" if status in OUT else None

    return wait_until(session, listener, read, LEAVE_S, test, host=name)
