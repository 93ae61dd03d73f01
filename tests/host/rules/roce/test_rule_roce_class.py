# SPDX-License-Identifier: GPL-2.0-or-later
"""ROCE-CLASS-01 and ROCE-TOS-01: the lossless class of the policy."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host.rule_cases import (
    ethernet,
    facts,
    findings,
    host_policy,
    interface_rule,
    outcomes,
    pci,
    roce_device,
    steps,
)

from ovirt_rdma.host.facts.devices import Adapter, Buffer, Dcb, NetdevUse, PriorityOf
from ovirt_rdma.host.policy.model import RoceClass
from ovirt_rdma.host.rules import roce
from ovirt_rdma.host.rules.base import DCB, SYSFS, Finding, Step

NIC = pci("0x1017", address="0000:3b:00.0")
FINE = Dcb(
    pfc_priorities=(3,),
    pause_rx=False,
    pause_tx=False,
    dscp_priorities=(PriorityOf(26, 3),),
)
ALL_IN_0 = (Buffer(262016, tuple(range(8))), Buffer(0), Buffer(0))


def wanted(priority=3, *more, **named):
    rule = interface_rule(
        link_layer="ethernet", roce=RoceClass(priority, *more, **named)
    )
    return host_policy(interfaces=(rule,))


def host(dcb, driver="mlx5_core", tos=106, **more):
    netdev = ethernet(dcb=dcb, driver=driver, pci=NIC)
    return facts(
        rdma_devices=(roce_device(default_tos=tos, default_gid_type="RoCE v2"),),
        netdevs=(netdev,),
        **more,
    )


@pytest.mark.parametrize("rule", (roce.CLASS, roce.TOS))
def test_without_a_class_in_the_policy_nothing_is_said(rule):
    (said,) = outcomes(rule, host(FINE), host_policy(interfaces=(interface_rule(),)))
    assert (said.verdict, said.subject) == ("SKIP", "host")


@pytest.mark.parametrize(
    ("dcb", "policy", "verdict", "words"),
    [
        (
            FINE,
            wanted(),
            "PASS",
            "PFC for priority 3 only, DSCP 26 has that priority, ",
        ),
        (FINE, wanted(), "PASS", "and global pause is off"),
        (replace(FINE, pause_rx=None), wanted(), "WARN", "is unknown: pause"),
        (None, wanted(), "WARN", "is unknown: pause and pfc and dscp-26"),
        (replace(FINE, dscp_priorities=None), wanted(), "WARN", "unknown: dscp-26"),
        (replace(FINE, pfc_priorities=(3, 4)), wanted(), "WARN", "needs pfc 3 | "),
        (replace(FINE, pause_tx=True), wanted(), "WARN", "needs pause off | "),
        (FINE, wanted(dscp=46), "WARN", "has dscp-46 none; the policy's"),
        (
            replace(FINE, dscp_priorities=(PriorityOf(26, 3), PriorityOf(26, 4))),
            wanted(),
            "WARN",
            "has dscp-26 3,4; the policy's",
        ),
        (FINE, wanted(4), "WARN", "needs pfc 4, dscp-34 4"),
        (FINE, wanted(buffer=99999), "WARN", "needs a buffer of 99999 bytes | "),
        (replace(FINE, ecn_priorities=(0,)), wanted(), "WARN", "needs ecn on"),
        (replace(FINE, ecn_priorities=(0,)), wanted(ecn="off"), "PASS", "only, DSCP"),
    ],
)
def test_the_class(judged, dcb, policy, verdict, words):
    judged(roce.CLASS, host(dcb), policy, "ens1", verdict, words)
    made = steps(roce.CLASS, host(dcb), policy)
    assert bool(made) == (verdict == "WARN" and "unknown" not in words)


def test_a_netdev_that_shows_no_receive_buffers_gets_none():
    step = steps(roce.CLASS, host(FINE), wanted(buffer=99999))["ens1"]
    assert (step.refused, step.changes) == ("ens1 shows no receive buffers", ())
    assert "buffers " not in step.after
    shown = replace(FINE, pfc_priorities=())
    step = steps(roce.CLASS, host(shown), wanted(buffer=99999))["ens1"]
    assert (step.before, step.after) == ("pfc none", "pfc 3")


def test_the_step_takes_the_link_down_and_names_whom_that_interrupts():
    users = (NetdevUse("ens1", "nfs", "10.0.0.1:/data at /mnt"),)
    made = steps(
        roce.CLASS, host(Dcb((), (), None, True, True, ()), netdev_uses=users), wanted()
    )
    step = made["ens1"]
    assert (step.effect, step.refused) == ("link-down", "")
    assert "10.0.0.1:/data" in str(step.users)
    assert [(c.kind, c.name, c.before, c.after) for c in step.changes] == [
        (DCB, "pause", "rx tx", "off"),
        (DCB, "pfc", "none", "3"),
        (DCB, "dscp-26", "none", "3"),
        (SYSFS, "", None, "1"),
        (SYSFS, "", None, "1"),
    ]
    assert step.changes[-1].target == "/sys/class/net/ens1/ecn/roce_rp/enable/3"


@pytest.mark.parametrize("driver", ["ice", "bnxt_en"])
def test_another_driver_is_compared_and_left_to_its_vendors_guide(judged, driver):
    assert findings(roce.CLASS, host(FINE, driver), wanted())["ens1"][0] == "PASS"
    dcb = replace(FINE, pfc_priorities=())
    judged(roce.CLASS, host(dcb, driver), wanted(), "ens1", "WARN")
    refused = steps(roce.CLASS, host(dcb, driver), wanted())["ens1"].refused
    assert "for mlx5_core only" in refused


@pytest.mark.parametrize("driver", ["mlx4_core", "qede", None])
def test_a_driver_without_dscp_never_passes(driver):
    """The kernel keeps entries for mlx4, which the adapter never sees (dcbnl.c)."""
    (found,) = outcomes(roce.CLASS, host(FINE, driver), wanted())
    assert found.verdict == "WARN"
    assert "is not known to take the priority from the DSCP" in found.sentence


def test_a_virtual_function_has_the_class_of_its_physical_one():
    vf = replace(
        host(None),
        adapters=(Adapter(NIC, "mlx5_core", physical_function="0000:3b:00.1"),),
    )
    assert findings(roce.CLASS, vf, wanted())["ens1"][0] == "SKIP"


@pytest.mark.parametrize(
    ("dcb", "effect"),
    [
        (replace(FINE, pfc_priorities=()), "link-down"),
        (replace(FINE, pause_rx=True), "live"),
        (replace(FINE, dscp_priorities=()), "live"),
    ],
)
def test_only_flow_control_takes_the_link_down(dcb, effect):
    step = steps(roce.CLASS, host(dcb), wanted())["ens1"]
    assert step.effect == effect
    assert ("takes the link down" in step.reason) == (effect == "link-down")


def test_two_priorities_of_one_dscp_are_refused():
    twice = replace(FINE, dscp_priorities=(PriorityOf(26, 3), PriorityOf(26, 4)))
    step = steps(roce.CLASS, host(twice), wanted())["ens1"]
    assert "has the priorities 3,4: delete all but one" in step.refused


@pytest.mark.parametrize(
    ("tos", "policy", "verdict", "words"),
    [
        (106, wanted(), "PASS", "type of service 106 (DSCP 26, with ECN)"),
        (104, wanted(ecn="off"), "PASS", "type of service 104 (DSCP 26, without ECN)"),
        (0, wanted(), "WARN", "is 0; the policy needs 106"),
        (106, wanted(dscp=46), "WARN", "needs 186 (DSCP 46"),
        (None, wanted(), "WARN", "is unknown; the policy needs 106"),
    ],
)
def test_the_type_of_service(judged, tos, policy, verdict, words):
    judged(roce.TOS, host(FINE, tos=tos), policy, "mlx5_0/1", verdict, words)
    made = steps(roce.TOS, host(FINE, tos=tos), policy)
    assert bool(made) == (verdict == "WARN")


@pytest.mark.parametrize("policy", [wanted(), wanted(dscp=0, ecn="off")])
def test_without_its_folder_the_type_of_service_is_unknown(policy):
    """It stays when the folder goes; 0 is what there is in the beginning."""
    hidden = replace(host(FINE), rdma_devices=(roce_device(default_tos=0),))
    step = steps(roce.TOS, hidden, policy)["mlx5_0/1"]
    assert (step.before, step.changes[0].before) == ("unknown", None)
    assert findings(roce.TOS, hidden, policy)["mlx5_0/1"][0] == "WARN"


def test_a_bond_has_one_type_of_service_at_the_first_ports_netdev():
    """The second function is first in the list of netdevs, not on the device's bus."""
    second = ethernet("ens2", dcb=FINE, pci=pci("0x1017", address="0000:3b:00.1"))
    first = ethernet("ens1", dcb=FINE, pci=NIC)
    bond = facts(rdma_devices=(roce_device(default_tos=0),), netdevs=(second, first))
    (step,) = steps(roce.TOS, bond, wanted()).values()
    assert [change.target for change in step.changes] == ["ens1"]
    assert list(findings(roce.CLASS, bond, wanted())) == ["ens2", "ens1"]


