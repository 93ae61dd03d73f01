# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out one step of a conversion.

What carrying a conversion out needs: the engine, and where the state is kept.

Doing one step of a conversion: at the engine, or on a host.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Callable, Optional, Protocol

from ovirt_rdma.engine_sdk_tools.api.events import newest_event
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.conversion.host_step import Activation, Evacuation
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    DONE,
    LEAVING,
    OFFLINE,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import Sight, View, sight_of
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    ENTER,
    LEAVE,
    LOOK,
    PUSH,
    WAIT_IN,
    WAIT_OUT,
    Step,
)
from ovirt_rdma.engine_sdk_tools.domains.mounted import MountEvents
from ovirt_rdma.engine_sdk_tools.domains.transport import export_at
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor, HostReport, Pushed
from ovirt_rdma.engine_sdk_tools.model import Engine, status_words
from ovirt_rdma.host.errors import Problem


class ChangesEngine(Protocol):
    """What carrying out needs of a session."""

    @property
    def correlation_id(self) -> str:
        """See Session."""

    def clock(self) -> float:
        """See Session."""

    def sleep(self, seconds: float) -> None:
        """See Session."""

    def read(self, read: Read) -> Any:
        """See Session."""

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """See Session."""

    def perform(self, call: Call, *, before: Callable[[], None]) -> Any:
        """See Session."""

    def wait_until(
        self,
        read: Read,
        test: Callable[[Any], Optional[Any]],
        doing: str,
        timeout_s: float,
    ) -> Any:
        """See Session."""


class HoldsLock(Protocol):
    """What keeps other runs off."""

    def check(self) -> None:
        """See DataCenterLock."""


class KeepsState(Protocol):
    """Where the state is written."""

    def write(self, state: ConversionState) -> None:
        """See StateFile."""


# Of the SDK's object and its status: why it has failed, "" for done, None for not yet.
_Test = Callable[[Any, Optional[str]], Optional[str]]
# What a host is not on its way, but for a while; so long it may be, while it goes to
# maintenance and while it comes up.
_ILL = ("non_responsive", "down", "error", "install_failed")
ILL_S = {WAIT_IN: 600.0, WAIT_OUT: 1800.0}
# So often it is told that a wait goes on; it also shows others that the run is alive.
STILL_S = 300.0


