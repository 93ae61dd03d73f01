# SPDX-License-Identifier: GPL-2.0-or-later
"""At which ports opensm runs: hosts with several ports, and what is known of them."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host import ipoib_host

from ovirt_rdma.host.fabric.decisions import ManagerFacts, decide, settings_text
from ovirt_rdma.host.fabric.subnet import (
    MASTER,
    STANDBY,
    FabricFacts,
    LocalPort,
    Manager,
    OpensmProcess,
    Subnet,
)
from ovirt_rdma.host.facts.model import Unit
from ovirt_rdma.host.policy.fabric import FabricHost, FabricPolicy, SubnetManagerRule

A, B, C = (f"0x0002c90300fb12{n}1" for n in "345")
FAR = "0x0002c90300fb1291"
PLAIN = {guid: f"0002:c903:00fb:{guid[-4:]}" for guid in (A, B, C, FAR)}
FILE = "/etc/rdma/partitions.conf"


def port(guid: str, state: str = "INIT") -> LocalPort:
    number = int(guid[-2]) - 2
    made = ipoib_host.port(active_mtu=2048)
    up = "LinkUp" if state != "DOWN" else "Polling"
    made = replace(
        made, number=number, state=state, physical_state=up, guid=PLAIN[guid]
    )
    return LocalPort("mlx4_0", number, guid, made)


def facts(*ports: LocalPort, masters=None, **more) -> ManagerFacts:
    masters = masters or {}
    subnets = tuple(
        Subnet(one, master, (master,) if master else None)
        for one in ports
        for master in [masters.get(one.guid)]
    )
    processes = more.pop("processes", ())
    return ManagerFacts(
        FabricFacts("hv1.example.org", subnets, processes),
        **{
            "installed": True,
            "partitions": FILE,
            "units": {one.guid: "disabled" for one in ports},
            "reachable": {one.guid: frozenset({one.guid}) for one in ports},
            **more,
        },
    )


def policy(*ports: str, priority: int = 7, **more) -> FabricPolicy:
    named = tuple(PLAIN.get(one, one) for one in ports)
    rule = SubnetManagerRule("hv1", priority, named, **more)
    return FabricPolicy(subnet_managers=(rule,))


def ids(plan) -> list[str]:
    return [one.id for one in plan.refusals]


def test_each_cable_has_its_own_opensm():
    plan = decide(policy("ALL"), facts(port(A), port(B), port(C, "DOWN")))
    assert [(one.port.guid, one.state) for one in plan.ports] == [
        (A, MASTER),
        (B, MASTER),
    ]
    assert [(one.kind, one.target, one.after) for one in plan.step.changes] == [
        change
        for guid in (A, B)
        for change in (
            (
                "opensm-settings",
                f"/etc/ovirt-rdma/opensm-{guid}.conf",
                settings_text(guid, 7, FILE),
            ),
            ("unit", f"ovirt-rdma-opensm@{guid}.service", "enabled"),
        )
    ]


@pytest.mark.parametrize(
    ("named", "states", "expected"),
    [
        ((), ("INIT", "DOWN"), []),
        ((), ("ACTIVE", "INIT"), ["ports-not-named"]),
        ((), ("DOWN", "DOWN"), ["port-without-link"] * 2),
        ((), (), ["no-infiniband-port"]),
        (("ALL",), ("DOWN", "DOWN"), ["port-without-link"] * 2),
        ((A,), ("ARMED", "DOWN"), []),
        ((B,), ("ACTIVE", "DOWN"), ["port-without-link"]),
        ((A, FAR), ("ACTIVE", "DOWN"), ["port-unknown"]),
    ],
)
def test_which_ports_are_meant(named, states, expected):
    ports = [port(guid, state) for guid, state in zip((A, B), states)]
    assert ids(decide(policy(*named), facts(*ports))) == expected


@pytest.mark.parametrize(
    ("behind", "expected"),
    [
        ({A: {A, FAR}, B: {B, C}}, []),
        ({A: {A, B}, B: {A, B}}, ["ports-in-one-subnet"]),
        ({A: {A, FAR}, B: None}, ["topology-unknown"]),
    ],
)
def test_one_subnet_needs_one_opensm(behind, expected):
    reachable = {a: b and frozenset(b) for a, b in behind.items()}
    plan = decide(policy("ALL"), facts(port(A), port(B), reachable=reachable))
    assert ids(plan) == expected
    # One alone may have anything behind it.
    assert ids(decide(policy(A), facts(port(A), port(B), reachable={}))) == []


def test_a_port_that_the_policy_no_longer_names_is_given_up():
    texts = {guid: settings_text(guid, 7, FILE) for guid in (A, B)}
    units = {A: "enabled", B: "enabled"}
    ours = tuple(
        OpensmProcess(1, FILE, guid, 7, f"/etc/ovirt-rdma/opensm-{guid}.conf")
        for guid in (A, B)
    )
    masters = {guid: Manager(guid, 1, 7, MASTER) for guid in (A, B)}
    now = facts(
        *(port(guid, "ACTIVE") for guid in (A, B)),
        masters=masters,
        settings=texts,
        units=units,
        processes=ours,
    )
    assert decide(policy("ALL"), now).step is None
    (unit, text) = decide(policy(A), now).step.changes
    assert (unit.kind, unit.before, unit.after) == ("unit", "enabled", "disabled")
    assert (text.target, text.after) == (f"/etc/ovirt-rdma/opensm-{B}.conf", None)
    foreign = replace(now, settings={**texts, B: "guid 0x5\n"})
    assert decide(policy(A), foreign).step is None


def test_a_subnet_that_this_host_manages_at_another_port_is_refused():
    masters = {A: Manager(B, 1, 7, MASTER), B: Manager(B, 1, 7, MASTER)}
    ports = port(A, "ACTIVE"), port(B, "ACTIVE")
    assert ids(decide(policy(A), facts(*ports, masters=masters))) == [
        "manager-at-other-port"
    ]


def test_a_manager_at_the_port_that_no_process_shows_is_refused():
    masters = {A: Manager(A, 1, 7, MASTER)}
    plan = decide(policy(A), facts(port(A, "ACTIVE"), masters=masters))
    assert ids(plan) == ["manager-not-seen"]


def test_two_names_of_one_host_are_refused():
    both = FabricPolicy(
        (FabricHost("a", (PLAIN[A],)), FabricHost("b", (PLAIN[B],))),
        subnet_managers=(SubnetManagerRule("a", 1), SubnetManagerRule("b", 2)),
    )
    assert ids(decide(both, facts(port(A), port(B)))) == ["host-named-twice"]


def test_a_unit_that_is_active_but_not_enabled_counts_too():
    for unit, expected in (
        (Unit("opensmd.service", "loaded", "active", "disabled"), ["opensmd.service"]),
        (Unit("opensm.service", "loaded", "inactive", "enabled-runtime"), ["opensm"]),
        (Unit("opensm.service", "not-found", "inactive"), []),
    ):
        plan = decide(policy(A), facts(port(A), others=(unit,)))
        assert len(plan.refusals) == len(expected)
        assert all(unit.name in str(one) for one in plan.refusals)


PRIORITIES = st.integers(0, 15)


@given(
    PRIORITIES, PRIORITIES, st.sampled_from([B, "0x0000000000000001"]), st.booleans()
)
def test_never_two_masters(own, other, guid, standby):
    """For every pair: if it is started, exactly one of the two is master."""
    plain = f"{int(guid, 16):016x}"
    rules = policy(A, priority=own, standby=standby)
    hosts = (FabricHost("nas", (":".join(plain[n : n + 4] for n in (0, 4, 8, 12)),)),)
    named = replace(
        rules,
        hosts=hosts,
        subnet_managers=(*rules.subnet_managers, SubnetManagerRule("nas", other)),
    )
    now = facts(port(A, "ACTIVE"), masters={A: Manager(guid, 3, other, MASTER)})
    wins = (own, -int(A, 16)) > (other, -int(guid, 16))
    for known in (rules, named):
        plan = decide(known, now)
        if standby:
            assert ids(plan) == (["standby-too-high"] if wins else [])
        else:
            assert ids(plan) == ([] if known is named else ["foreign-master"])
        assert all(one.state == (MASTER if wins else STANDBY) for one in plan.ports)
