# SPDX-License-Identifier: GPL-2.0-or-later
"""Hold a session with the engine over its SDK: the connections and their limits, the
requests with what is tried again, and reading in parallel.

At its end, a program waits for the threads of concurrent.futures, however long they
take. It does not wait for these threads.

Each request has a connection of its own: libcurl by itself sends a request again if a
connection that was kept open turns out to be closed.

A reading is repeated while the engine restarts. A change is sent again only if it is
certain that the engine did not make it.
"""

from __future__ import annotations

import math
import re
import secrets
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Callable, Optional, TypeVar, Union
from urllib.parse import urlencode

from ovirtsdk4 import http

from ovirt_rdma.engine_sdk_tools.api.auth import (
    Settings,
    WebAnswer,
    ask,
    engine_host_port,
    log_in,
    log_out,
)
from ovirt_rdma.engine_sdk_tools.api.request import (
    ADMINISTRATOR,
    BROKEN,
    BUSY,
    CONFLICT,
    DENIED,
    INVALID,
    LOCKED,
    MISSING,
    MOST_BYTES,
    PASSING,
    TIMEOUT,
    UNAVAILABLE,
    UNREACHABLE,
    Call,
    EngineProblem,
    Listener,
    LoginExpired,
    LostAnswer,
    Read,
    TimeoutProblem,
    engine_problem_of,
    sdk_method,
    sentence_of_page,
    services,
    types,
)
from ovirt_rdma.host.system.text import printable

_In = TypeVar("_In")
_Out = TypeVar("_Out")


def in_parallel(
    act: Callable[[_In], _Out], subjects: Sequence[_In], at_once: int
) -> list[_Out]:
    """Return the result of ``act`` for each subject, in order, ``at_once`` at a time.
    After an error no new call is started, and the first in their order is raised.
    """
    results: dict[int, _Out] = {}
    errors: dict[int, BaseException] = {}
    # Python gives each of its items to one thread.
    pending = iter(list(enumerate(subjects)))

    def work() -> None:
        while not errors and (item := next(pending, None)) is not None:
            number, subject = item
            try:
                results[number] = act(subject)
            except BaseException as error:  # noqa: BLE001  (the caller raises it)
                errors[number] = error

    threads = [
        threading.Thread(target=work, daemon=True)
        for _ in range(min(at_once, len(subjects)))
    ]
    for thread in threads:
        thread.start()
    try:
        for thread in threads:
            thread.join()
    except BaseException as error:
        errors[len(subjects)] = error
        raise
    if errors:
        raise errors[min(errors)]
    return [results[number] for number in range(len(subjects))]


_NOT_PLAIN = re.compile(r"[^\t\n\r -~]")


class _Exchange:
    """One request with ``token`` and ``limit_s`` seconds: the part of a connection that
    services use. Raises EngineProblem without an answer, LoginExpired for HTTP 401.
    """

    def __init__(
        self, settings: Settings, token: str, doing: str, limit_s: float
    ) -> None:
        self._settings, self._token = settings, token
        self._doing, self._limit_s = doing, limit_s
        self.answer: Optional[WebAnswer] = None

    def send(self, request: Any) -> Any:
        """Return what ``wait`` needs; called by the SDK."""
        return request

    def wait(self, request: Any) -> Any:
        """Send the request, and return the answer; called by the SDK."""
        query = f"?{urlencode(request.query)}" if request.query else ""
        answer = ask(
            f"{self._settings.url}{request.path}{query}",
            self._doing,
            ca_file=self._settings.ca_file,
            timeout_s=self._limit_s,
            token=self._token,
            most_bytes=MOST_BYTES,
            xml=(request.method, request.body or ""),
        )
        if answer.code == 401:
            raise LoginExpired(sentence_of_page(answer.body))
        self.answer = answer
        body = _without_control_characters(answer.body)
        return http.Response(body=body, code=answer.code)

    def check_xml_content_type(self, _: Any) -> None:
        """Raise ValueError if the answer is not XML; called by the SDK."""
        if self.answer and not self.answer.media.endswith("/xml"):
            raise ValueError(self.answer.media)


