# SPDX-License-Identifier: GPL-2.0-or-later
"""Logging in to the double and out of it: tokens that expire and can be revoked.

On the wire as facts/engine.md, section 7, says.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from engine_double.answers import Answer, Mistake

TOKEN = "/ovirt-engine/sso/oauth/token"
LOGOUT = "/ovirt-engine/services/sso-logout"
JSON = "application/json;charset=UTF-8"


@dataclass
class Sso:
    """The tokens that are good now. ``logins`` and ``logouts`` count."""

    passwords: Mapping[str, str]
    tokens: set[str] = field(default_factory=set)
    made: int = 0
    logins: int = 0
    logouts: int = 0

    def new_token(self) -> str:
        self.made += 1
        token = f"token-{self.made:04d}-of-the-double"
        self.tokens.add(token)
        return token

    def answer(self, path: str, raw: bytes) -> Answer:
        """Serve the two addresses of the SSO."""
        words = {k: v[0] for k, v in parse_qs(raw.decode(), True).items()}
        scope = words.pop("scope", None)
        if scope != "ovirt-app-api":
            raise Mistake(f"the scope at {path} is {scope!r}, not ovirt-app-api")
        if path == TOKEN:
            return self._log_in(words)
        token = words.pop("token", None)
        if words or token is None:
            raise Mistake(f"{path} takes scope and token, not {sorted(words)}")
        self.logouts += 1
        self.tokens.discard(token)
        return _json(200, {})

    def _log_in(self, words: dict[str, str]) -> Answer:
        grant = words.pop("grant_type", None)
        name, password = words.pop("username", ""), words.pop("password", "")
        if grant != "password" or words:
            raise Mistake(f"the double grants for a password only, not {grant!r}")
        if self.passwords.get(name) != password:
            text = (
                "Cannot authenticate user Invalid user credentials: "
                "the user name or the password is wrong."
            )
            # Status as the engine's: it is the body that tells.
            return _json(400, {"error_code": "access_denied", "error": text})
        self.logins += 1
        document = {
            "access_token": self.new_token(),
            "scope": "ovirt-app-api",
            "exp": "9223372036854775807",
            "token_type": "bearer",
        }
        return _json(200, document)

    def good(self, authorization: str) -> bool:
        kind, _, token = authorization.partition(" ")
        return kind == "Bearer" and token in self.tokens


def _json(status: int, document: object) -> Answer:
    return Answer(status, json.dumps(document).encode(), JSON)
