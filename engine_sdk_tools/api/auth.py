# SPDX-License-Identifier: GPL-2.0-or-later
"""Log in to and out of the engine, fetch its CA and read its health page.

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
import re
import ssl
from dataclasses import dataclass
from typing import Any

from ovirt_rdma.engine_sdk_tools.api.errors import (
    BROKEN,
    DENIED,
    UNAVAILABLE,
    EngineProblem,
)
from ovirt_rdma.engine_sdk_tools.api.http import ask
from ovirt_rdma.engine_sdk_tools.api.settings import Settings
from ovirt_rdma.engine_sdk_tools.api.url import engine_address, engine_host_port
from ovirt_rdma.host.errors import Problem

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
