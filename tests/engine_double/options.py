# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine's options as REST shows them: it reads them, and changes none.

``world.options`` has (name, version) -> value; version "" is ``general``.
"""

from __future__ import annotations

from typing import Any

from ovirtsdk4 import types

from engine_double.answers import Missing
from engine_double.network_checks import USER_PROPERTIES
from engine_double.routing import Call, route
from engine_double.views import with_href


@route("GET", "/options/{option}", query=("version",))
def get_option(call: Call) -> Any:
    name, version = call.ids["option"], call.query.get("version")
    values = {
        level or "general": value
        for (option, level), value in call.world.options.items()
        if option == name and version in (None, level)
    }
    if name == USER_PROPERTIES and not values:
        # Always there, empty for each level (0000_config.sql).
        levels = {cluster.version for cluster in call.world.clusters.values()}
        values = {level: "" for level in levels if version in (None, level)}
    if not values:
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
