# SPDX-License-Identifier: GPL-2.0-or-later
"""Plan, run and revert conversions on a site without a network, and compare its hosts
and domains.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_double import SimConnection, SimDomain, new_id, sample_world

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.conversion import run as conversion_run
from ovirt_rdma.engine_sdk_tools.conversion.model import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.plan import (
    plan_convert,
    plan_resume,
    plan_revert,
)
from ovirt_rdma.engine_sdk_tools.conversion.run import ConversionRun
from support.engine.conversion_site import Site, engine_of, report_of

OFFLINE = ConversionRequest("rdma")
ROLLING = ConversionRequest("rdma", rolling=True)
BY_ROW = ConversionRequest("rdma", rolling=True, by_row=True)
BATCH = ConversionRequest("rdma", rolling=True, batch=2)


class StepCounter(Listener):
    """Counts the steps that are reported; ``total`` is the number announced."""

    def __init__(self):
        self.total = self.told = 0

    def plan(self, subjects, total):
        self.total = total

    def end(self, step, subject=None, problem=""):
        self.told += 1


def site_of(**words) -> Site:
    world = sample_world(
        **{"hosts": 3, "domains": ("data1",), "addon": True, "iso": False, **words}
    )
    # A domain of another server, so that it does not affect data1, which is not the
    # last active one.
    add_other(world)
    return Site(world)


def add_other(world) -> None:
    (centre,) = (c for c in world.data_centers.values() if c.name == "dc1")
    row = SimConnection(
        new_id("connection other"), "nfs", "nfs2.example.com", "/o", nfs_version="v4_2"
    )
    world.connections[row.id] = row
    domain = SimDomain(
        new_id("domain other"), "other", "data", "nfs", row.id, centre.id, "active"
    )
    world.domains[domain.id] = domain
    for host in world.hosts.values():
        host.mounts[row.export] = "tcp"


def reports(site: Site):
    return [report_of(site.world, h.name) for h in site.world.hosts.values()]


def planned(site: Site, request=ROLLING, *names: str, earlier=()):
    engine = engine_of(site)
    wanted = names or ("data1",)
    domains = [d for d in engine.domains if d.name in wanted]
    return plan_convert(engine, domains, reports(site), request, earlier=earlier)


def run(site: Site, state, ear=None, lock=None, observed=None):
    check = lock.check if lock else lambda: None
    ear = ear or StepCounter()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(conversion_run, "read_engine", engine_of)
        patched.setattr(conversion_run, "with_hosts_now", hosts_now)
        return ConversionRun(site, site, ear, state, check, site, observed or {}).run()


def hosts_now(site: Site, engine, *, clusters=False):
    """Return ``engine`` as with_hosts_now, from the world."""
    now = engine_of(site)
    return replace(
        engine, hosts=now.hosts, clusters=now.clusters if clusters else engine.clusters
    )


def convert(site: Site, request=ROLLING, *names: str):
    return run(site, planned(site, request, *names).state)


def revert(site: Site):
    return run(site, plan_revert(site.stored, engine_of(site), reports(site)).state)


def resume(site: Site):
    """Resume in the next process."""
    site.alive()
    return run(site, plan_resume(site.stored, engine_of(site), reports(site)).state)


def after(site: Site, about: str, method: str, act) -> None:
    """Call ``act`` after each ``method`` of ``about``, until ``del site.perform``."""
    perform = site.perform

    def and_act(call, **more):
        perform(call, **more)
        if (call.subject, call.method) == (about, method):
            act()

    site.perform = and_act


EXPORT = "nfs1.example.com:/exports/data1"


def transports(site: Site, export: str = EXPORT):
    return {h.name: h.mounts.get(export) for h in site.world.hosts.values()}


def everything(site: Site) -> dict[str, object]:
    """Return everything that a conversion may change and a revert restores; SPM and
    master role may move.
    """
    world = site.world
    return {
        **{
            h.name: (h.status, h.policy_text, dict(h.mounts))
            for h in world.hosts.values()
        },
        **{r.export: r.mount_options or "" for r in world.connections.values()},
        **{d.name: d.status for d in world.domains.values()},
    }


def changed(site: Site, before: dict[str, object]) -> dict[str, object]:
    """Return what differs from ``before``."""
    now = everything(site)
    return {name: now[name] for name in now if now[name] != before[name]}
