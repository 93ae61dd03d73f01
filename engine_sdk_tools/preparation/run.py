# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out a preparation in a loop: read, decide, store, do one step, store.

Nothing but the state is kept between two steps, so it does not matter where an earlier
run ended, or if the answer to a change was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.api.request import (
    DENIED,
    PASSING,
    UNTRUSTED,
    EngineProblem,
    Listener,
    LostAnswer,
    Read,
    TimeoutProblem,
)
from ovirt_rdma.engine_sdk_tools.api.request import step as reported
from ovirt_rdma.engine_sdk_tools.api.session import Session, events_since, newest_event
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    RecordFile,
    refused,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import Kind, RunStep
from ovirt_rdma.engine_sdk_tools.conversion.run import wait_until_in, wait_until_out
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts, Prepared
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport, digest_without_drop_ins
from ovirt_rdma.engine_sdk_tools.job import DataCenterLock
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    BROKEN_OUT_S,
    Engine,
    Host,
    host_is,
)
from ovirt_rdma.engine_sdk_tools.preparation import plan
from ovirt_rdma.engine_sdk_tools.preparation.plan import (
    HostRecord,
    PreparationRequest,
    PreparationState,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine, with_hosts_now
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.json_codec import Envelope

PREPARATION = Envelope("prepare", digested="state")


class PreparationFile(RecordFile[PreparationState]):
    """The state of the preparation of one data center's hosts."""

    record = PreparationState
    envelope = PREPARATION
    id = "preparation-state-invalid"
    fix = (
        "it records which hosts were moved to maintenance: activate those by hand, "
        "move the file away, and run the command again"
    )


def refuse_conversion() -> None:
    """Raise Refused: a preparation of the data center's hosts was interrupted."""
    raise refused(
        "preparation-incomplete",
        "an earlier 'ovirt-rdma hosts prepare' was interrupted and is not complete; "
        "hosts may be in maintenance because of it",
        "complete it first: ovirt-rdma hosts prepare",
    )


# The same step is tried this often for a host: requests may get lost.
_MOST_TRIES = 3
# How long the engine may take from the answer to the start of the installation, and
# from the host's last status to the event of the end.
START_S = 60.0


@dataclass
class Preparation:
    """Does all steps of a preparation. ``variables`` are for the role over SSH,
    ``request`` has the policy. ``lock`` is checked before each change.
    """

    session: Session
    access: Optional[AnsibleHosts]
    keeper: PreparationFile
    listener: Listener
    request: PreparationRequest
    variables: Mapping[str, Any]
    lock: DataCenterLock
    _engine: Engine = field(default_factory=lambda: Engine(""))
    _tries: Counter[tuple[str, tuple[str, ...], str]] = field(default_factory=Counter)

    def run(self, state: PreparationState) -> PreparationState:
        """Do all remaining steps of ``state``; return the new state.

        A host that fails is activated if it was up, and the next batch is not started.
        Raises EngineProblem if the engine is not available or denies access, and
        StateFileProblem: then the same command resumes the run.
        """
        state = self._save(replace(state, stage=plan.PREPARING))
        self._engine = read_engine(self.session)
        names = tuple(
            record.name for record in state.hosts if record.way != plan.NOTHING
        )
        total = sum(1 for _ in plan.imagined(state, self._statuses()))
        self.listener.plan(names, total)
        while True:
            step = plan.next_step(state, self._statuses())
            if step.kind == Kind.FINISH:
                return self._save(plan.finished(state))
            if step.kind == Kind.MARK:
                marks = dict(step.marks or {})
                state = self._save(state.with_host(step.subject, **marks))
                continue
            state = self._do(state, step)
            self._read()

    def _read(self) -> None:
        self._engine = with_hosts_now(self.session, self._engine)

    def _statuses(self) -> dict[str, Optional[str]]:
        return {host.id: host.status for host in self._engine.hosts}

    def _hosts(self, state: PreparationState, step: RunStep) -> dict[str, Host]:
        """Return the hosts of ``step`` by the name that the state has; the engine may
        have another one by now.
        """
        now = {host.id: host for host in self._engine.hosts}
        ids = {name: state.host(name).id for name in step.names}
        return {name: now[id] for name, id in ids.items() if id in now}

    def _do(self, state: PreparationState, step: RunStep) -> PreparationState:
        changes = step.call is not None or step.kind == Kind.RUN
        if changes:
            key = (step.kind, step.names, state.stage)
            self._tries[key] += 1
            if self._tries[key] > _MOST_TRIES:
                why = f"{step.doing} had no effect after {_MOST_TRIES} attempts"
                return self._failed(state, step.subject, why)
            self.lock.check()
        if step.call is not None:
            # Whatever it was at the start: it is up, so it is up at the end.
            found = {"found": "up"} if step.kind == Kind.ENTER else {}
            event = newest_event(self.session)
            state = state.with_host(
                step.subject, stage=step.before, event=event, **found
            )
        state = self._save(replace(state, doing=step.doing))
        subject = step.subject if len(step.names) == 1 else None
        with reported(self.listener, step.doing, subject) as now:
            try:
                state = self._act(state, step)
            except LostAnswer as problem:
                # The next reading shows if the change was made.
                now.problem = str(problem)
            except TimeoutProblem as problem:
                now.problem = str(problem)
                state = self._failed(state, step.subject, now.problem)
            except EngineProblem as problem:
                if problem.kind in (*PASSING, DENIED, UNTRUSTED):
                    raise
                now.problem = problem.one_line
                before = plan.next_step(state, self._statuses())
                self._read()
                after = plan.next_step(state, self._statuses())
                if (before.kind, before.names) == (after.kind, after.names):
                    # Nothing has moved: the engine's refusal is final.
                    state = self._failed(state, step.subject, now.problem)
            problems = [state.host(name).problem for name in step.names]
            now.problem = now.problem or "; ".join(filter(None, problems))
        return self._save(replace(state, doing=""))

    def _act(self, state: PreparationState, step: RunStep) -> PreparationState:
        if step.call is not None:
            self.session.perform(step.call, before=self.lock.check)
            return state
        if step.kind == Kind.RUN:
            return self._run_role(state, step)
        if step.kind == Kind.LOOK:
            return self._look(state, step)
        record = state.host(step.subject)
        if step.kind == Kind.WAIT_INSTALL:
            return self._installed(state, record, step)
        read = Read(f"hosts/{record.id}", step.doing, "get")
        place = (self.session, self.listener, record.name, read)
        if step.kind == Kind.WAIT_IN:
            why = wait_until_in(*place, record.event)
        else:
            after = record.event if record.stage == plan.LEAVING else None
            why = wait_until_out(*place, after)
        return self._failed(state, record.name, why) if why else state

    def _run_role(self, state: PreparationState, step: RunStep) -> PreparationState:
        hosts = self._hosts(state, step)
        results: Mapping[str, Prepared] = {}
        why = "there is no access to it over SSH"
        try:
            if self.access is not None:
                why = "it did not answer"
                results = self.access.prepare([*hosts.values()], self.variables)
        except Problem as problem:
            why = problem.one_line
        for name in step.names:
            host = hosts.get(name)
            result = results.get(host.name) if host else None
            state = self._judged(state, name, result or Prepared(name, problem=why))
        return state

    def _judged(
        self, state: PreparationState, name: str, result: Prepared
    ) -> PreparationState:
        """Return the state after the role has run: the sentinel decides."""
        for warning in result.warnings:
            self.listener.note(f"{name}: {warning}")
        if result.problem:
            return self._failed(state, name, result.problem, result.fix)
        record = state.host(name)
        over_ssh = record.way == plan.SSH
        if result.no_hardware and not result.sentinel:
            stage = plan.NO_HARDWARE if over_ssh else plan.LEAVING
            return state.with_host(name, stage=stage, sentinel=plan.NO_HARDWARE)
        problem = plan.other_policy(result.sentinel, state.digest)
        if problem:
            return self._failed(state, name, problem)
        stage = plan.CHECKING if over_ssh else plan.LEAVING
        return state.with_host(name, stage=stage, sentinel=result.sentinel)

    def _look(self, state: PreparationState, step: RunStep) -> PreparationState:
        """Compare the hosts' own reports with what their proof says."""
        hosts = self._hosts(state, step)
        reports: Mapping[str, HostReport] = {}
        if self.access is not None:
            try:
                reports = self.access.reports([*hosts.values()])
            except Problem as problem:
                self.listener.note(problem.one_line)
        for name in step.names:
            record, host = state.host(name), hosts.get(name)
            report = reports.get(host.name) if host else None
            if record.sentinel == plan.NO_HARDWARE:
                state = state.with_host(name, stage=plan.NO_HARDWARE)
            elif report is None or report.status is None:
                # The role has proven it; a report is a second opinion.
                state = state.with_host(name, stage=plan.DONE)
            else:
                state = self._compared(state, record, report)
        return state

    def _compared(
        self, state: PreparationState, record: HostRecord, report: HostReport
    ) -> PreparationState:
        digest = digest_without_drop_ins(report)
        if state.digest is not None and digest != state.digest:
            has = digest or "no policy"
            why = f"the role has ended, but the host reports {has}, not {state.digest}"
            return self._failed(state, record.name, why)
        look = plan.look_at(report, self.request)
        if record.way == plan.SSH:
            return plan.after_ssh(state, record, look, reinstall=self.request.reinstall)
        return state.with_host(record.name, stage=plan.DONE, left=look.disruptive)

    def _installed(
        self, state: PreparationState, record: HostRecord, step: RunStep
    ) -> PreparationState:
        since: Optional[float] = None

        def ended(host: Any) -> Optional[str]:
            nonlocal since
            status = host.status.value if host.status else None
            if status not in plan.REINSTALLED and not host_is(status, BROKEN):
                since = None
                return None
            since = self.session.clock() if since is None else since
            found = plan.installation(record.name, self._events(record))
            patience_s = START_S if status in plan.REINSTALLED else BROKEN_OUT_S
            waited = self.session.clock() - since >= patience_s
            return status if found.ended or waited else None

        read = Read(f"hosts/{record.id}", step.doing, "get")
        self.session.wait_until(read, ended, step.doing, plan.INSTALL_S)
        found = plan.installation(record.name, self._events(record))
        if not found.started and not found.ended:
            # The request was lost, or the engine restarted before it began.
            return state.with_host(record.name, stage=plan.ENTERING)
        return self._judged(state, record.name, found.result)

    def _events(self, record: HostRecord) -> list[Any]:
        return events_since(self.session, record.event, record.id)

    def _failed(
        self, state: PreparationState, name: str, why: str, fix: str = ""
    ) -> PreparationState:
        """Return the state with a failed host, which is activated if we moved it."""
        record = state.host(name)
        back = record.way != plan.SSH and record.stage in (
            plan.ENTERING,
            plan.INSTALLING,
        )
        sentence = why.rstrip(".")
        self.listener.note(f"{name}: {sentence}")
        problem = f"{record.problem}; {sentence}" if record.problem else sentence
        stage = plan.LEAVING if back else plan.FAILED
        return state.with_host(
            name, stage=stage, problem=problem, fix=fix or record.fix
        )

    def _save(self, state: PreparationState) -> PreparationState:
        self.keeper.write(state)
        return state
