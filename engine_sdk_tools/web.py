# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's addresses beside its API: login, health page, CA; asked with requests.

The SDK logs in without any time limit and has nothing for the others.
"""

from __future__ import annotations

import json
import re
import ssl
import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Optional, Union

import requests

from ovirt_rdma.engine_sdk_tools.engine_answers import (
    media_type,
    no_answer,
    unreachable,
    untrusted,
)
from ovirt_rdma.engine_sdk_tools.engine_errors import TIMEOUT, EngineProblem
from ovirt_rdma.engine_sdk_tools.engine_url import engine_place

# As long as a TCP connection takes where anything listens, with retransmissions.
CONNECT_S = 15.0

# The system's trusted CAs, on EL and on Debian; requests would take its own.
_BUNDLES = ("/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/certs/ca-certificates.crt")


def trusted_cas() -> Optional[str]:
    """Return the system's file of trusted CAs; None where we know of none."""
    places = (ssl.get_default_verify_paths().cafile, *_BUNDLES)
    return next((place for place in places if place and Path(place).is_file()), None)


class WebAnswer:
    """An answer: HTTP ``code``, ``body`` as text, ``media`` its type."""

    def __init__(self, answer: requests.Response) -> None:
        self.code = answer.status_code
        self.body = answer.text
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

    Raises EngineProblem where no answer came. Redirections are not followed: a password
    goes where it was meant to go.
    """
    verify = (trusted_cas() or True) if ca_file is None else ca_file
    where = f"the engine {engine_place(url)}"
    try:
        with warnings.catch_warnings():
            if verify is False:
                # Who fetches a CA knows, and says so in better words.
                warnings.simplefilter("ignore")
            answer = requests.request(
                "GET" if form is None else "POST",
                url,
                data=form,
                params=query,
                headers={"Accept": "application/json" if form else "*/*"},
                verify=verify,
                timeout=(min(CONNECT_S, timeout_s), timeout_s),
                allow_redirects=False,
            )
    except requests.exceptions.SSLError as error:
        raise untrusted(_tls_words(str(error)), doing, where) from error
    except requests.exceptions.ReadTimeout as error:
        raise no_answer(doing, where) from error
    except requests.exceptions.ConnectTimeout as error:
        raise unreachable("no connection in time", doing, where) from error
    except (requests.exceptions.ConnectionError, OSError) as error:
        words = _network_words(str(error))
        if words:
            raise unreachable(words, doing, where) from error
        raise EngineProblem(
            f"{doing} failed: the connection to {where} broke", TIMEOUT, doing=doing
        ) from error
    return WebAnswer(answer)


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
