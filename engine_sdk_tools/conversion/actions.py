# SPDX-License-Identifier: GPL-2.0-or-later
"""Do one step of a conversion, in the engine or on a host.

The protocols are the parts of a lock and a state file that a run needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.events import newest_event
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.conversion.fleet import observation_of
from ovirt_rdma.engine_sdk_tools.conversion.host_step import Activation, Evacuation
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    DONE,
    LEAVING,
    OFFLINE,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import Observation, Snapshot
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    ENTER,
    LEAVE,
    LOOK,
    PUSH,
    WAIT_IN,
    WAIT_OUT,
    ConversionStep,
    upgrade_call,
)
from ovirt_rdma.engine_sdk_tools.domains.mounted import MountEvents
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.hosts.policy import digest_of
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, HostReport, Pushed
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    BROKEN_IN_S,
    BROKEN_OUT_S,
    Engine,
    host_is,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.reader import cluster_of
from ovirt_rdma.host.errors import Problem


class HoldsLock(Protocol):
    """The lock that keeps out other runs."""

    def check(self) -> None:
        """See DataCenterLock."""


class KeepsState(Protocol):
    """The store of the state."""

    def write(self, state: ConversionState) -> None:
        """See StateFile."""


# Of the SDK's object and its status: why the wait has failed, "" for done, None for not
# yet.
_Test = Callable[[Any, Optional[str]], Optional[str]]
# The interval of notes that a wait continues; they also show that the run is alive.
STILL_S = 300.0


class Actions:
    """Does the steps. ``observations`` are the valid reports of hosts, by name;
    ``arrived``, ``refused`` and ``unmarked`` are those of Snapshot. ``check`` is called
    before each request that changes something.
    """

    def __init__(
        self,
        session: EngineSession,
        door: Optional[HostAccess],
        listener: Listener,
        check: Callable[[], None],
    ) -> None:
        self.observations: dict[str, Observation] = {}
        self.arrived: dict[str, bool] = {}
        self.refused: dict[str, str] = {}
        self.unmarked: set[str] = set()
        self._session = session
        self._door = door
        self._listener = listener
        self._check = check

    def snapshot(self, engine: Engine) -> Snapshot:
        """Return the snapshot for the next decision."""
        return Snapshot(
            engine, self.observations, self.arrived, self.refused, self.unmarked
        )

    def before(self, state: ConversionState, step: ConversionStep) -> ConversionState:
        """Return the state with the newest event before ``step``."""
        if step.of_domain:
            if step.before != LEAVING:
                return state
            return state.with_domain(step.subject, event=newest_event(self._session))
        if step.kind not in (ENTER, LEAVE):
            return state
        self.arrived.pop(step.subject, None)
        return state.with_host(step.subject, event=newest_event(self._session))

    def note_refusals(self, state: ConversionState) -> None:
        """Read which hosts could not mount an activated domain: the engine leaves them
        up for minutes, and shows the failure only in its events.
        """
        names = {host.id: host.name for host in state.hosts}
        self.refused.clear()
        for domain in state.domains if state.mode == OFFLINE else ():
            if not domain.event or domain.stage not in (LEAVING, DONE):
                continue
            export = str(export_at(domain.address, domain.path))
            events = MountEvents(self._session, domain.name, export, domain.event)
            why = "; ".join(text.rstrip(".") for text in events.said())
            for host in events.failed_hosts():
                if host in names:
                    self.refused[names[host]] = why

    def end_upgrades(self, data_center: str) -> None:
        """Clear our flags in the engine, as they are there now. It waits for nothing,
        because the run ends with an error or an interrupt.
        """
        read = Read("clusters", "reading the clusters")
        for cluster in map(cluster_of, self._session.read(read, patience_s=0.0)):
            if cluster.data_center == data_center and cluster.is_ours:
                self._check()
                self._session.report_progress(upgrade_call(cluster, begins=False))

    def act(
        self, state: ConversionState, snapshot: Snapshot, step: ConversionStep
    ) -> str:
        """Do ``step``; return why it failed, or ""."""
        if step.call is not None:
            self._session.perform(step.call, before=self._check)
            return ""
        if step.kind == LOOK:
            return self._look(state, snapshot, step.hosts)
        if step.kind == PUSH:
            return self._push(state, snapshot, step)
        return self._wait(state, step)

    def _look(
        self, state: ConversionState, snapshot: Snapshot, names: Sequence[str]
    ) -> str:
        exports = [export_at(d.address, d.path) for d in state.domains]
        hosts = {name: snapshot.host(state.host(name)) for name in names}
        present = [host for host in hosts.values() if host is not None]
        reports: Mapping[str, HostReport] = {}
        why = "it has not reported"
        try:
            reports = self._door.reports(present) if self._door else {}
        except Problem as problem:
            # This concerns these hosts only; a revert continues with the others.
            why = problem.one_line
        for name, host in hosts.items():
            report = reports.get(host.name) if host else None
            self.observations[name] = (
                observation_of(report, exports) if report else Observation(problem=why)
            )
        return ""

    def _push(
        self, state: ConversionState, snapshot: Snapshot, step: ConversionStep
    ) -> str:
        if self._door is None:
            return f"there is no access to {step.subject}"
        host = snapshot.host(state.host(step.subject))
        if host is None:
            return f"{step.subject} is no longer in the engine"
        pushed: Optional[Pushed]
        try:
            answers = self._door.push_policy((host,), step.policy)
            pushed = answers.get(host.name)
        except Problem as problem:
            pushed = Pushed(host.name, problem=problem.one_line)
        if pushed is None:
            return f"{host.name} did not answer the push of the policy"
        if pushed.problem:
            return f"{host.name}: {pushed.problem}"
        digest = digest_of(step.policy)
        if pushed.digest not in (None, digest):
            return (
                f"{host.name} has loaded the policy {pushed.digest}, not the one that "
                f"was pushed, {digest}"
            )
        return ""

    def _wait(self, state: ConversionState, step: ConversionStep) -> str:
        if step.of_domain:
            return self._until(
                step, lambda resource, status: "" if status in step.until else None
            )
        host = state.host(step.subject)
        if step.kind == WAIT_IN:
            evacuation = Evacuation(self._session, host.id, host.event)

            def failed(resource: Any, status: Optional[str]) -> Optional[str]:
                if status == "preparing_for_maintenance":
                    why = evacuation.failed(resource)
                    return f"{host.name} is not evacuated: {why}" if why else None
                return "" if status in step.until else None

            return self._until(step, failed)
        # If a host comes up by itself, the event of its activation is unknown.
        ours = step.kind == WAIT_OUT and host.stage == LEAVING
        after = (host.event or newest_event(self._session)) if ours else None
        activation = Activation(self._session, host.id, after)

        def over(resource: Any, status: Optional[str]) -> Optional[str]:
            if status == "up" and not activation.over():
                return None
            return "" if status in step.until else None

        why = self._until(step, over)
        self.arrived[host.name] = activation.connected
        return why

    def _until(self, step: ConversionStep, test: _Test) -> str:
        """Wait until ``test`` of the object and its status is not None; return that."""
        began = noted = well = self._session.clock()
        limit_s = BROKEN_IN_S if step.kind == WAIT_IN else BROKEN_OUT_S

        def arrived(resource: Any) -> Optional[str]:
            nonlocal noted, well
            now = self._session.clock()
            status = resource.status.value if resource.status else None
            if step.of_domain or not host_is(status, BROKEN):
                well = now
            elif now - well >= limit_s:
                return (
                    f"{step.subject} has been {status_words(status)} for "
                    f"{limit_s / 60:.0f} minutes"
                )
            if now - noted >= STILL_S:
                noted = now
                minutes = (now - began) / 60
                self._listener.note(f"still {step.doing}, for {minutes:.0f} minutes")
            return test(resource, status)

        read = Read(step.path, step.doing, "get")
        return str(self._session.wait_until(read, arrived, step.doing, step.timeout_s))
