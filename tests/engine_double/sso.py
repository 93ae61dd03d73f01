# SPDX-License-Identifier: GPL-2.0-or-later
"""Log clients in and out: tokens expire and can be revoked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from urllib.parse import parse_qs

from engine_double.answers import Answer, Mistake
from engine_double.behaviours import Behaviour, behaviour

WRONG_PASSWORD = behaviour(
    "SSO-01",
    "A wrong password is 400 in JSON: error_code access_denied, and error a sentence.",
    "sso/servlets/OAuthTokenServlet.java:53-59",
    "sso/service/SsoService.java:703-713",
)
LONG_LIVED = behaviour(
    "SSO-02",
    "A token comes with an end, as a text, that is the user account's and not the "
    "session's: none, as a rule.",
    "sso/servlets/OAuthTokenServlet.java:271-278",
    "sso/service/SsoService.java:523-526",
)
REVOKED = behaviour(
    "SSO-03",
    "A logout ends the token.",
    "sso/servlets/OAuthRevokeServlet.java:48-65",
)

TOKEN = "/ovirt-engine/sso/oauth/token"
LOGOUT = "/ovirt-engine/services/sso-logout"
JSON = "application/json"


@dataclass
class Sso:
    """The valid tokens. ``logins`` and ``logouts`` are counters."""

    passwords: Mapping[str, str]
    does: Callable[[Behaviour], bool] = lambda one: True
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
        if self.does(REVOKED):
            self.tokens.discard(token)
        return _json(200, {})

    def _log_in(self, words: dict[str, str]) -> Answer:
        grant = words.pop("grant_type", None)
        name, password = words.pop("username", ""), words.pop("password", "")
        if grant != "password" or words:
            raise Mistake(f"the double grants for a password only, not {grant!r}")
        wrong = self.passwords.get(name) != password
        if wrong and self.does(WRONG_PASSWORD):
            text = (
                f"Cannot authenticate user '{name}': the user name or the password is "
                "wrong."
            )
            return _json(400, {"error_code": "access_denied", "error": text})
        self.logins += 1
        document = {
            "access_token": self.new_token(),
            "scope": "ovirt-app-api",
            "exp": "9223372036854775807" if self.does(LONG_LIVED) else "3600",
            "token_type": "bearer",
        }
        return _json(200, document)

    def good(self, authorization: str) -> bool:
        kind, _, token = authorization.partition(" ")
        return kind == "Bearer" and token in self.tokens


def _json(status: int, document: object) -> Answer:
    return Answer(status, json.dumps(document).encode(), JSON)
