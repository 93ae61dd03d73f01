# SPDX-License-Identifier: GPL-2.0-or-later
"""Change a port below a bridge with taps, as virtual machines have them, and with a
container's link: refused, with their names.

The port is Soft-RoCE's; its MTU is the step for an adapter that this kernel offers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from changed_host import JOURNAL, ChangedHost

from lab import installed_host, modules
from lab.guest import Guest
from lab.network_manager import start_network_manager
from lab.soft_roce import SoftRoce
from lab.topology import ALONE

pytestmark = pytest.mark.kernels("6.12")

POLICY = """\
version: 1
host:
  interfaces: [{match: {device: rxe0}, mtu: 4200}]
"""
USERS = (
    "vm: vnet0 on vmnet",
    "vm: vnet1 on vmnet",
    "container: macvlan mv0 of the namespace box",
)
# The bridge is the engine's business, so NetworkManager does not manage it.
_BRIDGE = """
nmcli connection add type ethernet con-name port ifname eth0 \
    ipv4.method disabled ipv6.method disabled
nmcli connection up port
ip link add vmnet type bridge
ip link set eth0 master vmnet
for tap in vnet0 vnet1; do
    ip tuntap add $tap mode tap
    ip link set $tap master vmnet up
done
ip link set vmnet up
ip netns add box
ip link add link vmnet name mv0 type macvlan
ip link set mv0 netns box
"""


@pytest.fixture(scope="module")
def host() -> Iterator[ChangedHost]:
    with Guest("hypervisor", nics=[ALONE], systemd=True) as guest:
        modules.load(guest, "tun", "bridge", "macvlan")
        installed_host.install(guest)
        start_network_manager(guest, ["vmnet", "vnet0", "vnet1", "mv0"])
        SoftRoce().bring_up(guest, "eth0", [])
        guest.run(f"set -e\n{_BRIDGE}", check=True)
        host = ChangedHost(guest)
        host.load_policy(POLICY)
        yield host


def links(host: ChangedHost) -> str:
    """Return all links with their indexes, masters and MTUs."""
    return host.said("ip -o link show | sed 's/state .*//'; ip -n box -o link show mv0")


def test_virtual_machines_and_containers_are_named_and_nothing_changes(
    host: ChangedHost,
) -> None:
    before = links(host)
    refused = host.must("apply", code=4)
    for user in USERS:
        assert user in refused
    assert links(host) == before
    host.said(f"test ! -e {JOURNAL}")
    # Without them the same step is done, and its revert names whoever has come since.
    host.said("ip -n box link delete mv0; ip link delete vnet0; ip link delete vnet1")
    host.must("apply")
    assert host.said("cat /sys/class/net/eth0/mtu") == "4200"
    host.said("ip tuntap add vnet0 mode tap && ip link set vnet0 master vmnet up")
    assert USERS[0] in host.must("revert", code=4)
    assert host.said("cat /sys/class/net/eth0/mtu") == "4200"
    host.said("ip link delete vnet0")
    host.must("revert")
    assert host.said("cat /sys/class/net/eth0/mtu") == "1500"


def test_the_systemd_of_el10_takes_the_units(host: ChangedHost) -> None:
    """Version 257; tests/host/changes/test_units.py asks 252, which EL9 has."""
    assert host.said("systemctl --version").startswith("systemd 257")
    verify = "systemd-analyze verify --man=no --recursive-errors=no"
    units = "/usr/lib/systemd/system/ovirt-rdma*.service"
    said = host.said(f"{verify} {units} 2>&1 || :")
    # A guest has no opensm.
    assert re.sub(".*: Command /usr/sbin/opensm is not executable: .*", "", said) == ""
    rules = "/usr/lib/udev/rules.d/92-ovirt-rdma.rules"
    assert host.said(f"udevadm verify --no-summary {rules} 2>&1") == ""
