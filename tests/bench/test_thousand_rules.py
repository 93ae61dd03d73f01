# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from bench import thousand_rules
from bench.thousand_rules import FIRST, LAST, MANY, NONE
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import rule_for

pytestmark = pytest.mark.selftest


@pytest.mark.parametrize(("text", "number"), [(FIRST, 1), (LAST, MANY), (NONE, None)])
def test_exports_are_named_by_the_rule_that_results_claim(text, number):
    match = rule_for(thousand_rules.policy(MANY), Export.parse(text))
    assert (match.rule.number if match else None) == number


@pytest.mark.parametrize("rules", [1, 100, MANY])
def test_the_last_rule_of_any_number_names_its_export(rules):
    export = Export.parse(thousand_rules.last(rules))
    assert rule_for(thousand_rules.policy(rules), export).rule.number == rules


@pytest.mark.parametrize("rules", [1, MANY])
def test_the_file_is_in_order_and_says_the_same(rules):
    found = parse_policy(thousand_rules.yaml_text(rules), "policy.yaml")
    assert found.policy == thousand_rules.policy(rules)
    assert found.warnings == ()
