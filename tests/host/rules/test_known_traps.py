# SPDX-License-Identifier: GPL-2.0-or-later
"""Each trap is found on a host that is in it, and not on one that is beside it.

tests/data/traps has the facts of both; WRITE_GOLDEN=1 writes them again.
"""

from __future__ import annotations

import os

import pytest
from support.golden.golden_hosts import DATA as HOST_DATA
from support.golden.golden_hosts import HOSTS
from support.golden.golden_traps import DATA, TRAPS

from ovirt_rdma.cli.host.explain import read_page
from ovirt_rdma.host.decision.registry import decide
from ovirt_rdma.host.facts import dump
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, WARN

NEW = (*TRAPS, "LOCALITY-01")


@pytest.fixture(params=TRAPS)
def rule(request):
    return request.param


def facts_file(rule, fires):
    return DATA / f"{rule}.{'fires' if fires else 'sound'}.json"


def found(rule, fires):
    """Return the findings about the host by all rules of the traps."""
    options = TRAPS[rule].options
    nfs = NfsRule(1, "rule 1", "*", "*", "prefer-rdma", options=options)
    decision = decide(dump.load(facts_file(rule, fires)), Policy(nfs=NfsPolicy((nfs,))))
    assert not [step for step in decision.steps if step.rule in NEW]
    return [finding for finding in decision.findings if finding.rule in NEW]


@pytest.mark.parametrize("fires", [True, False], ids=["fires", "sound"])
def test_facts_are_read_off_the_host(rule, fires, tmp_path):
    text = dump.to_json(TRAPS[rule].build(tmp_path, fires).reader().facts())
    file = facts_file(rule, fires)
    if os.environ.get("WRITE_GOLDEN"):
        file.parent.mkdir(exist_ok=True)
        file.write_text(text)
    assert text == file.read_text()


def test_the_trap_is_found_with_its_cause_and_a_way_out(rule):
    said = {
        f"{one.verdict} {one.sentence} | {one.fix}"
        for one in found(rule, True)
        if one.rule == rule
    }
    assert any(TRAPS[rule].words in text for text in said), said
    assert any(text.startswith(TRAPS[rule].verdict) for text in said)


def test_the_host_beside_it_has_no_finding_of_any_trap(rule):
    bad = [one for one in found(rule, False) if one.verdict in (WARN, FAIL)]
    assert bad == []
    verdicts = {one.verdict for one in found(rule, False) if one.rule == rule}
    assert verdicts == {PASS}


def test_no_other_trap_is_found_with_it(rule):
    bad = {one.rule for one in found(rule, True) if one.verdict in (WARN, FAIL)}
    assert bad <= {rule}


@pytest.mark.parametrize("host", HOSTS)
def test_no_golden_host_is_in_a_trap(host):
    facts = dump.load(HOST_DATA / host / "facts.json")
    policy = load_policy_file(HOST_DATA / host / "policy.yaml").policy
    findings = decide(facts, policy).findings
    assert {one.rule for one in findings} > set(NEW)
    assert [
        one for one in findings if one.rule in NEW and one.verdict in (WARN, FAIL)
    ] == []


def test_each_trap_tells_commit_or_report_and_a_way_round(rule):
    page = read_page(rule)
    assert len(" ".join(page.why)) > 200
    assert any(word in " ".join(page.sources) for word in ("Linux", "nfs", "EL"))
