# SPDX-License-Identifier: GPL-2.0-or-later
"""Each trap is found on a host that is in it, and not on one that is beside it."""

from __future__ import annotations

import pytest
from support.golden.golden_hosts import DATA as HOST_DATA
from support.golden.golden_hosts import HOSTS
from support.golden.golden_traps import TRAPS

from ovirt_rdma.cli.host.check import read_page
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, WARN
from ovirt_rdma.host.rules.registry import decide

NEW = tuple(TRAPS)


@pytest.fixture(params=TRAPS)
def rule(request):
    return request.param


@pytest.fixture
def found(rule, tmp_path):
    """Return the findings by all rules of the traps about the host in the trap, or
    about the one beside it, from its dump.
    """

    def findings(*, fires):
        facts = TRAPS[rule].build(tmp_path, fires).reader().facts()
        nfs = NfsRule(1, "rule 1", "*", "*", "prefer-rdma", options=TRAPS[rule].options)
        dumped = model.from_json_dict(model.to_json_dict(facts), rule)
        decision = decide(dumped, Policy(nfs=NfsPolicy((nfs,))))
        assert not [step for step in decision.steps if step.rule in NEW]
        return [finding for finding in decision.findings if finding.rule in NEW]

    return findings


def test_the_trap_is_found_with_its_cause_and_a_way_out(rule, found):
    said = {
        f"{one.verdict} {one.sentence} | {one.fix}"
        for one in found(fires=True)
        if one.rule == rule
    }
    assert any(TRAPS[rule].words in text for text in said), said
    assert any(text.startswith(TRAPS[rule].verdict) for text in said)


def test_the_host_beside_it_has_no_finding_of_any_trap(rule, found):
    findings = found(fires=False)
    assert [one for one in findings if one.verdict in (WARN, FAIL)] == []
    verdicts = {one.verdict for one in findings if one.rule == rule}
    assert verdicts == {PASS}


def test_no_other_trap_is_found_with_it(rule, found):
    bad = {one.rule for one in found(fires=True) if one.verdict in (WARN, FAIL)}
    assert bad <= {rule}


@pytest.mark.parametrize("host", HOSTS)
def test_no_golden_host_is_in_a_trap(host):
    facts = model.load(HOST_DATA / host / "facts.json")
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
