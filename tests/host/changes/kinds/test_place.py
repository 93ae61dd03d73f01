# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that a netdev is found again after it was renamed."""

import pytest
from support.fakes.fake_changes import ChangingRoot, changing
from support.fakes.fake_hosts import connectx5_roce
from support.fakes.fake_root import Pci

from ovirt_rdma.host.changes.kinds.kind import AtomicChange, Host, Place, present_name
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of
from ovirt_rdma.host.rules.base import FILE, OFFLOAD, PROFILE, SYSFS, Change

pytestmark = pytest.mark.hypervisor

HCA = "0000:04:00.0"
GUID = "00:02:c9:03:00:fb:12:31"


def mtu(name):
    return Change(SYSFS, f"/sys/class/net/{name}/mtu", None, "2044")


def place(host, change):
    return kind_of(change).place(host.reader().facts())


def there(host, place):
    return present_name(Host(host.path, None), place)


def test_an_ipoib_netdev_is_its_ports(host):
    found = place(host, mtu("ib0"))
    assert found == Place("ib0", guid=GUID, pci=HCA, port=1)
    host.rename_netdev("ib1", "ibx")
    host.rename_netdev("ib0", "ib1")  # and ib0 is ib1 now
    host.rename_netdev("ibx", "ib0")
    assert there(host, found) == "ib1"
    assert kind_of(mtu("ib0")).at(Host(host.path, None), found).change == mtu("ib1")


def test_a_bond_with_the_address_of_its_member_is_not_the_port(host):
    found = place(host, mtu("ib0"))
    host.bond("aa", ("ib0", "ib1"), active="ib0")
    assert there(host, found) == "ib0"


def test_a_child_is_its_ports_and_pkeys(host):
    host.pkey_child("ib0", "0x8001")
    host.pkey_child("ib0", "0x8002")
    base, one = place(host, mtu("ib0")), place(host, mtu("ib0.8001"))
    assert (one.guid, one.pkey) == (GUID, "0x8001")
    host.rename_netdev("ib0.8001", "storage")
    host.rename_netdev("ib0", "first")
    assert there(host, one) == "storage"
    assert there(host, base) == "first"
    host.remove_netdev("storage")
    assert there(host, one) is None


def test_a_child_that_ip_link_made_is_known_by_its_name(host):
    host.pkey_child("ib0", "0x8001", name="child", by_ip_link=True)
    found = place(host, mtu("child"))
    assert there(host, found) == "child"
    assert there(host, place(host, mtu("ib0"))) == "ib0"


def test_a_child_that_the_plan_makes_has_its_place_before_it_is_there(host):
    change = Change(PROFILE, "new:ib0.8001", None, "datagram", "connection.type")
    found = place(host, change)
    assert (found.guid, found.pkey) == (GUID, "0x8001")
    assert place(host, mtu("ib0.8001")) == found
    assert there(host, found) is None
    host.create_child("ib0", "0x8001")
    assert there(host, found) == "ib0.8001"


def test_create_child_is_at_the_parents_place(host):
    change = Change(SYSFS, "/sys/class/net/ib0/create_child", None, "0x8001")
    assert place(host, change) == place(host, mtu("ib0"))


def test_a_guid_of_zeros_tells_nothing(tmp_path):
    host = ChangingRoot(tmp_path)
    hca = Pci("0000:05:00.0", "0x15b3", "0x1018", "mlx5_core")
    host.rdma_device("mlx5_0", pci=hca)
    host.rdma_port("mlx5_0", 1)
    host.ipoib("ib7", 1, hca, "0000:0000:0000:0000")
    host.ipoib("ib8", 1, None, "0000:0000:0000:0000")
    found = place(host, mtu("ib7"))
    assert found == Place("ib7", pci="0000:05:00.0", port=1)
    host.rename_netdev("ib7", "other")
    assert there(host, found) == "other"


def test_an_ethernet_netdev_is_its_functions(tmp_path):
    host = changing(connectx5_roce, tmp_path)
    change = Change(OFFLOAD, "ens1f1np1", "on", "off", "tx-tcp-segmentation")
    found = place(host, change)
    assert found.pci == "0000:3b:00.1"
    host.rename_netdev("ens1f1np1", "right")
    assert kind_of(change).at(Host(host.path, None), found).change.target == "right"
    bridge = place(host, mtu("storage"))
    assert bridge == Place("storage")
    assert there(host, bridge) == "storage"
    host.rename_netdev("storage", "elsewhere")
    assert there(host, bridge) is None


def test_an_adapters_port(host):
    target = f"/sys/bus/pci/devices/{HCA}/mlx4_port2_mtu"
    assert place(host, Change(SYSFS, target, None, "2048")) == Place(pci=HCA, port=2)


def test_what_has_no_place(host):
    assert (
        place(host, Change(FILE, "/etc/modprobe.d/ovirt-rdma.conf", None, "")) is None
    )
    assert place(host, mtu("gone0")) == Place("gone0")
    assert there(host, Place("gone0")) is None
    change = mtu("gone0")
    assert kind_of(change).at(Host(host.path, None), Place("gone0")) is None
    act = AtomicChange("S/x", "live", (change,), place=Place("gone0"))
    assert HostEffects(host.path).present(act) == act
