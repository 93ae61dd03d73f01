# SPDX-License-Identifier: GPL-2.0-or-later
"""Show what users may do, and refuse what they may not.

``world.roles`` has the roles of users by their name; others are SuperUser. Only
SuperUser and ReadOnlyAdmin are there.
"""

from __future__ import annotations

from collections.abc import Mapping

from ovirtsdk4 import types

from engine_double.answers import Answer, Refusal, listed
from engine_double.behaviours import behaviour
from engine_double.routing import Call, known, route
from engine_double.views import reference, with_href
from engine_double.world import World, new_id

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