def _without_control_characters(body: str) -> bytes:
    """Return the XML ``body`` with references (``&#155;``) in place of what controls a
    terminal: libxml2 writes a line that is not well-formed to stderr as it is.
    """

    def reference(match: re.Match[str]) -> str:
        letter = match[0]
        return letter if printable(letter) == letter else f"&#{ord(letter)};"

    return _NOT_PLAIN.sub(reference, body).encode("utf-8")


# The engine refuses a change until its tasks or operations have ended: a snapshot or a
# backup may take this long.
BUSY_S = 1800.0

# Ids sent by the engine become parts of the URL; none may lead to another path.
_PATH = re.compile(r"(\w[\w.-]*(/\w[\w.-]*)*)?", re.ASCII)

_T = TypeVar("_T")

# An engine restarts in a minute or two.
PATIENCE_S = 300.0
# The timeout of a change, in timeouts of a reading: the engine gives VDSM 180 s for one
# command (vdsTimeout), and a change may consist of several.
ACT_TIMES = 10
_BETWEEN_READS_S = 2.0
# More parallel requests do not make an engine faster.
AT_ONCE = 8
_PAUSES_S = (1.0, 2.0, 5.0, 10.0)
# Longer pauses, because each refusal adds an event to the engine's log.
_BUSY_PAUSES_S = (5.0, 15.0, 30.0, 60.0)


