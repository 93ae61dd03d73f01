# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a recording proxy on loopback in front of an engine: plain HTTP for clients.

It records all clients of a run at the wire, whatever library they use.
"""

from __future__ import annotations

import contextlib
import http.client
import ssl
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional
from urllib.parse import urlsplit

from engine_double.answers import Answer
from engine_double.http_server import HttpServer

from engine_recording.exchanges import RUN, Exchange, RecordingWriter
from engine_recording.without_secrets import Secrets

# Headers of one connection only, and those that would make answers unreadable.
_NOT_PASSED = {"host", "connection", "accept-encoding", "content-length", "expect"}
_NOT_PASSED |= {"keep-alive", "te", "trailer", "transfer-encoding", "upgrade"}
# The engine may need ten times the 60 s of a read for a change.
_PATIENCE_S = 900.0


class RecordingProxy:
    """Serves the engine at ``url``, below the same path; a context manager.

    ``part`` names what is recorded now. ``passwords`` of the run are left out.
    """

    def __init__(
        self,
        engine: str,
        folder: Path,
        passwords: tuple[str, ...] = (),
        ca_file: Optional[str] = None,
    ) -> None:
        self._engine = urlsplit(engine)
        self._ca_file = ca_file
        self._secrets = Secrets(passwords, self._engine.netloc)
        self._readings = threading.Lock()
        self._lock = threading.Lock()
        self.writer = RecordingWriter(folder)
        self.part = RUN
        self._began_s = time.monotonic()
        self._server = HttpServer(self._serve)
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.005,), daemon=True
        )

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_port}{self._engine.path}"

    def __enter__(self) -> RecordingProxy:
        self._thread.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.cut_off()
        self._server.server_close()
        self._thread.join()

    def _serve(
        self, method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Optional[Answer]:
        # One read at a time, so that the order in the recording is the engine's.
        one_by_one = self._readings if method == "GET" else contextlib.nullcontext()
        with one_by_one:
            began_s = round(time.monotonic() - self._began_s, 1)
            answer = self._ask(method, target, headers, raw)
            exchange = Exchange(
                0,
                self.part,
                began_s,
                method,
                target,
                dict(headers.items()),
                raw.decode("utf-8", "replace"),
                answer.status if answer else None,
                _headers(answer),
                answer.body.decode("utf-8", "replace") if answer else "",
            )
            with self._lock:
                self.writer.add(self._secrets.hide(exchange))
        return answer

    def _ask(
        self, method: str, target: str, headers: Mapping[str, str], raw: bytes
    ) -> Optional[Answer]:
        passed = {k: v for k, v in headers.items() if k.lower() not in _NOT_PASSED}
        connection = self._connection()
        try:
            connection.request(method, target, raw or None, passed)
            reply = connection.getresponse()
            body = reply.read()
        except (OSError, http.client.HTTPException):
            return None
        finally:
            connection.close()
        found = {
            name.lower(): value
            for name, value in reply.getheaders()
            if name.lower() not in (*_NOT_PASSED, "content-type", "server", "date")
        }
        kind = reply.getheader("Content-Type") or ""
        return Answer(reply.status, body, kind, found)

    def _connection(self) -> http.client.HTTPConnection:
        host, port = self._engine.hostname or "", self._engine.port
        if self._engine.scheme == "http":
            return http.client.HTTPConnection(host, port, timeout=_PATIENCE_S)
        context = ssl.create_default_context(cafile=self._ca_file)
        return http.client.HTTPSConnection(
            host, port, timeout=_PATIENCE_S, context=context
        )


def _headers(answer: Optional[Answer]) -> dict[str, str]:
    if answer is None:
        return {}
    found: dict[str, Any] = dict(answer.headers)
    if answer.content_type:
        found["content-type"] = answer.content_type
    return found
