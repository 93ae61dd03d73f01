# SPDX-License-Identifier: GPL-2.0-or-later
"""Send requests through the SDK: log in, reuse connections, translate errors."""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Callable, Union

from ovirt_rdma.engine_sdk_tools.api.auth import log_in, log_out
from ovirt_rdma.engine_sdk_tools.api.connection import EngineConnection
from ovirt_rdma.engine_sdk_tools.api.errors import (
    ADMINISTRATOR,
    DENIED,
    INVALID,
    EngineProblem,
    LoginExpired,
    engine_problem_of,
)
from ovirt_rdma.engine_sdk_tools.api.request import Call, Read, sdk_method
from ovirt_rdma.engine_sdk_tools.api.settings import Settings
from ovirt_rdma.engine_sdk_tools.api.url import engine_host_port

_LOG = logging.getLogger(__name__)
# The importing program configures logging; without this, warnings would go to stderr.
logging.getLogger("ovirt_rdma").addHandler(logging.NullHandler())
# Ids sent by the engine become parts of the URL; none may lead to another path.
_PATH = re.compile(r"(\w[\w.-]*(/\w[\w.-]*)*)?", re.ASCII)
# The number of connections to keep open.
_MOST_IDLE = 8


class EngineApi:
    """The API of one engine. The first request logs in, and a later one if the login
    has expired. May be used by several threads.

    ``answered`` is true after the first answer; before that, the address may be wrong.
    """

    def __init__(self, settings: Settings, clock: Callable[[], float]) -> None:
        self.settings = settings
        self.answered = False
        self.closed = False
        self._clock = clock
        self._token = settings.token
        self._idle: list[EngineConnection] = []
        self._lock = threading.Lock()
        self._login = threading.Lock()
        self._first = threading.Lock()
        # The last token with which a request was answered.
        self._used = ""

    @property
    def where(self) -> str:
        """``HOST[:PORT]`` of the engine."""
        return engine_host_port(self.settings.url)

    def ask(
        self,
        asked: Union[Read, Call],
        words: Mapping[str, Any],
        limit_s: float,
        *,
        fresh: bool = False,
    ) -> Any:
        """Send ``asked`` once, with the arguments ``words``; return the SDK's result.

        ``fresh``: on a new connection. Raises EngineProblem, also after :meth:`close`,
        and TypeError for wrong arguments.
        """
        if not _PATH.fullmatch(asked.path):
            raise EngineProblem(
                "engine-id-invalid",
                f"{asked.doing} failed: the engine {self.where} has sent an invalid "
                f"id: {asked.path!a}",
                INVALID,  # not BROKEN: it was not sent, so nothing was changed
                doing=asked.doing,
            )
        for last in (False, True):
            connection = self._connection(fresh)
            try:
                with self._alone_at_first(connection.token):
                    result = self._send(connection, asked, words, limit_s)
            except LoginExpired as error:
                self._forget(connection)
                if last or self.settings.token is not None:
                    raise self._refused(asked.doing, str(error)) from error
                continue
            except BaseException:
                # libcurl may still be using it.
                connection.release()
                raise
            self._keep(connection)
            return result
        raise AssertionError  # the loop ends in return or raise

    def close(self) -> None:
        """Log out, unless the token comes from the settings. Never raises; may be
        repeated.
        """
        with self._lock:
            self.closed = True
            idle, self._idle = self._idle, []
        for connection in idle:
            connection.release()
        with self._login:
            token, self._token = self._token, None
        if token is not None and token != self.settings.token:
            log_out(self.settings, token)

    def _send(
        self,
        connection: EngineConnection,
        asked: Union[Read, Call],
        words: Mapping[str, Any],
        limit_s: float,
    ) -> Any:
        connection.begin(limit_s)
        method = sdk_method(connection.service(asked.path), asked)
        began = self._clock()
        try:
            result = method(**words)
        except LoginExpired:
            raise
        except Exception as error:
            if not connection.sent:
                # The arguments are wrong, which is a bug of ours.
                raise
            problem = engine_problem_of(
                error, asked.doing, self.where, connection.answer
            )
            _LOG.warning("%s %s: %s", asked.path, asked.method, problem)
            raise problem from error
        took_ms = (self._clock() - began) * 1000
        _LOG.info("%s %s: done in %.0f ms", asked.path, asked.method, took_ms)
        return result

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

    def _connection(self, fresh: bool) -> EngineConnection:
        with self._lock:
            if self._idle and not fresh:
                return self._idle.pop()
        with self._login:
            if self.closed:
                # A thread of an interrupted run is still working.
                raise EngineProblem("session-closed", "the session is closed", INVALID)
            if self._token is None:
                self._token = log_in(self.settings)
                self.answered = True
            return EngineConnection(self.settings, self._token)

    def _keep(self, connection: EngineConnection) -> None:
        with self._lock:
            self.answered = True
            reusable = connection.token == self._token and not self.closed
            if reusable and len(self._idle) < _MOST_IDLE:
                self._idle.append(connection)
                return
        connection.release()

    def _forget(self, refused: EngineConnection) -> None:
        """Make the next request log in, unless another thread has logged in since."""
        # The token first: a connection that another thread returns meanwhile must not
        # be reused.
        with self._login:
            if self._token == refused.token:
                self._token = None
        with self._lock:
            idle, self._idle = self._idle, []
        for connection in (refused, *idle):
            connection.release()

    def _refused(self, doing: str, sentence: str) -> EngineProblem:
        said = f"says: {sentence}" if sentence else "does not accept the token"
        fix = "if the token has expired, log in with a password"
        if "authorized" in sentence:
            fix = ADMINISTRATOR
        return EngineProblem(
            "engine-token-refused",
            f"{doing} failed: the engine {self.where} {said}",
            DENIED,
            code=401,
            fix=fix,
            doing=doing,
        )
