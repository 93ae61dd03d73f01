# SPDX-License-Identifier: GPL-2.0-or-later
"""Talk to the command agent of a guest (lab/boot/agent.py)."""

from __future__ import annotations

import json
import socket
import threading
from concurrent.futures import Future
from contextlib import suppress
from typing import Any

Answer = dict[str, Any]


class AgentLink:
    """Sends requests, and passes every answer to its request.

    Any number of requests may be running, from any thread. When the guest ends, all of
    them fail with ConnectionError.
    """

    def __init__(self, connection: socket.socket) -> None:
        self.ready: Future[Answer] = Future()
        self._connection = connection
        self._lock = threading.Lock()
        self._sending = threading.Lock()
        self._closed = False
        self._next = 1
        self._waiting: dict[int, Future[Answer]] = {0: self.ready}
        threading.Thread(target=self._read, daemon=True).start()

    def request(self, fields: dict[str, Any]) -> tuple[int, Future[Answer]]:
        """Send a command; return its number and the future answer."""
        answer: Future[Answer] = Future()
        with self._lock:
            number, self._next = self._next, self._next + 1
            self._waiting[number] = answer
        self._send({"id": number, **fields})
        with self._lock:
            gone = self._closed and number in self._waiting
            if gone:
                del self._waiting[number]
        if gone:
            answer.set_exception(ConnectionError())
        return number, answer

    def signal(self, number: int, wanted: int) -> None:
        """Send a signal to command ``number``; nothing happens if it has ended."""
        self._send({"id": number, "signal": wanted})

    def close(self) -> None:
        """Close the connection: the agent ends, and the guest with it."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def _send(self, message: dict[str, Any]) -> None:
        # A broken connection shows in _read, which ends every waiting request.
        with suppress(OSError), self._sending:
            self._connection.sendall(json.dumps(message).encode() + b"\n")

    def _read(self) -> None:
        with suppress(OSError, ValueError), self._connection.makefile("rb") as lines:
            for line in lines:
                answer = json.loads(line)
                with self._lock:
                    waiting = self._waiting.pop(answer["id"], None)
                if waiting is not None:
                    waiting.set_result(answer)
        self._connection.close()
        with self._lock:
            self._closed = True
            left, self._waiting = list(self._waiting.values()), {}
        for future in left:
            future.set_exception(ConnectionError())
