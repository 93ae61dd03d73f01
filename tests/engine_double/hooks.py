# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve VDSM's hooks on a host, as of the last refresh of its capabilities."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ovirtsdk4 import types

from engine_double.answers import listed
from engine_double.hosts_of_the_world import SimHook, SimHost
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import World, new_id


@followed("hosts", "hooks")
def hooks_of(world: World, host: SimHost) -> list[types.Hook]:
    """The host's hooks as the API shows them."""
    return [_shown(host, one) for one in host.hooks]


def our_hooks() -> list[SimHook]:
    """The hooks of this checkout, as a host with the package reports them."""
    top = Path(__file__).parents[2] / "vdsm_hooks"
    files = sorted(top.glob("*/50_ovirt_rdma"))
    return [SimHook(file.name, file.parent.name) for file in files]


@route("GET", "/hosts/{host}/hooks", query=("max",))
def list_hooks(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return listed("hooks", call.first(hooks_of(call.world, host)))


@route("GET", "/hosts/{host}/hooks/{hook}")
def get_hook(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return known({one.id: one for one in hooks_of(call.world, host)}, call.ids["hook"])


def _shown(host: SimHost, one: SimHook) -> types.Hook:
    name = new_id(f"{one.event} {one.name}")
    return with_href(
        types.Hook(
            id=name,
            name=one.name,
            event_name=one.event,
            host=types.Host(id=host.id),
        ),
        f"/hosts/{host.id}/hooks/{name}",
    )
