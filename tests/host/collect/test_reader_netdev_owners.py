# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_root import Pci

pytestmark = pytest.mark.hypervisor

HCA = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")


@pytest.fixture
def ib0(host):
    """An HCA with ib0, whose index is 7."""
    host.rdma_device("mlx4_0", pci=HCA)
    host.rdma_port("mlx4_0")
    host.ipoib("ib0", pci=HCA)
    host.write("/sys/class/net/ib0/ifindex", "7")
    return host


def owner(host, name="ib0"):
    [found] = [n for n in host.reader().facts().netdevs if n.name == name]
    return found.owner


def networkd(host, text):
    host.write("/run/systemd/netif/links/7", text)


def manager(host):
    host.network_manager()
    host.nm_device("ib0", "connected (externally)")


def test_nobody(ib0):
    assert owner(ib0) is None


def test_network_manager(ib0):
    manager(ib0)
    assert owner(ib0) == "NetworkManager"


@pytest.mark.parametrize(
    "text, expected",
    [
        ("ADMIN_STATE=configured\nNETWORK_FILE=/etc/systemd/network/ib.network", True),
        ("ADMIN_STATE=unmanaged\nNETWORK_FILE=\n", False),
        ("ADMIN_STATE=unmanaged", False),
        ("", False),
    ],
)
def test_networkd_once_it_has_applied_a_file(ib0, text, expected):
    networkd(ib0, text)
    assert owner(ib0) == ("systemd-networkd" if expected else None)


def test_what_networkd_set_up_is_not_network_managers(ib0):
    manager(ib0)
    networkd(ib0, "NETWORK_FILE=/etc/systemd/network/ib.network")
    assert owner(ib0) == "systemd-networkd"


def test_ifupdown(ib0):
    ib0.write("/run/network/ifstate", "lo=lo\nib0=ib0")
    assert owner(ib0) == "ifupdown"
    assert owner(ib0, "lo") is None  # no RDMA netdev: not asked
