# SPDX-License-Identifier: GPL-2.0-or-later
"""Read from and change one engine, with a patience for restarts; the only access to it.

A reading is repeated while the engine restarts. A change is sent again only if it is
certain that the engine did not make it.
"""

from __future__ import annotations

import secrets
import threading
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Any, Callable, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.api.engine_session import BUSY_S
from ovirt_rdma.engine_sdk_tools.api.errors import (
    BROKEN,
    BUSY,
    CONFLICT,
    INVALID,
    LOCKED,
    MISSING,
    PASSING,
    TIMEOUT,
    UNAVAILABLE,
    UNREACHABLE,
    EngineProblem,
    LostAnswer,
    TimeoutProblem,
    lost,
)
from ovirt_rdma.engine_sdk_tools.api.events import events_of_ours, reasons
from ovirt_rdma.engine_sdk_tools.api.parallel import in_parallel
from ovirt_rdma.engine_sdk_tools.api.progress import Listener, NoProgress
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.api.requests_sent import EngineApi
from ovirt_rdma.engine_sdk_tools.api.settings import Settings

_T = TypeVar("_T")

# An engine restarts in a minute or two.
PATIENCE_S = 300.0
# The timeout of a change, in timeouts of a reading: the engine gives VDSM 180 s for one
# command (vdsTimeout), and a change may consist of several.
ACT_TIMES = 10
# More parallel requests do not make an engine faster.
AT_ONCE = 8
_PAUSES_S = (1.0, 2.0, 5.0, 10.0)
# Longer pauses, because each refusal adds an event to the engine's log.
_BUSY_PAUSES_S = (5.0, 15.0, 30.0, 60.0)


