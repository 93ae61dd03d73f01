# SPDX-License-Identifier: GPL-2.0-or-later
"""Logging in to the engine and out again: its tokens.

The forms are the engine's (enginesso, OAuthTokenServlet and SsoService): an answer is
JSON with ``access_token``, or with ``error_description`` and ``error``, or with
``error`` and ``error_code``.
"""

from __future__ import annotations

import contextlib

from ovirt_rdma.engine_sdk_tools.engine_errors import (
    BROKEN,
    DENIED,
    UNAVAILABLE,
    EngineProblem,
)
from ovirt_rdma.engine_sdk_tools.engine_url import engine_address, engine_place
from ovirt_rdma.engine_sdk_tools.settings import Settings
from ovirt_rdma.engine_sdk_tools.web import ask

_SCOPE = "ovirt-app-api"
# Nobody waits for a goodbye.
_LOGOUT_S = 5.0


def log_in(settings: Settings) -> str:
    """Return a token for the user of ``settings``. Raises EngineProblem."""
    user = settings.username or ""
    doing = f"logging in as {user}"
    if not user or settings.password is None:
        raise EngineProblem(
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
            f"{doing} failed: {where} says: {words}",
            DENIED,
            code=answer.code,
            fix="" if "@" in user else f"a user has a profile: {user}@internal",
            doing=doing,
        )
    if answer.code >= 500 or answer.code == 404:
        raise EngineProblem(
            f"{doing} failed: {where} is not at work: HTTP {answer.code}",
            UNAVAILABLE,
            code=answer.code,
            fix="wait until it has started, or check the URL",
            doing=doing,
        )
    raise EngineProblem(
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
