# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the double of the engine: a server, its record of requests, and its faults."""

from __future__ import annotations

import re
import threading
import time
import traceback
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import TracebackType
from typing import Any, Optional
from urllib.parse import parse_qsl, unquote

from engine_double import auth, clusters, jobs, routing, system
from engine_double.answers import (
    API,
    Answer,
    Missing,
    Mistake,
    Refusal,
    done,
    fault,
    in_action,
    one,
)
from engine_double.attached_domains import lose_ovf_updates
from engine_double.behaviours import behaviour
from engine_double.faults import (
    HTML,
    INTERNAL_ERROR,
    UNAUTHORIZED,
    UNAVAILABLE,
    AnyFault,
    Fault,
    Timeout,
    Traps,
)
from engine_double.http_server import HttpServer
from engine_double.world import World, new_id

_FILTER = "restapi/invocation/CurrentFilter.java"
CLEANED = behaviour(
    "REST-01",
    "Of a correlation id, letters, digits, - and _ are kept, 36 of them at most; "
    "without one the engine makes an id. The answer has it in the header "
    "Correlation-Id.",
    f"{_FILTER}:64-83",
    f"{_FILTER}:100-102",
)
NO_BODY = behaviour(
    "REST-03",
    "A missing object is answered with 404 and no body.",
    "restapi/resource/BaseBackendResource.java:234-236",
)
UNAUTHORIZED_PAGE = behaviour(
    "REST-32",
    "Without a good token the answer is 401 and a page of HTML, without a correlation "
    "id.",
    "aaa/filters/EnforceAuthFilter.java:52-58",
)
_ACTIONABLE = "restapi/resource/AbstractBackendActionableResource.java"
IN_ACTION = behaviour(
    "REST-04",
    "What refuses an action is a fault inside of an action whose status is failed; "
    "for setupnetworks, and where a parameter is missing, it is a fault alone.",
    f"{_ACTIONABLE}:159-172",
    "restapi/resource/BackendHostResource.java:260",
)
REMOVED = behaviour(
    "REST-05",
    "What is removed is answered with an action whose status is complete.",
    "restapi/resource/BackendResource.java:178-194",
)
# Actions of performAction, which returns no action element.
_BARE = ("setupnetworks",)
_NOT_IN_CORRELATION = re.compile("[^0-9A-Za-z_-]")


@dataclass(frozen=True)
class SeenRequest:
    """A request; ``path`` is below the API's address, ``body`` is as it was sent."""

    method: str
    path: str
    query: Mapping[str, str]
    body: str
    headers: Mapping[str, str]

    @property
    def changes(self) -> bool:
        return self.method != "GET"


