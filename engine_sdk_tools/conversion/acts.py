# SPDX-License-Identifier: GPL-2.0-or-later
"""Doing one step of a conversion: at the engine, or on a host."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.asked_transport import export_at
from ovirt_rdma.engine_sdk_tools.call import Read
from ovirt_rdma.engine_sdk_tools.conversion.evacuation import Evacuation
from ovirt_rdma.engine_sdk_tools.conversion.seams import ChangesEngine
from ovirt_rdma.engine_sdk_tools.conversion.sight import Sight, View, sight_of
from ovirt_rdma.engine_sdk_tools.conversion.state import ConversionState
from ovirt_rdma.engine_sdk_tools.conversion.step import LOOK, PUSH, WAIT_IN, Step
from ovirt_rdma.engine_sdk_tools.host_report import HostDoor


class Acts:
    """``sights`` is what hosts told, by name, as long as it holds."""

    def __init__(self, session: ChangesEngine, door: Optional[HostDoor]) -> None:
        self.sights: dict[str, Sight] = {}
        self._session = session
        self._door = door

    def act(self, state: ConversionState, view: View, step: Step) -> str:
        """Do it; return why it did not come about, or ""."""
        if step.call is not None:
            self._session.perform(step.call)
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
        reports = self._door.reports(there) if self._door else {}
        for name, host in hosts.items():
            report = reports.get(host.name) if host else None
            self.sights[name] = (
                sight_of(report, exports)
                if report
                else Sight(problem="there is no report of it")
            )
        return ""

    def _push(self, state: ConversionState, view: View, step: Step) -> str:
        if self._door is None:
            return f"there is no way to {step.subject}"
        host = view.host(state.host(step.subject))
        if host is None:
            return f"{step.subject} is no longer in the engine"
        pushed = self._door.push_policy((host,), step.policy).get(host.name)
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
        evacuation = (
            Evacuation(self._session, state.host(step.subject).id)
            if step.kind == WAIT_IN and not step.of_domain
            else None
        )

        def arrived(found: Any) -> Optional[str]:
            status = found.status.value if found.status else None
            if status in step.until:
                return ""
            if evacuation is not None and status == "preparing_for_maintenance":
                return evacuation.failed() or None
            return None

        read = Read(step.path, step.doing, "get")
        why = self._session.wait_until(read, arrived, step.doing, step.timeout_s)
        return str(why)
