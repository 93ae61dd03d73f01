# SPDX-License-Identifier: GPL-2.0-or-later
"""Choose NICs by what they are: the text, and the choice on hosts with real facts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.engine.refusals import reason

from ovirt_rdma.engine_sdk_tools.hosts.report import HostReport
from ovirt_rdma.engine_sdk_tools.model import Host, Nic
from ovirt_rdma.engine_sdk_tools.networks.nics import (
    KEYS,
    Chosen,
    NicMatch,
    choose_nics,
)
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.uses import Interface

pytestmark = pytest.mark.engine

FACTS = Path(__file__).parents[2] / "data" / "facts"
PORT = Interface(
    "ib0",
    link_layer="InfiniBand",
    driver="mlx4_core",
    bus_info="0000:04:00.0",
    device="mlx4_0",
    port=1,
    guid="0002:c903:00fb:1231",
    pkey="0xffff",
    mtu=2044,
    speed_mbps=40000,
    roles=("bond-port", "storage"),
)
CHILD = replace(PORT, name="ib0.8064", parent="ib0", pkey="0x8064", pkey_vlan=100)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("ib0", True),
        ("ib*", True),
        ("IB0", False),
        ("eth*,ib?", True),
        ("0002:c903:00fb:1231", True),
        ("0002c90300fb1231", True),
        ("0x0002C90300FB1231", True),
        ("00:02:c9:03:00:fb:12:31", True),
        ("0002:c903:00fb:1232", False),
        ("0000:04:00.0", True),
        ("04:00.0", True),
        ("04:00.1", False),
        ("link_layer=InfiniBand,port=1", True),
        ("link_layer=infiniband, port=01", True),
        ("link_layer=InfiniBand,port=2", False),
        ("link_layer=Ethernet,port=1", False),
        ("port=1,port=2", True),
        ("port=2,port=3", False),
        ("eth*,port=1", False),
        ("ib*,eth*,port=1", True),
        ("driver=mlx4_*", True),
        ("driver=mlx5_core", False),
        ("device=mlx4_0", True),
        ("device=mlx4_1", False),
        ("bus_info=04:00.0", True),
        ("bus_info=04:00.1", False),
        ("guid=00:02:c9:03:00:fb:12:31", True),
        ("guid=0002c90300fb1232", False),
        ("name=ib*", True),
        ("name=eth*", False),
        ("pkey=0xffff", True),
        ("pkey=0x7fff", True),
        ("pkey=0x8001", False),
        ("pkey_vlan=1", False),
        ("parent=*", False),
        ("speed_mbps=40000", True),
        ("speed_mbps=100000", False),
        ("roles=storage", True),
        ("roles=migration", False),
    ],
)
def test_nic_match(text, meant):
    assert NicMatch.parse(text).means(PORT) is meant


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        # What means a port does not mean its children.
        ("link_layer=InfiniBand,port=1", False),
        ("0002:c903:00fb:1231", False),
        ("04:00.0", False),
        ("ib0.*", True),
        ("ib*", True),
        ("name=ib0.8064", True),
        ("parent=ib0", True),
        ("pkey=0x8064", True),
        ("pkey=0x0064", True),
        ("pkey=0x64,port=1", True),
        ("pkey=0x8064,port=2", False),
        ("pkey_vlan=100", True),
        ("pkey_vlan=101", False),
    ],
)
def test_a_p_key_child_is_chosen_by_what_only_a_child_has(text, meant):
    assert NicMatch.parse(text).means(CHILD) is meant


@pytest.mark.parametrize("key", sorted(set(KEYS) - {"name", "partition"}))
def test_what_is_not_known_is_not_meant(key):
    text = {"link_layer": "Ethernet", "bus_info": "04:00.0"}.get(key, "1")
    text = {"pkey": "0x8001", "guid": "0002:c903:00fb:1231"}.get(key, text)
    assert not NicMatch.parse(f"{key}={text}").means(Interface("eth0"))
    assert not NicMatch.parse("0002:c903:00fb:1231").means(Interface("eth0"))


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "names no NIC"),
        (" , ", "names no NIC"),
        ("ib[z-a]", "ib[z-a]"),
        ("prot=1", "'prot'"),
        ("=1", "''"),
        ("port=one", "port=one is not a number"),
        ("port=", "port= is not a number"),
        ("port=1234567890", "is not a number"),
        ("link_layer=ib", "link_layer=ib is not InfiniBand or Ethernet"),
        ("pkey=8001", "pkey=8001 is not a P_Key, as 0x8064"),
        ("pkey=0x8000", "pkey=0x8000 is not"),
        ("guid=1", "guid=1 is not a port GUID"),
        ("bus_info=4", "bus_info=4 is not a PCI address"),
        ("name=ib[z-a]", "name=ib[z-a] is not a name or glob"),
    ],
)
def test_a_match_that_is_none(text, words):
    with pytest.raises(UsageProblem) as caught:
        NicMatch.parse(text)
    assert words in str(caught.value)


# -- hosts


def report(name, facts):
    return HostReport(name, model.load(FACTS / f"{facts}.json"))


def host_of(report):
    """Return a host whose NICs are the netdevs of its facts, as VDSM reports them."""
    nics = tuple(
        Nic(str(n), netdev.name, netdev.address, bond_ports=netdev.lowers)
        if netdev.driver == "bond"
        else Nic(str(n), netdev.name, netdev.address)
        for n, netdev in enumerate(report.facts.netdevs)
    )
    return Host("h", report.host, report.host, "c", nics=nics)


FABRIC = report("hv1", "ib-fabric-children-and-bond")


def chosen(match, report=FABRIC, bond=False, with_report=True):
    parsed = NicMatch.parse(match)
    return choose_nics(host_of(report), parsed, report if with_report else None, bond)


def test_a_port_is_chosen_although_it_has_children_and_a_second_adapter_a_bond():
    found = chosen("link_layer=InfiniBand,device=mlx4_0,port=1")
    assert found == Chosen("ib0")
    assert (found.interface.device, found.interface.port) == ("mlx4_0", 1)


def test_a_partition_is_found_whatever_the_name_of_its_child():
    assert chosen("pkey=0x8001") == Chosen("ib0.8001")
    assert chosen("pkey_vlan=5") == Chosen("storage")
    assert chosen("pkey=0x0005").interface.parent == "ib0"


def test_the_candidates_of_an_ambiguous_match_are_named():
    refusal = chosen("link_layer=InfiniBand,port=1")
    reason([refusal], "nic-ambiguous", "hv1: ", "matches ib0, ib2; narrow it")
    assert "'ovirt-rdma-host facts --interfaces' there" in refusal
    reason([chosen("name=ib0*,port=1")], "nic-ambiguous", "matches ib0, ib0.8001")


def test_no_match_says_which_nics_there_are():
    refusal = chosen("link_layer=InfiniBand,port=3")
    reason([refusal], "nic-unmatched", "matches no NIC (bond0, ib0, ib0.8001, ")
    assert "pkey_children" not in refusal
    reason([chosen("driver=ipoib")], "nic-unmatched")
    for text in ("pkey=0x8123", "pkey_vlan=291", "pkey=0x8001,port=2"):
        reason([chosen(text)], "nic-unmatched", "pkey_children in its policy")


def test_a_condition_without_facts_is_refused_with_the_reason():
    for text, key in (("port=1", "port"), ("04:00.0", "bus_info")):
        refusal = chosen(text, with_report=False)
        reason(
            [refusal], "nic-match-needs-facts", f"hv1: {key} can only", "--facts-dir"
        )
    silent = HostReport("hv1", problem="it does not answer")
    refusal = choose_nics(host_of(FABRIC), NicMatch.parse("port=1"), silent, False)
    reason([refusal], "nic-match-needs-facts", "(it does not answer)")


def test_the_engine_alone_shows_the_link_layer():
    eth = Nic("1", "eth0", "52:54:00:00:00:01")
    ib = Nic("2", "ib0", host_of(FABRIC).nics[1].mac)
    host = Host("h", "hv1", "hv1", "c", nics=(eth, ib, Nic("3", "odd")))
    for text, name in (
        ("link_layer=InfiniBand", "ib0"),
        ("link_layer=Ethernet", "eth0"),
    ):
        assert choose_nics(host, NicMatch.parse(text), None, False) == Chosen(name)
    # Facts that are older than a NIC do not hide it.
    old = HostReport("hv1", replace(FABRIC.facts, netdevs=()))
    match = NicMatch.parse("link_layer=InfiniBand")
    assert choose_nics(host, match, old, False) == Chosen("ib0")


def test_a_bond_of_ports_that_are_told_by_their_adapter():
    found = chosen("link_layer=InfiniBand,bus_info=001b:00:00.0", bond=True)
    assert found == Chosen("bond1", ("ib0", "ib1"), new_bond=True)
    found = chosen("link_layer=InfiniBand,bus_info=001b:00:01.0", bond=True)
    assert found == Chosen("bond0", ("ib2", "ib3"))
