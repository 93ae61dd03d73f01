# SPDX-License-Identifier: GPL-2.0-or-later
"""Log clients in and out: tokens expire and can be revoked."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Optional
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

NOT_AUTHORIZED = behaviour(
    "SSO-04",
    "A user who may not log in gets a token, and 401 with a sentence for each request.",
    "aaa/SsoUtils.java:77-81",
    "aaa/filters/SsoRestApiAuthFilter.java:94-101",
)
SESSION_UNFINISHED = behaviour(
    "SSO-05",
    "Until the first request with a token is answered, others with it may get 500: its "
    "session is there, and not yet what it may do.",
    "bll/aaa/SessionDataContainer.java:402-406",
)
# As recorded from an engine.
EXPIRED = (
    "invalid_grant: The provided authorization grant for the auth code has expired."
)

TOKEN = "/ovirt-engine/sso/oauth/token"
LOGOUT = "/ovirt-engine/services/sso-logout"
JSON = "application/json"


@dataclass
class Sso:
    """The valid tokens. ``logins`` and ``logouts`` are counters; ``may_not_log_in``
    are names of users.
    """

    passwords: Mapping[str, str]
    does: Callable[[Behaviour], bool] = lambda one: True
    tokens: set[str] = field(default_factory=set)
    may_not_log_in: set[str] = field(default_factory=set)
    users: dict[str, str] = field(default_factory=dict)
    # Tokens whose first request has begun, and those for which it is answered.
    begun: set[str] = field(default_factory=set)
    known: set[str] = field(default_factory=set)
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
        token = self.new_token()
        self.users[token] = name
        document = {
            "access_token": token,
            "scope": "ovirt-app-api",
            "exp": "9223372036854775807" if self.does(LONG_LIVED) else "3600",
            "token_type": "bearer",
        }
        return _json(200, document)

    def refusal(self, authorization: str) -> Optional[str]:
        """Why a request is refused; None if it is not, "" without a reason."""
        kind, _, token = authorization.partition(" ")
        user = self.users.get(token, "")
        if kind != "Bearer":
            return ""
        if token not in self.tokens:
            return EXPIRED
        if user in self.may_not_log_in and self.does(NOT_AUTHORIZED):
            name, _, profile = user.partition("@")
            return (
                f"The user {name}@{profile}-authz with profile [{profile}] is not "
                "authorized to perform login"
            )
        return None

    def begin(self, authorization: str) -> bool:
        """Take a request; return whether it comes before the first is answered."""
        early = authorization in self.begun - self.known
        self.begun.add(authorization)
        return early and self.does(SESSION_UNFINISHED)


def _json(status: int, document: object) -> Answer:
    return Answer(status, json.dumps(document).encode(), JSON)
