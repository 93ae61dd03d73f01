# SPDX-License-Identifier: GPL-2.0-or-later
"""Make requests to the engine outside the SDK: its CA, its health page and the login.

The SDK uses libcurl too, so proxies and CAs have the same meaning for all requests. It
does not do what ``ask`` does: its login has no timeout and no limit on an answer's size
(ovirtsdk4 4.6.3, Connection._get_sso_response), and it reads no other page.

The first fetch of the CA cannot be verified, so the user compares its fingerprint with
the one that the engine's machine shows:
``openssl x509 -noout -fingerprint -sha256 -in /etc/pki/ovirt-engine/ca.pem``.

The answer to a login (enginesso, OAuthTokenServlet and SsoService) is JSON with
``access_token``, or with ``error_description`` and ``error``, or with ``error`` and
``error_code``.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import re
import ssl
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Callable, Literal, Optional, Union
from urllib.parse import urlencode

import pycurl

from ovirt_rdma.engine_sdk_tools.api.errors import (
    BROKEN,
    DENIED,
    UNAVAILABLE,
    EngineProblem,
    header,
    media_type,
    of_curl,
)
from ovirt_rdma.engine_sdk_tools.api.settings import (
    Settings,
    engine_address,
    engine_host_port,
)
from ovirt_rdma.host.errors import Problem

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


# Log in to and out of the engine, fetch its CA and read its health page.

# As openssl abbreviates them.
_SHORT = {"countryName": "C", "organizationName": "O", "commonName": "CN"}
# services/health of the engine returns 200 and this text if its database is available.
_HEALTHY = "DB Up"
_PEM = re.compile(
    "-----BEGIN CERTIFICATE-----\n.*?\n-----END CERTIFICATE-----", re.DOTALL
)


@dataclass(frozen=True)
class Ca:
    """A certificate of a CA: ``subject`` as ``O=example.com, CN=...``, the SHA-256
    ``fingerprint`` in openssl's form, and ``until``, the end of its validity.
    """

    pem: str
    subject: str
    fingerprint: str
    until: str


def fetch_ca(settings: Settings) -> Ca:
    """Return the engine's CA, not verified. Raises Problem."""
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
    """Return the CA in a PEM text. Raises Problem if there is none."""
    match = _PEM.search(text.replace("\r\n", "\n"))
    if match is None:
        raise Problem(
            "engine-ca-invalid", "the engine's CA is invalid: it is not a certificate"
        )
    pem = match.group() + "\n"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
        der = ssl.PEM_cert_to_DER_cert(pem)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: not ASCII
        raise Problem(
            "engine-ca-invalid", "the engine's CA is invalid: it is not a certificate"
        ) from error
    certificates = context.get_ca_certs()
    if not certificates:
        raise Problem(
            "engine-ca-not-a-ca",
            "the engine's CA is invalid: the certificate is not one of a CA",
        )
    certificate: Any = certificates[0]
    return Ca(
        pem,
        ", ".join(
            f"{_SHORT.get(name, name)}={value}"
            for part in certificate.get("subject", ())
            for name, value in part
        ),
        fingerprint_of(der),
        str(certificate.get("notAfter", "")),
    )


def fingerprint_of(der: bytes) -> str:
    """Return the SHA-256 as ``AB:CD:...``, the form of openssl and browsers."""
    digits = hashlib.sha256(der).hexdigest().upper()
    return ":".join(digits[at : at + 2] for at in range(0, len(digits), 2))


def same_fingerprint(one: str, other: str) -> bool:
    """Whether two fingerprints are the same, in any notation."""
    plain = [
        re.sub("[^0-9a-f]", "", _after_equals(text).lower()) for text in (one, other)
    ]
    return len(plain[0]) == 64 and plain[0] == plain[1]


def _after_equals(text: str) -> str:
    # openssl prints "sha256 Fingerprint=AB:...".
    return text.rpartition("=")[2]


def check_health(settings: Settings) -> None:
    """Raise EngineProblem unless the engine's health page reports that it works."""
    doing = "reading the engine's health page"
    answer = ask(
        engine_address(settings.url, "services/health"),
        doing,
        ca_file=settings.ca_file,
        timeout_s=settings.timeout_s,
    )
    if answer.code == 200 and _HEALTHY in answer.body:
        return
    # "DB Down!", or a page of the web server (HealthStatus.java).
    text = " ".join(answer.body.split())[:80] if "<" not in answer.body else ""
    raise EngineProblem(
        "engine-unhealthy",
        f"{doing} failed: the engine is not healthy: HTTP {answer.code}"
        + (f", {text}" if text else ""),
        BROKEN,
        code=answer.code,
        fix="check the URL, and on the engine's machine: systemctl status ovirt-engine",
        doing=doing,
    )


_SCOPE = "ovirt-app-api"
# A logout may fail, so it is not worth a long wait.
_LOGOUT_S = 5.0


def log_in(settings: Settings) -> str:
    """Return a token for the user of ``settings``. Raises EngineProblem."""
    user = settings.username or ""
    doing = f"logging in as {user}"
    if not user or settings.password is None:
        raise EngineProblem(
            "engine-no-credentials",
            f"there is no {'password' if user else 'username'} for the engine "
            f"{engine_host_port(settings.url)}",
            DENIED,
            fix="give --username and --password-file, set OVIRT_USERNAME and "
            "OVIRT_PASSWORD, or write them to the settings file",
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
    reply = answer.json()
    token = reply.get("access_token")
    if isinstance(token, str) and token:
        return token
    where = f"the engine {engine_host_port(settings.url)}"
    reason = reply.get("error_description") or reply.get("error")
    if reason:
        raise EngineProblem(
            "engine-login-refused",
            f"{doing} failed: {where} says: {reason}",
            DENIED,
            code=answer.code,
            fix=_user_fix(user),
            doing=doing,
        )
    if answer.code >= 500 or answer.code == 404:
        raise EngineProblem(
            "engine-unavailable",
            f"{doing} failed: {where} is not available: HTTP {answer.code}",
            UNAVAILABLE,
            code=answer.code,
            fix="wait until it has started, or check the URL",
            doing=doing,
        )
    raise EngineProblem(
        "not-an-engine",
        f"{doing} failed: {where} does not answer as an engine: HTTP {answer.code} "
        f"with {answer.media or 'no Content-Type'}",
        BROKEN,
        code=answer.code,
        fix="check the URL: https://ENGINE/ovirt-engine/api",
        doing=doing,
    )


def _user_fix(user: str) -> str:
    name, *profile = user.split("@")
    keycloak = f"with Keycloak the user is {name}@ovirt@internalsso"
    if not profile:
        return f"add the profile to the user: {user}@internal; {keycloak}"
    correct = "correct the user or the password"
    return f"{correct}; {keycloak}" if profile == ["internal"] else correct


def log_out(settings: Settings, token: str) -> None:
    """Revoke ``token``. A failure is ignored, because the token expires."""
    with contextlib.suppress(EngineProblem):
        ask(
            engine_address(settings.url, "services/sso-logout"),
            "logging out",
            ca_file=settings.ca_file,
            timeout_s=_LOGOUT_S,
            form={"scope": _SCOPE, "token": token},
        )
