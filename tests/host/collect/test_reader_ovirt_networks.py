# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import os

import pytest

from ovirt_rdma.host.collect.netdevs import STAGING, read_ovirt_networks
from ovirt_rdma.host.facts.devices import OvirtNetwork
from ovirt_rdma.host.system.tree import FileTree

pytestmark = pytest.mark.hypervisor


def read(host, problems=None):
    problems = [] if problems is None else problems
    return read_ovirt_networks(FileTree(host.path), problems)


def test_a_host_that_vdsm_does_not_know(host, problems):
    assert read(host, problems) == ()
    assert problems == []


def test_networks_on_a_nic_a_bond_and_a_vlan(host):
    host.ovirt_network("ovirtmgmt", nic="eth0", defaultRoute=True)
    host.ovirt_network("storage", nic="ib0", bridged=False, mtu=2044)
    host.ovirt_network("roce", bonding="bond0", vlan=100, bridged=False, mtu=9000)
    host.ovirt_network("nowhere")
    host.vdsm_network_file("unknown", '{"nic": "", "bridged": false}')
    assert read(host) == (
        OvirtNetwork("nowhere", None, True, None, 1500),
        OvirtNetwork("ovirtmgmt", "eth0", True, None, 1500, default_route=True),
        OvirtNetwork("roce", "bond0.100", False, 100, 9000),
        OvirtNetwork("storage", "ib0", False, None, 2044),
        OvirtNetwork("unknown"),
    )


def test_what_is_in_force_goes_before_what_is_persistent(host):
    host.ovirt_network("old", stored="persistence", nic="eth0")
    assert [network.name for network in read(host)] == ["old"]
    host.ovirt_network("new", nic="eth1")
    assert [network.name for network in read(host)] == ["new"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "Expecting value"),
        ("{", "Expecting"),
        ("[]", "it is an array, not an object"),
        ("null", "it is null, not an object"),
        ('{"nic": 7}', "nic is a number, not a string"),
        ('{"nic": "ib0", "mtu": "big"}', "mtu is a string, not a whole number"),
        ('{"nic": "ib0", "mtu": true}', "mtu is true or false, not a whole number"),
        ('{"nic": "ib0", "vlan": 1.5}', "vlan is a number, not a whole number"),
        ('{"custom": "connected"}', "custom is a string, not an object"),
        ('{"custom": {"ipoib_mode": 7}}', "ipoib_mode is a number, not a string"),
        ("[" * 99999, "nested too deeply"),
        ("9" * 9999, ""),
        ("\udcff", "is not UTF-8"),
    ],
)
def test_a_file_of_something_else_is_said(host, text, words, problems):
    host.vdsm_network_file("odd", text)
    host.ovirt_network("storage", nic="ib0")
    assert [network.name for network in read(host, problems)] == ["storage"]
    assert len(problems) == 1
    assert "/netconf/nets/odd is not a network of VDSM: " in problems[0]
    assert words in problems[0]
    assert "\n" not in problems[0]


def test_an_unreadable_file_is_said(host, problems):
    host.ovirt_network("storage", nic="ib0")
    host.unreadable("/var/lib/vdsm/staging/netconf/nets/secret")
    assert [network.name for network in read(host, problems)] == ["storage"]
    assert len(problems) == 1
    assert "secret cannot be read" in problems[0]


def test_one_file_of_many_names_is_read_so_often_and_no_more(host, problems):
    """Links cost no space, but facts would have each of the texts."""
    host.ovirt_network("n000", nic="x" * 1_000_000)
    first = host.path / STAGING.lstrip("/") / "n000"
    for number in range(1, 100):
        os.link(first, first.with_name(f"n{number:03}"))
    assert [network.name for network in read(host, problems)] == [
        "n000", "n001", "n002", "n003",
    ]  # fmt: skip
    assert problems == [
        f"{STAGING} has more than 4194304 bytes of networks: those from n004 on are "
        "not read"
    ]


def test_as_many_networks_as_a_host_may_have(host, problems):
    for number in range(4094):
        host.ovirt_network(f"net{number}", nic="eth0", vlan=number, mtu=9000)
    assert len(read(host, problems)) == 4094
    assert problems == []


@pytest.mark.parametrize(
    ("custom", "mode"),
    [
        ({"ipoib_mode": "connected"}, "connected"),
        ({"ethtool_opts": "-K"}, None),
        (None, None),
    ],
)
def test_the_mode_that_a_network_asks_for(host, custom, mode):
    """VDSM keeps the custom properties of a request (netconfpersistence.py,
    _filter_out_net_attrs).
    """
    host.ovirt_network("storage", nic="ib0", custom=custom)
    (network,) = read(host)
    assert network.ipoib_mode == mode
