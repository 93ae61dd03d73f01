# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

from dataclasses import replace

import pytest
from engine_double.faults import AnswerLost, Conflict
from engine_double.host_nics import clamp
from support.engine.engine_door import DoubleDoor
from support.engine.refusals import reason, refused_for
from support.host.rule_cases import ethernet, facts, roce_device

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.job import RolledBack
from ovirt_rdma.engine_sdk_tools.model import NameProblem
from ovirt_rdma.engine_sdk_tools.networks.create import (
    NetworkRequest,
    create_network,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.reader import read_engine

pytestmark = pytest.mark.engine

REQUEST = NetworkRequest("storage", "dc1", 2044)


@pytest.fixture
def door(double):
    for host in double.world.hosts.values():
        host.addon, host.policy_text = True, "version: 1\n"
        host.nic("ib0").mtu = 4092
    return DoubleDoor(double.world)


def planned(session, door=None, request=REQUEST):
    engine = read_engine(session, networks=True, nics=True, attachments=True)
    reports = door.reports(engine.hosts) if door else {}
    return plan_network_create(engine, reports, request)


def made(session, door=None, request=REQUEST):
    return create_network(session, planned(session, door, request), Listener())


def row(double, cluster="cl1"):
    network = double.world.network("storage").id
    return double.world.cluster(cluster).networks[network]


def test_no_vm_network_and_not_required(session, double):
    result = made(session)

    network = double.world.network("storage")
    assert (network.id, network.vm, network.mtu) == (result.id, False, 2044)
    assert (row(double).required, row(double).usages) == (False, set())
    assert {h.status for h in double.world.hosts.values()} == {"up"}


def test_auto_is_the_largest_that_all_can_have(session, double, door):
    clamp(double.world.host("host02"), "ib0", 2044)

    plan = planned(session, door, replace(REQUEST, mtu="auto"))

    assert plan.mtu == 2044
    assert plan.because.startswith("limited by ib0 of host02: ")
    assert plan.because.endswith(" (others: up to 4092)")


def test_auto_believes_a_group_that_gives_less_than_the_port(session, double, door):
    """Without a setting, a datagram netdev has the MTU of its broadcast group."""
    double.world.host("host03").nic("ib0").mtu = 2044

    plan = planned(session, door, replace(REQUEST, mtu="auto"))

    assert plan.mtu == 2044
    assert "broadcast group allows no more, although" in plan.because


def test_auto_asks_all_hosts(session, double, door):
    double.world.host("host02").reachable = False
    double.world.host("host03").nics = [double.world.host("host03").nic("eth0")]

    with refused_for("host-facts-missing", "host02") as caught:
        planned(session, door, replace(REQUEST, mtu="auto"))

    reason(caught.value.reasons, "netdev-missing", "host03")
    assert caught.value.exit_code == 3
    assert "--mtu 2044" in caught.value.fix


def test_auto_asks_only_chosen_hosts(session, double, door):
    double.world.host("host02").reachable = False
    request = replace(REQUEST, mtu="auto", hosts=("host01", "host03"))

    assert planned(session, door, request).mtu == 4092


def test_a_number_that_a_host_cannot_have(session, double, door):
    clamp(double.world.host("host02"), "ib0", 2044)

    with refused_for("mtu-too-large", "host02: ib0", 2044, 4092):
        planned(session, door, replace(REQUEST, mtu=4092))


def test_a_number_that_nobody_can_check_is_a_warning(session):
    assert "host01, host02, host03" in planned(session).warnings[0]


@pytest.mark.parametrize("mtu", [0, 67, 65521])
def test_mtus_that_are_none(session, mtu):
    with refused_for("mtu-out-of-range", mtu, "68 to 65520"):
        planned(session, request=replace(REQUEST, mtu=mtu))


def test_a_second_run_has_nothing_to_do(session, double):
    made(session)

    assert planned(session).calls == ()


def test_a_run_that_was_killed_is_gone_on_with(session, double):
    session.perform(planned(session).making())

    made(session)

    assert not row(double).required


@pytest.mark.parametrize(
    ("changes", "id", "arguments"),
    [
        ({"vm": True}, "network-exists-vm", ["storage"]),
        ({"mtu": 0}, "network-exists-mtu", ["storage", 1500, 2044]),
        ({"vlan": 5}, "network-exists-vlan", ["storage", "VLAN tag 5"]),
    ],
)
def test_another_network_of_that_name(session, double, changes, id, arguments):
    made(session)
    for name, value in changes.items():
        setattr(double.world.network("storage"), name, value)

    with refused_for(id, *arguments):
        planned(session)


def test_it_is_removed_where_a_cluster_refuses_it(session, double):
    double.fail_next("POST", "/clusters/", Conflict("Cannot attach."))

    with pytest.raises(RolledBack, match="removing the network storage again"):
        made(session)

    assert "storage" not in [n.name for n in double.world.networks.values()]


@pytest.mark.parametrize("path", ["^/networks$", "^/clusters/.*/networks$"])
def test_an_answer_that_is_lost_is_looked_up(session, double, path):
    double.fail_next("POST", path, AnswerLost())

    made(session)

    assert not row(double).required


def test_wrong_names_get_the_nearest(session):
    with pytest.raises(NameProblem) as caught:
        planned(session, request=replace(REQUEST, clusters=("cl",)))
    assert "cl1" in caught.value.fix


# For RoCE.

ROCE = replace(REQUEST, mtu=9000, ethernet=True)


def of_roce(name, netdev="ens1"):
    """Return the report of a host with one RoCE port, and eth0 without RDMA."""
    netdevs = (ethernet(netdev), ethernet("eth0", rdma_device=None, rdma_port=None))
    found = facts(rdma_devices=(roce_device(),), netdevs=netdevs)
    return HostReport(name, facts=found)


def roce_plan(session, request, **without):
    engine = read_engine(session, networks=True, nics=True, attachments=True)
    reports = {host.name: of_roce(host.name) for host in engine.hosts}
    return plan_network_create(engine, {**reports, **without}, request)


@pytest.mark.parametrize("vlan", [None, 1, 100, 4094])
def test_for_roce_with_a_vlan_or_without(session, double, vlan):
    plan = roce_plan(session, replace(ROCE, vlan=vlan))
    assert plan.warnings == ()
    create_network(session, plan, Listener())
    network = double.world.network("storage")
    assert (network.vlan, network.mtu, network.vm) == (vlan, 9000, False)
    assert roce_plan(session, replace(ROCE, vlan=vlan)).calls == ()


@pytest.mark.parametrize(
    ("changes", "id", "words"),
    [
        ({"mtu": "auto"}, "mtu-auto-ethernet", ["switch"]),
        ({"vlan": 0}, "vlan-out-of-range", ["0"]),
        ({"vlan": 4095}, "vlan-out-of-range", ["4095"]),
        ({"nic_match": "eth0"}, "netdev-missing", ["host01", "eth0"]),
        ({"nic_match": "pkey=0x8064"}, "netdev-missing", ["host01", "0x8064"]),
    ],
)
def test_what_roce_cannot_have(session, changes, id, words):
    with refused_for(id, *words):
        roce_plan(session, replace(ROCE, **changes))


def test_infiniband_has_no_vlan(session):
    with refused_for("vlan-on-infiniband", "--link-layer ethernet"):
        planned(session, request=replace(REQUEST, vlan=7))


def test_hosts_that_do_not_answer_are_warned_of(session):
    silent = {"host02": HostReport("host02", problem="no route")}
    plan = roce_plan(session, replace(ROCE, mtu=1500), **silent)
    assert plan.warnings == ("it is unknown whether there is RoCE on host02",)


@pytest.mark.parametrize(
    ("changes", "vlan", "id"),
    [
        ({"vlan": 5}, 100, "network-exists-vlan"),
        ({"vlan": 5}, None, "network-exists-vlan"),
        ({}, 100, "network-exists-vlan"),
        ({"vlan": 100, "vm": True}, 100, "network-exists-vm"),
        ({"mtu": 1500}, None, "network-exists-mtu"),
        ({"vm": True}, None, None),
    ],
)
def test_another_network_for_roce(session, double, changes, vlan, id):
    create_network(session, roce_plan(session, ROCE), Listener())
    for name, value in changes.items():
        setattr(double.world.network("storage"), name, value)
    if id is None:
        assert roce_plan(session, replace(ROCE, vlan=vlan)).calls == ()
        return
    with refused_for(id, "storage"):
        roce_plan(session, replace(ROCE, vlan=vlan))
