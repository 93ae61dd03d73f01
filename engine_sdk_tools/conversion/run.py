# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out a conversion in a loop: read, decide, store, do one step, store.

Between two steps only host observations that are still valid are kept in memory, so it
does not matter where an earlier run ended, or if the answer to a change was lost.

A step on a host needs the hosts as they are now, and before it moves one to maintenance
the clusters; the whole engine is read for the other steps, so a conversion sends some
40 requests for each host.
"""

from __future__ import annotations

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
    Step,
    TimeoutProblem,
)
from ovirt_rdma.engine_sdk_tools.api.request import step as reported
from ovirt_rdma.engine_sdk_tools.api.session import (
    BUSY_S,
    DETECTED,
    Session,
    events_since,
    newest_event,
    reasons,
)
from ovirt_rdma.engine_sdk_tools.conversion.fleet import Observation, Snapshot, observe
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    HEAL,
    ConversionState,
    Stage,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import (
    IN,
    OUT,
    Kind,
    RunStep,
    begun,
    failed,
    finished,
    host_step,
    imagined,
    marked,
    next_step,
    upgrades_to_end,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess, Pushed, digest_of
from ovirt_rdma.engine_sdk_tools.job import OtherRun
from ovirt_rdma.engine_sdk_tools.model import (
    BROKEN,
    BROKEN_IN_S,
    BROKEN_OUT_S,
    Engine,
    counted,
    host_is,
    status_words,
)
from ovirt_rdma.engine_sdk_tools.reader import cluster_of, read_engine, with_hosts_now
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
# A deactivation first writes the OVF store, then all hosts unmount the domain.
DOMAIN_S = 1800.0
# An evacuation migrates all virtual machines, some at a time; one without progress is
# given up sooner.
ENTER_S = 4 * 3600.0
# Host activation connects all storage; the engine gives VDSM 180 s per domain. The wait
# for a host that is shown as up is limited by CONNECT_S.
LEAVE_S = 3600.0
# The interval of notes that a wait continues; they also show that the run is alive.
STILL_S = 300.0
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
CONNECT_S = 1800.0

# Of the SDK's object and its status: why the wait has failed, "" for done, None for not
# yet.
Test = Callable[[Any, Optional[str]], Optional[str]]


@dataclass
class HostsRun:
    """Does steps on hosts of a data center one by one, and stores ``state`` with
    ``file`` before and after each. ``check``, called before each change, raises
    OtherRun if another run has the lock.

    Events of the engine show if evacuation and activation have failed or are complete;
    the status of a host does not.
    """

    session: Session
    file: Any
    listener: Listener
    state: Any
    check: Callable[[], None]

    def __post_init__(self) -> None:
        self.engine = Engine("")
        # The times of the tries of each step, by the session's clock.
        self.tries: dict[tuple[str, str, str, str], list[float]] = {}

    def save(self, state: Any) -> None:
        """Store ``state``. Raises StateFileProblem."""
        self.state = state
        self.file.write(state)

    def begin(self, step: RunStep) -> None:
        """Store that ``step`` is started."""
        raise NotImplementedError

    def act(self, step: RunStep, now: Step) -> str:
        """Do ``step``, which is ``now`` reported; return why it failed, or ""."""
        raise NotImplementedError

    def refused(self, step: RunStep, problem: EngineProblem) -> str:
        """Return why ``step`` failed; "" if it is done or in progress all the same."""
        raise NotImplementedError

    def ends_run(self, step: RunStep, problem: EngineProblem) -> bool:
        """Whether nothing can be done after ``problem`` now, not even undone."""
        raise NotImplementedError

    def repeated_in_vain(self, step: RunStep) -> str:
        """Return why ``step`` is not tried again, "" if it is. One that moves a host to
        maintenance is tried longer, with pauses.
        """
        key = (self.state.stage, step.kind, step.subject, step.doing)
        now, times = self.session.clock(), self.tries.setdefault(key, [])
        times.append(now)
        tries = len(times) - 1
        if not tries or step.kind == Kind.LOOK:
            return ""
        if step.kind != Kind.ENTER:
            if tries < _MOST_TRIES:
                return ""
            return f"{step.doing} had no effect after {tries} attempts"
        host = self.state.host(step.subject)
        texts = reasons(events_since(self.session, host.event), host.id)
        why = f"{step.doing} had no effect" + "".join(
            f": {text}" for text in texts[-1:]
        )
        if now - times[0] >= BUSY_S:
            return why
        self.listener.note(f"{why}; retrying for up to {BUSY_S:.0f} s")
        self.session.sleep(_RETRY_S)
        return ""

    def tried(self, step: RunStep) -> str:
        """Store and do ``step``; return why it failed, "" if it has not, or if only the
        next reading shows that. Raises EngineProblem if it ends the run.
        """
        self.begin(step)
        subject = step.subject if len(step.names) == 1 else None
        with reported(self.listener, step.doing, subject) as now:
            try:
                why = self.act(step, now)
            except LostAnswer as problem:
                now.problem = str(problem)
                return ""
            except TimeoutProblem as problem:
                why = str(problem)
            except EngineProblem as problem:
                if problem.kind in PASSING or self.ends_run(step, problem):
                    raise
                why = self.refused(step, problem)
            now.problem = why or now.problem
        if not why:
            self.save(replace(self.state, doing=""))
        return why

    def wait(
        self,
        step: RunStep,
        timeout_s: float,
        test: Test,
        *,
        host: str = "",
        broken_s: float = BROKEN_OUT_S,
    ) -> str:
        """Wait until ``test`` of the object of ``step`` and its status is not None;
        return that. A ``host`` that is broken for ``broken_s`` is not waited for.
        """
        began = noted = well = self.session.clock()

        def arrived(resource: Any) -> Optional[str]:
            nonlocal noted, well
            now = self.session.clock()
            status = resource.status.value if resource.status else None
            if not host or not host_is(status, BROKEN):
                well = now
            elif now - well >= broken_s:
                shown = status_words(status)
                return f"{host} has been {shown} for {broken_s / 60:.0f} minutes"
            if now - noted >= STILL_S:
                noted = now
                minutes = f"{(now - began) / 60:.0f} minutes"
                self.listener.note(f"still {step.doing}, for {minutes}")
            return test(resource, status)

        read = Read(step.path, step.doing, "get")
        return str(self.session.wait_until(read, arrived, step.doing, timeout_s))

    def wait_in(self, step: RunStep, after: int) -> str:
        """Wait until the host is in maintenance, or no longer on the way there; return
        why it is not evacuated, "" if it is. ``after``: the newest event before the
        request.

        It makes progress while a virtual machine migrates or their number falls. The
        engine retries a failed migration by itself.
        """
        name, after = step.subject, after or newest_event(self.session)
        before: Optional[int] = None
        since = self.session.clock()

        def test(host: Any, status: Optional[str]) -> Optional[str]:
            nonlocal before, since
            if status != "preparing_for_maintenance":
                return "" if status in IN else None
            left = (host.summary.total or 0) if host.summary else 0
            migrating = (host.summary.migrating or 0) if host.summary else 0
            now = self.session.clock()
            if left != before or migrating:
                before, since = left, now
            if now - since < (STUCK_S if left else IN_USE_S):
                return None
            minutes = f"{(now - since) / 60:.0f} minutes"
            if not left:
                return (
                    f"{name} is not evacuated: no virtual machine is left on it, but "
                    f"the engine has kept it in use for {minutes}: an image transfer "
                    "(upload, download, backup) may be running"
                )
            events = events_since(self.session, after)
            # A refused deactivation does not name its host.
            refused = [e for e in events if e.code == NOT_TO_MAINTENANCE]
            texts = reasons(events, step.path.rpartition("/")[2]) or [
                str(event.description) for event in refused if event.description
            ]
            reason = f"says: {texts[-1]}" if texts else "gives no reason"
            return (
                f"{name} is not evacuated: {counted(left, 'virtual machine')} stayed "
                f"on it for {minutes}; the engine {reason}"
            )

        return self.wait(step, ENTER_S, test, host=name, broken_s=BROKEN_IN_S)

    def wait_out(self, step: RunStep, after: Optional[int]) -> str:
        """Wait until the host is up with its storage connected, or has failed; return
        why it is not waited for. ``after``: the newest event before our activation,
        None without.
        """
        up_since: Optional[float] = None

        def test(_: Any, status: Optional[str]) -> Optional[str]:
            nonlocal up_since
            if status == "up" and after is not None:
                host = step.path.rpartition("/")[2]
                events = events_since(self.session, after, host)
                now = self.session.clock()
                up_since = now if up_since is None else up_since
                late = now - up_since >= CONNECT_S
                if not late and all(event.code != DETECTED for event in events):
                    return None
            return "" if status in OUT else None

        return self.wait(step, LEAVE_S, test, host=step.subject)


@dataclass
class ConversionRun(HostsRun):
    """Does all remaining steps; ``observed`` are hosts just asked, by name."""

    state: ConversionState
    access: HostAccess
    observed: Mapping[str, Observation] = field(default_factory=dict)

    def __post_init__(self) -> None:
        super().__post_init__()
        # One that did not report is asked.
        valid = {name: o for name, o in self.observed.items() if not o.problem}
        # These three as those of Snapshot.
        self.observations: dict[str, Observation] = valid
        self.arrived: set[str] = set()
        self.unmarked: set[str] = set()
        # Hosts that were asked before their turn.
        self.ahead = set(valid)
        # Whether a host went to maintenance.
        self.moved = False
        self.steps_done = 0
        # The newest event before the request before the last, of the same host.
        self.event = 0

    def run(self) -> ConversionState:
        """Return the state at the end; a step that fails rolls the conversion back.
        Raises EngineProblem (unavailable, access denied) and StateFileProblem: the same
        command resumes it.
        """
        self.save(self.state)
        try:
            self._all_steps()
        except BaseException:
            # It waits for nothing; what remains is for the next run.
            self._end_upgrades(patience_s=0.0)
            raise
        if self.state.stage == Stage.STOPPED:
            self._end_upgrades()
        self._settle()
        return self.state

    def _all_steps(self) -> None:
        self.engine = read_engine(self.session)
        self._plan()
        # What is not older than the last step: the hosts always are.
        clusters = whole = True
        while self.state.stage in Stage.UNDER_WAY:
            before = self.state
            step = next_step(self._now)
            # What stops a run counts as it was seen: it may look sound a moment later.
            ends = step.kind == Kind.FINISH and finished(before).stage != Stage.STOPPED
            if not whole and (step.of_domain or ends):
                self.engine, clusters, whole = read_engine(self.session), True, True
                continue
            if not clusters and step.kind == Kind.ENTER:
                self.engine = with_hosts_now(self.session, self.engine, clusters=True)
                clusters = True
                continue
            try:
                self._do(step)
            except OtherRun:
                # The step was not begun.
                self.save(before)
                raise
            if step.kind != Kind.MARK:
                # The engine may have changed during the step.
                self.engine = with_hosts_now(self.session, self.engine)
                clusters = whole = False

    @property
    def _now(self) -> Snapshot:
        return Snapshot(
            self.state, self.engine, self.observations, self.arrived, self.unmarked
        )

    def _end_upgrades(
        self,
        patience_s: Optional[float] = None,
        *,
        pauses: bool = False,
        again: bool = True,
    ) -> None:
        """Let others move hosts: clear our flags in the engine, as they are now.
        ``pauses``: raise OtherRun, and EngineProblem if it is not available, for the
        next run.
        """
        read = Read("clusters", "reading the clusters")
        try:
            found = map(cluster_of, self.session.read(read, patience_s=patience_s))
            for call in upgrades_to_end(found, self.state.data_center):
                with reported(self.listener, call.doing, call.subject):
                    self.session.perform(call, patience_s=patience_s, before=self.check)
        except OtherRun:
            if pauses:
                raise
            return  # it has them now
        except Problem as problem:
            if again and isinstance(problem, LostAnswer):
                self._end_upgrades(patience_s, pauses=pauses, again=False)
                return
            passing = isinstance(problem, EngineProblem) and problem.kind in PASSING
            if pauses and passing:
                raise
            self.listener.note(
                f"a cluster may stay marked as being upgraded: {problem.one_line}"
            )

    def _settle(self) -> None:
        """Wait until the data center is up: while the SPM moves it is not, and the
        status of its domains is unknown, so the next command would be refused.
        """
        if not self.moved:
            return
        doing = "waiting for the data center to have an SPM"
        read = Read(f"datacenters/{self.state.data_center}", doing, "get")

        def settled(data_center: Any) -> Optional[bool]:
            status = data_center.status.value if data_center.status else None
            return None if status in _UNSETTLED else True

        try:
            with reported(self.listener, doing):
                self.session.wait_until(read, settled, doing, SETTLE_S)
        except EngineProblem as problem:
            self.listener.note(problem.one_line)

    def _do(self, step: RunStep) -> None:
        if step.kind == Kind.FINISH:
            after = finished(self.state)
            if after.stage != Stage.STOPPED:
                # While the record says that there is something left to do.
                self._end_upgrades(pauses=True)
            self.save(after)
            return
        if step.kind == Kind.MARK:
            self.save(marked(self.state, step))
            return
        why = step.why or self.repeated_in_vain(step) or self.tried(step)
        if why:
            self._failed(step, why)

    def begin(self, step: RunStep) -> None:
        """Store that ``step`` is started, with the newest event before a request."""
        if step.kind == Kind.PUSH:
            self.check()
        if step.kind in (Kind.ENTER, Kind.LEAVE):
            self.arrived.discard(step.subject)
            self.event = self.state.host(step.subject).event
            event = newest_event(self.session)
            self.state = self.state.with_host(step.subject, event=event)
        self.save(begun(self.state, step))
        self.moved = self.moved or step.kind == Kind.ENTER
        self.steps_done += 1

    def tried(self, step: RunStep) -> str:
        """Do ``step``, and drop the observations that are outdated then."""
        try:
            return super().tried(step)
        finally:
            self._forget(step)

    def refused(self, step: RunStep, problem: EngineProblem) -> str:
        """Return why ``step`` failed; "" if it is done or in progress: by the request
        whose answer was lost, or by somebody else.
        """
        why = problem.one_line + f"; {problem.fix}" * (problem.kind == DENIED)
        if problem.kind not in _REFUSED:
            return why
        self._forget(step)
        self.engine = read_engine(self.session)
        if step.of_domain or not self.state.request.rolling:
            then = next_step(self._now)
        else:
            # The host's own step, because another host of the batch may come first.
            then = host_step(self._now, self.state.host(step.subject))
        stays = (step.kind, *[Kind.LOOK] * (step.kind == Kind.ENTER))
        if then.subject == step.subject and then.kind in stays:
            return why
        if step.kind == Kind.ENTER:
            self.listener.note(why)  # the engine moves it by itself
        if step.kind == Kind.LEAVE:
            # Somebody else activated it before we read the newest event.
            self.state = self.state.with_host(step.subject, event=self.event)
        return ""

    def ends_run(self, step: RunStep, problem: EngineProblem) -> bool:
        """Whether nothing can be done after ``problem`` now. A user who may not do
        ``step`` is stopped by it on the way forward; a token that is not accepted (401)
        is good for nothing.
        """
        if problem.kind == DENIED:
            undoes = self.state.undoes and not _is_optional(self.state, step)
            return problem.code == _NO_LOGIN or undoes
        return problem.kind == UNTRUSTED

    def act(self, step: RunStep, now: Step) -> str:
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
            return self._look(step.hosts)
        if step.kind == Kind.PUSH:
            return self._push(step)
        if step.of_domain:
            until = step.until
            return self.wait(step, DOMAIN_S, lambda _, s: "" if s in until else None)
        host = self.state.host(step.subject)
        if step.kind == Kind.WAIT_IN:
            return self.wait_in(step, host.event)
        # If a host comes up by itself, the event of its activation is unknown.
        ours = host.stage == Stage.LEAVING
        after = (host.event or newest_event(self.session)) if ours else None
        why = self.wait_out(step, after)
        self.arrived.add(host.name)
        return why

    def _look(self, names: Sequence[str]) -> str:
        state = self.state
        hosts = {name: self._now.host(state.host(name)) for name in names}
        present = [host for host in hosts.values() if host is not None]
        observed: Mapping[str, Observation] = {}
        why = "it was not asked"
        try:
            reports = self.access.reports(present).values()
            observed = observe(present, reports, state.domains)
        except Problem as problem:
            # This concerns these hosts only; a revert continues with the others.
            why = problem.one_line
        others = {n for n in names if state.host(n).stage not in Stage.IN_PLAY}
        if len(others) < len(names):
            self.ahead |= others
        for name, host in hosts.items():
            its = observed.get(host.name) if host else None
            self.observations[name] = its or Observation(problem=why)
        return ""

    def _push(self, step: RunStep) -> str:
        host = self._now.host(self.state.host(step.subject))
        if host is None:
            return f"{step.subject} is no longer in the engine"
        pushed = Pushed(host.name, problem="it did not answer the push of the policy")
        try:
            answers = self.access.push_policy((host,), step.policy)
            pushed = answers.get(host.name, pushed)
        except Problem as problem:
            pushed = Pushed(host.name, problem=problem.one_line)
        before = self.observations.pop(step.subject, None)
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

    def _failed(self, step: RunStep, why: str) -> None:
        if _is_optional(self.state, step):
            self.listener.note(f"{why}; the run continues")
            self.unmarked.add(step.subject)
            return
        before = self.state.stage
        self.state = failed(self._now, step, why)
        if before == Stage.CONVERTING:
            self.observations.clear()
            what = "heal" if self.state.kind == HEAL else "conversion"
            turns = any(h.goal == BACK for h in self.state.hosts)
            turns = turns or not self.state.request.rolling
            then = "is rolled back" if turns else "stops here"
            self.listener.note(f"{why.rstrip('.')}; the {what} {then}")
            self._plan()
        elif step.of_domain:
            self.listener.note(why)
        self.save(self.state)

    def _plan(self) -> None:
        """Report the number of steps to the listener."""
        left = sum(_REPORTS.get(step.kind, 1) for step in imagined(self._now))
        names = tuple(host.name for host in self.state.hosts)
        self.listener.plan(names, self.steps_done + left)

    def _forget(self, step: RunStep) -> None:
        """Drop the observations that are outdated after ``step``."""
        if step.until and step.of_domain:
            self.observations.clear()
        elif step.until:
            self.observations.pop(step.subject, None)


def _is_optional(state: ConversionState, step: RunStep) -> bool:
    """Whether the run continues without it: the way back needs no cluster's mark."""
    return step.kind == Kind.BEGIN_UPGRADE and state.undoes
