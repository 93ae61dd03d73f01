# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out a conversion in a loop: read, decide, store, do one step, store.

Between two steps only host observations that are still valid are kept in memory, so it
does not matter where an earlier run ended, or if the answer to a change was lost.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any, Callable, Optional

from ovirt_rdma.engine_sdk_tools.api.engine_session import BUSY_S, EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import (
    BUSY,
    CONFLICT,
    DENIED,
    INVALID,
    LOCKED,
    PASSING,
    UNTRUSTED,
    EngineProblem,
    LostAnswer,
    TimeoutProblem,
)
from ovirt_rdma.engine_sdk_tools.api.events import events_since, reasons
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.progress import step as reported
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.conversion.actions import (
    Actions,
    HoldsLock,
    KeepsState,
)
from ovirt_rdma.engine_sdk_tools.conversion.host_step import host_step
from ovirt_rdma.engine_sdk_tools.conversion.lock import OtherRun
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERTING,
    DONE,
    FAILED,
    HEAL,
    OFFLINE,
    STOPPED,
    UNDER_WAY,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.next_step import (
    begun,
    imagined,
    marked,
    next_step,
)
from ovirt_rdma.engine_sdk_tools.conversion.observation import UP, Snapshot
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    BEGIN_UPGRADE,
    CALL,
    END_UPGRADE,
    ENTER,
    FAIL,
    FINISH,
    LEAVE,
    LOOK,
    MARK,
    PUSH,
    ConversionStep,
)
from ovirt_rdma.engine_sdk_tools.conversion.transitions import failed, finished
from ovirt_rdma.engine_sdk_tools.hosts.report import HostAccess
from ovirt_rdma.engine_sdk_tools.model import Engine, status_words
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import Problem

# Progress reports per step, with the waits and reports after it, if it is successful.
_REPORTS = {PUSH: 2, ENTER: 2, LEAVE: 3, CALL: 2}
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


def carry_out(
    session: EngineSession,
    door: Optional[HostAccess],
    state: ConversionState,
    keeper: KeepsState,
    listener: Listener,
    *,
    lock: Optional[HoldsLock] = None,
    read: ReadEngine = read_engine,
    now: Callable[[], float] = time.time,
) -> ConversionState:
    """Do all remaining steps of ``state``; return the new state. ``lock`` is checked
    before each change.

    A step that fails rolls the conversion back. Raises EngineProblem if the engine is
    not available or denies access, and StateFileProblem: then the conversion is paused,
    and the same command resumes it.
    """
    work = _Work(session, door, keeper, listener)
    work.read, work.now, work.lock = read, now, lock
    return work.run(state)


