# SPDX-License-Identifier: GPL-2.0-or-later
"""The address of an engine, as people write it and as the API needs it. Pure."""

from __future__ import annotations

import ipaddress
from urllib.parse import urlsplit

from ovirt_rdma.host.errors import Problem

API = "/ovirt-engine/api"
# What people copy from their browser.
_PORTALS = ("/ovirt-engine", "/ovirt-engine/webadmin", "/ovirt-engine/web-ui")


def engine_url(text: str) -> str:
    """Return the API's URL for ``engine.example.com``, ``https://HOST[:PORT]`` or a
    whole URL. Raises Problem where it is no engine's.

    Plain http is for this machine only: the password would be there for all to read.
    """
    whole = text.strip() if "://" in text else f"https://{text.strip()}"
    try:
        parts = urlsplit(whole)
        host, _ = parts.hostname, parts.port
    except ValueError as error:
        raise Problem("engine-url-invalid", f"{text!r} is no URL: {error}") from error
    fix = "an engine's URL is https://ENGINE/ovirt-engine/api"
    if parts.username is not None or parts.password is not None:
        raise Problem(
            "engine-url-has-credentials",
            "an engine's URL holds no user and no password",
            "use --username and --password-file",
        )
    if parts.scheme not in ("https", "http") or not host:
        raise Problem("engine-url-invalid", f"{text!r} is no engine's URL", fix)
    if any(one.isspace() or not one.isprintable() for one in whole):
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is no engine's URL: it has a blank in it",
            fix,
        )
    if parts.scheme == "http" and not _this_machine(host):
        raise Problem(
            "engine-url-not-https",
            f"{text!r} would send the password unencrypted",
            "write https:// instead",
        )
    if parts.query or parts.fragment:
        raise Problem(
            "engine-url-invalid", f"{text!r} is no engine's URL: it has a query", fix
        )
    path = parts.path.rstrip("/")
    if path in ("", *_PORTALS):
        path = API
    if not path.endswith("/api"):
        raise Problem(
            "engine-url-invalid",
            f"{text!r} is no engine's URL: its path is {path}",
            fix,
        )
    return f"{parts.scheme}://{parts.netloc}{path}"


def engine_place(url: str) -> str:
    """Return ``HOST[:PORT]`` of an API's URL, for sentences."""
    return urlsplit(url).netloc


def engine_address(url: str, path: str) -> str:
    """Return the URL of ``path`` beside the API: ``sso/oauth/token``."""
    return f"{url.removesuffix('/api')}/{path}"


def _this_machine(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
