# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve HTTP/1.1 over loopback: one thread per connection, which is kept open."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Optional

from engine_double.answers import Answer

# (method, target with its query, headers, body) -> answer; None: close without one.
Serve = Callable[[str, str, Any, bytes], Optional[Answer]]


class HttpServer(ThreadingHTTPServer):
    """Serves on a free port of 127.0.0.1."""

    daemon_threads = True
    # Clients open many connections at the same time.
    request_queue_size = 256

    def __init__(self, serve: Serve) -> None:
        self.serve = serve
        self.open_sockets: set[socket.socket] = set()
        self._thread = threading.Thread(
            target=self.serve_forever, args=(0.005,), daemon=True
        )
        super().__init__(("127.0.0.1", 0), _Handler)

    def start(self) -> None:
        """Serve in a thread, until :meth:`stop`."""
        self._thread.start()

    def stop(self) -> None:
        """Stop serving and close all connections, so that no thread waits for another
        request.
        """
        self.shutdown()
        for one in list(self.open_sockets):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        self.server_close()
        self._thread.join()

    def server_bind(self) -> None:
        # Not HTTPServer's: it looks up the machine's name, which may take long.
        self.allow_reuse_address = True
        ThreadingHTTPServer.__mro__[2].server_bind(self)  # type: ignore[attr-defined]
        name, self.server_port = self.server_address[:2]
        self.server_name = str(name)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: a client that disconnects is part of tests."""


class _Handler(BaseHTTPRequestHandler):
    server: HttpServer
    protocol_version = "HTTP/1.1"
    server_version = "Apache"
    sys_version = ""
    # Headers and body in one packet: else Nagle's algorithm costs 40 ms a request.
    wbufsize = -1
    disable_nagle_algorithm = True

    def setup(self) -> None:
        super().setup()
        self.server.open_sockets.add(self.connection)

    def finish(self) -> None:
        self.server.open_sockets.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def _serve(self) -> None:
        raw = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        answer = self.server.serve(self.command, self.path, self.headers, raw)
        if answer is None:
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)
            return
        self.send_response(answer.status)
        self.send_header("Content-Length", str(len(answer.body)))
        if answer.body and answer.content_type:
            self.send_header("Content-Type", answer.content_type)
        for name, text in answer.headers.items():
            self.send_header(name, text)
        self.end_headers()
        self.wfile.write(answer.body)

    do_GET = do_POST = do_PUT = do_DELETE = do_HEAD = do_OPTIONS = _serve

    def log_message(self, format: str, *arguments: Any) -> None:
        """Say nothing."""
