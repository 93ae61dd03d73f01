# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that two texts are compared as values, by the kind of the property."""

import pytest

from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.rules.base import FILE, OFFLOAD, PROFILE, SYSFS, UNIT, Change

pytestmark = pytest.mark.hypervisor

MODE = Change(SYSFS, "/sys/class/net/ib0/mode", None, "connected")
MTU = Change(SYSFS, "/sys/class/net/ib0/mtu", None, "4092", clamped=True)
EXACT = Change(SYSFS, "/sys/class/net/ib0/mtu", None, "4092")
CHILD = Change(SYSFS, "/sys/class/net/ib0/create_child", None, "0x8001")
TSO = Change(OFFLOAD, "ib0", None, "off", "tx-tcp-segmentation")
PATH = Change(FILE, "/etc/modprobe.d/ovirt-rdma.conf", None, "x\n")
OPENSM = "ovirt-rdma-opensm@0x0002c90300fb1231.service"
ENABLED = Change(UNIT, OPENSM, None, "enabled", "enabled")


def prop(name):
    return Change(PROFILE, "new:ib0", None, None, name)


P_MTU = prop("infiniband.mtu")
P_KEY = prop("infiniband.p-key")
P_TSO = prop("ethtool.feature-tso")
P_NAME = prop("connection.interface-name")


@pytest.mark.parametrize(
    ("change", "one", "other"),
    [
        (MODE, "connected", "connected\n"),
        (EXACT, "4092", " 4092\n"),
        (CHILD, "0x8001", "0x0001"),
        (CHILD, "0x8001", "32769"),
        (TSO, "on", "on"),
        (P_MTU, None, "auto"),
        (P_MTU, None, "0"),
        (P_MTU, "2044", "2044"),
        (P_KEY, "0x8001", "32769"),
        (P_KEY, None, "default"),
        (P_KEY, None, "-1"),
        (P_TSO, "on", "yes"),
        (P_TSO, "off", "false"),
        (P_TSO, None, "--"),
        (P_TSO, None, "ignore"),
        (P_NAME, None, ""),
        (P_NAME, None, "--"),
        (PATH, "a\n", "a"),
        (PATH, "\udcff\n", "\\xff\n"),
        (PATH, None, None),
        (ENABLED, "enabled", "enabled\n"),
    ],
)
def test_one_value(change, one, other):
    assert kind_of(change).same(one, other)
    assert kind_of(change).same(other, one)


@pytest.mark.parametrize(
    ("change", "one", "other"),
    [
        (MODE, "connected", "datagram"),
        (MODE, "connected", None),
        (EXACT, "4092", "2044"),
        (CHILD, "0x8001", "0x8002"),
        (CHILD, None, "0x8001"),
        (TSO, "on", "off"),
        (P_MTU, "2044", None),
        (P_KEY, "0x8001", "0x8002"),
        (P_KEY, "0x8001", None),
        (P_TSO, "on", None),
        (P_NAME, "auto", None),  # a netdev may be called so
        (P_NAME, "IB0", "ib0"),
        (PATH, "a\n", None),
        (PATH, "", None),
        (PATH, "a", "A"),
        (ENABLED, "enabled", "static"),
        (ENABLED, "enabled", None),
    ],
)
def test_two_values(change, one, other):
    assert not kind_of(change).same(one, other)
    assert not kind_of(change).same(other, one)


def test_a_smaller_number_is_as_good_where_the_kernel_may_settle_for_less():
    assert kind_of(MTU).accepts("4092")
    assert kind_of(MTU).accepts("2044\n")
    assert not kind_of(MTU).accepts("65520")
    assert not kind_of(MTU).accepts(None)
    assert not kind_of(MTU).accepts("odd")
    assert not kind_of(EXACT).accepts("2044")
