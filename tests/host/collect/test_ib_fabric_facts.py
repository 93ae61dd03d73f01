# SPDX-License-Identifier: GPL-2.0-or-later
"""Decisions on facts of a real kernel with InfiniBand, from the lab
(tests/lab/test_ib_facts_lab.py writes them).
"""

from __future__ import annotations

from pathlib import Path

import pytest
from support.fitted_json import fitted

from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

DATA = Path(__file__).parents[2] / "data" / "facts"
UNPREPARED, RICH = "ib-fabric-unprepared", "ib-fabric-children-and-bond"


def facts(name):
    return model.load(DATA / f"{name}.json")


def policy(words):
    rule = f"{{match: {{link_layer: infiniband}}, {words}}}"
    text = f"version: 1\nhost: {{interfaces: [{rule}]}}\n"
    return parse_policy(text, "policy.yaml").policy


def judged(name, wanted, verdict):
    """The findings with that verdict, as ``RULE/SUBJECT``."""
    findings = decide(facts(name), wanted).findings
    return [f"{f.rule}/{f.subject}" for f in findings if f.verdict == verdict]


def planned(name, words):
    """Steps that can be done, and those that are refused."""
    steps = decide(facts(name), policy(words)).steps
    doing = [step.id for step in steps if not step.refused]
    return doing, {step.id: step.refused for step in steps if step.refused}


@pytest.mark.parametrize("name", [UNPREPARED, RICH])
def test_they_are_whole_and_nothing_was_unreadable(name):
    found = facts(name)
    assert (DATA / f"{name}.json").read_text() == fitted(model.to_json(found))
    assert found.problems == ()
    assert decide(found, Policy()).steps == ()


def test_an_unprepared_host_has_one_failure_and_the_plan_for_it():
    assert judged(UNPREPARED, Policy(), "FAIL") == ["IPOIB-TSO-01/ib0"]
    assert planned(UNPREPARED, "tso: auto") == (["IPOIB-TSO-01/ib0"], {})
    words = "transport_mode: auto, mtu: auto, tso: auto"
    assert planned(UNPREPARED, words) == (["IPOIB-TSO-01/ib0", "IPOIB-MODE-01/ib0"], {})


def test_children_a_bond_and_a_port_without_cable_are_told_apart():
    assert judged(RICH, Policy(), "FAIL") == []
    warned = judged(RICH, Policy(), "WARN")
    assert "IPOIB-PKEY-01/ib0.8007" in warned  # not in the port's table
    passed = judged(RICH, Policy(), "PASS")
    for one in (
        "IPOIB-PKEY-01/ib0.8001",
        "IPOIB-PKEY-01/storage",  # made by ip link
        "IPOIB-BOND-01/bond0",
        "IB-PORT-01/mlx4_0/2",
    ):
        assert one in passed
    assert "IB-PORT-01/mlx4_1/2" in judged(RICH, Policy(), "SKIP")


def test_what_ip_link_made_is_left_to_ip_link():
    doing, refused = planned(RICH, "transport_mode: datagram")
    assert doing == ["IPOIB-MODE-01/ib1"]
    assert list(refused) == ["IPOIB-MODE-01/storage"]
    doing, refused = planned(RICH, "transport_mode: auto")
    assert (doing, refused) == (["IPOIB-MODE-01/ib1"], {})


def test_a_bonds_members_keep_the_bonds_mtu():
    doing, refused = planned(RICH, "mtu: auto")
    # Never up, so the kernel has not clamped it yet.
    assert (doing, refused) == (["IPOIB-MTU-01/ib0.8007"], {})
