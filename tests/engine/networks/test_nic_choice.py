# SPDX-License-Identifier: GPL-2.0-or-later
"""Refuse VLANs, and NICs with a network that the cluster does not have."""

from __future__ import annotations

from dataclasses import replace

import pytest
from engine_double.world import SimNic
from support.engine.refusals import reason, refused_for

from ovirt_rdma.engine_sdk_tools.api.request import Call, Listener
from ovirt_rdma.engine_sdk_tools.model import Host, Nic
from ovirt_rdma.engine_sdk_tools.networks.attach import (
    AttachRequest,
    attach_network,
    plan_network_attach,
)
from ovirt_rdma.engine_sdk_tools.networks.create import (
    NetworkRequest,
    create_network,
    plan_network_create,
)
from ovirt_rdma.engine_sdk_tools.networks.nics import Chosen, NicMatch, choose_nics
from ovirt_rdma.engine_sdk_tools.reader import read_engine

pytestmark = pytest.mark.engine

NICS = (
    Nic("1", "eth0", "52:54:00:00:00:01"),
    Nic("2", "eth0.100", "52:54:00:00:00:01", vlan_of="eth0"),
    Nic("3", "ib0", ":".join(["80"] * 20)),
    Nic("4", "ib0.8001", ":".join(["80"] * 20)),
)
HOST = Host("h", "host01", "host01", "c", nics=NICS)
REQUEST = AttachRequest("tagged", ("host01",), "eth1", span="10.20.0.11/24")


def chosen(match, bond=False, host=HOST):
    return choose_nics(host, NicMatch.parse(match), None, bond)


@pytest.mark.parametrize("match", ["eth*", "eth0*", "eth0"])
def test_a_glob_does_not_mean_the_vlans_of_a_nic(match):
    assert chosen(match) == Chosen("eth0")


def test_a_vlan_that_is_named_is_refused_with_the_nic_below_it():
    refusal = chosen("eth0.100")
    reason([refusal], "nic-is-vlan", "host01: eth0.100 is a VLAN on eth0")
    assert refusal.endswith("give eth0")


def test_vlans_are_no_ports_of_a_bond():
    refusal = chosen("eth*", bond=True)
    reason([refusal], "bond-needs-nics", "host01: ", "eth*", " eth0 only", 2)


def test_nor_are_they_offered():
    reason([chosen("mlx*")], "nic-unmatched", "mlx*", "(eth0, ib0, ib0.8001)")


def test_a_new_bond_takes_no_name_that_a_vlan_has():
    more = Nic("5", "bond0", "52:54:00:00:00:05", vlan_of="eth0")
    second = Nic("6", "eth1", "52:54:00:00:00:06")
    host = replace(HOST, nics=(*NICS, more, second))
    expected = Chosen("bond1", ("eth0", "eth1"), new_bond=True)
    assert chosen("eth*", bond=True, host=host) == expected


def test_a_pkey_child_is_a_nic():
    assert chosen("ib0.*") == Chosen("ib0.8001")


# -- as the engine shows them


@pytest.fixture
def eth1(double):
    for host in double.world.hosts.values():
        mac = host.nic("eth0").mac[:-2] + "aa"
        host.nics.append(SimNic(f"{host.name}-eth1", "eth1", mac))


def made(session, name):
    wanted = NetworkRequest(name, "dc1", 1500)
    plan = plan_network_create(read_engine(session, networks=True), {}, wanted)
    create_network(session, plan, Listener())


def planned(session, request):
    engine = read_engine(session, networks=True, nics=True, attachments=True)
    return plan_network_attach(engine, {}, request)


def attached(session, double, vlan):
    """Attach a network, with a VLAN or not, to eth1 of host01; then make another."""
    made(session, "tagged")
    double.world.network("tagged").vlan = vlan
    attach_network(session, planned(session, REQUEST), Listener())
    made(session, "other")


OTHER = replace(REQUEST, network="other", nic_match="eth1*", span="10.30.0.11/24")


@pytest.mark.engine_does("NET-61")
def test_the_engine_shows_a_vlan_as_a_nic_of_its_own(session, double, eth1):
    attached(session, double, vlan=7)
    engine = read_engine(session, nics=True)
    nics = {nic.name: nic.vlan_of for nic in engine.hosts[0].nics}
    assert nics == {"eth0": None, "ib0": None, "eth1": None, "eth1.7": "eth1"}
    (row,) = planned(session, OTHER).rows
    assert row.chosen.target == "eth1"


@pytest.mark.engine_does("NET-63")
@pytest.mark.parametrize("vlan", [None, 7])
def test_a_nic_with_an_unmanaged_network_is_not_free(session, double, eth1, vlan):
    attached(session, double, vlan)
    world = double.world
    of_cluster = f"clusters/{world.cluster('cl1').id}/networks"
    path = f"{of_cluster}/{world.network('tagged').id}"
    session.perform(Call(path, "remove", "taking the network from the cluster"))
    with refused_for("nic-has-unmanaged-network", "host01: eth1", "tagged"):
        planned(session, OTHER)
