# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that the pages about hooks agree with the hooks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from support.host.hook_host import ENTRIES, NAME, POINTS

from ovirt_rdma.host.facts.infiniband import MODE_PROPERTY
from ovirt_rdma.host.services.network_request import MODES
from ovirt_rdma.vdsm_hooks.main import LIMITS_S

pytestmark = pytest.mark.hypervisor

DOCS = Path(__file__).resolve().parents[2] / "docs/hooks.md"


def test_limits():
    told = dict(
        re.findall(r"^\| \[`(\w+)`\].*\| (\d+) s \|$", DOCS.read_text(), re.MULTILINE)
    )
    caps = (ENTRIES / "after_get_caps" / NAME).read_text()
    (own,) = re.findall(r"^LIMIT_S = (\d+)\.0$", caps, re.MULTILINE)
    limits = {point: f"{seconds:g}" for point, seconds in LIMITS_S.items()}
    assert told == {**limits, "after_get_caps": own}


def test_the_engines_pattern_takes_the_modes_and_no_other():
    text = (ENTRIES / "before_network_setup/README.md").read_text()
    patterns = set(re.findall(rf'{MODE_PROPERTY}=(\^[^"]*\$)"', text))
    (pattern,) = patterns
    assert all(re.search(pattern, mode) for mode in MODES)
    assert not re.search(pattern, "Connected")


@pytest.mark.parametrize("point", POINTS)
def test_each_hook_has_a_page_that_links_to_the_others(point):
    text = (ENTRIES / point / "README.md").read_text()
    assert text.splitlines()[1] == f"# {point}"
    for link in re.findall(r"\]\(([^)]+)\)", text):
        assert (ENTRIES / point / link).exists(), link
