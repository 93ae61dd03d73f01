# SPDX-License-Identifier: GPL-2.0-or-later
"""METRICS-01: the timer is enabled by the policy only."""

from __future__ import annotations

import pytest

from ovirt_rdma.host.facts.model import Facts, Software, Unit
from ovirt_rdma.host.paths import METRICS_UNIT
from ovirt_rdma.host.policy.model import HostPolicy, Policy
from ovirt_rdma.host.rules.base import (
    FAIL,
    LIVE,
    PASS,
    SKIP,
    UNIT,
    WARN,
    Change,
    Finding,
    Step,
)
from ovirt_rdma.host.rules.metrics import decide
from ovirt_rdma.host.rules.view import View

WANTED = Policy(host=HostPolicy(metrics_folder="/var/lib/node_exporter/textfiles"))


def outcomes(policy, *units):
    facts = Facts("hv1", "5.14.0", 1.0, software=Software(units=units))
    found = [*decide(View(facts, policy))]
    findings = [one for one in found if isinstance(one, Finding)]
    return findings, [one for one in found if isinstance(one, Step)]


def unit(enabled="disabled", active="inactive", load="loaded"):
    return Unit(METRICS_UNIT, load, active, enabled)


@pytest.mark.parametrize(
    ("policy", "units", "verdict", "words"),
    [
        (Policy(), (), SKIP, "the policy has no metrics_folder"),
        (Policy(), (unit(),), SKIP, "the policy has no metrics_folder"),
        (Policy(), (unit("enabled", "active"),), WARN, "no longer has"),
        (WANTED, (), SKIP, "it is unknown"),
        (WANTED, (unit("enabled", "active"),), PASS, "writes the metrics"),
        (WANTED, (unit("enabled"),), FAIL, "is not running"),
        (WANTED, (unit("enabled", "failed"),), FAIL, "has failed"),
        (WANTED, (unit(),), FAIL, "/var/lib/node_exporter/textfiles"),
        (WANTED, (unit(load="not-found"),), FAIL, "is not installed"),
    ],
)
def test_the_finding(policy, units, verdict, words):
    (finding,), _ = outcomes(policy, *units)
    assert (finding.verdict, finding.subject) == (verdict, "host")
    assert words in finding.sentence


def test_the_step_enables_the_timer_and_says_what_stays():
    _, (step,) = outcomes(WANTED, unit())
    assert (step.id, step.effect, step.refused) == ("METRICS-01/host", LIVE, "")
    assert step.changes == (
        Change(UNIT, METRICS_UNIT, "disabled", "enabled", "enabled"),
    )
    assert "remove ovirt_rdma.prom" in step.undo


def test_a_timer_that_is_not_installed_is_refused():
    _, (step,) = outcomes(WANTED, unit(load="not-found", enabled=""))
    assert step.refused.id == "unit-missing"


@pytest.mark.parametrize("policy", [Policy(), WANTED])
def test_an_enabled_timer_needs_no_step(policy):
    assert outcomes(policy, unit("enabled", "active"))[1] == []