class Acts:
    """``sights`` is what hosts told, by name, as long as it holds; ``arrived`` and
    ``refused`` are View's. ``check`` is called before each request that changes
    something.
    """

    def __init__(
        self,
        session: ChangesEngine,
        door: Optional[HostDoor],
        listener: Listener,
        check: Callable[[], None],
    ) -> None:
        self.sights: dict[str, Sight] = {}
        self.arrived: dict[str, bool] = {}
        self.refused: dict[str, str] = {}
        self._session = session
        self._door = door
        self._listener = listener
        self._check = check

    def view(self, engine: Engine) -> View:
        """Return what is looked at now."""
        return View(engine, self.sights, self.arrived, self.refused)

    def before(self, state: ConversionState, step: Step) -> ConversionState:
        """Return the state with what has to be known before ``step`` is done."""
        if step.of_domain:
            if step.before != LEAVING:
                return state
            return state.with_domain(step.subject, event=newest_event(self._session))
        if step.kind not in (ENTER, LEAVE):
            return state
        self.arrived.pop(step.subject, None)
        return state.with_host(step.subject, event=newest_event(self._session))

    def note_refusals(self, state: ConversionState) -> None:
        """Note the hosts that could not mount a domain which was activated: the engine
        leaves them up for minutes, and tells only in its events.
        """
        names = {host.id: host.name for host in state.hosts}
        self.refused.clear()
        for domain in state.domains if state.mode == OFFLINE else ():
            if not domain.event or domain.stage not in (LEAVING, DONE):
                continue
            export = str(export_at(domain.address, domain.path))
            events = MountEvents(self._session, domain.name, export, domain.event)
            why = "; ".join(one.rstrip(".") for one in events.said())
            for host in events.failed_hosts():
                if host in names:
                    self.refused[names[host]] = why

    def act(self, state: ConversionState, view: View, step: Step) -> str:
        """Do it; return why it did not come about, or ""."""
        if step.call is not None:
            self._session.perform(step.call, before=self._check)
            return ""
        if step.kind == LOOK:
            return self._look(state, view, step.hosts)
        if step.kind == PUSH:
            return self._push(state, view, step)
        return self._wait(state, step)

    def _look(self, state: ConversionState, view: View, names: Sequence[str]) -> str:
        exports = [export_at(d.address, d.path) for d in state.domains]
        hosts = {name: view.host(state.host(name)) for name in names}
        there = [host for host in hosts.values() if host is not None]
        reports: Mapping[str, HostReport] = {}
        why = "there is no report of it"
        try:
            reports = self._door.reports(there) if self._door else {}
        except Problem as problem:
            # Of these hosts: others may be asked later, and a revert goes on for them.
            why = problem.one_line
        for name, host in hosts.items():
            report = reports.get(host.name) if host else None
            self.sights[name] = (
                sight_of(report, exports) if report else Sight(problem=why)
            )
        return ""

    def _push(self, state: ConversionState, view: View, step: Step) -> str:
        if self._door is None:
            return f"there is no way to {step.subject}"
        host = view.host(state.host(step.subject))
        if host is None:
            return f"{step.subject} is no longer in the engine"
        pushed: Optional[Pushed]
        try:
            pushed = self._door.push_policy((host,), step.policy).get(host.name)
        except Problem as problem:
            pushed = Pushed(host.name, problem=problem.one_line)
        if pushed is None:
            return f"{host.name}: nobody answered the push of the policy"
        if pushed.problem:
            return f"{host.name}: {pushed.problem}"
        wanted = state.host(step.subject)
        if step.policy == wanted.wanted and pushed.digest not in (None, wanted.digest):
            return (
                f"{host.name} has loaded {pushed.digest}, not the policy that was "
                f"pushed, {wanted.digest}"
            )
        return ""

    def _wait(self, state: ConversionState, step: Step) -> str:
        if step.of_domain:
            return self._until(
                step, lambda found, status: "" if status in step.until else None
            )
        host = state.host(step.subject)
        if step.kind == WAIT_IN:
            evacuation = Evacuation(self._session, host.id, host.event)

            def failed(found: Any, status: Optional[str]) -> Optional[str]:
                if status == "preparing_for_maintenance":
                    why = evacuation.failed(found)
                    return f"{host.name} is not evacuated: {why}" if why else None
                return "" if status in step.until else None

            return self._until(step, failed)
        # Of a host that comes up by itself nobody knows which event is the one.
        ours = step.kind == WAIT_OUT and host.stage == LEAVING
        after = (host.event or newest_event(self._session)) if ours else None
        activation = Activation(self._session, host.id, after)

        def over(found: Any, status: Optional[str]) -> Optional[str]:
            if status == "up" and not activation.over():
                return None
            return "" if status in step.until else None

        why = self._until(step, over)
        self.arrived[host.name] = activation.connected
        return why

    def _until(self, step: Step, test: _Test) -> str:
        """Wait until ``test`` of the object and its status gives something."""
        began = told = well = self._session.clock()
        ill_s = ILL_S[step.kind]

        def arrived(found: Any) -> Optional[str]:
            nonlocal told, well
            now = self._session.clock()
            status = found.status.value if found.status else None
            if status not in _ILL or step.of_domain:
                well = now
            elif now - well >= ill_s:
                return (
                    f"{step.subject} is {status_words(status)} for {ill_s / 60:.0f} "
                    "minutes"
                )
            if now - told >= STILL_S:
                told = now
                minutes = (now - began) / 60
                self._listener.note(f"still {step.doing}, for {minutes:.0f} minutes")
            return test(found, status)

        read = Read(step.path, step.doing, "get")
        return str(self._session.wait_until(read, arrived, step.doing, step.timeout_s))
