# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's addresses beside its API: login, health page, CA; asked with requests.

The SDK logs in without any time limit and has nothing for the others.
"""

from __future__ import annotations

import json
import re
import ssl
import threading
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Callable, Optional, Union

import requests

from ovirt_rdma.engine_sdk_tools.engine_answers import (
    media_type,
    no_answer,
    unreachable,
    untrusted,
)
from ovirt_rdma.engine_sdk_tools.engine_errors import (
    BROKEN,
    TIMEOUT,
    EngineProblem,
)
from ovirt_rdma.engine_sdk_tools.engine_url import engine_place

# As long as a TCP connection takes where anything listens, with retransmissions.
CONNECT_S = 15.0
# A token, a health page and a CA have some thousand bytes; who sends them is not
# verified yet where the CA is fetched.
MOST_BYTES = 1 << 20
_PART_BYTES = 4096

# The system's trusted CAs, on EL and on Debian; requests would take its own.
_BUNDLES = ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt")


def trusted_cas() -> Optional[str]:
    """Return the system's file of trusted CAs; None where we know of none."""
    places = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((place for place in places if place and Path(place).is_file()), None)


class WebAnswer:
    """An answer: HTTP ``code``, ``body`` as text, ``media`` its type."""

    def __init__(self, answer: requests.Response, body: bytes) -> None:
        self.code = answer.status_code
        self.body = body.decode("utf-8", "replace")
        self.media = media_type(answer.headers)

    def json(self) -> Mapping[str, Any]:
        """Return the body's object; {} where it is none."""
        try:
            found = json.loads(self.body)
        except ValueError:
            return {}
        if isinstance(found, list) and found:
            found = found[0]
        return found if isinstance(found, dict) else {}


def ask(
    url: str,
    doing: str,
    *,
    ca_file: Union[str, bool, None],
    timeout_s: float,
    form: Optional[Mapping[str, str]] = None,
    query: Optional[Mapping[str, str]] = None,
) -> WebAnswer:
    """GET ``url``, or POST ``form`` to it. ``ca_file`` None is the system's CAs, and
    False nobody's: for fetching the CA itself.

    Raises EngineProblem where no answer came, where it is packed, where it has more
    than MOST_BYTES, and where it was not whole ``timeout_s`` after the connection,
    which has CONNECT_S at most. Redirections are not followed: a password goes where it
    was meant to go.
    """
    connect_s = min(CONNECT_S, timeout_s)
    verify = (trusted_cas() or True) if ca_file is None else ca_file
    where = f"the engine {engine_place(url)}"

    def fetch() -> WebAnswer:
        with requests.request(
            "GET" if form is None else "POST",
            url,
            data=form,
            params=query,
            headers={
                "Accept": "application/json" if form else "*/*",
                "Accept-Encoding": "identity",
            },
            verify=verify,
            timeout=(connect_s, timeout_s),
            allow_redirects=False,
            stream=True,
        ) as answer:
            if answer.headers.get("Content-Encoding", "identity") != "identity":
                # urllib3 before 2.6 unpacks without a limit: of 2 kB, packed twice,
                # come gigabytes.
                raise EngineProblem(
                    f"{doing} failed: {where} packs its answer, and was not asked to: "
                    "it is no engine",
                    BROKEN,
                    doing=doing,
                )
            body = b""
            for part in answer.iter_content(_PART_BYTES):
                body += part
                if len(body) > MOST_BYTES:
                    raise EngineProblem(
                        f"{doing} failed: {where} answers with more than "
                        f"{MOST_BYTES >> 20} MiB: it is no engine",
                        BROKEN,
                        doing=doing,
                    )
            return WebAnswer(answer, body)

    try:
        with warnings.catch_warnings():
            if verify is False:
                # Who fetches a CA knows, and says so in better words.
                warnings.simplefilter("ignore")
            return _within(connect_s + timeout_s, fetch)
    except requests.exceptions.SSLError as error:
        raise untrusted(_tls_words(str(error)), doing, where) from error
    except requests.exceptions.ReadTimeout as error:
        raise no_answer(doing, where) from error
    except requests.exceptions.ConnectTimeout as error:
        raise unreachable("no connection in time", doing, where) from error
    except (requests.exceptions.RequestException, OSError) as error:
        words = _network_words(str(error))
        if words:
            raise unreachable(words, doing, where) from error
        raise EngineProblem(
            f"{doing} failed: the connection to {where} broke", TIMEOUT, doing=doing
        ) from error


def _within(limit_s: float, fetch: Callable[[], WebAnswer]) -> WebAnswer:
    """Return what ``fetch`` does, or raise what it raises; ReadTimeout after
    ``limit_s``. requests has limits for each reading only, so a byte now and then
    would keep us for ever; such a fetch is left to itself.
    """
    done: list[WebAnswer] = []
    failed: list[BaseException] = []

    def run() -> None:
        try:
            done.append(fetch())
        except BaseException as error:  # noqa: BLE001  (raised again below)
            failed.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(limit_s)
    if failed:
        raise failed[0]
    if not done:
        raise requests.exceptions.ReadTimeout
    return done[0]


def _network_words(text: str) -> str:
    """Return "Connection refused" out of the library's many words; "" for none."""
    if "NameResolutionError" in text or "getaddrinfo" in text or "Name or ser" in text:
        return "its name cannot be resolved"
    if "NewConnectionError" not in text and "ProxyError" not in text:
        return ""
    found = re.search(r"\[Errno -?\d+\] ([^'\")\]]+)", text)
    return found.group(1).strip() if found else "no connection"


def _tls_words(text: str) -> str:
    found = re.search(r"certificate verify failed: ([^(]+?)\.? \(_ssl", text)
    if found is None:
        found = re.search(r"\[(?:SSL|X509)[^\]]*\] ([^(]+?) \(_ssl", text)
    return found.group(1) if found else "TLS failed"
