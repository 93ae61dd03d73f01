# SPDX-License-Identifier: GPL-2.0-or-later
"""A connection of the SDK that keeps the answer, keeps to its time, and never logs in.

Each thread has one of its own: where several requests share the SDK's connection, the
error of one reaches whoever waits, and the other waits for ever (ovirtsdk4 4.6.3,
Connection.wait).
"""

from __future__ import annotations

import re
from typing import Any, Callable, Optional

import ovirtsdk4
import pycurl

from ovirt_rdma.engine_sdk_tools.api.auth import CONNECT_S, trusted_cas
from ovirt_rdma.engine_sdk_tools.api.errors import MOST_BYTES, Answer, LoginExpired
from ovirt_rdma.engine_sdk_tools.api.settings import Settings
from ovirt_rdma.host.system.printable import printable

_NOT_PLAIN = re.compile(r"[^\t\n\r -~]")


class EngineConnection(ovirtsdk4.Connection):  # type: ignore[misc]
    """A connection with ``token``. ``sent`` and ``answer`` are of the last request.

    Raises LoginExpired for HTTP 401: the SDK would log in itself, without a time limit
    and with no user where it was given a token.
    """

    def __init__(self, settings: Settings, token: str) -> None:
        super().__init__(
            url=settings.url,
            token=token,
            ca_file=settings.ca_file or trusted_cas(),
            # Messages that are told apart by their text.
            headers={"Accept-Language": "en-US"},
        )
        self.token = token
        self.limit_s = settings.timeout_s
        self.sent = False
        self.answer: Optional[Answer] = None
        self._multi: Any = _PromptMulti(self._multi)

    def begin(self, limit_s: float) -> None:
        """Forget the last request; the next has ``limit_s`` seconds."""
        self.limit_s, self.sent, self.answer = limit_s, False, None

    def send(self, request: Any) -> Any:
        """Send ``request``; of the SDK."""
        context = super().send(request)
        curl = context[0]
        # Signals interrupt threads: libcurl would use them for its time limits.
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, int(self.limit_s * 1000)))
        connect_s = min(CONNECT_S, self.limit_s)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * 1000)))
        left = _Left(MOST_BYTES)
        # libcurl calls them with what has come, decompressed.
        curl.setopt(pycurl.WRITEFUNCTION, left.into(context[1].write))
        curl.setopt(pycurl.HEADERFUNCTION, left.into(context[2].write))
        self.sent = True
        return context

    def wait(self, context: Any, failed_auth: bool = False) -> Any:
        """Wait for the answer, and keep it; of the SDK."""
        answer = super().wait(context, failed_auth)
        answer.body = _shown(answer.body)
        self.answer = answer
        return answer

    def _get_access_token(self) -> str:
        raise LoginExpired

    def release(self) -> None:
        """Close it; the token stays good."""
        self.close(logout=False)


def _shown(body: bytes) -> bytes:
    """Return the XML ``body`` with a reference (``&#155;``) in place of each character
    that would steer a terminal: where it is not well-formed, the SDK's libxml2 writes
    the line to stderr as it is.
    """

    def reference(found: re.Match[str]) -> str:
        letter = found[0]
        return letter if printable(letter) == letter else f"&#{ord(letter)};"

    text = body.decode("utf-8", "backslashreplace")
    return _NOT_PLAIN.sub(reference, text).encode("utf-8")


class _Left:
    """How many bytes an answer may still have."""

    def __init__(self, number: int) -> None:
        self._number = number

    def into(self, write: Callable[[bytes], Any]) -> Callable[[bytes], int]:
        """Return what writes and counts; libcurl ends an answer of which not all was
        written.
        """

        def count(part: bytes) -> int:
            self._number -= len(part)
            if self._number < 0:
                return 0
            write(part)
            return len(part)

        return count


class _PromptMulti:
    """libcurl's multi handle, which the SDK asks to sleep for a whole second at a time,
    also where a request's time is over before.
    """

    def __init__(self, multi: Any) -> None:
        self._handle = multi

    def select(self, timeout_s: float) -> Any:
        due_ms = self._handle.timeout()
        if due_ms >= 0:
            timeout_s = min(timeout_s, due_ms / 1000)
        return self._handle.select(timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)
