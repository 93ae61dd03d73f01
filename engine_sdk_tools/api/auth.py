# SPDX-License-Identifier: GPL-2.0-or-later
"""Log in to the engine: its CA, its tokens, HTTP without the SDK.

The engine's addresses beside its API: login, health page, CA; asked with requests.

The SDK logs in without any time limit and has nothing for the others.

The engine's own CA, fetched from the engine, and what a person can check of it.

The first fetch cannot be verified: there is nothing yet to verify it with. So its
fingerprint is compared by who asks, with what the engine's machine shows:
``openssl x509 -noout -fingerprint -sha256 -in /etc/pki/ovirt-engine/ca.pem``.

Logging in to the engine and out again: its tokens.

The forms are the engine's (enginesso, OAuthTokenServlet and SsoService): an answer is
JSON with ``access_token``, or with ``error_description`` and ``error``, or with
``error`` and ``error_code``.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import ssl
import threading
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Optional, Union

import requests

from ovirt_rdma.engine_sdk_tools.api.errors import (
    BROKEN,
    DENIED,
    TIMEOUT,
    UNAVAILABLE,
    EngineProblem,
    media_type,
    no_answer,
    unreachable,
    untrusted,
)
from ovirt_rdma.engine_sdk_tools.api.settings import Settings
from ovirt_rdma.engine_sdk_tools.api.url import engine_address, engine_place
from ovirt_rdma.host.errors import Problem

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
                    "engine-answer-compressed",
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
                        "engine-answer-too-large",
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
            "engine-connection-lost",
            f"{doing} failed: the connection to {where} broke",
            TIMEOUT,
            doing=doing,
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


# As openssl shows them.
_SHORT = {"countryName": "C", "organizationName": "O", "commonName": "CN"}
# services/health of the engine: 200 and this text when it has its database.
_HEALTHY = "DB Up"
_PEM = re.compile(
    "-----BEGIN CERTIFICATE-----\n.*?\n-----END CERTIFICATE-----", re.DOTALL
)


@dataclass(frozen=True)
class Ca:
    """A certificate of a CA: ``subject`` as ``O=example.com, CN=...``, the SHA-256
    ``fingerprint`` in openssl's form, and ``until`` when it is good.
    """

    pem: str
    subject: str
    fingerprint: str
    until: str


def fetch_ca(settings: Settings) -> Ca:
    """Return the engine's CA. Unverified. Raises Problem."""
    doing = "fetching the engine's CA"
    answer = ask(
        engine_address(settings.url, "services/pki-resource"),
        doing,
        ca_file=False,
        timeout_s=settings.timeout_s,
        query={"resource": "ca-certificate", "format": "X509-PEM-CA"},
    )
    if answer.code != 200:
        raise EngineProblem(
            "engine-http-error",
            f"{doing} failed: HTTP {answer.code}",
            BROKEN,
            code=answer.code,
            fix="check the URL: https://ENGINE/ovirt-engine/api",
            doing=doing,
        )
    return ca_of(answer.body)


def ca_of(text: str) -> Ca:
    """Return the CA in a PEM text. Raises Problem where there is none."""
    found = _PEM.search(text.replace("\r\n", "\n"))
    if found is None:
        raise Problem(
            "engine-ca-invalid", "what the engine sent as its CA is no certificate"
        )
    pem = found.group() + "\n"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
        der = ssl.PEM_cert_to_DER_cert(pem)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: not ASCII
        raise Problem(
            "engine-ca-invalid", "what the engine sent as its CA is no certificate"
        ) from error
    certificates = context.get_ca_certs()
    if not certificates:
        raise Problem(
            "engine-ca-not-a-ca",
            "what the engine sent as its CA is no certificate of a CA",
        )
    known: Any = certificates[0]
    return Ca(
        pem,
        ", ".join(
            f"{_SHORT.get(name, name)}={value}"
            for part in known.get("subject", ())
            for name, value in part
        ),
        fingerprint_of(der),
        str(known.get("notAfter", "")),
    )


