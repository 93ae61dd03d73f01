# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the rule of the ``host:`` part that names a netdev."""

import pytest

from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    Ipoib,
    Netdev,
    PciIdentity,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, interface_rule_for

PCI = PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x00")
PORT = RdmaPort(1, "ACTIVE", "LinkUp", "InfiniBand", guid="0002:c903:00fb:1231")
DEVICE = RdmaDevice(
    "mlx4_0", "CA", "0002:c903:00fb:1230", "mlx4_core", pci=PCI, ports=(PORT,)
)


def ipoib(pkey="0xffff", parent=None):
    return Netdev(
        "ib0", ARPHRD_INFINIBAND, 2044, "", "up", ipoib=Ipoib(pkey=pkey, parent=parent)
    )


def winner(rules, netdev=None, device=DEVICE, port=PORT):
    found = interface_rule_for(
        HostPolicy(tuple(rules)), netdev or ipoib(), device, port
    )
    return found and found.name


def names(netdev=None, on_device=DEVICE, on_port=PORT, **match):
    return winner([InterfaceRule(1, "a", **match)], netdev, on_device, on_port) == "a"


@pytest.mark.parametrize(
    "match",
    [
        {"link_layer": "infiniband"},
        {"device": "mlx4_0"},
        {"device": "mlx4_*"},
        {"device": "mlx?_[0-3]"},
        {"pci": "0000:04:00.0"},
        {"port": 1},
        {"guid": "0002:c903:00fb:1231"},
        {"pkey": "0xffff"},
        {"pkey": "0x7fff"},
        {"link_layer": "infiniband", "device": "mlx4_0", "port": 1},
    ],
)
def test_a_rule_names_a_netdev_by_its_port(match):
    assert names(**match)


@pytest.mark.parametrize(
    "match",
    [
        {"link_layer": "ethernet"},
        {"device": "mlx4"},
        {"device": "MLX4_0"},
        {"device": "mlx4_[1-9]"},
        {"pci": "0000:04:00.1"},
        {"port": 2},
        # The device's own GUID is not the port's.
        {"guid": "0002:c903:00fb:1230"},
        {"pkey": "0x8001"},
        # All keys together.
        {"device": "mlx4_0", "port": 2},
    ],
)
def test_another_port_is_left_as_it_is(match):
    assert not names(**match)


def test_a_rule_without_pkey_names_the_children_of_its_port_too():
    child = ipoib("0x8001", parent="ib0")
    assert names(child, device="mlx4_0")
    assert names(child, pkey="0x0001")
    assert not names(child, pkey="0x8002")


def test_a_pkey_names_no_netdev_whose_own_is_not_known():
    assert not names(ipoib(pkey=None), pkey="0x8001")


def test_roce_has_a_link_layer_and_no_pkey():
    netdev = Netdev("eth0", ARPHRD_ETHER, 1500, "", "up")
    port = RdmaPort(1, "ACTIVE", "LinkUp", "Ethernet")
    assert names(netdev, on_port=port, link_layer="ethernet")
    assert not names(netdev, on_port=port, link_layer="infiniband")
    assert not names(netdev, on_port=port, pkey="0xffff")


def test_software_devices_have_no_pci_address():
    device = RdmaDevice("rxe0", "CA", "", "rdma_rxe")
    assert names(on_device=device, device="rxe*")
    assert not names(on_device=device, pci="0000:04:00.0")


def test_the_first_rule_that_names_the_netdev_wins():
    rules = [
        InterfaceRule(1, "child", pkey="0x8001"),
        InterfaceRule(2, "card", device="mlx4_*"),
        InterfaceRule(3, "rest", link_layer="infiniband"),
    ]
    assert winner(rules, ipoib("0x8001", "ib0")) == "child"
    assert winner(rules) == "card"
    other = RdmaDevice("mlx5_0", "CA", "", "mlx5_core")
    assert winner(rules, device=other) == "rest"
    roce = RdmaPort(1, "ACTIVE", "LinkUp", "Ethernet")
    assert winner(rules, device=other, port=roce) is None


@pytest.mark.parametrize(
    ("rule", "title"),
    [
        (InterfaceRule(3, "interface 3"), "interface 3"),
        (InterfaceRule(3, "storage"), "interface 'storage'"),
        (InterfaceRule(3, "interface 1"), "interface 'interface 1'"),
    ],
)
def test_how_a_rule_is_called(rule, title):
    assert rule.title == title