def test_with_a_class_the_rules_without_a_policy_are_silent():
    for rule in (roce.PFC, roce.ECN):
        found = findings(rule, host(Dcb(())), wanted())
        assert found == {"ens1": ("SKIP", "the policy decides that: ROCE-CLASS-01 | ")}


@pytest.mark.parametrize(
    ("buffers", "size", "expected"),
    [
        (ALL_IN_0, 131072, "130944:0,1,2,4,5,6,7 131072:3 0:"),
        # One for the priority is there, of another size.
        (
            (Buffer(200000, (0, 1, 2, 4, 5, 6, 7)), Buffer(62016, (3,))),
            100000,
            "162016:0,1,2,4,5,6,7 100000:3",
        ),
        # The first that is free.
        (
            (Buffer(200000, (0, 1, 2, 3)), Buffer(62016, (4, 5, 6, 7)), Buffer(0)),
            50000,
            "150000:0,1,2 62016:4,5,6,7 50000:3",
        ),
    ],
)
def test_buffer_0_gives_what_the_priority_gets(buffers, size, expected):
    dcb = replace(FINE, buffers=buffers)
    step = steps(roce.CLASS, host(dcb), wanted(buffer=size))["ens1"]
    assert (step.after, step.refused) == (f"buffers {expected}", "")


