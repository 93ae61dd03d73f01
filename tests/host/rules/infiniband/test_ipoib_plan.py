# SPDX-License-Identifier: GPL-2.0-or-later
"""Whole plans for IPoIB: their order, and that an applied plan leaves nothing to do."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from support.host.ipoib_host import (
    A0,
    OTHERS,
    host,
    netdev,
    network,
    policy,
    port,
    profile,
    shown,
    steps,
)
from support.host.ipoib_kernel import carried_out
from support.host.ipoib_plans import HARDWARE, hosts, policies
from support.host.ipoib_undo import undone

from ovirt_rdma.host.rules.base import SYSFS
from ovirt_rdma.host.rules.registry import decide


def test_the_order_of_a_plan_is_one_in_which_it_can_be_carried_out():
    facts = host(
        netdev("ib0", 2044, tso="on"),
        ports=(port(pkeys=("0xffff", "0x8001")),),
        profiles=(),
        uses=("ib0",),
    )
    wanted = policy(
        transport_mode="connected", mtu=9000, tso="off", pkey_children=("0x8001",)
    )
    assert list(steps(facts, wanted)) == [
        "IPOIB-PROFILE-01/ib0",
        "IPOIB-PKEY-01/ib0.8001",
        "IPOIB-MODE-01/ib0",
        "IPOIB-MTU-01/ib0",
        "IPOIB-MTU-01/ib0.8001",
        "IPOIB-TSO-02/ib0",
        "IPOIB-TSO-02/ib0.8001",
    ]


def test_tso_that_must_be_off_goes_before_the_mode_and_tso_that_may_be_on_after():
    everything = policy(transport_mode="auto", mtu="auto", tso="auto")
    order = ["IPOIB-TSO-01/ib0", "IPOIB-MODE-01/ib0", "IPOIB-TSO-02/ib0"]
    assert list(steps(host(**A0), everything)) == order[:2]
    connected = host(netdev(mtu=1500, mode="connected", tso="off"))
    assert list(steps(connected, everything)) == order[1:]


def test_the_mtu_is_written_in_connected_mode_so_that_the_way_back_works():
    """The kernel sets one with each mode, and refuses 9000 in datagram mode."""
    mode, mtu = "/sys/class/net/ib0/mode", "/sys/class/net/ib0/mtu"
    for facts, wanted, changes in (
        (
            host(netdev(mtu=1500)),
            policy(transport_mode="connected", mtu="auto"),
            [f"{mode} datagram>connected", f"{mtu} 1500>65520"],
        ),
        (
            host(netdev(mtu=9000, mode="connected")),
            policy(transport_mode="datagram", mtu=2044),
            [f"{mtu} 9000>2044", f"{mode} connected>datagram"],
        ),
        # The engine's MTU, or a bond's, is unchanged.
        (
            host(netdev(mtu=1500), networks=[network(mtu=1500)]),
            policy(transport_mode="connected", mtu=9000),
            [f"{mode} datagram>connected", f"{mtu} 1500>1500"],
        ),
        # So is the profile's MTU if the policy has none.
        (
            host(netdev(mtu=2044), profiles=[profile(mtu=2044)]),
            policy(transport_mode="connected"),
            [
                "uuid-ib0 infiniband.transport-mode datagram>connected",
                f"{mode} datagram>connected",
                f"{mtu} 2044>2044",
            ],
        ),
    ):
        plan = steps(facts, wanted)
        assert shown(plan["IPOIB-MODE-01/ib0"]) == changes
        mtu_step = plan.get("IPOIB-MTU-01/ib0")
        assert not mtu_step or all(c.kind != SYSFS for c in mtu_step.changes)


def test_a_planned_child_gets_its_settings_in_the_same_plan():
    facts = host(netdev(), ports=(port(pkeys=("0xffff", "0x8001")),))
    wanted = policy(transport_mode="connected", mtu=9000, pkey_children=("0x8001",))
    plan = steps(facts, wanted)
    assert shown(plan["IPOIB-PKEY-01/ib0.8001"]) == [
        "/sys/class/net/ib0/create_child None>0x8001"
    ]
    assert shown(plan["IPOIB-MODE-01/ib0.8001"]) == [
        "/sys/class/net/ib0.8001/mode None>connected"
    ]
    assert shown(plan["IPOIB-MTU-01/ib0.8001"]) == [
        "/sys/class/net/ib0.8001/mtu None>9000"
    ]


@given(hosts(), policies())
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(made, wanted):
    facts, group = made
    first = decide(facts, wanted, OTHERS)
    after = carried_out(facts, first.steps, group)
    second = decide(after, wanted, OTHERS)
    assert [s for s in second.steps if not s.refused] == []
    done = {(s.rule, s.subject) for s in first.steps if not s.refused}
    failed = {(f.rule, f.subject) for f in second.findings if f.verdict == "FAIL"}
    assert not done & failed


@given(hosts(), policies())
def test_a_plan_that_is_undone_leaves_what_was_there(made, wanted):
    facts, group = made
    plan = decide(facts, wanted, OTHERS).steps
    after = undone(carried_out(facts, plan, group), plan, group)
    # A new port MTU recreates netdevs, which then have the MTU of their profiles.
    recreated = any(step.rule == "IPOIB-MTU-03" and not step.refused for step in plan)
    if recreated:
        facts, after = (
            replace(one, netdevs=tuple(replace(n, mtu=0) for n in one.netdevs))
            for one in (facts, after)
        )
    assert _settings(after) == _settings(facts)


def _settings(facts):
    manager = facts.network_manager
    netdevs = {
        n.name: (
            n.mtu,
            n.ipoib and n.ipoib.mode,
            {o.name: o.on or bool(o.requested) for o in n.offloads},
        )
        for n in facts.netdevs
    }
    profiles = manager.profiles if manager else ()
    return netdevs, {
        p.uuid: (p.interface_name, {one.name: one.value for one in p.properties})
        for p in profiles
    }


@given(hosts(), policies())
def test_steps_have_ids_of_their_own_and_only_those_with_link_down_name_users(
    made, wanted
):
    facts, _ = made
    plan = decide(facts, wanted, OTHERS).steps
    assert len({step.id for step in plan}) == len(plan)
    for step in plan:
        assert step.changes or step.refused
        for text in (step.sentence, step.reason, step.undo, step.refused):
            assert not text.endswith(".")
        assert step.effect == "link-down" or not step.users


@given(hosts())
def test_an_empty_policy_touches_nothing(made):
    facts, _ = made
    assert decide(facts, policy()).steps == ()


@pytest.mark.parametrize("hardware", HARDWARE.values(), ids=HARDWARE)
def test_auto_everywhere_converges_on_every_hardware(hardware):
    wanted = policy(transport_mode="auto", mtu="auto", tso="auto")
    facts = host(profiles=(), **hardware)
    after = carried_out(facts, decide(facts, wanted, OTHERS).steps, 10236)
    decision = decide(after, wanted, OTHERS)
    assert not decision.failed
    assert decision.steps == ()
