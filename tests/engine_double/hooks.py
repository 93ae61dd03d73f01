# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve VDSM's hooks on a host, as of the last refresh of its capabilities."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from ovirtsdk4 import types

from engine_double.answers import listed
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHook, SimHost
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import World, new_id

ANY_CHECKSUM = behaviour(
    "HOST-22",
    "A hook's md5 has what VDSM reports, which is a SHA-256.",
    "mapper/HostMapper.java:622-633",
)


@followed("hosts", "hooks")
def hooks_of(world: World, host: SimHost) -> list[types.Hook]:
    """The host's hooks as the API shows them."""
    return [_shown(world, host, one) for one in host.hooks]


def hook(event: str, name: str, content: bytes) -> SimHook:
    """A hook with the checksum of its content, as VDSM makes it (hooks.py, SHA-256)."""
    return SimHook(name, event, hashlib.sha256(content).hexdigest())


def our_hooks() -> list[SimHook]:
    """The hooks of this checkout, as a host with the package reports them."""
    top = Path(__file__).parents[2] / "vdsm_hooks"
    return [
        hook(file.parent.name, file.name, file.read_bytes())
        for file in sorted(top.glob("*/50_ovirt_rdma"))
    ]


@route("GET", "/hosts/{host}/hooks", query=("max",))
def list_hooks(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return listed("hooks", call.first(hooks_of(call.world, host)))


@route("GET", "/hosts/{host}/hooks/{hook}")
def get_hook(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return known({one.id: one for one in hooks_of(call.world, host)}, call.ids["hook"])


def _shown(world: World, host: SimHost, one: SimHook) -> types.Hook:
    name = new_id(f"{one.event} {one.name} {one.checksum}")
    return with_href(
        types.Hook(
            id=name,
            name=one.name,
            event_name=one.event,
            md5=one.checksum if world.does(ANY_CHECKSUM) else one.checksum[:32],
            host=types.Host(id=host.id),
        ),
        f"/hosts/{host.id}/hooks/{name}",
    )
