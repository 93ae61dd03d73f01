# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that a saved plan is compared with the host, and each difference reported."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.golden.golden_hosts import DATA, HOSTS

from ovirt_rdma.host.changes.plan import differences, load, plan_document, save
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.policy.load import load_policy_file
from ovirt_rdma.host.policy.model import digest as digest_of
from ovirt_rdma.host.rules.base import FILE, OFFLOAD, PROFILE, Change, Step
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor


def golden(name):
    facts = model.load(DATA / name / "facts.json")
    return facts, load_policy_file(DATA / name / "policy.yaml").policy


@pytest.fixture
def saved(tmp_path):
    """Save a plan, with other ``steps`` than the rules', and load it."""

    def save_and_load(facts, policy, steps=None):
        steps = decide(facts, policy).steps if steps is None else steps
        path = tmp_path / "plan.json"
        save(plan_document(facts, "p", digest_of(policy), steps), path)
        return load(str(path))

    return save_and_load


def told(plan, facts, policy):
    return differences(
        plan,
        facts.hostname,
        digest_of(policy),
        decide(facts, policy).applicable,
    )


@pytest.mark.parametrize("name", HOSTS)
def test_a_plan_holds_while_nothing_changes(name, saved):
    facts, policy = golden(name)
    plan = saved(facts, policy)
    later = replace(facts, uptime_s=facts.uptime_s + 60)
    assert told(plan, later, policy) == ()


@pytest.fixture
def host(saved):
    facts, policy = golden("connectx-3-vpi")
    return facts, policy, saved(facts, policy)


def test_another_host_or_policy_is_all_that_is_said(host):
    facts, policy, plan = host
    (sentence,) = told(replace(plan, hostname="hv9"), facts, policy)
    assert sentence.id == "plan-host-differs"
    assert "hv9" in sentence and facts.hostname in sentence
    other = replace(plan, digest="sha256:0123456789abcdef")
    (sentence,) = told(other, facts, policy)
    assert sentence.id == "plan-policy-differs"
    assert "sha256:0123456789ab," in sentence


def test_a_device_that_has_gone(host):
    facts, policy, plan = host
    found = told(plan, replace(facts, netdevs=(), rdma_devices=()), policy)
    assert "step-no-longer-planned" in {sentence.id for sentence in found}


def step(changes, name="S-01"):
    texts = ["a sentence", "a", "b", "live", "why", "undo"]
    return Step(name, "x0", *texts, tuple(changes))


def change(kind=PROFILE, target="u1", before="2044", after="4092", name="mtu"):
    return Change(kind, target, before, after, name)


@pytest.mark.parametrize(
    ("then", "now"),
    [
        (change(), change(before="1500")),
        (change(before=None), change()),
        # An edited file.
        (change(after="9000"), change()),
        (change(target="/etc/shadow", kind=FILE, name="", after="x"), change()),
        (
            replace(change(OFFLOAD, "ib0", "on", "off", "tso"), clamped=True),
            change(OFFLOAD, "ib0", "on", "off", "tso"),
        ),
    ],
)
def test_steps_that_are_not_the_same(host, saved, then, now):
    facts, policy, _ = host
    plan = saved(facts, policy, [step([then])])
    digest = digest_of(policy)
    assert list(differences(plan, facts.hostname, digest, [step([now])])) == [
        "S-01/x0 would make other changes than the plan says"
    ]


def test_steps_that_are_new_gone_or_in_another_order(host, saved):
    facts, policy, _ = host
    one, two = step([change()], "S-01"), step([change()], "S-02")
    digest = digest_of(policy)

    def found(then, now):
        plan = saved(facts, policy, then)
        return [
            (sentence.id, "S-02/x0" in sentence)
            for sentence in differences(plan, facts.hostname, digest, now)
        ]

    assert found([one], [one, two]) == [("step-not-in-plan", True)]
    assert found([one, two], [one]) == [("step-no-longer-planned", True)]
    assert found([one, two], [two, one]) == [("step-order-differs", False)]
    assert found([one, replace(two, refused="no")], [one]) == []
