# SPDX-License-Identifier: GPL-2.0-or-later
"""Test conversions of domains that share the kernel's connection to their server."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.engine.conversion_runs import (
    BY_ROW,
    EXPORT,
    OFFLINE,
    ROLLING,
    changed,
    convert,
    everything,
    planned,
    revert,
    site_of,
    transports,
)
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.conversion.model import Stage

pytestmark = pytest.mark.engine

BOTH = ("data1", "data2")
EXPORTS = [EXPORT.replace("data1", name) for name in BOTH]


def shared(transport: str):
    """Return a site whose hosts have both domains of a server over ``transport``."""
    site = site_of(domains=BOTH)
    for host in site.world.hosts.values():
        host.mounts.update(dict.fromkeys(EXPORTS, transport))
    if transport == "rdma":
        for name in BOTH:
            row = site.world.connection_of(name)
            row.mount_options = "proto=rdma,port=20049"
    return site


@pytest.mark.parametrize("request_", [OFFLINE, ROLLING, BY_ROW])
@pytest.mark.parametrize(("start", "to"), [("tcp", "rdma"), ("rdma", "tcp")])
def test_one_alone_is_refused_and_both_together_are_converted(request_, start, to):
    site = shared(start)
    request = replace(request_, to=to)
    before = everything(site)

    with problem("checks-failed", EXPORTS[1], start.upper(), "data1") as caught:
        planned(site, request, "data1")

    ids = {reason.id for reason in caught.value.reasons}
    assert ids == {"server-connection-shared"}
    assert not changed(site, before)
    state = convert(site, request, *BOTH)
    assert state.stage == Stage.CONVERTED, state.why
    for export in EXPORTS:
        assert set(transports(site, export).values()) == {to}
    if request_.rolling:
        # Each host goes once.
        assert len([c for c in site.calls if c.method == "deactivate"]) == 3
    assert revert(site).stage == Stage.REVERTED
    for export in EXPORTS:
        assert set(transports(site, export).values()) == {start}


@pytest.mark.parametrize("to", ["rdma", "tcp"])
def test_one_alone_where_the_other_has_another_version(to):
    start = {"rdma": "tcp", "tcp": "rdma"}[to]
    site = shared(start)
    site.world.connection_of("data2").nfs_version = "v4_1"

    state = convert(site, replace(ROLLING, to=to), "data1")

    assert state.stage == Stage.CONVERTED, state.why
    assert set(transports(site, EXPORTS[0]).values()) == {to}
    assert set(transports(site, EXPORTS[1]).values()) == {start}
