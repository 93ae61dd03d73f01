# SPDX-License-Identifier: GPL-2.0-or-later
"""All rules together: with any facts, and the texts that explain prints."""

from __future__ import annotations

import dataclasses
import typing

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.host import rule_plans
from support.host.ipoib_host import (
    OURS,
    child,
    host,
    netdev,
    network,
    policy,
    port,
    profile,
)

from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, ModuleOption, Policy
from ovirt_rdma.host.rules.base import CLASSES, VERDICTS, Finding, Step, View
from ovirt_rdma.host.rules.registry import RULES, decide

# Few words, so that names match each other; and invalid ones.
WORDS = st.sampled_from(
    [
        *("ib0", "ib0.8001", "ib1", "bond0", "mlx4_0", "mlx5_0", "0000:04:00.0"),
        *("0x15b3", "0x634a", "0x1017", "0xa0", "a0", "mlx4_core", "mlx5_core", "hfi1"),
        *("InfiniBand", "Ethernet", "ACTIVE", "DOWN", "INIT", "Polling", "LinkUp"),
        *("0x8001", "0x7fff", "0xffff", "0x0001", "0002:c903:00fb:1231", "RoCE v2"),
        *("datagram", "connected", "active-backup", "balance-rr", "infiniband", "bond"),
        *("80:00:00:00:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31", "rpcrdma"),
        *("10.0.0.1/24", "fe80::1/64", "infiniband.mtu", "4092", "65520", "connected"),
        *(
            "infiniband.transport-mode",
            "connection.interface-name",
            "connection.master",
        ),
        *(
            "infiniband.mac-address",
            "infiniband.p-key",
            "tx-tcp-segmentation",
            "y",
            "n",
        ),
        *("INFINIBAND_IPOIB_CM", "IPOIB", "options", "mlx4_core log_num_mtt=24", "nfs"),
        *('ATTR{mode}="connected"', "/etc/x.conf", "/run/y", "4.50.0.1", "el9", "rdma"),
        *("", "unknown", "garbage", "\x00", "é", ":", "0x", "-1", "auto", "::", "0xzz"),
    ]
)
NUMBERS = st.sampled_from([0, 1, 2, 3, 32, 100, 256, 1500, 2044, 2048, 4092, 4096, -1])


def anything(kind):
    """A strategy for a facts type, by its annotations."""
    arguments = typing.get_args(kind)
    if typing.get_origin(kind) is tuple:
        return st.lists(anything(arguments[0]), max_size=3).map(tuple)
    if typing.get_origin(kind) is typing.Union:
        return st.none() | anything(arguments[0])
    if dataclasses.is_dataclass(kind):
        hints = typing.get_type_hints(kind)
        return st.builds(kind, **{name: anything(one) for name, one in hints.items()})
    return {
        str: WORDS,
        int: NUMBERS,
        float: st.sampled_from([0.0, 3600.0]),
        bool: st.booleans(),
    }[kind]


INTERFACE_RULES = st.builds(
    InterfaceRule,
    number=st.integers(1, 9),
    name=st.just("interface"),
    link_layer=st.sampled_from([None, "infiniband", "ethernet"]),
    device=st.sampled_from([None, "mlx4_0", "mlx*"]),
    pci=st.sampled_from([None, None, "0000:04:00.0"]),
    port=st.sampled_from([None, None, 1, 2]),
    guid=st.sampled_from([None, None, "0002:c903:00fb:1231"]),
    pkey=st.sampled_from([None, None, "0x8001"]),
    transport_mode=st.sampled_from([None, "auto", "datagram", "connected"]),
    mtu=st.sampled_from([None, "auto", 1500, 4092, 9000, 65520]),
    tso=st.sampled_from([None, "auto", "on", "off"]),
    port_mtu=st.sampled_from([None, 2048, 4096]),
    pkey_children=st.sampled_from([(), ("0x8001",), ("0x8001", "0x8002")]),
)
POLICIES = st.builds(
    Policy,
    host=st.builds(
        HostPolicy,
        interfaces=st.lists(INTERFACE_RULES, max_size=3).map(tuple),
        modules=st.sampled_from([(), ("rpcrdma", "nvme_rdma")]),
        module_options=st.sampled_from(
            [(), (ModuleOption("mlx4_core", "log_num_mtt", "24"),)]
        ),
    ),
)


ODD_HOSTS = settings(
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)


@ODD_HOSTS
@given(anything(Facts), POLICIES)
def test_no_facts_make_a_rule_stumble(facts, wanted):
    _says_something(facts, wanted)


@ODD_HOSTS
@given(rule_plans.HOSTS | rule_plans.ROCE_HOSTS, rule_plans.POLICIES)
def test_every_rule_says_something_about_any_host(facts, wanted):
    _says_something(facts, wanted)


def _says_something(facts, wanted):
    view = View(facts, wanted)
    ids = []
    for rule in RULES:
        said = [*rule.decide(view)]
        assert said
        ids += [one.id for one in said if isinstance(one, Step)]
        for one in said:
            assert one.rule == rule.id
            assert one.sentence and not one.sentence.endswith(".")
            if isinstance(one, Finding):
                assert one.verdict in VERDICTS
                continue
            assert one.effect in CLASSES
            assert one.reason and one.undo
            assert bool(one.changes) != bool(one.refused)
    assert len(set(ids)) == len(ids)


@ODD_HOSTS
@given(anything(Facts) | rule_plans.HOSTS | rule_plans.ROCE_HOSTS)
def test_an_empty_policy_has_no_step(facts):
    assert decide(facts, Policy()).steps == ()


@ODD_HOSTS
@given(
    st.tuples(rule_plans.HOSTS, rule_plans.POLICIES)
    | st.tuples(rule_plans.ROCE_HOSTS, rule_plans.ROCE_POLICIES)
)
def test_after_the_steps_there_are_none(made):
    """Those of the InfiniBand rules: test_ipoib_plan.py."""
    facts, wanted = made
    for step in decide(facts, wanted, OURS).applicable:
        for change in step.changes:
            facts = rule_plans.carried_out(facts, change)
    assert decide(facts, wanted, OURS).applicable == ()


def test_rules_that_are_skipped_say_nothing():
    facts = host(netdev(mtu=1500))
    wanted = policy(mtu="auto")
    whole = decide(facts, wanted)
    less = decide(facts, wanted, {"IPOIB-MTU-01"})
    assert less.steps == ()
    assert less.findings == tuple(
        one for one in whole.findings if one.rule != "IPOIB-MTU-01"
    )
    assert whole.failed


def test_findings_are_in_the_order_of_the_rules():
    facts = host(
        netdev(), child(), profiles=[profile()], networks=[network()], ports=(port(),)
    )
    order = [rule.id for rule in RULES]
    said = [order.index(one.rule) for one in decide(facts, Policy()).findings]
    assert said == sorted(said)
    assert set(said) == set(range(len(order)))


def test_ids_are_unique():
    ids = [rule.id for rule in RULES]
    assert len(set(ids)) == len(ids)
