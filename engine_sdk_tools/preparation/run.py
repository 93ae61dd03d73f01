# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out a preparation in a loop: read, decide, store, do one step, store.

Nothing but the state is kept between two steps, so it does not matter where an earlier
run ended, or if the answer to a change was lost.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
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
from ovirt_rdma.engine_sdk_tools.conversion.lock import DataCenterLock
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    RecordFile,
    StateFileProblem,
    StateFolder,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    Kind,
    RunStep,
    wait_until_in,
    wait_until_out,
)
from ovirt_rdma.engine_sdk_tools.hosts.ansible import AnsibleHosts
from ovirt_rdma.engine_sdk_tools.hosts.inventory import Prepared
from ovirt_rdma.engine_sdk_tools.hosts.report import digest_without_drop_ins
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    BROKEN_OUT_S,
    Engine,
    Host,
    Refused,
    host_is,
)
from ovirt_rdma.engine_sdk_tools.preparation.plan import (
    CHECKING,
    DONE,
    ENTERING,
    FAILED,
    INSTALL_S,
    LEAVING,
    NO_HARDWARE,
    PREPARING,
    REINSTALLED,
    SSH,
    TODO,
    HostRecord,
    PreparationRequest,
    PreparationState,
    after_ssh,
    finished,
    imagined,
    installation,
    look_at,
    next_step,
    other_policy,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine, with_hosts_now
from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.system.json_codec import Envelope

PREPARATION = Envelope("prepare", digested="state")


class PreparationFile(RecordFile[PreparationState]):
    """The state of the preparation of one data center's hosts."""

    record = PreparationState
    envelope = PREPARATION

    def invalid(self, reason: str, fix: str = "") -> StateFileProblem:
        """See RecordFile."""
        return StateFileProblem(
            "preparation-state-invalid",
            f"the state file {self.path} {reason}; nothing was changed, the file "
            "included",
            fix
            or "it records which hosts were moved to maintenance: activate those by "
            "hand, move the file away, and run the command again",
        )


def file_in(folder: StateFolder, data_center: str) -> PreparationFile:
    """Return the file of the data center with this id. Raises StateFileProblem."""
    return PreparationFile(folder.path_for(PREPARATION.kind, data_center))


def refuse_conversion() -> None:
    """Raise Refused: a preparation of the data center's hosts was interrupted."""
    raise Refused(
        [
            Sentence(
                "preparation-incomplete",
                "an earlier 'ovirt-rdma hosts prepare' was interrupted and is not "
                "complete; hosts may be in maintenance because of it",
            )
        ],
        "complete it first: ovirt-rdma hosts prepare",
    )


# The same step is tried this often for a host: requests may get lost.
_MOST_TRIES = 3
# How long the engine may take from the answer to the start of the installation, and
# from the host's last status to the event of the end.
START_S = 60.0


def carry_out(
    session: Session,
    access: Optional[AnsibleHosts],
    state: PreparationState,
    keeper: PreparationFile,
    listener: Listener,
    *,
    request: PreparationRequest,
    variables: Mapping[str, Any],
    lock: Optional[DataCenterLock] = None,
) -> PreparationState:
    """Do all remaining steps of ``state``; return the new state. ``variables`` are for
    the role over SSH, ``request`` has the policy. ``lock`` is checked before each
    change.

    A host that fails is activated if it was up, and the next batch is not started.
    Raises EngineProblem if the engine is not available or denies access, and
    StateFileProblem: then the same command resumes the run.
    """
    work = _Work(session, access, keeper, listener)
    work.request, work.variables, work.lock = request, variables, lock
    return work.run(state)


class _Work:
    def __init__(
        self,
        session: Session,
        access: Optional[AnsibleHosts],
        keeper: PreparationFile,
        listener: Listener,
    ) -> None:
        self.request = PreparationRequest()
        self.variables: Mapping[str, Any] = {}
        self.lock: Optional[DataCenterLock] = None
        self._session = session
        self._access = access
        self._keeper = keeper
        self._listener = listener
        self._engine = Engine("")
        self._tries: Counter[tuple[str, tuple[str, ...], str]] = Counter()

    def run(self, state: PreparationState) -> PreparationState:
        state = self._save(replace(state, stage=PREPARING))
        self._engine = read_engine(self._session)
        names = tuple(record.name for record in state.to_do())
        total = sum(1 for _ in imagined(state, self._statuses()))
        self._listener.plan(names, total)
        while state.stage == PREPARING:
            step = next_step(state, self._statuses())
            if step.kind == Kind.FINISH:
                return self._save(finished(state))
            if step.kind == Kind.MARK:
                state = self._marked(state, step.subject, **dict(step.marks or {}))
                continue
            state = self._do(state, step)
            self._read()
        return state

    def _read(self) -> None:
        self._engine = with_hosts_now(self._session, self._engine)

    def _statuses(self) -> dict[str, Optional[str]]:
        return {host.id: host.status for host in self._engine.hosts}

    def _hosts(self, state: PreparationState, step: RunStep) -> list[Host]:
        ids = {state.host(name).id for name in step.names}
        return [host for host in self._engine.hosts if host.id in ids]

    def _do(self, state: PreparationState, step: RunStep) -> PreparationState:
        in_vain = self._in_vain(state, step)
        if in_vain:
            return self._failed(state, step.subject, in_vain)
        changes = step.call is not None or step.kind == Kind.RUN
        if changes and self.lock is not None:
            self.lock.check()
        for name in step.names if step.call is not None else ():
            stored: dict[str, Any] = {"stage": step.before}
            if step.kind == Kind.ENTER:
                # Whatever it was at the start: it is up, so it is up at the end.
                stored["found"] = "up"
            event = newest_event(self._session)
            state = state.with_host(name, **stored, event=event)
        state = self._save(replace(state, doing=step.doing))
        subject = step.subject if len(step.names) == 1 else None
        with reported(self._listener, step.doing, subject) as now:
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
                before = next_step(state, self._statuses())
                self._read()
                if self._same(before, next_step(state, self._statuses())):
                    state = self._failed(state, step.subject, now.problem)
            problems = [state.host(name).problem for name in step.names]
            now.problem = now.problem or "; ".join(filter(None, problems))
        return self._save(replace(state, doing=""))

    def _same(self, one: RunStep, other: RunStep) -> bool:
        """Whether nothing has moved: the engine's refusal is final."""
        return (one.kind, one.names) == (other.kind, other.names)

    def _in_vain(self, state: PreparationState, step: RunStep) -> str:
        if step.call is None and step.kind != Kind.RUN:
            return ""
        key = (step.kind, step.names, state.stage)
        self._tries[key] += 1
        if self._tries[key] <= _MOST_TRIES:
            return ""
        return f"{step.doing} had no effect after {_MOST_TRIES} attempts"

    def _act(self, state: PreparationState, step: RunStep) -> PreparationState:
        if step.call is not None:
            check = self.lock.check if self.lock is not None else lambda: None
            self._session.perform(step.call, before=check)
            return state
        if step.kind == Kind.RUN:
            return self._run_role(state, step)
        if step.kind == Kind.LOOK:
            return self._look(state, step)
        record = state.host(step.subject)
        if step.kind == Kind.WAIT_INSTALL:
            return self._installed(state, record, step)
        why = self._waited(record, step)
        return self._failed(state, record.name, why) if why else state

    def _run_role(self, state: PreparationState, step: RunStep) -> PreparationState:
        hosts = self._hosts(state, step)
        results: Mapping[str, Prepared] = {}
        why = "there is no access to it over SSH"
        try:
            if self._access is not None:
                why = "it did not answer"
                results = self._access.prepare(hosts, self.variables)
        except Problem as problem:
            why = problem.one_line
        present = {host.id: host.name for host in hosts}
        for name in step.names:
            named = present.get(state.host(name).id, name)
            result = results.get(named, Prepared(name, problem=why))
            state = self._judged(state, name, result)
        return state

    def _judged(
        self, state: PreparationState, name: str, result: Prepared
    ) -> PreparationState:
        """Return the state after the role has run: the sentinel decides."""
        for warning in result.warnings:
            self._listener.note(f"{name}: {warning}")
        if result.problem:
            return self._failed(state, name, result.problem, result.fix)
        record = state.host(name)
        over_ssh = record.way == SSH
        if result.no_hardware and not result.sentinel:
            stage = NO_HARDWARE if over_ssh else LEAVING
            return state.with_host(name, stage=stage, sentinel=NO_HARDWARE)
        problem = other_policy(result.sentinel, state.digest)
        if problem:
            return self._failed(state, name, problem)
        stage = CHECKING if over_ssh else LEAVING
        return state.with_host(name, stage=stage, sentinel=result.sentinel)

    def _look(self, state: PreparationState, step: RunStep) -> PreparationState:
        """Compare the hosts' own reports with what their proof says."""
        hosts = self._hosts(state, step)
        reports: Mapping[str, Any] = {}
        if self._access is not None:
            try:
                reports = self._access.reports(hosts)
            except Problem as problem:
                self._listener.note(problem.one_line)
        by_id = {host.id: reports.get(host.name) for host in hosts}
        for name in step.names:
            record = state.host(name)
            report = by_id.get(record.id)
            if record.sentinel == NO_HARDWARE:
                state = self._marked(state, name, stage=NO_HARDWARE)
            elif report is None or report.status is None:
                # The role has proven it; a report is a second opinion.
                state = self._marked(state, name, stage=DONE)
            else:
                state = self._compared(state, record, report)
        return state

    def _compared(
        self, state: PreparationState, record: HostRecord, report: Any
    ) -> PreparationState:
        digest = digest_without_drop_ins(report)
        if state.digest is not None and digest != state.digest:
            has = digest or "no policy"
            why = f"the role has ended, but the host reports {has}, not {state.digest}"
            return self._failed(state, record.name, why)
        look = look_at(report, self.request)
        if record.way == SSH:
            return after_ssh(state, record, look, reinstall=self.request.reinstall)
        return state.with_host(record.name, stage=DONE, left=look.disruptive)

    def _installed(
        self, state: PreparationState, record: HostRecord, step: RunStep
    ) -> PreparationState:
        since: Optional[float] = None

        def ended(host: Any) -> Optional[str]:
            nonlocal since
            status = host.status.value if host.status else None
            if status not in REINSTALLED and not host_is(status, BROKEN):
                since = None
                return None
            since = self._session.clock() if since is None else since
            found = installation(record.name, self._events(record))
            patience_s = START_S if status in REINSTALLED else BROKEN_OUT_S
            waited = self._session.clock() - since >= patience_s
            return status if found.ended or waited else None

        read = Read(f"hosts/{record.id}", step.doing, "get")
        self._session.wait_until(read, ended, step.doing, INSTALL_S)
        found = installation(record.name, self._events(record))
        if not found.started and not found.ended:
            # The request was lost, or the engine restarted before it began.
            return state.with_host(record.name, stage=ENTERING)
        return self._judged(state, record.name, found.result)

    def _events(self, record: HostRecord) -> list[Any]:
        return events_since(self._session, record.event, record.id)

    def _waited(self, record: HostRecord, step: RunStep) -> str:
        """Wait for a host; return why it has failed, "" for the next decision."""
        read = Read(f"hosts/{record.id}", step.doing, "get")
        place = (self._session, self._listener, record.name, read)
        if step.kind == Kind.WAIT_IN:
            return wait_until_in(*place, record.event)
        after = record.event if record.stage == LEAVING else None
        return wait_until_out(*place, after)

    def _failed(
        self, state: PreparationState, name: str, why: str, fix: str = ""
    ) -> PreparationState:
        """Return the state with a failed host, which is activated if we moved it."""
        record = state.host(name)
        back = record.stage not in (TODO, CHECKING, LEAVING) and record.way != SSH
        if record.stage == LEAVING and not record.problem:
            back = False
        sentence = why.rstrip(".")
        self._listener.note(f"{name}: {sentence}")
        problem = f"{record.problem}; {sentence}" if record.problem else sentence
        return state.with_host(
            name,
            stage=LEAVING if back else FAILED,
            problem=problem,
            fix=fix or record.fix,
        )

    def _marked(
        self, state: PreparationState, name: str, **changes: Any
    ) -> PreparationState:
        return self._save(state.with_host(name, **changes))

    def _save(self, state: PreparationState) -> PreparationState:
        self._keeper.write(state)
        return state