@pytest.mark.parametrize(
    ("buffers", "size"),
    [
        (ALL_IN_0[:1], 100000),
        (ALL_IN_0, 262016 - 17999),  # less than two packets are left
        ((Buffer(200000, (0,)), Buffer(62016, (1, 2, 3, 4, 5, 6, 7))), 50000),
    ],
)
def test_a_buffer_that_cannot_be_is_refused(buffers, size):
    dcb = replace(FINE, buffers=buffers)
    assert steps(roce.CLASS, host(dcb), wanted(buffer=size))["ens1"].refused


def test_a_size_that_the_driver_rounded_is_the_size(judged):
    buffers = (Buffer(131072, (0, 1, 2, 4, 5, 6, 7)), Buffer(130944, (3,)))
    dcb = replace(FINE, buffers=buffers)
    judged(
        roce.CLASS,
        host(dcb),
        wanted(buffer=131000),
        "ens1",
        "PASS",
        "only with a buffer of its own",
    )


PRIORITIES = st.integers(0, 7)
BUFFERS = st.lists(PRIORITIES, min_size=8, max_size=8).flatmap(
    lambda of: st.lists(st.integers(0, 262144), min_size=8, max_size=8).map(
        lambda sizes: tuple(
            Buffer(size, tuple(n for n, at in enumerate(of) if at == number))
            for number, size in enumerate(sizes)
        )
    )
)
DCBS = st.builds(
    Dcb,
    st.none() | st.lists(PRIORITIES, unique=True).map(tuple),
    st.none() | st.lists(PRIORITIES, unique=True).map(tuple),
    st.just("dscp"),
    st.none() | st.booleans(),
    st.none() | st.booleans(),
    st.none()
    | st.lists(
        st.builds(PriorityOf, st.sampled_from([26, 34, 46]), PRIORITIES), unique=True
    ).map(tuple),
    st.none() | BUFFERS,
)
CLASSES = st.builds(
    RoceClass,
    PRIORITIES,
    st.none() | st.sampled_from([26, 46]),
    st.sampled_from(["on", "off"]),
    st.none() | st.integers(4096, 262144),
)


def carried_out(dcb, change):
    """Return the bridging after a change."""
    if change.kind == SYSFS:
        priority = int(change.target[-1])
        return replace(dcb, ecn_priorities=(*dcb.ecn_priorities, priority))
    assert change.before == dcb.value(change.name)
    if change.name == "pause":
        return replace(
            dcb, pause_rx="rx" in change.after, pause_tx="tx" in change.after
        )
    if change.name == "pfc":
        return replace(dcb, pfc_priorities=(int(change.after),))
    if change.name == "buffers":
        parts = [re.fullmatch(r"(\d+):([\d,]*)", p) for p in change.after.split()]
        made = tuple(
            Buffer(int(p[1]), tuple(int(n) for n in p[2].split(",") if n))
            for p in parts
        )
        assert sum(b.size for b in made) == sum(b.size for b in dcb.buffers)
        assert sorted(n for b in made for n in b.priorities) == list(range(8))
        return replace(dcb, buffers=made)
    dscp = int(change.name.removeprefix("dscp-"))
    others = tuple(e for e in dcb.dscp_priorities if e.value != dscp)
    entry = PriorityOf(dscp, int(change.after))
    return replace(dcb, dscp_priorities=(*others, entry))


@given(DCBS, CLASSES)
def test_after_the_step_there_is_none_and_all_is_well(dcb, of):
    rule = interface_rule(link_layer="ethernet", roce=of)
    policy = host_policy(interfaces=(rule,))
    found = outcomes(roce.CLASS, host(dcb), policy)
    (finding,) = (one for one in found if isinstance(one, Finding))
    for step in found:
        if isinstance(step, Step) and not step.refused:
            for change in step.changes:
                dcb = carried_out(dcb, change)
            (after,) = outcomes(roce.CLASS, host(dcb), policy)
            assert after.verdict == "PASS"
            return
    if finding.verdict == "PASS":
        assert dcb.pfc_priorities == (of.priority,)
        assert {
            e.priority for e in dcb.dscp_priorities if e.value == of.code_point
        } == {of.priority}