class Session:
    """An engine, for several threads. The first request logs in, and a later one if
    that has expired. ``correlation_id`` marks our changes in events; ``performed`` are
    those made. ``listener`` gets notes for the operator.
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
        self.listener: Listener = Listener()
        self._patience_s = patience_s
        self._trouble_noted, self._trouble_ended = False, -math.inf
        # After the first answer; before that, the address may be wrong.
        self._answered = False
        self._closed = False
        self._token = settings.token
        self._lock = threading.Lock()
        self._login = threading.Lock()
        self._first = threading.Lock()
        # The last token with which a request was answered.
        self._used = ""

    @property
    def url(self) -> str:
        """The API's URL."""
        return self.settings.url

    @property
    def where(self) -> str:
        """``HOST[:PORT]`` of the engine."""
        return engine_host_port(self.settings.url)

    def __enter__(self) -> Session:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def read(self, read: Read, *, patience_s: Optional[float] = None) -> Any:
        """Return the SDK's result. Raises EngineProblem; while the engine is not
        available, only after ``patience_s``, by default that of the session.
        """
        return self._patiently(
            lambda: self._ask(read, self.settings.timeout_s),
            lambda problem: problem.kind in PASSING,
            patience_s,
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
        attempt.

        It is sent again only if the engine certainly did not make it: for
        ``patience_s`` if it was not reached or the object is locked, for BUSY_S if
        tasks have to end first. Raises LostAnswer if it may have made it, else
        EngineProblem with the reason.
        """

        def once() -> Any:
            before()
            return self._act(call, self.settings.timeout_s * ACT_TIMES)

        try:
            result = self._patiently(once, _not_made, patience_s)
        except EngineProblem as problem:
            raise self._with_reason(call, problem) from problem
        self.performed.append(call)
        return result

    def report_progress(
        self, call: Call, *, patience_s: float = 0.0, twice: bool = False
    ) -> Any:
        """Make a change that records the run itself: not in ``performed``, with the
        timeout of a reading. ``twice``: it may be sent again even if made. Raises as
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
    ) -> _T:
        """Read until ``test`` of the result is not None; return that. An unknown status
        is None, and no end. Raises TimeoutProblem after ``timeout_s``, and as
        :meth:`read`.
        """
        until = self.clock() + timeout_s
        while True:
            value = self.read(read)
            result = test(value)
            if result is not None:
                return result
            if self.clock() >= until:
                what = f"it is not complete after {timeout_s:.0f} s; last seen: "
                what += _status_of(value)
                raise TimeoutProblem("engine-wait-timeout", doing, what, TIMEOUT)
            self.sleep(_BETWEEN_READS_S)

    def close(self) -> None:
        """Log out, but from a token of the settings. Never raises; may be repeated."""
        self._closed = True
        with self._login:
            token, self._token = self._token, None
        if token is not None and token != self.settings.token:
            log_out(self.settings, token)

    def _with_reason(self, call: Call, problem: EngineProblem) -> EngineProblem:
        """Return ``problem`` with the reason from the engine's events if the answer has
        none: a refusal by one of the engine's internal commands has no message.
        """
        unexplained = problem.kind in (INVALID, CONFLICT, BROKEN) and not problem.detail
        if isinstance(problem, LostAnswer) or problem.code is None or not unexplained:
            return problem
        kind, *about = call.path.split("/")
        host = about[0] if kind == "hosts" and about else None
        try:
            # The newest events that our requests caused, the oldest first.
            ours = f"correlation_id={self.correlation_id}"
            texts = reasons(_events(self, search=ours, max=_MOST_EVENTS)[::-1], host)
        except EngineProblem:
            return problem
        if not texts:
            return problem
        reason = "; ".join(text.strip().rstrip(".") for text in texts[-3:])
        what = f"the engine {self.where} says: {reason}"
        more: Any = {"code": problem.code, "detail": reason}
        return EngineProblem("engine-refused", call.doing, what, problem.kind, **more)

    def _act(self, call: Call, limit_s: float) -> Any:
        try:
            return self._ask(call, limit_s)
        except EngineProblem as problem:
            if _may_be_made(problem):
                raise LostAnswer(problem) from problem
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
            asked = self.clock()
            try:
                result = act()
            except EngineProblem as problem:
                refused = problem.kind in (LOCKED, BUSY)
                hopeless = not self._answered and not refused
                if hopeless or self._closed or not again(problem):
                    raise
                usual_s = BUSY_S if problem.kind == BUSY else self._patience_s
                limit_s = usual_s if patience_s is None else patience_s
                left_s = began + limit_s - self.clock()
                if left_s <= 0:
                    raise
                self._note(problem, limit_s, asked)
                pauses = _BUSY_PAUSES_S if problem.kind == BUSY else _PAUSES_S
                pause_s = pauses[min(tries, len(pauses) - 1)]
                tries += 1
                self.sleep(min(pause_s, left_s))
            else:
                with self._lock:
                    if self._trouble_noted:
                        self._trouble_noted, self._trouble_ended = False, self.clock()
                return result

    def _note(self, problem: EngineProblem, limit_s: float, asked: float) -> None:
        with self._lock:
            # What was asked before another request succeeded is of the same trouble.
            if self._trouble_noted or asked < self._trouble_ended:
                return
            self._trouble_noted = True
        self.listener.note(f"{problem.one_line}; retrying for up to {limit_s:.0f} s")

    def _ask(self, asked: Union[Read, Call], limit_s: float) -> Any:
        """Send ``asked`` once; return the SDK's result. Raises EngineProblem."""
        if not _PATH.fullmatch(asked.path):
            what = f"the engine {self.where} has sent an invalid id: {asked.path!a}"
            # Not BROKEN: it was not sent, so nothing was changed.
            raise EngineProblem("engine-id-invalid", asked.doing, what, INVALID)
        words = dict(asked.arguments)
        if isinstance(asked, Call):
            # Never send JobId: the engine refuses it for actions that it does not
            # monitor (Backend.java:421), and ends the job with those that it monitors
            # (CommandBase.java:1414).
            ours = {"correlation_id": self.correlation_id}
            words["query"] = {**words.get("query", {}), **ours}
        for last in (False, True):
            token = self._logged_in(asked.doing)
            exchange = _Exchange(self.settings, token, asked.doing, limit_s)
            try:
                with self._alone_at_first(token):
                    service = services.SystemService(exchange, "").service(asked.path)
                    result = sdk_method(service, asked)(**words)
            except LoginExpired as error:
                with self._login:
                    if self._token == token:
                        self._token = None
                if last or self.settings.token is not None:
                    raise self._refused(asked.doing, str(error)) from error
            except Exception as error:
                if exchange.answer is None:
                    # An EngineProblem; or the arguments are wrong, a bug of ours.
                    raise
                raise engine_problem_of(
                    error, asked.doing, self.where, exchange.answer
                ) from error
            else:
                self._answered = True
                return result
        raise AssertionError  # the loop ends in return or raise

    def _logged_in(self, doing: str) -> str:
        """Return the token."""
        with self._login:
            if self._closed:
                # A thread of an interrupted run is still working.
                what = "the session is closed"
                raise EngineProblem("session-closed", doing, what, INVALID)
            if self._token is None:
                try:
                    self._token = log_in(self.settings)
                except EngineProblem as problem:
                    problem.in_login = True
                    raise
                self._answered = True
            return self._token

    @contextmanager
    def _alone_at_first(self, token: str) -> Iterator[None]:
        """Send nothing else with a ``token`` before its first request is answered: the
        engine makes its session meanwhile, and answers 500 to others now and then
        (SessionDataContainer.java:402-406, isSsoOvirtAppApiScope).
        """
        with self._first:
            if token != self._used:
                yield
                self._used = token
                return
        yield

    def _refused(self, doing: str, sentence: str) -> EngineProblem:
        said = f"says: {sentence}" if sentence else "does not accept the token"
        fix = "if the token has expired, log in with a password"
        if "authorized" in sentence:
            fix = ADMINISTRATOR
        what = f"the engine {self.where} {said}"
        return EngineProblem(
            "engine-token-refused", doing, what, DENIED, code=401, fix=fix
        )


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
    if problem.in_login and problem.kind in PASSING:
        return True
    # The API does not exist while the engine's server starts.
    return problem.kind == UNAVAILABLE and problem.code == 404


