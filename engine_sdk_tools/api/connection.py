# SPDX-License-Identifier: GPL-2.0-or-later
"""Send requests over an SDK connection that keeps the answer, has a deadline per
request, and never logs in.

Each thread has its own connection. If several requests share a connection of the SDK,
one thread gets the error of another's request, and the other waits forever (ovirtsdk4
4.6.3, Connection.wait).
"""

from __future__ import annotations

import os
import re
from typing import Any, Optional

import ovirtsdk4

from ovirt_rdma.engine_sdk_tools.api.errors import (
    MOST_BYTES,
    Answer,
    LoginExpired,
    sentence_of_page,
)
from ovirt_rdma.engine_sdk_tools.api.http import PromptMulti, limit, trusted_cas
from ovirt_rdma.engine_sdk_tools.api.settings import Settings
from ovirt_rdma.host.system.printable import printable

_NOT_PLAIN = re.compile(r"[^\t\n\r -~]")


class EngineConnection(ovirtsdk4.Connection):  # type: ignore[misc]
    """A connection with ``token``. ``sent`` and ``answer`` are of the last request.

    Raises LoginExpired for HTTP 401: the SDK would log in itself, without a timeout,
    and without a user if it has a token.
    """

    def __init__(self, settings: Settings, token: str) -> None:
        cas = settings.ca_file or trusted_cas()
        super().__init__(
            url=settings.url,
            token=token,
            # pycurl encodes a str as ASCII.
            ca_file=os.fsencode(cas) if cas else None,
            # Some messages can be distinguished by their text only.
            headers={"Accept-Language": "en-US"},
        )
        self.token = token
        self.limit_s = settings.timeout_s
        self.sent = False
        self.answer: Optional[Answer] = None
        self._multi: Any = PromptMulti(self._multi)

    def begin(self, limit_s: float) -> None:
        """Forget the last request; the next one has ``limit_s`` seconds."""
        self.limit_s, self.sent, self.answer = limit_s, False, None

    def send(self, request: Any) -> Any:
        """Send ``request``; called by the SDK."""
        context = super().send(request)
        limit(context[0], self.limit_s, MOST_BYTES, context[1].write, context[2].write)
        self.sent = True
        return context

    def wait(self, context: Any, failed_auth: bool = False) -> Any:
        """Wait for the answer, and keep it; called by the SDK."""
        # As if it had logged in again: then the SDK returns the 401 with its page.
        answer = super().wait(context, failed_auth=True)
        if answer.code == 401:
            raise LoginExpired(sentence_of_page(answer.body))
        answer.body = _without_control_characters(answer.body)
        self.answer = answer
        return answer

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
