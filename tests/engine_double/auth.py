# SPDX-License-Identifier: GPL-2.0-or-later
"""Log clients in and out: tokens expire and can be revoked. Show what users may do, and
refuse what they may not.

``world.roles`` has the roles of users by their name; others are SuperUser. Only
SuperUser and ReadOnlyAdmin are there.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Optional
from urllib.parse import parse_qs

from ovirtsdk4 import types

from engine_double.answers import Answer, Mistake, Refusal, listed
from engine_double.behaviours import Behaviour, behaviour
from engine_double.routing import Call, known, route
from engine_double.views import reference, with_href
from engine_double.world import World, new_id

WRONG_PASSWORD = behaviour(
    "SSO-01",
    "A wrong password is 400 in JSON: error_code access_denied, and error a sentence.",
    "sso/servlets/OAuthTokenServlet.java:53-59",
    "sso/service/SsoService.java:703-713",
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
            # Of the user's account, not of the session: none, as a rule
            # (sso/servlets/OAuthTokenServlet.java:271-278).
            "exp": "9223372036854775807",
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


# -- permissions

OWN = behaviour(
    "SSO-06",
    "A user is named by the API itself, and may read their own permissions, which have "
    "no name of a role, and what a role permits.",
    "restapi/resource/BackendApiResource.java:339-349",
    "restapi/resource/aaa/BackendUserResource.java:211-216",
    "bll/GetPermissionsOnBehalfByAdElementIdQuery.java:43-60",
    "mapper/PermissionMapper.java:51-60",
    "restapi/resource/BackendPermitsResource.java:31-35",
    "mapper/PermitMapper.java:20-27",
)
EVERYONE = behaviour(
    "SSO-08",
    "A user's permissions have those of the group Everyone too, of which some are an "
    "administrator's.",
    "dbscripts/data/00600_insert_permissions.sql:21",
    "dbscripts/data/00700_insert_roles_groups.sql:453",
    "common/businessentities/ActionGroup.java:165",
)
READ_ONLY = behaviour(
    "SSO-07",
    "The role ReadOnlyAdmin permits the login only: each change is 403, with a "
    "sentence.",
    "dbscripts/data/00700_insert_roles_groups.sql:292",
    "bll/CommandBase.java:1040-1056",
    "common/errors/EngineMessage.java:657",
)
SUPER_USER, READ_ONLY_ADMIN = "SuperUser", "ReadOnlyAdmin"
_PERMITS = {
    SUPER_USER: (("1300", "login", False), ("401", "edit_cluster_configuration", True)),
    READ_ONLY_ADMIN: (("1300", "login", False),),
    "CpuProfileOperator": (("1668", "assign_cpu_profile", True),),
}
_ROLES = {new_id(f"role {name}"): name for name in _PERMITS}
_ADMIN = "admin@ovirt@internalsso"


def user_of(world: World, headers: Mapping[str, str]) -> str:
    """Return the name of the user who has sent a request, by its token."""
    token = headers.get("authorization", "").partition(" ")[2]
    return world.users.get(token, _ADMIN)


def user_view(call: Call) -> types.User:
    name = user_of(call.world, call.headers)
    return reference(types.User, "users", new_id(f"user {name}"))


def check_permitted(world: World, headers: Mapping[str, str]) -> None:
    """Raise Refusal for a change by a user who may only read."""
    role = world.roles.get(user_of(world, headers), SUPER_USER)
    if role == READ_ONLY_ADMIN and world.does(READ_ONLY):
        raise Refusal(403, "User is not authorized to perform this action.")


@route("GET", "/users/{user}/permissions")
def list_permissions(call: Call) -> Answer:
    user = call.ids["user"]
    names = {new_id(f"user {name}"): name for name in (*call.world.roles, _ADMIN)}
    role = call.world.roles.get(known(names, user), SUPER_USER)
    shown = types.Permission(
        id=new_id(f"permission {user}"),
        role=reference(types.Role, "roles", new_id(f"role {role}")),
        user=reference(types.User, "users", user),
    )
    where = f"/users/{user}/permissions/{shown.id}"
    visible = [with_href(shown, where)] if call.world.does(OWN) else []
    if call.world.does(EVERYONE):
        group = "eee00000-0000-0000-0000-123456789eee"
        everyones = types.Permission(
            id=new_id("permission Everyone"),
            role=reference(types.Role, "roles", new_id("role CpuProfileOperator")),
            group=reference(types.Group, "groups", group),
        )
        visible.append(with_href(everyones, f"/permissions/{everyones.id}"))
    return listed("permissions", visible)


@route("GET", "/roles/{role}/permits")
def list_permits(call: Call) -> Answer:
    role = call.ids["role"]
    return listed(
        "permits",
        [
            with_href(
                types.Permit(id=id, name=name, administrative=administrative),
                f"/roles/{role}/permits/{id}",
            )
            for id, name, administrative in _PERMITS[known(_ROLES, role)]
        ],
    )
