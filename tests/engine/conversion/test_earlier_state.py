# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of a conversion that the version before has begun is continued.

tests/data/earlier-version was written by earlier versions: conversion-NAME.json by
commit 41d5319, conversions of one site that were killed at their ninth change, and
conversion-again-NAME.json by commit 26b3703, second conversions of a site to which a
host was added.
"""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pytest
from support.engine.conversion_runs import (
    OFFLINE,
    ROLLING,
    changed,
    convert,
    everything,
    planned,
    resume,
    revert,
    run,
    site_of,
    transports,
)
from support.engine.conversion_site import Killed

from ovirt_rdma.engine_sdk_tools.conversion.baseline import as_at_first
from ovirt_rdma.engine_sdk_tools.conversion.model import CONVERTED, REVERTED
from ovirt_rdma.engine_sdk_tools.conversion.preflight import ConversionRequest
from ovirt_rdma.engine_sdk_tools.conversion.state_file import StateFile
from ovirt_rdma.host.policy.drop_ins import split

EARLIER = Path(__file__).parents[2] / "data" / "earlier-version"
REQUESTS = {"rolling": ROLLING, "offline": OFFLINE}


@pytest.mark.parametrize("name", REQUESTS)
def test_it_is_read_continued_and_reverted(name, tmp_path):
    site = site_of()
    before = everything(site)
    site.kill_at = 8
    with contextlib.suppress(Killed):
        run(site, planned(site, REQUESTS[name]).state)
    stored = tmp_path / "state.json"
    shutil.copy(EARLIER / f"conversion-{name}.json", stored)
    state = StateFile(stored).read()
    # That version wrote the rule into policy.yaml itself.
    for ours, theirs in zip(site.stored.hosts, state.hosts):
        assert (ours.name, ours.stage) == (theirs.name, theirs.stage)
        (file,) = theirs.files
        assert file.name == "policy.yaml"
        host = site.world.host(ours.name)
        if split(host.policy_text).drop_ins:
            host.policy_text = file.wanted
    site.stored = state
    assert resume(site).stage == CONVERTED
    assert set(transports(site).values()) == {"rdma"}
    assert revert(site).stage == REVERTED
    assert not changed(site, before)


@pytest.mark.parametrize("go_on", [True, False], ids=["resumed", "reverted"])
@pytest.mark.parametrize("name", REQUESTS)
def test_a_second_one_still_goes_back_to_the_first(name, go_on):
    site = site_of()
    before = everything(site)
    late = site.world.hosts.pop(site.world.host("host03").id)
    convert(site, ConversionRequest("rdma", rolling=True, rule="prefer-rdma"))
    site.world.hosts[late.id] = late
    site.kill_at = len(site.acts) + 12
    with contextlib.suppress(Killed):
        run(site, planned(site, REQUESTS[name], earlier=[site.stored]).state)
    state = StateFile(EARLIER / f"conversion-again-{name}.json").read()
    assert _baseline(state) == _baseline(site.stored)
    site.alive()
    site.stored = state
    if go_on:
        assert resume(site).stage == CONVERTED
        assert set(transports(site).values()) == {"rdma"}
    assert revert(site).stage == REVERTED
    assert not changed(site, before)


def _baseline(state):
    first = as_at_first(state)
    return (
        [(d.name, d.options, d.wanted, d.touched) for d in first.domains],
        [(h.name, h.push, h.transports, h.touched, h.others) for h in first.hosts],
        [(f.name, f.found, {*f.known}) for h in first.hosts for f in h.files],
    )
