# SPDX-License-Identifier: GPL-2.0-or-later
"""The state of a conversion that the version before has begun is continued.

tests/data/earlier-version was written by commit 41d5319: conversions of the same site
that were killed at their ninth change.
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
    everything,
    planned,
    resume,
    revert,
    run,
    site_of,
    transports,
)
from support.engine.conversion_site import Killed

from ovirt_rdma.engine_sdk_tools.conversion.model import CONVERTED, REVERTED
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
        assert split(theirs.wanted).drop_ins == {}
        if site.world.host(ours.name).policy_text == ours.wanted:
            site.world.host(ours.name).policy_text = theirs.wanted
    site.stored = state
    assert resume(site).stage == CONVERTED
    assert set(transports(site).values()) == {"rdma"}
    assert revert(site).stage == REVERTED
    assert not changed(site, before)
