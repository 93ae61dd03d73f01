# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's options as REST shows them: it reads them, and changes none.

``world.options`` has (name, version) -> value; version "" is ``general``.
"""

from __future__ import annotations

from typing import Any

from ovirtsdk4 import types

from engine_double.answers import Missing
from engine_double.behaviours import behaviour
from engine_double.network_checks import USER_PROPERTIES
from engine_double.routing import Call, route
from engine_double.views import with_href

UNKNOWN = behaviour(
    "OPTION-01",
    "An option that there is not, or that has no value for the version that is asked "
    "for: 404.",
    "restapi/resource/BackendSystemOptionResource.java:28-47",
    "bll/GetSystemOptionQuery.java:27-41",
)
BY_VERSION = behaviour(
    "OPTION-02",
    "Without a version an option has a value for each; with one, that version's.",
    "bll/GetSystemOptionQuery.java:27-42",
)
EMPTY = behaviour(
    "OPTION-03",
    "The custom properties of networks are there for each cluster level, empty from "
    "the beginning.",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:761",
)


@route("GET", "/options/{option}", query=("version",))
def get_option(call: Call) -> Any:
    world = call.world
    name, version = call.ids["option"], call.query.get("version")
    if not world.does(BY_VERSION):
        version = None
    values = {
        level or "general": value
        for (option, level), value in world.options.items()
        if option == name and version in (None, level)
    }
    if name == USER_PROPERTIES and world.does(EMPTY):
        for level in {cluster.version for cluster in world.clusters.values()}:
            if version in (None, level):
                values.setdefault(level, "")
    if not values and world.does(UNKNOWN):
        raise Missing(name)
    return with_href(
        types.SystemOption(
            id=name,
            name=name,
            values=[
                types.SystemOptionValue(value=value, version=level)
                for level, value in sorted(values.items())
            ],
        ),
        f"/options/{name}",
    )
