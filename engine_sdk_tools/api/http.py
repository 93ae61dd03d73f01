# SPDX-License-Identifier: GPL-2.0-or-later
"""Ask the engine over HTTP with libcurl (pycurl), and limit what an answer takes.

The SDK uses libcurl too, so proxies and CAs have the same meaning for all requests. It
does not do what ``ask`` does: its login has no timeout and no limit on an answer's size
(ovirtsdk4 4.6.3, Connection._get_sso_response), and it reads no other page.
"""

from __future__ import annotations

import io
import json
import os
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Literal, Optional, Union
from urllib.parse import urlencode

import pycurl

from ovirt_rdma.engine_sdk_tools.api.errors import (
    BROKEN,
    EngineProblem,
    header,
    media_type,
    of_curl,
)
from ovirt_rdma.engine_sdk_tools.api.url import engine_host_port

# Enough for a TCP connection with retransmissions, if anything listens.
CONNECT_S = 15.0
# A token, a health page and a CA have some thousand bytes. The sender of the CA is not
# verified yet.
MOST_BYTES = 1 << 20

# The system's trusted CAs on EL and on Debian; a pycurl of PyPI would use its own.
_BUNDLES = ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt")


def trusted_cas() -> Optional[str]:
    """Return the system's file of trusted CAs; None if no known file exists."""
    files = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((file for file in files if file and Path(file).is_file()), None)


@dataclass(frozen=True)
class WebAnswer:
    """An HTTP answer: status ``code``, ``body`` as text, ``media`` its type."""

    code: int
    body: str
    media: str

    def json(self) -> Mapping[str, Any]:
        """Return the JSON object in the body; {} if there is none."""
        try:
            value = json.loads(self.body)
        except ValueError:
            return {}
        if isinstance(value, list) and value:
            value = value[0]
        return value if isinstance(value, dict) else {}


def ask(
    url: str,
    doing: str,
    *,
    ca_file: Union[str, Literal[False], None],
    timeout_s: float,
    form: Optional[Mapping[str, str]] = None,
    query: Optional[Mapping[str, str]] = None,
) -> WebAnswer:
    """GET ``url``, or POST ``form`` to it.

    ``ca_file`` None stands for the system's CAs; False verifies nothing, to fetch the
    CA itself. Redirections are not followed, so that a password goes to no other host.

    Raises EngineProblem if no answer came, if it is compressed or larger than
    MOST_BYTES, and if it was not complete within ``timeout_s``, of which connecting may
    take up to CONNECT_S.
    """
    curl: Any = pycurl.Curl()
    curl.setopt(pycurl.URL, f"{url}?{urlencode(query)}" if query else url)
    curl.setopt(pycurl.FOLLOWLOCATION, 0)
    if form is not None:
        curl.setopt(pycurl.COPYPOSTFIELDS, urlencode(form))
        curl.setopt(pycurl.HTTPHEADER, ["Accept: application/json"])
    curl.setopt(pycurl.SSL_VERIFYPEER, 0 if ca_file is False else 1)
    curl.setopt(pycurl.SSL_VERIFYHOST, 0 if ca_file is False else 2)
    cas = trusted_cas() if ca_file is None else ca_file
    if cas:
        curl.setopt(pycurl.CAINFO, os.fsencode(cas))
    head: list[str] = []
    body = io.BytesIO()

    def keep(line: bytes) -> None:
        if line.startswith(b"HTTP/"):  # what a proxy said before is not the answer
            head.clear()
        head.append(line.decode("latin-1"))

    limit(curl, timeout_s, MOST_BYTES, body.write, keep)
    where = f"the engine {engine_host_port(url)}"
    failed = _perform(curl)
    if failed is not None and failed[0] == pycurl.E_WRITE_ERROR:
        raise EngineProblem(
            "engine-answer-too-large",
            f"{doing} failed: {where} is not an engine: its answer is larger than "
            f"{MOST_BYTES >> 20} MiB",
            BROKEN,
            doing=doing,
        )
    if failed is not None:
        raise of_curl(*failed, doing, where)
    if header(head, "content-encoding") not in ("", "identity"):
        raise EngineProblem(
            "engine-answer-compressed",
            f"{doing} failed: {where} is not an engine: its answer is compressed "
            "without a request for that",
            BROKEN,
            doing=doing,
        )
    code = int(curl.getinfo(pycurl.RESPONSE_CODE))
    return WebAnswer(code, body.getvalue().decode("utf-8", "replace"), media_type(head))


def limit(
    curl: Any,
    limit_s: float,
    most_bytes: int,
    body: Callable[[bytes], Any],
    head: Callable[[bytes], Any],
) -> None:
    """Let the request of ``curl`` end after ``limit_s`` seconds, and its answer after
    ``most_bytes``, decompressed; ``body`` and ``head`` get the parts of the answer.
    """
    # Without this, libcurl uses signals for its timeouts, which interrupt threads.
    curl.setopt(pycurl.NOSIGNAL, 1)
    curl.setopt(pycurl.TIMEOUT_MS, max(1, int(limit_s * 1000)))
    connect_s = min(CONNECT_S, limit_s)
    curl.setopt(pycurl.CONNECTTIMEOUT_MS, max(1, int(connect_s * 1000)))
    left = most_bytes

    def counting(write: Callable[[bytes], Any]) -> Callable[[bytes], int]:
        def count(part: bytes) -> int:
            nonlocal left
            left -= len(part)
            if left < 0:
                return 0  # libcurl ends an answer if not all of it was written
            write(part)
            return len(part)

        return count

    curl.setopt(pycurl.WRITEFUNCTION, counting(body))
    curl.setopt(pycurl.HEADERFUNCTION, counting(head))


class PromptMulti:
    """libcurl's multi handle, with a shorter sleep: the SDK always asks for a second,
    even if a request's deadline is earlier.
    """

    def __init__(self, multi: Any) -> None:
        self._handle = multi

    def select(self, timeout_s: float) -> Any:
        """Wait up to ``timeout_s`` until there is something to do."""
        due_ms = self._handle.timeout()
        if due_ms >= 0:
            timeout_s = min(timeout_s, due_ms / 1000)
        return self._handle.select(timeout_s)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._handle, name)


def _perform(curl: Any) -> Optional[tuple[int, str]]:
    """Carry out the request of ``curl``; return libcurl's error number and text, None
    if an answer came.

    A multi handle, because Python handles no signal during ``curl.perform()``: Ctrl-C
    would wait for the deadline.
    """
    multi = PromptMulti(pycurl.CurlMulti())
    multi.add_handle(curl)
    try:
        while True:
            multi.perform()
            _, done, failed = multi.info_read()
            if done:
                return None
            if failed:
                _, number, text = failed[0]
                errno = curl.getinfo(pycurl.OS_ERRNO)
                if number == pycurl.E_COULDNT_CONNECT and errno:
                    text = os.strerror(errno)
                return number, text
            multi.select(1.0)
    finally:
        multi.remove_handle(curl)
        multi.close()
