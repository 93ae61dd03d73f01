# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare the interfaces of recorded facts of real kernels, and single properties."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path

import pytest
from support.host.ipoib_host import child, netdev

from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.devices import Guid, NetdevGraph, NetdevUse, OvirtNetwork
from ovirt_rdma.host.facts.infiniband import (
    FIRST_VLAN,
    LAST_VLAN,
    full_member,
    partition_of,
    vlan_of_pkey,
)
from ovirt_rdma.host.facts.uses import Interface, content_of, interfaces_of

DATA = Path(__file__).parents[2] / "data" / "facts"


def load(name):
    return model.load(DATA / f"{name}.json")


def by_name(facts):
    return {found.name: found for found in interfaces_of(facts)}


FABRIC = load("ib-fabric-children-and-bond")
VLANS = load("roce-bond-vlan")


def test_a_port_its_child_and_a_child_with_another_name():
    found = by_name(FABRIC)
    port = found["ib0"]
    assert port == Interface(
        "ib0",
        link_layer="InfiniBand",
        driver="mlx4_core",
        bus_info="001b:00:00.0",
        device="mlx4_0",
        port=1,
        guid="0002:c903:00ab:c001",
        pkey="0xffff",
        mtu=port.mtu,
        speed_mbps=40000,
    )
    child = found["storage"]
    assert (child.parent, child.pkey, child.pkey_vlan) == ("ib0", "0x8005", 5)
    assert (child.device, child.port, child.guid) == ("mlx4_0", 1, port.guid)
    assert child.bus_info == port.bus_info


def test_a_bond_and_its_ports():
    found = by_name(FABRIC)
    assert found["bond0"].roles == ("bond",)
    assert (found["bond0"].device, found["bond0"].port) == (None, None)
    assert found["ib2"].roles == found["ib3"].roles == ("bond-port",)


def test_a_vlan_has_its_tag_and_its_parent():
    found = by_name(VLANS)
    vlan = found["bond7.100"]
    assert (vlan.parent, vlan.vlan, vlan.link_layer) == ("bond7", 100, "Ethernet")
    assert all(other.vlan is None for other in found.values() if other != vlan)


def test_a_vlan_with_another_name_has_the_tag_of_its_network_or_none():
    names = {"bond7.100": "lan.7"}
    netdevs = (replace(n, name=names.get(n.name, n.name)) for n in VLANS.netdevs)
    facts = replace(VLANS, netdevs=tuple(netdevs))
    assert by_name(facts)["lan.7"].vlan is None
    network = OvirtNetwork("lan", "lan.7", vlan=100)
    found = by_name(replace(facts, ovirt_networks=(network,)))["lan.7"]
    assert (found.vlan, found.networks) == (100, ("lan",))


@pytest.mark.parametrize(
    ("purpose", "role"),
    [
        ("nfs", "storage"),
        ("iscsi", "storage"),
        ("srp", "storage"),
        ("nvme", "storage"),
        ("migration", "migration"),
        ("management", "management"),
    ],
)
def test_a_role_is_that_of_the_netdevs_below_too_but_not_of_the_parent(purpose, role):
    used = replace(VLANS, netdev_uses=(NetdevUse("bond7.100", purpose, "x"),))
    roles = {name: role in found.roles for name, found in by_name(used).items()}
    assert roles == {
        "bond7.100": True,
        "bond7": True,
        "eth1": True,
        "eth2": True,
        "eth0": False,
    }
    used = replace(FABRIC, netdev_uses=(NetdevUse("ib0.8001", purpose, "x"),))
    assert [n for n, f in by_name(used).items() if role in f.roles] == ["ib0.8001"]


def test_loopback_and_the_nics_of_virtual_machines_are_left_out():
    first = FABRIC.netdevs[0]
    more = (replace(first, name="lo", type=772), replace(first, name="t", driver="tun"))
    facts = replace(FABRIC, netdevs=(*FABRIC.netdevs, *more))
    assert list(by_name(facts)) == list(by_name(FABRIC))


@pytest.mark.parametrize("path", sorted(DATA.glob("*.json")), ids=lambda p: p.stem)
def test_every_recorded_host_has_a_document(path):
    facts = model.load(path)
    document = content_of(facts)
    assert list(document) == ["host", "interfaces"]
    for found in document["interfaces"]:
        assert list(found) == [field.name for field in fields(Interface)]
        assert found["link_layer"] in ("InfiniBand", "Ethernet")


def test_p_key_and_vlan_are_each_other():
    for vlan in (FIRST_VLAN, 100, LAST_VLAN):
        assert vlan_of_pkey(full_member(vlan)) == vlan
    assert full_member(100) == "0x8064"
    assert vlan_of_pkey("0x0064") == vlan_of_pkey("0X64") == 100


@pytest.mark.parametrize(
    "text",
    ["0x7fff", "0xffff", "0x0fff", "0x8fff", "0x9000", "0x0000", "0x8000", "", "7"],
)
def test_what_stands_for_no_vlan(text):
    assert vlan_of_pkey(text) is None


@pytest.mark.parametrize(
    ("text", "partition"),
    [("0xffff", 0x7FFF), ("0x8001", 1), ("0x8000", None), ("0x18001", None)],
)
def test_the_partition_of_a_p_key(text, partition):
    assert partition_of(text) == partition


# Values and the graph of netdevs that facts are made of

ADDRESS = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:fb:12:31"


def test_a_guid_is_at_the_end_of_address_and_gid():
    guid = Guid.of_address(ADDRESS.upper())
    assert guid == Guid.of_gid("fe80:0000:0000:0000:0002:c903:00fb:1231")
    assert (guid.in_groups, guid.assigned) == ("0002:c903:00fb:1231", True)


@pytest.mark.parametrize("address", ["", "02:00:00:00:00:01", "lo"])
def test_other_netdevs_have_no_guid(address):
    assert Guid.of_address(address) is None


def test_vfs_without_a_guid_have_0():
    assert not Guid.of_gid("fe80:0000:0000:0000:0000:0000:0000:0000").assigned


def test_what_is_stacked_on_what():
    graph = NetdevGraph(
        [
            netdev("ib0", uppers=("bond0",)),
            child("ib0.8001", uppers=("bond1",)),
            netdev("bond0", lowers=("ib0", "ib1"), uppers=("br",)),
            # A circle, which only a damaged facts file has.
            netdev("br", lowers=("bond0",), uppers=("bond0",)),
        ]
    )
    assert graph.above("ib0") == ("ib0", "bond0", "ib0.8001", "bond1", "br")
    assert graph.carriers("ib0") == ("ib0", "bond0", "br")
    assert graph.below("br") == ("br", "bond0", "ib0", "ib1")
    assert graph.above("gone", "br") == ("gone", "br", "bond0")