def _may_be_made(problem: EngineProblem) -> bool:
    if problem.in_login:
        return False
    if problem.kind in (TIMEOUT, UNAVAILABLE):
        return problem.code != 404
    return problem.kind == BROKEN and (problem.code is None or problem.code < 400)


# The engine's audit log has the results of our requests: the status of an object often
# does not show why a request was refused, that virtual machines do not leave a host, or
# that a host which is up has connected its storage.

# VDS_DETECTED: written when a host that is up has connected its storage, and not if
# that failed (InitVdsOnUpCommand.java:193-196, ovirt-engine 4.5.7). The status "up" is
# shown earlier (HostMonitoring.java:116-119). Hosts that do not become up get the event
# too (HostMonitoring.java:801-807), so it counts only for a host that is up.
DETECTED = 13
_MOST_EVENTS = 50


def newest_event(session: Session) -> int:
    """Return the id of the newest event; 0 if there is none."""
    newest = _events(session, max=1)
    return int(newest[0].id) if newest else 0


def events_since(session: Session, after: int, host: Optional[str] = None) -> list[Any]:
    """Return the events newer than the one with the id ``after``, the oldest first:
    those about the host with the id ``host``, or all.
    """
    events = _events(session, from_=after)[::-1]
    return [event for event in events if host is None or _is_about(event, host)]


def reasons(events: Iterable[Any], host: Optional[str] = None) -> list[str]:
    """Return the texts of the warnings and errors among ``events``, each once: those
    about ``host``, or without it those that name no host.
    """
    bad = (types.LogSeverity.WARNING, types.LogSeverity.ERROR, types.LogSeverity.ALERT)
    texts = [
        str(event.description)
        for event in events
        if event.severity in bad
        and event.description
        and (_is_about(event, host) if host else event.host is None)
    ]
    return list(dict.fromkeys(texts))


def _is_about(event: Any, host: str) -> bool:
    return event.host is not None and event.host.id == host


def _events(session: Session, **words: Any) -> list[Any]:
    return list(session.read(Read("events", "reading the events", arguments=words)))
