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

from ovirt_rdma.engine_sdk_tools.conversion.acts import Acts
from ovirt_rdma.engine_sdk_tools.conversion.next_step import (
    begun,
    imagined,
    marked,
    next_step,
)
from ovirt_rdma.engine_sdk_tools.conversion.seams import ChangesEngine, KeepsState
from ovirt_rdma.engine_sdk_tools.conversion.sight import (
    UP,
    View,
)
from ovirt_rdma.engine_sdk_tools.conversion.state import (
    BACK,
    CONVERTING,
    FAILED,
    OFFLINE,
    STOPPED,
    UNDER_WAY,
    ConversionState,
)
from ovirt_rdma.engine_sdk_tools.conversion.step import (
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
from ovirt_rdma.engine_sdk_tools.conversion.turns import failed, finished
from ovirt_rdma.engine_sdk_tools.engine_errors import (
    CONFLICT,
    DENIED,
    PASSING,
    UNTRUSTED,
    EngineProblem,
    LostAnswer,
    TimeoutProblem,
)
from ovirt_rdma.engine_sdk_tools.engine_facts import Engine
from ovirt_rdma.engine_sdk_tools.engine_reader import read_engine
from ovirt_rdma.engine_sdk_tools.host_report import HostDoor
from ovirt_rdma.engine_sdk_tools.progress import Listener

# So much is told of a step, with the asking and waiting after it, if all goes well.
_TOLD = {PUSH: 2, ENTER: 2, LEAVE: 3, CALL: 3}
# The same step again and again leads nowhere. A first one may have been lost, and
# a second with it.
_MOST_TIMES = 4


ReadsIt = Callable[[Any], Engine]


def carry_out(
    session: ChangesEngine,
    door: Optional[HostDoor],
    state: ConversionState,
    keeper: KeepsState,
    listener: Listener,
    *,
    read: ReadsIt = read_engine,
    now: Callable[[], float] = time.time,
) -> ConversionState:
    """Do all that is left of ``state``; return it as it is then.

    What fails turns a conversion round. Raises EngineProblem where the engine is out of
    reach or denies us, and StateFileProblem: then all stands still, and the same
    command goes on later.
    """
    work = _Work(session, door, keeper, listener)
    work.read, work.now = read, now
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
        self._session = session
        self._acts = Acts(session, door)
        self._keeper = keeper
        self._listener = listener
        self._told = 0
        self._times: Counter[tuple[str, str, str, str]] = Counter()

    def run(self, state: ConversionState) -> ConversionState:
        self._save(state)
        engine: Optional[Engine] = self.read(self._session)
        self._plan(state, engine)
        while state.stage in UNDER_WAY:
            engine = engine or self.read(self._session)
            view = View(engine, self._acts.sights)
            step = next_step(state, view)
            if step.kind != MARK:
                # Time passes, and things change.
                engine = None
            state = self._one(state, view, step)
        return self._with_those_away(state)

    def _one(self, state: ConversionState, view: View, step: Step) -> ConversionState:  # noqa: PLR0911 - a row a status
        if step.kind == FINISH:
            return self._save(finished(state))
        if step.kind == FAIL:
            return self._failed(state, view, step, step.why)
        if step.kind == MARK:
            return self._save(marked(state, step))
        key = (state.stage, step.kind, step.subject, step.doing)
        self._times[key] += 1
        if step.kind != LOOK and self._times[key] > _MOST_TIMES:
            why = f"{step.doing} had no effect, {_MOST_TIMES} times"
            return self._failed(state, view, step, why)
        state = self._save(begun(state, step))
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
            if problem.kind == CONFLICT and self._is_past(state, step):
                why = ""
        self._forget(step)
        self._listener.end(step.doing, step.subject, why)
        if why:
            return self._failed(state, view, step, why)
        return self._save(replace(state, doing=""))

    def _is_past(self, state: ConversionState, step: Step) -> bool:
        """Whether the engine refused ``step`` because it is done, or under way: by the
        request whose answer was lost, or by somebody else.
        """
        self._forget(step)
        now = next_step(state, View(self.read(self._session), self._acts.sights))
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
                shown = (found.status or "in no known status").replace("_", " ")
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
