# SPDX-License-Identifier: GPL-2.0-or-later
"""Carrying a conversion out: read, decide, write down, act, write down, again.

Nothing is remembered between two steps but what hosts told and still holds. So it does
not matter where an earlier run ended, or whether the answer to a change was lost.
"""

from __future__ import annotations

import time
from collections import Counter
from dataclasses import replace
from typing import Any, Callable, Optional

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
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.api.session import BUSY_S
from ovirt_rdma.engine_sdk_tools.conversion.actions import (
    Acts,
    ChangesEngine,
    HoldsLock,
    KeepsState,
)
from ovirt_rdma.engine_sdk_tools.conversion.host_step import host_step
from ovirt_rdma.engine_sdk_tools.conversion.model import (
    BACK,
    CONVERTING,
    DONE,
    FAILED,
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
from ovirt_rdma.engine_sdk_tools.conversion.observation import UP, View
from ovirt_rdma.engine_sdk_tools.conversion.steps import (
    CALL,
    ENTER,
    FAIL,
    FINISH,
    LEAVE,
    LOOK,
    MARK,
    PUSH,
    Step,
)
from ovirt_rdma.engine_sdk_tools.conversion.transitions import failed, finished
from ovirt_rdma.engine_sdk_tools.hosts.report import HostDoor
from ovirt_rdma.engine_sdk_tools.model import Engine, status_words
from ovirt_rdma.engine_sdk_tools.reader import read_engine

# So much is told of a step, with the asking and waiting after it, if all goes well.
_TOLD = {PUSH: 2, ENTER: 2, LEAVE: 3, CALL: 2}
# The same step again and again leads nowhere. A first one may have been lost, and
# a second with it.
_MOST_TIMES = 4
# But for a host that the engine says it moves to maintenance, and does not: where the
# SPM cannot be stopped now, the request succeeds and the host stays up
# (MaintenanceNumberOfVdssCommand.java, setVdsStatusToPrepareForMaintenance).
_AGAIN_S = 30.0
# An SPM is elected in seconds; VDSM's own limit is minutes.
SETTLE_S = 600.0
_RESTLESS = ("problematic", "contend", "not_operational", None)
# What may be because it is done already, or under way.
_REFUSED = (CONFLICT, INVALID, LOCKED, BUSY)

ReadsIt = Callable[[Any], Engine]


def carry_out(
    session: ChangesEngine,
    door: Optional[HostDoor],
    state: ConversionState,
    keeper: KeepsState,
    listener: Listener,
    *,
    lock: Optional[HoldsLock] = None,
    read: ReadsIt = read_engine,
    now: Callable[[], float] = time.time,
) -> ConversionState:
    """Do all that is left of ``state``; return it as it is then. ``lock`` is asked
    before each change.

    What fails turns a conversion round. Raises EngineProblem where the engine is out of
    reach or denies us, and StateFileProblem: then all stands still, and the same
    command goes on later.
    """
    work = _Work(session, door, keeper, listener)
    work.read, work.now, work.lock = read, now, lock
    return work.run(state)


class _Work:
    def __init__(
        self,
        session: ChangesEngine,
        door: Optional[HostDoor],
        keeper: KeepsState,
        listener: Listener,
    ) -> None:
        self.read: ReadsIt = read_engine
        self.now: Callable[[], float] = time.time
        self.lock: Optional[HoldsLock] = None
        self._session = session
        self._acts = Acts(session, door, listener, self._check)
        self._keeper = keeper
        self._listener = listener
        self._told = 0
        self._times: Counter[tuple[str, str, str, str]] = Counter()
        # Whether a host went to maintenance.
        self._moved = False
        # When a step was first tried, by the session's clock.
        self._taken_at: dict[tuple[str, str, str, str], float] = {}

    def run(self, state: ConversionState) -> ConversionState:
        self._save(state)
        self._acts.note_refusals(state)
        engine: Optional[Engine] = self.read(self._session)
        self._plan(state, engine)
        while state.stage in UNDER_WAY:
            engine = engine or self.read(self._session)
            view = self._acts.view(engine)
            step = next_step(state, view)
            if step.kind != MARK:
                # Time passes, and things change.
                engine = None
            state = self._one(state, view, step)
        self._settle(state)
        return self._with_those_away(state)

    def _check(self) -> None:
        if self.lock is not None:
            self.lock.check()

    def _settle(self, state: ConversionState) -> None:
        """Wait until the data center is at rest: while the SPM moves it is not up, and
        its domains are unknown, so that the next command would be refused.
        """
        if not self._moved:
            return
        doing = "waiting for the data center to have an SPM"
        read = Read(f"datacenters/{state.data_center}", doing, "get")

        def rests(found: Any) -> Optional[bool]:
            status = found.status.value if found.status else None
            return None if status in _RESTLESS else True

        self._listener.begin(doing)
        try:
            self._session.wait_until(read, rests, doing, SETTLE_S)
        except EngineProblem as problem:
            self._listener.end(doing, problem=str(problem))
            self._listener.note(problem.one_line)
        else:
            self._listener.end(doing)

    def _one(self, state: ConversionState, view: View, step: Step) -> ConversionState:  # noqa: PLR0911 - a row a status
        if step.kind == FINISH:
            return self._save(finished(state))
        if step.kind == FAIL:
            return self._failed(state, view, step, step.why)
        if step.kind == MARK:
            return self._marked(state, step)
        why = self._in_vain(state, step)
        if why:
            return self._failed(state, view, step, why)
        if step.changes:
            self._check()
        before = state
        state = self._save(begun(self._acts.before(state, step), step))
        self._moved = self._moved or step.kind == ENTER
        self._told += 1
        self._listener.begin(step.doing, step.subject)
        try:
            why = self._acts.act(state, view, step)
        except LostAnswer as problem:
            # What became of it is seen at the next reading.
            self._listener.end(step.doing, step.subject, str(problem))
            self._forget(step)
            return state
        except TimeoutProblem as problem:
            why = str(problem)
        except EngineProblem as problem:
            if problem.kind in PASSING or problem.kind in (DENIED, UNTRUSTED):
                self._listener.end(step.doing, step.subject, str(problem))
                raise
            why = problem.one_line
            if problem.kind in _REFUSED and self._is_past(state, step):
                state, why = self._gone_on(before, state, step, why), ""
        self._forget(step)
        self._listener.end(step.doing, step.subject, why)
        if why:
            return self._failed(state, view, step, why)
        return self._save(replace(state, doing=""))

    def _marked(self, state: ConversionState, step: Step) -> ConversionState:
        state = self._save(marked(state, step))
        if step.of_domain and step.after == DONE:
            # Not while it is waited for: the engine answers when it is active.
            self._acts.note_refusals(state)
        return state

    def _in_vain(self, state: ConversionState, step: Step) -> str:
        """Return why ``step`` is not tried once more, "" where it is."""
        key = (state.stage, step.kind, step.subject, step.doing)
        now = self._session.clock()
        first = self._taken_at.setdefault(key, now)
        tries, self._times[key] = self._times[key], self._times[key] + 1
        if not tries or step.kind == LOOK:
            return ""
        if step.kind != ENTER:
            few = tries < _MOST_TIMES
            return "" if few else f"{step.doing} had no effect, {tries} times"
        host = state.host(step.subject)
        said = reasons(events_since(self._session, host.event), host.id)
        why = f"{step.doing} had no effect" + "".join(f": {one}" for one in said[-1:])
        if now - first >= BUSY_S:
            return why
        self._listener.note(f"{why}; trying again for up to {BUSY_S:.0f} s")
        self._session.sleep(_AGAIN_S)
        return ""

    def _gone_on(
        self, before: ConversionState, state: ConversionState, step: Step, why: str
    ) -> ConversionState:
        """Return the state after ``step`` was refused, for the reason ``why``, and its
        host goes on all the same.
        """
        if step.kind == ENTER:
            # By the engine itself.
            self._listener.note(why)
        if step.kind == LEAVE:
            # Somebody else activated it, before we looked at the events.
            event = before.host(step.subject).event
            return state.with_host(step.subject, event=event)
        return state

    def _is_past(self, state: ConversionState, step: Step) -> bool:
        """Whether the engine refused ``step`` because it is done, or under way: by the
        request whose answer was lost, or by somebody else.
        """
        self._forget(step)
        view = self._acts.view(self.read(self._session))
        if step.of_domain or state.mode == OFFLINE:
            now = next_step(state, view)
        else:
            # Its own: another of the batch may come first.
            now = host_step(state, state.host(step.subject), view)
        stays = LOOK if step.kind == ENTER else step.kind
        return (now.kind, now.subject) not in (
            (step.kind, step.subject),
            (stays, step.subject),
        )

    def _failed(
        self, state: ConversionState, view: View, step: Step, why: str
    ) -> ConversionState:
        before = state.stage
        state = failed(state, step, why)
        if before == CONVERTING:
            self._acts.sights.clear()
            self._listener.note(f"{why.rstrip('.')}; {_what_then(state)}")
            self._plan(state, view.engine)
        elif state.stage == STOPPED:
            self._listener.note(why)
        return self._save(state)

    def _with_those_away(self, state: ConversionState) -> ConversionState:
        """Say of hosts that failed and are not up any more how the engine has them."""
        bad = [h for h in state.hosts if h.stage == FAILED and h.found == UP]
        if not bad:
            return state
        view = View(self.read(self._session))
        for host in bad:
            found = view.host(host)
            if found is not None and found.status != UP:
                shown = status_words(found.status)
                why = f"{host.why.rstrip('.')}; it is {shown} now"
                state = state.with_host(host.name, why=why)
        return self._save(state)

    def _plan(self, state: ConversionState, engine: Optional[Engine]) -> None:
        """Tell how much there is to do from here."""
        if engine is None:
            return
        left = sum(_TOLD.get(s.kind, 1) for s in imagined(state, View(engine)))
        names = tuple(host.name for host in state.hosts)
        self._listener.plan(names, self._told + left)

    def _forget(self, step: Step) -> None:
        if step.forget == "all":
            self._acts.sights.clear()
        elif step.forget:
            self._acts.sights.pop(step.forget, None)

    def _save(self, state: ConversionState) -> ConversionState:
        state = replace(state, changed_at=float(self.now()))
        self._keeper.write(state)
        return state


def _what_then(state: ConversionState) -> str:
    if state.mode == OFFLINE or any(h.goal == BACK for h in state.hosts):
        return "it is taken back"
    return "it stops here"
