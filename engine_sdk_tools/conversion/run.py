# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out a conversion in a loop: read, decide, store, do one step, store.

Between two steps only host observations that are still valid are kept in memory, so it
does not matter where an earlier run ended, or if the answer to a change was lost.

A step on a host needs the hosts as they are now, and before it moves one to maintenance
the clusters; the whole engine is read for the other steps, so a conversion sends some
40 requests for each host.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Callable, Optional

from ovirt_rdma.engine_sdk_tools.api.request import (
    BUSY,
    CONFLICT,
    DENIED,
    INVALID,
    LOCKED,
    PASSING,
    UNTRUSTED,
    EngineProblem,
    Listener,
    LostAnswer,
    Read,
    TimeoutProblem,
)
from ovirt_rdma.engine_sdk_tools.api.request import step as reported
from ovirt_rdma.engine_sdk_tools.api.session import (
    BUSY_S,
    Session,
    events_since,
    newest_event,
    reasons,
)
from ovirt_rdma.engine_sdk_tools.conversion.fleet import (
    UP,
    Observation,
    Snapshot,
    observe,
)
from ovirt_rdma.engine_sdk_tools.conversion.lock import DataCenterLock, OtherRun
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    HEAL,
    OFFLINE,
    ConversionState,
    Stage,
    StateFile,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import (
    begun,
    failed,
    finished,
    host_step,
    imagined,
    marked,
    next_step,
)
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    Kind,
    RunStep,
    upgrade_call,
    wait_until,
    wait_until_in,
    wait_until_out,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostAccess,
    Pushed,
    digest_of,
)
from ovirt_rdma.engine_sdk_tools.model import (
    Engine,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.reader import (
    cluster_of,
    read_engine,
    with_hosts_now,
)
from ovirt_rdma.host.errors import Problem

# Progress reports per step, with the waits and reports after it, if it is successful.
_REPORTS = {Kind.ENTER: 2, Kind.LEAVE: 3, Kind.CALL: 2}
# The same step is tried this often: the first two requests may have been lost.
_MOST_TRIES = 4
# A pause before another try for a host that does not go to maintenance: if the SPM
# cannot be stopped now, the request is successful but the host stays up
# (MaintenanceNumberOfVdssCommand.java, setVdsStatusToPrepareForMaintenance).
_RETRY_S = 30.0
# An SPM is elected in seconds; VDSM's own limit is minutes.
SETTLE_S = 600.0
_UNSETTLED = ("problematic", "contend", "not_operational", None)
# A refusal of these kinds may mean that the change is already made, or in progress.
_REFUSED = (CONFLICT, INVALID, LOCKED, BUSY)

_NO_LOGIN = 401

ReadEngine = Callable[[Any], Engine]
# As reader.with_hosts_now.
HostsNow = Callable[..., Engine]


def carry_out(
    session: Session,
    door: HostAccess,
    state: ConversionState,
    keeper: StateFile,
    listener: Listener,
    *,
    observed: Optional[Mapping[str, Observation]] = None,
    lock: Optional[DataCenterLock] = None,
    read: ReadEngine = read_engine,
    hosts_now: HostsNow = with_hosts_now,
) -> ConversionState:
    """Do all remaining steps of ``state``; return the new state. ``lock`` is checked
    before each change. ``observed`` are hosts that have just been asked, by name.

    A step that fails rolls the conversion back. Raises EngineProblem if the engine is
    not available or denies access, and StateFileProblem: then the conversion is paused,
    and the same command resumes it.
    """
    check = lock.check if lock is not None else lambda: None
    work = _Work(session, door, keeper, listener, check, read, hosts_now)
    # One that did not report is asked.
    known = {name: one for name, one in (observed or {}).items() if not one.problem}
    work.observations.update(known)
    work.ahead.update(known)
    return work.run(state)


@dataclass
class _Work:
    """Does the steps. ``observations`` are the valid reports of hosts, by name;
    ``arrived`` and ``unmarked`` are those of Snapshot. ``check`` is called before each
    request that changes something.
    """

    session: Session
    door: HostAccess
    keeper: StateFile
    listener: Listener
    check: Callable[[], None]
    read: ReadEngine
    hosts_now: HostsNow
    observations: dict[str, Observation] = field(default_factory=dict)
    arrived: set[str] = field(default_factory=set)
    unmarked: set[str] = field(default_factory=set)
    # Hosts that were asked before their turn.
    ahead: set[str] = field(default_factory=set)
    # Whether a host went to maintenance.
    moved: bool = False
    steps_done: int = 0
    tries: Counter[tuple[str, str, str, str]] = field(default_factory=Counter)
    # The time of the first try of each step, by the session's clock.
    first_try: dict[tuple[str, str, str, str], float] = field(default_factory=dict)

    def run(self, state: ConversionState) -> ConversionState:
        self._save(state)
        try:
            state = self._all_steps(state)
        except BaseException:
            self._end_upgrades(state)
            raise
        if state.stage == Stage.STOPPED:
            self._end_upgrades(state)
        self._settle(state)
        return self._with_hosts_not_up(state)

    def _all_steps(self, state: ConversionState) -> ConversionState:
        engine = self.read(self.session)
        self._plan(state, engine)
        # What is not older than the last step: the hosts always are.
        clusters = whole = True
        while state.stage in Stage.UNDER_WAY:
            snapshot = self._snapshot(engine)
            step = next_step(state, snapshot)
            # What stops a run counts as it was seen: it may look sound a moment later.
            ends = step.kind == Kind.FINISH and finished(state).stage != Stage.STOPPED
            if not whole and (step.of_domain or ends):
                engine, clusters, whole = self.read(self.session), True, True
                continue
            if not clusters and step.kind == Kind.ENTER:
                engine = self.hosts_now(self.session, engine, clusters=True)
                clusters = True
                continue
            try:
                state = self._do(state, snapshot, step)
            except OtherRun:
                # The step was not begun.
                self._save(state)
                raise
            if step.kind != Kind.MARK:
                # The engine may have changed during the step.
                engine = self.hosts_now(self.session, engine)
                clusters = whole = False
        return state

    def _snapshot(self, engine: Engine) -> Snapshot:
        return Snapshot(engine, self.observations, self.arrived, self.unmarked)

    def _end_upgrades(self, state: ConversionState) -> None:
        """Let others move hosts to maintenance: clear our flags in the engine, as they
        are there now. It waits for nothing, because the run ends with an error or an
        interrupt; what remains is for the next run.
        """
        read = Read("clusters", "reading the clusters")
        try:
            for cluster in map(cluster_of, self.session.read(read, patience_s=0.0)):
                if cluster.data_center == state.data_center and cluster.is_ours:
                    self.check()
                    self.session.report_progress(upgrade_call(cluster, begins=False))
        except OtherRun:
            return  # it has them now
        except Problem as problem:
            self.listener.note(
                f"a cluster may stay marked as being upgraded: {problem.one_line}"
            )

    def _settle(self, state: ConversionState) -> None:
        """Wait until the data center is up: while the SPM moves it is not, and the
        status of its domains is unknown, so the next command would be refused.
        """
        if not self.moved:
            return
        doing = "waiting for the data center to have an SPM"
        read = Read(f"datacenters/{state.data_center}", doing, "get")

        def settled(data_center: Any) -> Optional[bool]:
            status = data_center.status.value if data_center.status else None
            return None if status in _UNSETTLED else True

        try:
            with reported(self.listener, doing):
                self.session.wait_until(read, settled, doing, SETTLE_S)
        except EngineProblem as problem:
            self.listener.note(problem.one_line)

    def _do(
        self, state: ConversionState, snapshot: Snapshot, step: RunStep
    ) -> ConversionState:
        if step.kind == Kind.FINISH:
            return self._save(finished(state))
        if step.kind == Kind.MARK:
            return self._save(marked(state, step))
        why = step.why or self._repeated_in_vain(state, step)
        if not why:
            if step.kind == Kind.PUSH:
                self.check()
            state, why = self._tried(state, snapshot, step)
        return self._failed(state, snapshot, step, why) if why else state

    def _tried(
        self, state: ConversionState, snapshot: Snapshot, step: RunStep
    ) -> tuple[ConversionState, str]:
        """Do ``step``; return the state, and why it failed, "" if it has not."""
        before = state
        if step.kind in (Kind.ENTER, Kind.LEAVE):
            self.arrived.discard(step.subject)
            event = newest_event(self.session)
            state = state.with_host(step.subject, event=event)
        state = self._save(begun(state, step))
        self.moved = self.moved or step.kind == Kind.ENTER
        self.steps_done += 1
        with reported(self.listener, step.doing, step.subject) as now:
            try:
                now.problem = self._act(state, snapshot, step)
            except LostAnswer as problem:
                # The next reading shows if the change was made.
                now.problem = str(problem)
                self._forget(step)
                return state, ""
            except TimeoutProblem as problem:
                now.problem = str(problem)
            except EngineProblem as problem:
                if problem.kind in PASSING or _ends_run(state, step, problem):
                    raise
                why = problem.one_line + f"; {problem.fix}" * (problem.kind == DENIED)
                if problem.kind in _REFUSED and self._is_done_anyway(state, step):
                    if step.kind == Kind.ENTER:
                        self.listener.note(why)  # the engine moves it by itself
                    if step.kind == Kind.LEAVE:
                        # Somebody else activated it before we read the newest event.
                        event = before.host(step.subject).event
                        state = state.with_host(step.subject, event=event)
                else:
                    now.problem = why
            self._forget(step)
        if now.problem:
            return state, now.problem
        return self._save(replace(state, doing="")), ""

    def _act(self, state: ConversionState, snapshot: Snapshot, step: RunStep) -> str:
        """Do ``step``; return why it failed, or ""."""
        if step.kind in (Kind.PUSH, Kind.ENTER):
            self.ahead.discard(step.subject)
        if step.kind == Kind.ENTER:
            # Until their turn others may change: they are asked again.
            for name in self.ahead:
                self.observations.pop(name, None)
            self.ahead.clear()
        if step.call is not None:
            self.session.perform(step.call, before=self.check)
            return ""
        if step.kind == Kind.LOOK:
            return self._look(state, snapshot, step.hosts)
        if step.kind == Kind.PUSH:
            return self._push(state, snapshot, step)
        read = Read(step.path, step.doing, "get")
        place = (self.session, self.listener)
        if step.of_domain:
            return wait_until(
                *place,
                read,
                step.timeout_s,
                lambda _, status: "" if status in step.until else None,
            )
        host = state.host(step.subject)
        if step.kind == Kind.WAIT_IN:
            return wait_until_in(*place, host.name, read, host.event)
        # If a host comes up by itself, the event of its activation is unknown.
        ours = host.stage == Stage.LEAVING
        after = (host.event or newest_event(self.session)) if ours else None
        why = wait_until_out(*place, host.name, read, after)
        self.arrived.add(host.name)
        return why

    def _look(
        self, state: ConversionState, snapshot: Snapshot, names: Sequence[str]
    ) -> str:
        hosts = {name: snapshot.host(state.host(name)) for name in names}
        present = [host for host in hosts.values() if host is not None]
        observed: Mapping[str, Observation] = {}
        why = "it was not asked"
        try:
            reports = self.door.reports(present).values()
            observed = observe(present, reports, state.domains)
        except Problem as problem:
            # This concerns these hosts only; a revert continues with the others.
            why = problem.one_line
        in_play = [h.name for h in state.hosts if h.stage in Stage.IN_PLAY]
        if not set(names).isdisjoint(in_play):
            self.ahead.update(set(names).difference(in_play))
        for name, host in hosts.items():
            its = observed.get(host.name) if host else None
            self.observations[name] = its or Observation(problem=why)
        return ""

    def _push(self, state: ConversionState, snapshot: Snapshot, step: RunStep) -> str:
        host = snapshot.host(state.host(step.subject))
        if host is None:
            return f"{step.subject} is no longer in the engine"
        pushed: Optional[Pushed]
        try:
            answers = self.door.push_policy((host,), step.policy)
            pushed = answers.get(host.name)
        except Problem as problem:
            pushed = Pushed(host.name, problem=problem.one_line)
        before = self.observations.pop(step.subject, None)
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
        if before is not None and pushed.digest is not None:
            # The host has reported it after the load, and its mounts stay.
            self.observations[step.subject] = replace(
                before, policy=step.policy, digest=digest
            )
        return ""

    def _repeated_in_vain(self, state: ConversionState, step: RunStep) -> str:
        """Return why ``step`` is not tried again, "" if it is."""
        key = (state.stage, step.kind, step.subject, step.doing)
        now = self.session.clock()
        first = self.first_try.setdefault(key, now)
        tries, self.tries[key] = self.tries[key], self.tries[key] + 1
        if not tries or step.kind == Kind.LOOK:
            return ""
        if step.kind != Kind.ENTER:
            if tries < _MOST_TRIES:
                return ""
            return f"{step.doing} had no effect after {tries} attempts"
        host = state.host(step.subject)
        texts = reasons(events_since(self.session, host.event), host.id)
        why = f"{step.doing} had no effect" + "".join(
            f": {text}" for text in texts[-1:]
        )
        if now - first >= BUSY_S:
            return why
        self.listener.note(f"{why}; retrying for up to {BUSY_S:.0f} s")
        self.session.sleep(_RETRY_S)
        return ""

    def _is_done_anyway(self, state: ConversionState, step: RunStep) -> bool:
        """Whether the engine refused ``step`` because it is done or in progress: by the
        request whose answer was lost, or by somebody else.
        """
        self._forget(step)
        snapshot = self._snapshot(self.read(self.session))
        if step.of_domain or state.mode == OFFLINE:
            now = next_step(state, snapshot)
        else:
            # The host's own step, because another host of the batch may come first.
            now = host_step(state, state.host(step.subject), snapshot)
        stays = (step.kind, *[Kind.LOOK] * (step.kind == Kind.ENTER))
        return now.subject != step.subject or now.kind not in stays

    def _failed(
        self, state: ConversionState, snapshot: Snapshot, step: RunStep, why: str
    ) -> ConversionState:
        if _is_optional(state, step):
            self.listener.note(f"{why}; the run continues")
            self.unmarked.add(step.subject)
            return state
        before = state.stage
        state = failed(state, step, why)
        if before == Stage.CONVERTING:
            self.observations.clear()
            self.listener.note(f"{why.rstrip('.')}; {_consequence(state)}")
            self._plan(state, snapshot.engine)
        elif state.stage == Stage.STOPPED:
            self.listener.note(why)
        return self._save(state)

    def _with_hosts_not_up(self, state: ConversionState) -> ConversionState:
        """Add the present status to the reason of hosts that failed and are not up."""
        failed_hosts = [
            h for h in state.hosts if h.stage == Stage.FAILED and h.found == UP
        ]
        if not failed_hosts:
            return state
        snapshot = Snapshot(self.read(self.session))
        for host in failed_hosts:
            present = snapshot.host(host)
            if present is not None and present.status != UP:
                shown = status_words(present.status)
                why = f"{host.why.rstrip('.')}; it is {shown} now"
                state = state.with_host(host.name, why=why)
        return self._save(state)

    def _plan(self, state: ConversionState, engine: Engine) -> None:
        """Report the number of steps to the listener."""
        left = sum(
            _REPORTS.get(s.kind, 1) for s in imagined(state, self._snapshot(engine))
        )
        names = tuple(host.name for host in state.hosts)
        self.listener.plan(names, self.steps_done + left)

    def _forget(self, step: RunStep) -> None:
        if step.forget == "all":
            self.observations.clear()
        elif step.forget:
            self.observations.pop(step.forget, None)

    def _save(self, state: ConversionState) -> ConversionState:
        self.keeper.write(state)
        return state


def _ends_run(state: ConversionState, step: RunStep, problem: EngineProblem) -> bool:
    """Whether nothing can be done after ``problem`` now, not even undone. A user who
    may not do ``step`` is stopped by it on the way forward; a token that is not
    accepted (401) is good for nothing.
    """
    if problem.kind == DENIED:
        undoes = state.undoes and not _is_optional(state, step)
        return problem.code == _NO_LOGIN or undoes
    return problem.kind == UNTRUSTED


def _is_optional(state: ConversionState, step: RunStep) -> bool:
    """Whether the run continues without ``step``: a cluster needs its mark on the way
    forward only.
    """
    begins = step.kind == Kind.BEGIN_UPGRADE and state.undoes
    return begins or step.kind == Kind.END_UPGRADE


def _consequence(state: ConversionState) -> str:
    what = "heal" if state.kind == HEAL else "conversion"
    if state.mode == OFFLINE or any(h.goal == BACK for h in state.hosts):
        return f"the {what} is rolled back"
    return f"the {what} stops here"
