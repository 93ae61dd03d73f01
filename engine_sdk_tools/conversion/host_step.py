# SPDX-License-Identifier: GPL-2.0-or-later
"""The next step for one host of a rolling conversion, and waits for it.

What is next with one host, so that it mounts its storage anew. Pure.

Decided from its status and its own word; the record only tells whose maintenance it
is, and whether it has been through it.

Waiting for a host on its way to maintenance, and back: when that has failed, or has
really ended. The host's status alone tells neither.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.api.events import (
    DETECTED,
    ReadsEvents,
    events_since,
    newest_event,
    reasons,
)
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    DONE,
    ENTERING,
    HEAL,
    IN_PLAY,
    LEAVING,
    LEFT,
    TODO,
    ConversionState,
    HostRecord,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import Sight, View, unlike
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    Step,
    call_off,
    enter,
    fail,
    leave,
    look,
    mark,
    push,
    wait_in,
    wait_out,
)
from ovirt_rdma.engine_sdk_tools.model import status_words

# What is noted of a host that nobody could ask.
NOT_PROVEN = "the engine says that it is up; it could not be asked for proof"
# That it connected its storage the engine says with an event: see View.arrived.
_NEVER_REPORTED = (
    "the engine shows it as up, and did not report that it connected its storage "
    "(event 13)"
)

# On the way to a status that says more.
_COMING = ("unassigned", "initializing", "connecting", "reboot", "kdumping", None)


# What it can be neither moved nor asked in; nothing of it is changed then.
_ILL = ("non_operational", "non_responsive", "down", "error", "install_failed")


def host_step(state: ConversionState, host: HostRecord, view: View) -> Step:  # noqa: PLR0911 - a row a status
    """Return the next step of a host that is to be up in the end."""
    found = view.host(host)
    if found is None:
        return mark(host, DONE, "it is no longer in the engine")
    sight = view.sights.get(host.name)
    back = host.goal == BACK
    if host.stage == TODO and not back and found.status in _ILL:
        return fail(host, _is(host, found.status))
    # It had its policy before it went.
    policy = None if host.stage in IN_PLAY else policy_step(host, sight)
    if policy is not None:
        return policy
    status = found.status
    if status == "up":
        return _up(state, host, view)
    if status == "preparing_for_maintenance":
        # On the way back an evacuation that does not end is called off.
        called_off = back and host.ours and host.stage == TODO
        if called_off:
            return call_off(host)
        if host.stage == LEAVING:
            return leave(host)
        return wait_in(host)
    if status == "maintenance":
        if host.stage in IN_PLAY or host.ours:
            return leave(host)
        return mark(host, LEFT, "somebody put it into maintenance")
    if status == "non_operational" and back and host.stage in (TODO, ENTERING):
        # Only maintenance ends what it has mounted of the new.
        return enter(host)
    if status in _COMING or (host.stage == LEAVING and status == "non_responsive"):
        return wait_out(host)
    return fail(host, _is(host, status))


def policy_step(host: HostRecord, sight: Optional[Sight]) -> Optional[Step]:
    """Return what is to do until the host has its policy; None where it has it."""
    if not host.push:
        return None
    if sight is None:
        return look(host)
    if sight.problem:
        return fail(host, f"{host.name} cannot be asked: {sight.problem}")
    back = host.goal == BACK
    policy = host.policy if back else host.wanted
    # What was in force before had another digest, or there was nothing to change.
    loaded = (sight.digest != host.digest) if back else (sight.digest == host.digest)
    if sight.policy == policy and (loaded or host.policy == host.wanted):
        return None
    if sight.policy not in (host.policy, host.wanted, *host.between):
        return fail(
            host,
            f"somebody changed policy.yaml on {host.name} since the conversion began; "
            "it is left as it is",
        )
    return push(host, policy)


def away_step(state: ConversionState, host: HostRecord, view: View) -> Step:
    """Return the next step of a host that was not up at the start, and is left so."""
    if view.host(host) is None:
        return mark(host, DONE, "it is no longer in the engine")
    policy = policy_step(host, view.sights.get(host.name))
    if policy is not None:
        return policy
    return mark(host, LEFT, f"it was {status_words(host.found)} and is left so")


def _up(state: ConversionState, host: HostRecord, view: View) -> Step:  # noqa: PLR0911 - a row a status
    been = host.stage == LEAVING
    if state.kind == HEAL and host.goal == BACK:
        # It cannot be worse than it was.
        return mark(host, DONE)
    if been and host.name not in view.arrived:
        return wait_out(host)
    sight = view.sights.get(host.name)
    if sight is None and not state.blind:
        return look(host)
    if sight is None or unproven(state, sight):
        return after_activation(host, view) if been else enter(host)
    if sight.problem:
        return fail(host, f"{host.name} cannot be asked: {sight.problem}")
    wrong = unlike(state, host, sight)
    if not wrong:
        return mark(host, DONE)
    if been:
        return fail(host, f"on {host.name} {'; '.join(wrong)}")
    return enter(host)


def after_activation(host: HostRecord, view: View) -> Step:
    """Return what is noted of a host that we activated and nobody can ask: the engine's
    word counts, if it is that the host has connected its storage.
    """
    if view.arrived.get(host.name):
        return mark(host, DONE, NOT_PROVEN)
    return fail(host, f"{host.name}: {_NEVER_REPORTED}")


def unproven(state: ConversionState, sight: Sight) -> bool:
    """Whether a host says nothing, and need not: the engine's row decides."""
    return bool(sight.problem) and state.by_row


def _is(host: HostRecord, status: Optional[str]) -> str:
    hint = ""
    if status == "non_operational":
        hint = (
            ": it could not connect all of its storage (vdsm.log there says why), or "
            "the engine restarted before it had told it to"
        )
    return f"{host.name} is {status_words(status)}{hint}"


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
