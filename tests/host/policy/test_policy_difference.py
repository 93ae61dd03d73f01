# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare two policies by the rules that win for exports."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.model import (
    TRANSPORTS,
    NfsPolicy,
    NfsRule,
    Policy,
    differing_lines,
    rule_changes,
    rule_for,
)

EXPORTS = {f"nas{n}:/{path}": "mounted" for n in (1, 2) for path in ("a", "b")}
rules = st.builds(
    NfsRule,
    number=st.just(1),
    name=st.sampled_from(["one", "two"]),
    server=st.sampled_from(["nas1", "nas2", "nas*"]),
    path=st.sampled_from(["/a", "*"]),
    transport=st.sampled_from(TRANSPORTS),
    port=st.sampled_from([20049, 20050]),
    options=st.sampled_from(["", "nconnect=4"]),
    readiness_timeout=st.sampled_from([1.0, 2.0]),
    settle_timeout=st.sampled_from([0.0, 30.0]),
    failure_cache=st.sampled_from([0.0, 60.0]),
)


def numbered(found):
    return Policy(
        nfs=NfsPolicy(tuple(replace(one, number=n) for n, one in enumerate(found, 1)))
    )


policies = st.lists(rules, max_size=4).map(numbered)


def treated(policy, export):
    """How an export is mounted: all of its rule but what only names it."""
    match = rule_for(policy, Export.parse(export))
    unnamed = {"number": 0, "name": "", "server": "", "path": ""}
    return match and replace(match.rule, **unnamed)


@given(policies, policies)
def test_what_is_the_same_for_every_export_is_no_change(before, after):
    found = {one.export for one in rule_changes(before, after, EXPORTS)}
    assert found == {x for x in EXPORTS if treated(before, x) != treated(after, x)}


@given(policies, policies)
def test_a_change_has_lines_and_a_sentence(before, after):
    changes = rule_changes(before, after, EXPORTS)
    if changes:
        assert differing_lines(before, after)
    for one in changes:
        old, new = str(one).split(" -> ")
        assert old.partition("): ")[2] != new
        assert one.loses == (rule_for(before, Export.parse(one.export)) is not None)


@given(policies)
def test_a_policy_has_no_difference_to_itself(policy):
    assert differing_lines(policy, policy) == ()
    assert rule_changes(policy, policy, EXPORTS) == ()


def test_what_is_no_export_has_no_rule():
    assert rule_changes(numbered([]), numbered([]), {"tmpfs": "mounted"}) == ()


def test_a_policy_of_thousands_of_rules_is_not_compared_line_by_line():
    many = numbered([NfsRule(1, "r", f"nas{n}", "*", "tcp") for n in range(3001)])
    assert differing_lines(numbered([]), many) == (
        "more than 3000 lines, which are not compared",
    )
