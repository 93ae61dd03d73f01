# SPDX-License-Identifier: GPL-2.0-or-later
"""Refuse a user who may read the engine only, before anything is changed.

A user may read their own permissions, those of their groups included, and what each
role permits. A role may be for some objects only, and an action may need several: the
engine decides that at each request.
"""

from __future__ import annotations

from typing import Any

from ovirt_rdma.engine_sdk_tools.api.engine_session import EngineSession
from ovirt_rdma.engine_sdk_tools.api.errors import ADMINISTRATOR, PASSING, EngineProblem
from ovirt_rdma.engine_sdk_tools.api.request import Read
from ovirt_rdma.engine_sdk_tools.refusals import ChecksFailed
from ovirt_rdma.host.errors import Sentence

_READ_ONLY = Sentence(
    "user-may-only-read",
    "this user may read the engine and change nothing: no role of the user, or of the "
    "user's groups, permits a change",
)


def check_may_change(session: EngineSession, system: Any) -> None:
    """Raise ChecksFailed if no role of our user has a permission of administrators.
    ``system`` is the SDK's Api, which names the user.

    What cannot be read refuses nobody. Raises EngineProblem while the engine is not
    available.
    """
    user = system.authenticated_user
    if user is None:
        return
    doing = "reading the permissions of this user"
    try:
        found = session.read(Read(f"users/{user.id}/permissions", doing))
        roles = sorted({one.role.id for one in found if one.role})
        permits = [session.read(Read(f"roles/{role}/permits", doing)) for role in roles]
    except EngineProblem as problem:
        if problem.kind in PASSING:
            raise
        return
    if roles and not any(one.administrative for some in permits for one in some):
        raise ChecksFailed([_READ_ONLY], ADMINISTRATOR)