class Session:
    """An engine; the first request logs in. May be used by several threads.

    ``correlation_id`` marks our changes in the engine's events. ``performed`` are the
    changes that the engine made. ``listener`` gets notes for the operator.
    """

    def __init__(
        self,
        settings: Settings,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
        patience_s: float = PATIENCE_S,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.sleep = sleep
        self.correlation_id = f"ovirt-rdma-{secrets.token_hex(6)}"
        self.performed: list[Call] = []
        self.listener: Listener = NoProgress()
        self._patience_s = patience_s
        self._api = EngineApi(settings, clock)
        self._lock = threading.Lock()
        self._trouble_noted = False

    @property
    def url(self) -> str:
        """The API's URL."""
        return self.settings.url

    @property
    def where(self) -> str:
        """``HOST[:PORT]`` of the engine."""
        return self._api.where

    def __enter__(self) -> Session:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def read(self, read: Read, *, patience_s: Optional[float] = None) -> Any:
        """Return the SDK's result. Raises EngineProblem; while the engine is not
        available, only after ``patience_s``, by default that of the session.
        """

        def once() -> Any:
            return self._api.ask(read, dict(read.arguments), self.settings.timeout_s)

        return self._patiently(
            once, lambda problem: problem.kind in PASSING, patience_s
        )

    def read_all(self, reads: Sequence[Read]) -> list[Any]:
        """Return the results in order, with up to AT_ONCE requests in parallel. For an
        object that does not exist the EngineProblem is in its place; others are raised.
        """

        def result_of(read: Read) -> Any:
            try:
                return self.read(read)
            except EngineProblem as problem:
                if problem.kind != MISSING:
                    raise
                return problem

        return in_parallel(result_of, reads, AT_ONCE)

    def perform(
        self,
        call: Call,
        *,
        patience_s: Optional[float] = None,
        before: Callable[[], None] = lambda: None,
    ) -> Any:
        """Make a change; return the SDK's result. ``before`` is called before each
        attempt, and may raise.

        The change is sent again if it is certain that the engine did not make it: for
        up to ``patience_s`` if the engine was not reached or the object is locked, for
        up to BUSY_S if tasks or operations have to end first. Raises LostAnswer if the
        engine may have made it, and EngineProblem, with the engine's reason, if not.
        """

        def once() -> Any:
            before()
            return self._act(call, self.settings.timeout_s * ACT_TIMES)

        try:
            result = self._patiently(once, _not_made, patience_s)
        except EngineProblem as problem:
            raise self._with_reason(call, problem) from problem
        with self._lock:
            self.performed.append(call)
        return result

    def report_progress(
        self, call: Call, *, patience_s: float = 0.0, twice: bool = False
    ) -> Any:
        """Make a change that records the run itself (job, events): it is not added to
        ``performed``, and its timeout is that of a reading.

        ``twice``: it may be sent again even if the engine may have made it. Raises as
        :meth:`perform`.
        """

        def again(problem: EngineProblem) -> bool:
            return _not_made(problem) or (twice and problem.kind in PASSING)

        return self._patiently(
            lambda: self._act(call, self.settings.timeout_s), again, patience_s
        )

    def wait_until(
        self,
        read: Read,
        test: Callable[[Any], Optional[_T]],
        doing: str,
        timeout_s: float,
        every_s: float = 2.0,
    ) -> _T:
        """Read every ``every_s`` until ``test`` of the result is not None; return that.

        A status that the SDK does not know is None; ``test`` should keep waiting then.
        Raises TimeoutProblem after ``timeout_s``, and as :meth:`read`.
        """
        until = self.clock() + timeout_s
        while True:
            value = self.read(read)
            result = test(value)
            if result is not None:
                return result
            if self.clock() >= until:
                seen = _status_of(value)
                raise TimeoutProblem(
                    "engine-wait-timeout",
                    f"{doing} is not complete after {timeout_s:.0f} s; "
                    f"last seen: {seen}",
                    seen,
                    doing,
                )
            self.sleep(every_s)

    def close(self) -> None:
        """Log out, unless the token comes from the settings. Never raises; may be
        repeated.
        """
        self._api.close()

    def _with_reason(self, call: Call, problem: EngineProblem) -> EngineProblem:
        """Return ``problem`` with the reason from the engine's events if the answer has
        none: a refusal by one of the engine's internal commands has no message.
        """
        no_reason = problem.kind in (INVALID, CONFLICT, BROKEN) and not problem.detail
        if isinstance(problem, LostAnswer) or problem.code is None or not no_reason:
            return problem
        kind, _, about = call.path.partition("/")
        host = about.partition("/")[0] if kind == "hosts" else None
        try:
            texts = reasons(events_of_ours(self), host)
        except EngineProblem:
            return problem
        if not texts:
            return problem
        reason = "; ".join(text.strip().rstrip(".") for text in texts[-3:])
        return EngineProblem(
            "engine-refused",
            f"{call.doing} failed: the engine {self.where} says: {reason}",
            problem.kind,
            code=problem.code,
            doing=call.doing,
            detail=reason,
        )

    def _act(self, call: Call, limit_s: float) -> Any:
        # Never send JobId: the engine refuses it for actions that it does not monitor
        # (Backend.java:421), and ends the job with those that it monitors
        # (CommandBase.java:1414).
        arguments = dict(call.arguments)
        arguments["query"] = {
            **arguments.get("query", {}),
            "correlation_id": self.correlation_id,
        }
        try:
            # On a new connection: if a connection that was kept open turns out to be
            # closed, libcurl by itself sends the request again.
            return self._api.ask(call, arguments, limit_s, fresh=True)
        except EngineProblem as problem:
            if _may_be_made(problem):
                raise lost(problem) from problem
            raise

    def _patiently(
        self,
        act: Callable[[], _T],
        again: Callable[[EngineProblem], bool],
        patience_s: Optional[float] = None,
    ) -> _T:
        began = self.clock()
        tries = 0
        while True:
            try:
                result = act()
            except EngineProblem as problem:
                refused = problem.kind in (LOCKED, BUSY)
                hopeless = not self._api.answered and not refused
                if hopeless or self._api.closed or not again(problem):
                    raise
                usual_s = BUSY_S if problem.kind == BUSY else self._patience_s
                limit_s = usual_s if patience_s is None else patience_s
                left_s = began + limit_s - self.clock()
                if left_s <= 0:
                    raise
                self._note(problem, limit_s)
                pauses = _BUSY_PAUSES_S if problem.kind == BUSY else _PAUSES_S
                pause_s = pauses[min(tries, len(pauses) - 1)]
                tries += 1
                self.sleep(min(pause_s, left_s))
            else:
                self._trouble_noted = False
                return result

    def _note(self, problem: EngineProblem, limit_s: float) -> None:
        with self._lock:
            if self._trouble_noted:
                return
            self._trouble_noted = True
        self.listener.note(f"{problem.one_line}; retrying for up to {limit_s:.0f} s")


def _status_of(value: Any) -> str:
    """Return the status of an object, in the API's word, for a message."""
    if isinstance(value, list):
        return f"{len(value)} objects"
    status = getattr(value, "status", None)
    return "unknown status" if status is None else str(status)


def _not_made(problem: EngineProblem) -> bool:
    """Whether the engine certainly did not make the change, but may later."""
    if problem.kind in (UNREACHABLE, LOCKED, BUSY):
        return True
    # The API does not exist while the engine's server starts.
    return problem.kind == UNAVAILABLE and problem.code == 404


def _may_be_made(problem: EngineProblem) -> bool:
    if problem.kind in (TIMEOUT, UNAVAILABLE):
        return problem.code != 404
    return problem.kind == BROKEN and (problem.code is None or problem.code < 400)
