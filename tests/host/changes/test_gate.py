# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests which steps may be done: not those in use, nor steps that depend on them."""

from __future__ import annotations

import pytest
from support.host.ipoib_host import OTHERS, host, netdev, policy, port, profile
from support.host.ipoib_plans import HARDWARE

from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.rules.base import LINK_DOWN, LIVE, REBOOT, Change, Step
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

NFS = "nfs: server:/export at /mnt"


def step(name, effect=LIVE, users=(), refused="", changes=()):
    rule, _, subject = name.partition("/")
    words = ("sentence", "before", "after", effect, "reason", "undo")
    return Step(rule, subject, *words, tuple(changes), refused, users)


def ids(gated):
    return [one.id for one in gated.steps]


def test_link_down_steps_without_users_are_done():
    steps = [step("A/ib0", LINK_DOWN), step("B/ib0"), step("C/ib0", REBOOT)]
    assert gate(steps).steps == tuple(steps)
    assert gate(steps).left == ()


def test_users_hold_the_whole_plan_up_and_are_named():
    steps = [
        step("A/ib0"),
        step("B/ib0", LINK_DOWN, (NFS, "iscsi: iqn")),
        step("C/ib1", LINK_DOWN, ("network: migration",)),
    ]
    with pytest.raises(Refused) as caught:
        gate(steps)
    refused = caught.value
    assert (refused.id, refused.exit_code) == ("netdevs-in-use", 4)
    assert [reason.id for reason in refused.reasons] == ["link-in-use"] * 2
    for reason, users in zip(
        refused.reasons, [("B/ib0", NFS, "iscsi: iqn"), ("C/ib1", "network: migration")]
    ):
        assert all(user in reason for user in users)
    assert str(refused).splitlines()[1:] == list(refused.reasons)
    for word in ("maintenance", "--allow-link-down", "--live-only"):
        assert word in caught.value.fix
    assert ids(gate(steps, allow_link_down=True)) == ["A/ib0", "B/ib0", "C/ib1"]
    gated = gate(steps, live_only=True)
    assert ids(gated) == ["A/ib0"]
    assert [one.step for one in gated.left] == ["B/ib0", "C/ib1"]
    assert {one.why.id for one in gated.left} == {"step-not-live"}


def test_what_the_rules_refuse_is_never_done():
    steps = [step("A/ib0", LINK_DOWN, (NFS,), "no connected mode"), step("B/ib0")]
    gated = gate(steps)
    assert ids(gated) == ["B/ib0"]
    assert [(one.step, one.why.id, one.why) for one in gated.left] == [
        ("A/ib0", "step-refused", "no connected mode")
    ]


def _planned(facts, **wanted):
    return decide(facts, policy(**wanted), OTHERS).steps


def _left(steps):
    gated = gate(steps, live_only=True)
    return ids(gated), {one.step: one.why for one in gated.left}


def test_what_was_decided_for_another_mode_waits_for_it():
    facts = host(
        netdev("ib0", 2044, tso="on"), profiles=[profile(mtu=2044)], uses=("ib0",)
    )
    steps = _planned(facts, transport_mode="connected", mtu=65520, tso="off")
    done, left = _left(steps)
    assert done == []
    assert left["IPOIB-MTU-01/ib0"].id == "step-dependency-left-out"
    assert "IPOIB-MODE-01/ib0" in left["IPOIB-MTU-01/ib0"]
    assert list(left) == [one.id for one in steps]


def test_tso_that_must_be_off_does_not_wait():
    from support.host.ipoib_host import A0

    steps = _planned(host(**A0), transport_mode="auto", mtu="auto", tso="auto")
    done, left = _left(steps)
    assert done == ["IPOIB-TSO-01/ib0"]
    assert list(left) == ["IPOIB-MODE-01/ib0"]


def test_what_is_set_in_a_profile_that_is_not_made_waits_for_it():
    steps = _planned(host(netdev("ib0", 2044), profiles=()), mtu=1500)
    assert [one.id for one in steps] == ["IPOIB-PROFILE-01/ib0", "IPOIB-MTU-01/ib0"]
    done, left = _left(steps)
    assert done == []
    assert "IPOIB-PROFILE-01/ib0" in left["IPOIB-MTU-01/ib0"]


@pytest.mark.parametrize("profiles", [(profile(),), None])
def test_what_is_set_of_a_child_that_is_not_made_waits_for_it(profiles):
    facts = host(
        netdev("ib0", 2044),
        ports=(port(pkeys=("0xffff", "0x8001")),),
        profiles=profiles,
    )
    steps = _planned(facts, mtu=1500, pkey_children=("0x8001",))
    from dataclasses import replace

    steps = [
        replace(one, refused="no") if one.rule == "IPOIB-PKEY-01" else one
        for one in steps
    ]
    gated = gate(steps)
    assert [one for one in ids(gated) if one.endswith("ib0.8001")] == []
    assert "IPOIB-MTU-01/ib0" in ids(gated)
    why = {one.step: one.why for one in gated.left}["IPOIB-MTU-01/ib0.8001"]
    assert why.id == "step-dependency-left-out"
    assert "IPOIB-PKEY-01/ib0.8001" in why


def test_an_mtu_waits_for_the_ports():
    facts = host(netdev("ib0", 4092), profiles=None, **HARDWARE["port-mtu"])
    steps = _planned(facts, port_mtu=2048, mtu=1500)
    assert [one.id for one in steps] == ["IPOIB-MTU-03/mlx4_0/1", "IPOIB-MTU-01/ib0"]
    done, left = _left(steps)
    assert done == []
    assert "IPOIB-MTU-03/mlx4_0/1" in left["IPOIB-MTU-01/ib0"]


def test_what_waits_for_one_that_waits_waits_too():
    made = Change("profile", "new:ib0", None, "infiniband", "connection.type")
    mtu = Change("profile", "new:ib0", None, "1500", "infiniband.mtu")
    steps = [
        step("A/ib0", LINK_DOWN, changes=[made]),
        step("B/ib0", changes=[mtu]),
        step("C/ib0", changes=[mtu]),
        step("D/ib1"),
    ]
    assert ids(gate(steps, live_only=True)) == ["D/ib1"]
