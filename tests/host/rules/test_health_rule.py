# SPDX-License-Identifier: GPL-2.0-or-later
"""Test HEALTH-01: the unit that watches is on if the policy wants it, and else off."""

from __future__ import annotations

import pytest

from ovirt_rdma.host.facts.model import Facts, Software, Unit
from ovirt_rdma.host.paths import HEALTH_UNIT
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import NfsPolicy, Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, UNIT, WARN, Change, Step
from ovirt_rdma.host.rules.health import HEALTH_ID, decide_health
from ovirt_rdma.host.rules.view import View

OFF = Unit(HEALTH_UNIT, "loaded", "inactive", "disabled")
ON = Unit(HEALTH_UNIT, "loaded", "active", "enabled")
DIED = Unit(HEALTH_UNIT, "loaded", "failed", "enabled")
ABSENT = Unit(HEALTH_UNIT, "not-found", "inactive", "")


def decided(unit, interval):
    facts = Facts("hv1", "6.1", 100.0, software=Software(units=(unit,) if unit else ()))
    found = list(decide_health(View(facts, Policy(nfs=NfsPolicy((), interval)))))
    steps = [one for one in found if isinstance(one, Step)]
    (finding,) = (one for one in found if not isinstance(one, Step))
    return finding, steps


@pytest.mark.parametrize(
    ("unit", "interval", "verdict", "steps"),
    [
        (None, None, SKIP, 0),
        (OFF, None, SKIP, 0),
        (ABSENT, None, SKIP, 0),
        # The policy had it, and apply has enabled it.
        (ON, None, WARN, 0),
        (None, 10, SKIP, 0),
        (ON, 10, PASS, 0),
        (DIED, 10, FAIL, 0),
        (OFF, 10, FAIL, 1),
        (ABSENT, 10, FAIL, 1),
    ],
)
def test_verdicts(unit, interval, verdict, steps):
    finding, planned = decided(unit, interval)
    assert (finding.rule, finding.verdict, len(planned)) == (HEALTH_ID, verdict, steps)


def test_the_step_enables_the_unit():
    ((step,),) = [decided(OFF, 10)[1]]
    assert step.changes == (
        Change(UNIT, HEALTH_UNIT, "disabled", "enabled", "enabled"),
    )
    assert not step.refused


def test_a_unit_that_is_not_installed_is_refused():
    ((step,),) = [decided(ABSENT, 10)[1]]
    assert step.refused == f"{HEALTH_UNIT} is not installed"


@pytest.mark.parametrize("seconds", [5, 10, 300])
def test_the_interval_of_the_policy(seconds):
    text = f"version: 1\nnfs: {{health_interval: {seconds}}}\n"
    assert parse_policy(text, "p").policy.nfs.health_interval == seconds
