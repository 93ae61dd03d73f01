# SPDX-License-Identifier: GPL-2.0-or-later
"""Send requests over an SDK connection that keeps the answer, has a deadline per
request, and never logs in.

Each thread has its own connection. If several requests share a connection of the SDK,
one thread gets the error of another's request, and the other waits forever (ovirtsdk4
4.6.3, Connection.wait).
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

    Raises LoginExpired for HTTP 401: the SDK would log in itself, without a timeout,
    and without a user if it has a token.
    """

    def __init__(self, settings: Settings, token: str) -> None:
        super().__init__(
            url=settings.url,
            token=token,
            ca_file=settings.ca_file or trusted_cas(),
            # Some messages can be distinguished by their text only.
            headers={"Accept-Language": "en-US"},
        )
        self.token = token
        self.limit_s = settings.timeout_s
        self.sent = False
        self.answer: Optional[Answer] = None
        self._multi: Any = _PromptMulti(self._multi)

    def begin(self, limit_s: float) -> None:
        """Forget the last request; the next one has ``limit_s`` seconds."""
        self.limit_s, self.sent, self.answer = limit_s, False, None

    def send(self, request: Any) -> Any:
        """Send ``request``; called by the SDK."""
        context = super().send(request)
        curl = context[0]
        # Without this, libcurl uses signals for its timeouts, which interrupt threads.
        curl.setopt(pycurl.NOSIGNAL, 1)
        curl.setopt(pycurl.TIMEOUT_MS, max(1, int(self.limit_s * 1000)))
        connect_s = min(CONNECT_S, self.limit_s)
        curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * 1000)))
        budget = _ByteBudget(MOST_BYTES)
        # libcurl calls them with the data received, decompressed.
        curl.setopt(pycurl.WRITEFUNCTION, budget.counting(context[1].write))
        curl.setopt(pycurl.HEADERFUNCTION, budget.counting(context[2].write))
        self.sent = True
        return context

    def wait(self, context: Any, failed_auth: bool = False) -> Any:
        """Wait for the answer, and keep it; called by the SDK."""
        answer = super().wait(context, failed_auth)
        answer.body = _without_control_characters(answer.body)
        self.answer = answer
        return answer

    def _get_access_token(self) -> str:
        raise LoginExpired

    def release(self) -> None:
        """Close the connection; the token stays valid."""
        self.close(logout=False)


def _without_control_characters(body: bytes) -> bytes:
    """Return the XML ``body`` with a reference (``&#155;``) in place of each character
    that controls a terminal: the SDK's libxml2 writes a line that is not well-formed to
    stderr as it is.
    """

    def reference(match: re.Match[str]) -> str:
        letter = match[0]
        return letter if printable(letter) == letter else f"&#{ord(letter)};"

    text = body.decode("utf-8", "backslashreplace")
    return _NOT_PLAIN.sub(reference, text).encode("utf-8")


class _ByteBudget:
    """Limits the size of an answer to ``limit`` bytes."""

    def __init__(self, limit: int) -> None:
        self._left = limit

    def counting(self, write: Callable[[bytes], Any]) -> Callable[[bytes], int]:
        """Return a function that counts and calls ``write``; libcurl ends an answer if
        not all of it was written.
        """

        def count(part: bytes) -> int:
            self._left -= len(part)
            if self._left < 0:
                return 0
            write(part)
            return len(part)

        return count


class _PromptMulti:
    """libcurl's multi handle, with a shorter sleep: the SDK always asks for a second,
    even if a request's deadline is earlier.
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