class _Work:
    def __init__(
        self,
        session: EngineSession,
        door: Optional[HostAccess],
        keeper: KeepsState,
        listener: Listener,
    ) -> None:
        self.read: ReadEngine = read_engine
        self.now: Callable[[], float] = time.time
        self.lock: Optional[HoldsLock] = None
        self._session = session
        self._actions = Actions(session, door, listener, self._check)
        self._keeper = keeper
        self._listener = listener
        self._steps_done = 0
        self._tries: Counter[tuple[str, str, str, str]] = Counter()
        # Whether a host went to maintenance.
        self._moved = False
        # The time of the first try of each step, by the session's clock.
        self._first_try: dict[tuple[str, str, str, str], float] = {}

    def run(self, state: ConversionState) -> ConversionState:
        self._save(state)
        self._actions.note_refusals(state)
        try:
            state = self._all_steps(state)
        except BaseException:
            self._end_upgrades(state)
            raise
        if state.stage == STOPPED:
            self._end_upgrades(state)
        self._settle(state)
        return self._with_hosts_not_up(state)

    def _all_steps(self, state: ConversionState) -> ConversionState:
        engine: Optional[Engine] = self.read(self._session)
        self._plan(state, engine)
        while state.stage in UNDER_WAY:
            engine = engine or self.read(self._session)
            snapshot = self._actions.snapshot(engine)
            step = next_step(state, snapshot)
            if step.kind != MARK:
                # The engine may change during the step.
                engine = None
            state = self._do(state, snapshot, step)
        return state

    def _end_upgrades(self, state: ConversionState) -> None:
        """Let others move hosts to maintenance; what remains is for the next run."""
        try:
            self._actions.end_upgrades(state.data_center)
        except OtherRun:
            return  # it has them now
        except Problem as problem:
            self._listener.note(
                f"a cluster may stay marked as being upgraded: {problem.one_line}"
            )

    def _check(self) -> None:
        if self.lock is not None:
            self.lock.check()

    def _settle(self, state: ConversionState) -> None:
        """Wait until the data center is up: while the SPM moves it is not, and the
        status of its domains is unknown, so the next command would be refused.
        """
        if not self._moved:
            return
        doing = "waiting for the data center to have an SPM"
        read = Read(f"datacenters/{state.data_center}", doing, "get")

        def settled(data_center: Any) -> Optional[bool]:
            status = data_center.status.value if data_center.status else None
            return None if status in _UNSETTLED else True

        try:
            with reported(self._listener, doing):
                self._session.wait_until(read, settled, doing, SETTLE_S)
        except EngineProblem as problem:
            self._listener.note(problem.one_line)

    def _do(
        self, state: ConversionState, snapshot: Snapshot, step: ConversionStep
    ) -> ConversionState:
        if step.kind == FINISH:
            return self._save(finished(state))
        if step.kind == FAIL:
            return self._failed(state, snapshot, step, step.why)
        if step.kind == MARK:
            return self._marked(state, step)
        why = self._repeated_in_vain(state, step)
        if why:
            return self._failed(state, snapshot, step, why)
        if step.changes:
            self._check()
        before = state
        state = self._save(begun(self._actions.before(state, step), step))
        self._moved = self._moved or step.kind == ENTER
        self._steps_done += 1
        with reported(self._listener, step.doing, step.subject) as now:
            try:
                now.problem = self._actions.act(state, snapshot, step)
            except LostAnswer as problem:
                # The next reading shows if the change was made.
                now.problem = str(problem)
                self._forget(step)
                return state
            except TimeoutProblem as problem:
                now.problem = str(problem)
            except EngineProblem as problem:
                if problem.kind in PASSING or _ends_run(state, step, problem):
                    raise
                why = problem.one_line + f"; {problem.fix}" * (problem.kind == DENIED)
                if problem.kind in _REFUSED and self._is_done_anyway(state, step):
                    state = self._after_refusal(before, state, step, why)
                else:
                    now.problem = why
            self._forget(step)
        if now.problem:
            return self._failed(state, snapshot, step, now.problem)
        return self._save(replace(state, doing=""))

    def _marked(self, state: ConversionState, step: ConversionStep) -> ConversionState:
        state = self._save(marked(state, step))
        if step.of_domain and step.after == DONE:
            # Not during the wait: the events are complete when the domain is active.
            self._actions.note_refusals(state)
        return state

    def _repeated_in_vain(self, state: ConversionState, step: ConversionStep) -> str:
        """Return why ``step`` is not tried again, "" if it is."""
        key = (state.stage, step.kind, step.subject, step.doing)
        now = self._session.clock()
        first = self._first_try.setdefault(key, now)
        tries, self._tries[key] = self._tries[key], self._tries[key] + 1
        if not tries or step.kind == LOOK:
            return ""
        if step.kind != ENTER:
            if tries < _MOST_TRIES:
                return ""
            return f"{step.doing} had no effect after {tries} attempts"
        host = state.host(step.subject)
        texts = reasons(events_since(self._session, host.event), host.id)
        why = f"{step.doing} had no effect" + "".join(
            f": {text}" for text in texts[-1:]
        )
        if now - first >= BUSY_S:
            return why
        self._listener.note(f"{why}; retrying for up to {BUSY_S:.0f} s")
        self._session.sleep(_RETRY_S)
        return ""

    def _after_refusal(
        self,
        before: ConversionState,
        state: ConversionState,
        step: ConversionStep,
        why: str,
    ) -> ConversionState:
        """Return the state after ``step`` was refused because of ``why``, although its
        host reaches the status.
        """
        if step.kind == ENTER:
            # The engine moves it by itself.
            self._listener.note(why)
        if step.kind == LEAVE:
            # Somebody else activated it before we read the newest event.
            event = before.host(step.subject).event
            return state.with_host(step.subject, event=event)
        return state

    def _is_done_anyway(self, state: ConversionState, step: ConversionStep) -> bool:
        """Whether the engine refused ``step`` because it is done or in progress: by the
        request whose answer was lost, or by somebody else.
        """
        self._forget(step)
        snapshot = self._actions.snapshot(self.read(self._session))
        if step.of_domain or state.mode == OFFLINE:
            now = next_step(state, snapshot)
        else:
            # The host's own step, because another host of the batch may come first.
            now = host_step(state, state.host(step.subject), snapshot)
        stays = LOOK if step.kind == ENTER else step.kind
        return (now.kind, now.subject) not in (
            (step.kind, step.subject),
            (stays, step.subject),
        )

    def _failed(
        self, state: ConversionState, snapshot: Snapshot, step: ConversionStep, why: str
    ) -> ConversionState:
        if _is_optional(state, step):
            self._listener.note(f"{why}; the run continues")
            self._actions.unmarked.add(step.subject)
            return state
        before = state.stage
        state = failed(state, step, why)
        if before == CONVERTING:
            self._actions.observations.clear()
            self._listener.note(f"{why.rstrip('.')}; {_consequence(state)}")
            self._plan(state, snapshot.engine)
        elif state.stage == STOPPED:
            self._listener.note(why)
        return self._save(state)

    def _with_hosts_not_up(self, state: ConversionState) -> ConversionState:
        """Add the present status to the reason of hosts that failed and are not up."""
        failed_hosts = [h for h in state.hosts if h.stage == FAILED and h.found == UP]
        if not failed_hosts:
            return state
        snapshot = Snapshot(self.read(self._session))
        for host in failed_hosts:
            present = snapshot.host(host)
            if present is not None and present.status != UP:
                shown = status_words(present.status)
                why = f"{host.why.rstrip('.')}; it is {shown} now"
                state = state.with_host(host.name, why=why)
        return self._save(state)

    def _plan(self, state: ConversionState, engine: Optional[Engine]) -> None:
        """Report the number of steps to the listener."""
        if engine is None:
            return
        left = sum(_REPORTS.get(s.kind, 1) for s in imagined(state, Snapshot(engine)))
        names = tuple(host.name for host in state.hosts)
        self._listener.plan(names, self._steps_done + left)

    def _forget(self, step: ConversionStep) -> None:
        if step.forget == "all":
            self._actions.observations.clear()
        elif step.forget:
            self._actions.observations.pop(step.forget, None)

    def _save(self, state: ConversionState) -> ConversionState:
        state = replace(state, changed_at=float(self.now()))
        self._keeper.write(state)
        return state


def _ends_run(
    state: ConversionState, step: ConversionStep, problem: EngineProblem
) -> bool:
    """Whether nothing can be done after ``problem`` now, not even undone. A user who
    may not do ``step`` is stopped by it on the way forward; a token that is not
    accepted (401) is good for nothing.
    """
    if problem.kind == DENIED:
        undoes = state.undoes and not _is_optional(state, step)
        return problem.code == _NO_LOGIN or undoes
    return problem.kind == UNTRUSTED


def _is_optional(state: ConversionState, step: ConversionStep) -> bool:
    """Whether the run continues without ``step``: a cluster needs its mark on the way
    forward only.
    """
    begins = step.kind == BEGIN_UPGRADE and state.undoes
    return begins or step.kind == END_UPGRADE


def _consequence(state: ConversionState) -> str:
    what = "heal" if state.kind == HEAL else "conversion"
    if state.mode == OFFLINE or any(h.goal == BACK for h in state.hosts):
        return f"the {what} is rolled back"
    return f"the {what} stops here"