class EngineDouble:
    """The REST API of an engine over ``world``; a context manager.

    ``latency_s`` is added to each request. ``strict_errors`` has the parts of requests
    that the engine does not know; the client gets a 500 for them, and a test must check
    that the list is empty. ``on_change`` is called with each SeenRequest that changes
    something, after it was carried out and before it is answered.
    """

    def __init__(self, world: World, latency_s: float = 0.0) -> None:
        self.world = world
        self.latency_s = latency_s
        self.requests: list[SeenRequest] = []
        self.strict_errors: list[str] = []
        self.sso = auth.Sso(world.passwords, world.does, users=world.users)
        self.traps = Traps()
        self.on_change: Any = None
        # Other addresses that a test's server serves beside the engine's: path prefix
        # to serve(method, target, headers, body).
        self.beside: dict[str, Any] = {}
        self._down_for = 0
        self._closed = threading.Event()
        self._server = HttpServer(self._serve)

    # -- for tests

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{API}"

    def fail_next(
        self, method: str, path: str, what: AnyFault, times: int = 1, after: int = 0
    ) -> None:
        """Let ``what`` happen to the next ``times`` requests after ``after`` others.

        ``path`` is a regular expression to search in the path; the ``method`` ``*`` is
        any.
        """
        self.traps.set(method, path, what, times, after)

    def restart(self, down_for_requests: int = 3) -> None:
        """Restart the engine: sessions are lost, and the next answers are HTML 503."""
        with self.world.lock:
            self._down_for = down_for_requests
            self.sso.tokens.clear()
            lose_ovf_updates(self.world)
            jobs.restart(self.world)
            clusters.restart(self.world)

    def expire_tokens(self) -> None:
        """End all sessions: the next call of each gets 401."""
        self.sso.tokens.clear()

    def changes(self) -> list[SeenRequest]:
        """Return the requests that change something, in order."""
        return [seen for seen in self.requests if seen.changes]

    def __enter__(self) -> EngineDouble:
        self._server.start()
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def close(self) -> None:
        self._closed.set()
        self._server.stop()

    # -- for clients

    def _serve(
        self, method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Optional[Answer]:
        address, _, words = target.partition("?")
        address = unquote(address)
        for prefix, serve in self.beside.items():
            if address.startswith(prefix):
                beside: Optional[Answer] = serve(method, target, headers, raw)
                return beside
        if self._down_for > 0:
            self._down_for -= 1
            return Answer(503, UNAVAILABLE, HTML)
        try:
            if address == API or address.startswith(API + "/"):
                return self._serve_api(method, address[len(API) :], words, headers, raw)
            return self._serve_service(method, address, dict(parse_qsl(words)), raw)
        except Mistake as mistake:
            return self._mistaken(str(mistake))

    def _serve_service(
        self, method: str, address: str, query: Mapping[str, str], raw: bytes
    ) -> Optional[Answer]:
        happens = self.traps.spring(method, address)
        if happens is not None and not happens.applied:
            return self._instead(happens)
        if method == "POST" and address in (auth.TOKEN, auth.LOGOUT):
            with self.world.lock:
                return self.sso.answer(address, raw)
        return system.service(self.world, method, address, query)

    def _serve_api(
        self,
        method: str,
        path: str,
        words: str,
        headers: Mapping[str, str],
        raw: bytes,
    ) -> Optional[Answer]:
        query = dict(parse_qsl(words, keep_blank_values=True))
        path = path.rstrip("/") or "/"
        seen = SeenRequest(method, path, query, raw.decode(), dict(headers.items()))
        with self.world.lock:
            self.requests.append(seen)
        token = headers.get("Authorization", "")
        with self.world.lock:
            refusal = self.sso.refusal(token)
            early = refusal is None and self.sso.begin(token)
        if refusal is not None:
            return self._unauthorized(refusal)
        if early:
            return Answer(500, INTERNAL_ERROR, HTML)
        try:
            if self.latency_s:
                time.sleep(self.latency_s)
            return self._serve_known(seen, raw)
        finally:
            self.sso.known.add(token)

    def _unauthorized(self, sentence: str) -> Answer:
        if not self.world.does(UNAUTHORIZED_PAGE):
            return fault(401, sentence)
        page = UNAUTHORIZED.replace(
            b"Unauthorized", sentence.encode() or b"Unauthorized"
        )
        return Answer(401, page, HTML)

    def _serve_known(self, seen: SeenRequest, raw: bytes) -> Optional[Answer]:
        method, path = seen.method, seen.path
        happens = self.traps.spring(method, path)
        if happens is not None and not happens.applied:
            return self._instead(happens)
        answer = self._carry_out(seen, raw)
        return self._instead(happens) if happens else answer

    def _carry_out(self, seen: SeenRequest, raw: bytes) -> Answer:
        sent = {name.lower(): text for name, text in seen.headers.items()}
        correlation = _correlation_id(self.world, seen.query)
        with self.world.lock:
            answer = self._answer(seen, sent, raw, correlation)
            if self.on_change is not None and seen.changes:
                self.on_change(seen)
        return replace(answer, headers={"Correlation-Id": correlation})

    def _answer(
        self,
        seen: SeenRequest,
        headers: Mapping[str, str],
        raw: bytes,
        correlation: str,
    ) -> Answer:
        try:
            found, ids = routing.find(seen.method, seen.path)
            follow = routing.check_query(found, seen.query)
            body, elements = routing.read_body(found, raw)
            call = routing.Call(
                world=self.world,
                method=seen.method,
                path=seen.path,
                ids=ids,
                query=seen.query,
                headers=headers,
                body=body,
                sent=elements,
                follow=follow,
                correlation_id=correlation or None,
            )
            if seen.changes:
                auth.check_permitted(self.world, headers)
            result = found.handler(call)
        except Missing as missing:
            if self.world.does(NO_BODY):
                return Answer(404, b"")
            return fault(404, f"There is no {missing}.")
        except Refusal as refusal:
            bare = found.root != "action" or found.path.endswith(_BARE)
            if bare or not self.world.does(IN_ACTION):
                return refusal.answer
            return in_action(refusal.answer)
        except Mistake as mistake:
            return self._mistaken(str(mistake))
        except Exception:  # noqa: BLE001 - ours: the test has to see where
            return self._mistaken(traceback.format_exc())
        removed = seen.method == "DELETE" and self.world.does(REMOVED)
        if removed or found.root == "action":
            return done()
        if result is None:
            return Answer(200, b"")
        return result if isinstance(result, Answer) else one(result)

    def _mistaken(self, sentence: str) -> Answer:
        self.strict_errors.append(sentence)
        return fault(500, sentence, reason="The engine double is strict")

    def _instead(self, happens: Fault) -> Optional[Answer]:
        if isinstance(happens, Timeout):
            self._closed.wait(happens.seconds)
        return happens.answer()


def _correlation_id(world: World, query: Mapping[str, str]) -> str:
    named = query.get("correlation_id", "")
    if world.does(CLEANED):
        named = _NOT_IN_CORRELATION.sub("", named)[:36]
    return named or new_id()