def fingerprint_of(der: bytes) -> str:
    """Return the SHA-256 as ``AB:CD:...``, the form of openssl and of browsers."""
    digits = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two are the same, in whatever form they are written."""
    plain = [
        re.sub("[^0-9a-f]", "", _after_equals(text).lower()) for text in (one, other)
    ]
    return len(plain[0]) == 64 and plain[0] == plain[1]


def _after_equals(text: str) -> str:
    # openssl prints "sha256 Fingerprint=AB:...".
    return text.rpartition("=")[2]


def check_health(settings: Settings) -> None:
    """Raise EngineProblem unless the engine's health page says that it works."""
    doing = "asking for the engine's health"
    answer = ask(
        engine_address(settings.url, "services/health"),
        doing,
        ca_file=settings.ca_file,
        timeout_s=settings.timeout_s,
    )
    if answer.code == 200 and _HEALTHY in answer.body:
        return
    # "DB Down!", or a page of the web server (HealthStatus.java).
    said = " ".join(answer.body.split())[:80] if "<" not in answer.body else ""
    raise EngineProblem(
        "engine-unhealthy",
        f"{doing} failed: it is not well: HTTP {answer.code}"
        + (f", {said}" if said else ""),
        BROKEN,
        code=answer.code,
        fix="'systemctl status ovirt-engine' on its machine tells; or check the URL",
        doing=doing,
    )


_SCOPE = "ovirt-app-api"
# Nobody waits for a goodbye.
_LOGOUT_S = 5.0


def log_in(settings: Settings) -> str:
    """Return a token for the user of ``settings``. Raises EngineProblem."""
    user = settings.username or ""
    doing = f"logging in as {user}"
    if not user or settings.password is None:
        raise EngineProblem(
            "engine-no-credentials",
            f"there is no {'password' if user else 'username'} for the engine "
            f"{engine_place(settings.url)}",
            DENIED,
            fix="give --username and --password-file, set OVIRT_USERNAME and "
            "OVIRT_PASSWORD, or put them into the settings file",
        )
    answer = ask(
        engine_address(settings.url, "sso/oauth/token"),
        doing,
        ca_file=settings.ca_file,
        timeout_s=settings.timeout_s,
        form={
            "grant_type": "password",
            "scope": _SCOPE,
            "username": user,
            "password": settings.password,
        },
    )
    said = answer.json()
    token = said.get("access_token")
    if isinstance(token, str) and token:
        return token
    where = f"the engine {engine_place(settings.url)}"
    words = said.get("error_description") or said.get("error")
    if words:
        raise EngineProblem(
            "engine-login-refused",
            f"{doing} failed: {where} says: {words}",
            DENIED,
            code=answer.code,
            fix="" if "@" in user else f"a user has a profile: {user}@internal",
            doing=doing,
        )
    if answer.code >= 500 or answer.code == 404:
        raise EngineProblem(
            "engine-unavailable",
            f"{doing} failed: {where} is not at work: HTTP {answer.code}",
            UNAVAILABLE,
            code=answer.code,
            fix="wait until it has started, or check the URL",
            doing=doing,
        )
    raise EngineProblem(
        "not-an-engine",
        f"{doing} failed: what answers is no engine: HTTP {answer.code} with "
        f"{answer.media or 'no Content-Type'}",
        BROKEN,
        code=answer.code,
        fix="check the URL: https://ENGINE/ovirt-engine/api",
        doing=doing,
    )


def log_out(settings: Settings, token: str) -> None:
    """Give ``token`` back. That this fails hurts nobody: it expires."""
    with contextlib.suppress(EngineProblem):
        ask(
            engine_address(settings.url, "services/sso-logout"),
            "logging out",
            ca_file=settings.ca_file,
            timeout_s=_LOGOUT_S,
            form={"scope": _SCOPE, "token": token},
        )
