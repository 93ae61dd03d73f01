# SPDX-License-Identifier: GPL-2.0-or-later
"""Register the behaviours of the engine that the double has, with class and line.

    IN_USE = behaviour(
        "CONN-17", "A row that a domain uses cannot be removed: 409.",
        "bll/storage/connection/RemoveStorageServerConnectionCommand.java:60-66",
    )
    ...
    if using and world.does(IN_USE): raise Refusal(409, ...)

``python -m engine_double`` prints this table. A test marked ``engine_does("CONN-17")``
runs twice: with the double as it is, and with one that lacks CONN-17, where the test
must fail. So each behaviour has a test that fails if the double loses it. Sources are
from ovirt-engine 4.5.7, below the folders that ``ROOTS`` names.
"""

from __future__ import annotations

from dataclasses import dataclass

_MODULES = "backend/manager/modules"
ROOTS = {
    "bll": f"{_MODULES}/bll/src/main/java/org/ovirt/engine/core/bll",
    "ansible": (
        f"{_MODULES}/bll/src/main/java/org/ovirt/engine/core/common/utils/ansible"
    ),
    "common": f"{_MODULES}/common/src/main/java/org/ovirt/engine/core/common",
    "dal": f"{_MODULES}/dal/src/main/java/org/ovirt/engine/core",
    "services": f"{_MODULES}/services/src/main/java/org/ovirt/engine/core/services",
    "restapi": (f"{_MODULES}/restapi/jaxrs/src/main/java/org/ovirt/engine/api/restapi"),
    "mapper": (
        f"{_MODULES}/restapi/types/src/main/java/org/ovirt/engine/api/restapi/types"
    ),
    "vdsbroker": (
        f"{_MODULES}/vdsbroker/src/main/java/org/ovirt/engine/core/vdsbroker"
    ),
    "dbscripts": "packaging/dbscripts",
    "search": (
        f"{_MODULES}/searchbackend/src/main/java/org/ovirt/engine/core/searchbackend"
    ),
    "aaa": f"{_MODULES}/aaa/src/main/java/org/ovirt/engine/core/aaa",
    "sso": f"{_MODULES}/enginesso/src/main/java/org/ovirt/engine/core/sso",
    "utils": f"{_MODULES}/utils/src/main/java/org/ovirt/engine/core/utils",
}


@dataclass(frozen=True)
class Behaviour:
    """``sources`` are ``ROOT/FILE:LINE[-LINE]``, a root being a key of ROOTS."""

    id: str
    says: str
    sources: tuple[str, ...]


BEHAVIOURS: dict[str, Behaviour] = {}

# Ids of behaviours that new worlds do not have: for tests which show that a kinder
# engine would hide a mistake.
left_out: set[str] = set()


def behaviour(id: str, says: str, *sources: str) -> Behaviour:
    """Register a behaviour; raises ValueError for a duplicate id or no source."""
    if id in BEHAVIOURS or not sources:
        raise ValueError(f"{id} is in the table already, or has no source")
    made = BEHAVIOURS[id] = Behaviour(id, says, sources)
    return made
