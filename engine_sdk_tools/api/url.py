# SPDX-License-Identifier: GPL-2.0-or-later
"""Turn the engine's address, as people write it, into the URL of its API. Pure."""

from __future__ import annotations

import ipaddress
import re
from urllib.parse import urlsplit

from ovirt_rdma.host.errors import Problem

API = "/ovirt-engine/api"
# Paths that people copy from their browser.
_PORTALS = ("/ovirt-engine", "/ovirt-engine/webadmin", "/ovirt-engine/web-ui")


def engine_url(text: str) -> str:
    """Return the API's URL for ``engine.example.com``, ``https://HOST[:PORT]`` or a
    whole URL. Raises Problem if it cannot be the URL of an engine.

    Plain http is accepted for this machine only, because the password is sent
    unencrypted.
    """
    whole = text.strip() if "://" in text else f"https://{text.strip()}"
    # Before anything else, because the other sentences quote the URL.
    if "@" in re.split("[/?#]", whole.partition("://")[2], maxsplit=1)[0]:
        raise Problem(
            "engine-url-has-credentials",
            "the engine's URL must not contain a user or password",
            "use --username and --password-file",
        )
    try:
        parts = urlsplit(whole)
        host, _ = parts.hostname, parts.port
        netloc = parts.netloc
        if not netloc.isascii():  # the SDK takes nothing else
            netloc = netloc.encode("idna").decode()
    except ValueError as error:
        raise Problem(
            "engine-url-invalid", f"{text!r} is not a URL: {error}"
        ) from error
    fix = "use https://ENGINE/ovirt-engine/api"
    if parts.scheme not in ("https", "http") or not host:
        raise Problem("engine-url-invalid", f"{text!r} is not an engine's URL", fix)
    if any(letter.isspace() or not letter.isprintable() for letter in whole):
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is not an engine's URL: it contains a blank or an unprintable "
            "character",
            fix,
        )
    if parts.scheme == "http" and not _this_machine(host):
        raise Problem(
            "engine-url-not-https",
            f"{text!r} would send the password unencrypted",
            "use https:// instead",
        )
    if parts.query or parts.fragment:
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is not an engine's URL: it has a query or a fragment",
            fix,
        )
    path = parts.path.rstrip("/")
    if path in ("", *_PORTALS):
        path = API
    if not path.endswith("/api") or not path.isascii():
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is not an engine's URL: its path is {path}",
            fix,
        )
    return f"{parts.scheme}://{netloc}{path}"


def engine_host_port(url: str) -> str:
    """Return ``HOST[:PORT]`` of the API's URL, for messages."""
    return urlsplit(url).netloc


def engine_address(url: str, path: str) -> str:
    """Return the URL of ``path`` next to the API: ``sso/oauth/token``."""
    return f"{url.removesuffix('/api')}/{path}"


def _this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
