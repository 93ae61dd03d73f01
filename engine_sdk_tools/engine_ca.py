# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's own CA, fetched from the engine, and what a person can check of it.

The first fetch cannot be verified: there is nothing yet to verify it with. So its
fingerprint is compared by who asks, with what the engine's machine shows:
``openssl x509 -noout -fingerprint -sha256 -in /etc/pki/ovirt-engine/ca.pem``.
"""

from __future__ import annotations

import hashlib
import re
import ssl
from dataclasses import dataclass
from typing import Any

from ovirt_rdma.engine_sdk_tools.engine_errors import BROKEN, EngineProblem
from ovirt_rdma.engine_sdk_tools.engine_url import engine_address
from ovirt_rdma.engine_sdk_tools.settings import Settings
from ovirt_rdma.engine_sdk_tools.web import ask
from ovirt_rdma.host.problem import Problem

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
        raise Problem("what the engine sent as its CA is no certificate")
    pem = found.group() + "\n"
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=pem)
        der = ssl.PEM_cert_to_DER_cert(pem)
    except (ssl.SSLError, ValueError, TypeError) as error:  # TypeError: not ASCII
        raise Problem("what the engine sent as its CA is no certificate") from error
    certificates = context.get_ca_certs()
    if not certificates:
        raise Problem("what the engine sent as its CA is no certificate of a CA")
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
        f"{doing} failed: it is not well: HTTP {answer.code}"
        + (f", {said}" if said else ""),
        BROKEN,
        code=answer.code,
        fix="'systemctl status ovirt-engine' on its machine tells; or check the URL",
        doing=doing,
    )
