# SPDX-License-Identifier: GPL-2.0-or-later
"""Decide the next step of one host so that it remounts its storage, and judge waits.

The next step is decided from the host's status and its own report, and is pure; the
record only shows who started its maintenance, and if it is complete. Evacuation and
activation are judged with the engine's events, because the host's status does not show
if they have failed or are really complete.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.events import (
    DETECTED,
    events_since,
    newest_event,
    reasons,
)
from ovirt_rdma.engine_sdk_tools.conversion.baseline import digest_of_others
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
from ovirt_rdma.engine_sdk_tools.conversion.observation import (
    Observation,
    Snapshot,
    unlike,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    ConversionStep,
    cancel_enter,
    enter,
    fail,
    leave,
    look,
    mark,
    push,
    wait_in,
    wait_out,
)
from ovirt_rdma.engine_sdk_tools.hosts.policy import digest_of
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    COMES,
    LACKS,
    host_is,
    status_words,
)
from ovirt_rdma.host.policy.drop_ins import NO_FILES

# The reason stored for a host that could not be asked.
NOT_PROVEN = "up, as the engine reports; it could not be asked for proof"
# The engine reports the connection of the storage as an event: see Snapshot.arrived.
_NEVER_REPORTED = (
    "the engine shows it as up, but did not report that it connected its storage "
    "(event 13)"
)


def host_step(
    state: ConversionState, host: HostRecord, snapshot: Snapshot
) -> ConversionStep:
    """Return the next step of a host that should be up in the end."""
    present = snapshot.host(host)
    if present is None:
        return mark(host, DONE, "it is no longer in the engine")
    observed = snapshot.observations.get(host.name)
    back = host.goal == BACK
    if host.stage == TODO and not back and host_is(present.status, LACKS, BROKEN):
        # It can be neither moved nor asked, so nothing is changed.
        return fail(host, _is(host, present.status))
    # It got its policy before its maintenance.
    policy = None if host.stage in IN_PLAY else policy_step(host, observed)
    if policy is not None:
        return policy
    status = present.status
    if status == "up":
        return _up(state, host, snapshot)
    if status == "preparing_for_maintenance":
        # On the way back, an evacuation that does not end is cancelled.
        cancelled = back and host.ours and host.stage == TODO
        if cancelled:
            return cancel_enter(host)
        if host.stage == LEAVING:
            return leave(host)
        return wait_in(host)
    if status == "maintenance":
        if host.stage in IN_PLAY or host.ours:
            return leave(host)
        return mark(host, LEFT, "somebody else moved it to maintenance")
    if status == "non_operational" and back and host.stage in (TODO, ENTERING):
        # Only maintenance unmounts what it has mounted with the new transport.
        return enter(host)
    coming = status is None or host_is(status, COMES)
    if coming or (host.stage == LEAVING and status == "non_responsive"):
        return wait_out(host)
    return fail(host, _is(host, status))


def policy_step(
    host: HostRecord, observed: Optional[Observation]
) -> Optional[ConversionStep]:
    """Return the next step for the host to get its policy; None if it has it."""
    if not host.push:
        return None
    if observed is None:
        return look(host)
    if observed.problem:
        return fail(host, f"{host.name} cannot be asked: {observed.problem}")
    policy = observed.policy.having(host.contents)
    # An empty policy need not be loaded.
    loaded = observed.digest or digest_of(NO_FILES)
    as_it_should = not host.files or loaded == digest_of(policy)
    if policy == observed.policy and as_it_should:
        return None
    theirs = _somebody_elses(host, observed, loaded)
    return (
        fail(host, f"{theirs}; it is left unchanged") if theirs else push(host, policy)
    )


def _somebody_elses(host: HostRecord, observed: Observation, loaded: str) -> str:
    """Return what somebody else has changed in the policy of a host so that it cannot
    be replaced; "" for nothing. ``loaded`` is the digest of the loaded policy.
    """
    present = observed.policy.contents
    names = [f.name for f in host.files if present.get(f.name) not in f.known]
    if names:
        files = ", ".join(names)
        return f"{files} on {host.name} was changed since the conversion started"
    edited = host.others not in ("", digest_of_others(observed.policy, host.files))
    if edited and loaded != digest_of(observed.policy):
        # A push would load it.
        return (
            f"the policy on {host.name} was edited and is not loaded (ovirt-rdma-host "
            "policy load)"
        )
    return ""


def away_step(
    state: ConversionState, host: HostRecord, snapshot: Snapshot
) -> ConversionStep:
    """Return the next step of a host that was not up at the start, and stays so."""
    if snapshot.host(host) is None:
        return mark(host, DONE, "it is no longer in the engine")
    policy = policy_step(host, snapshot.observations.get(host.name))
    if policy is not None:
        return policy
    return mark(host, LEFT, f"it was {status_words(host.found)}, and stays so")


def _up(state: ConversionState, host: HostRecord, snapshot: Snapshot) -> ConversionStep:
    remounted = host.stage == LEAVING
    if state.kind == HEAL and host.goal == BACK:
        # It is not worse than before.
        return mark(host, DONE)
    if remounted and host.name not in snapshot.arrived:
        return wait_out(host)
    observed = snapshot.observations.get(host.name)
    if observed is None and not state.blind:
        return look(host)
    if observed is None or unproven(state, observed):
        return after_activation(host, snapshot) if remounted else enter(host)
    if observed.problem:
        return fail(host, f"{host.name} cannot be asked: {observed.problem}")
    wrong = unlike(state, host, observed)
    if not wrong:
        return mark(host, DONE)
    if remounted:
        return fail(host, f"on {host.name} {'; '.join(wrong)}")
    return enter(host)


def after_activation(host: HostRecord, snapshot: Snapshot) -> ConversionStep:
    """Return the result of a host that we activated and that cannot be asked: done if
    the engine has reported that it connected its storage.
    """
    if snapshot.arrived.get(host.name):
        return mark(host, DONE, NOT_PROVEN)
    return fail(host, f"{host.name}: {_NEVER_REPORTED}")


def unproven(state: ConversionState, observed: Observation) -> bool:
    """Whether a host has no report and needs none: the engine's row decides."""
    return bool(observed.problem) and state.by_row


def _is(host: HostRecord, status: Optional[str]) -> str:
    hint = ""
    if status == "non_operational":
        hint = (
            ": it could not connect all of its storage (see vdsm.log there), or the "
            "engine restarted before it requested that"
        )
    return f"{host.name} is {status_words(status)}{hint}"


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

    def __init__(self, session: EngineSession, host: str, after: int) -> None:
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
        texts = reasons(events, self._host) or _without_host(events)
        reason = f"says: {texts[-1]}" if texts else "gives no reason"
        machines = f"{left} virtual machine{'s' * (left != 1)}"
        return f"{machines} stayed on it for {minutes}; the engine {reason}"


def _without_host(events: Sequence[Any]) -> list[str]:
    """Return the texts of refused deactivations, which do not name their host."""
    refused = [event for event in events if event.code == NOT_TO_MAINTENANCE]
    return [str(event.description) for event in refused if event.description]


class Activation:
    """The activation of the host with the id ``host``; ``after`` is the id of the
    newest event before it, None if we did not activate it.

    ``connected``: the engine has reported that the host connected its storage.
    """

    def __init__(self, session: EngineSession, host: str, after: Optional[int]) -> None:
        self.connected = False
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
        self.connected = any(event.code == DETECTED for event in events)
        now = self._session.clock()
        if self._up_since is None:
            self._up_since = now
        return self.connected or now - self._up_since >= SETTLE_S
