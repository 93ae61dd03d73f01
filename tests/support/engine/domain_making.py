# SPDX-License-Identifier: GPL-2.0-or-later
"""Create the domain ``new`` on the double, for the tests of ``domain create``."""

from __future__ import annotations

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.domains.create import (
    DomainRequest,
    create_domain,
    plan_domain_create,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from support.engine.engine_door import DoubleDoor

EXPORT = "nfs2.example.com:/exports/new"
REQUEST = DomainRequest("new", EXPORT, "dc1")


def planned(session, door=None, request=REQUEST):
    engine = read_engine(session)
    reports = door.reports(engine.hosts) if door else {}
    return plan_domain_create(engine, reports, request)


def made(session, door=None, request=REQUEST, listener=None):
    plan = planned(session, door, request)
    return create_domain(session, door, plan, listener or Listener())


def with_add_on(double):
    for host in double.world.hosts.values():
        host.addon, host.policy_text = True, "version: 1\n"
    return DoubleDoor(double.world)


def left(double):
    """Return the parts of the new domain that the engine has."""
    world = double.world
    return (
        [d.name for d in world.domains.values() if d.name == "new"],
        [c.export for c in world.connections.values() if c.export == EXPORT],
    )
