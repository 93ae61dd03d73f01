# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that our changes on NetworkManager's netdevs never cost the link later.

A changed profile is in use, so NetworkManager accepts a Reapply, which nmstate requests
at each of VDSM's network setups. If it refused one, nmstate would activate the profile
again.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prepared_host import REQUESTED, PreparedHost, outcomes

from lab import modules
from lab.guest import Guest
from lab.infiniband import InfiniBand, PciFunction
from lab.network_manager import (
    add_infiniband_profile,
    start_network_manager,
    wait_for_addresses,
)
from lab.qemu import ALONE
from lab.soft_roce import SoftRoce
from ovirt_rdma.host.facts.infiniband import CONNECTED_MTU, HEADER

pytestmark = pytest.mark.faults

# ConnectX-2, all with a profile of the admin.
FABRIC = InfiniBand(
    hcas=5, pkeys=(0xFFFF, 0x8001), pci=PciFunction(revision=0xB0, driver="mlx4_core")
)
NETDEVS = FABRIC.netdevs
UD_2K, UD_4K = 2048 - HEADER, 4096 - HEADER
NET = "/sys/class/net"

# roce0 is a veth, because QEMU's NICs have no TSO here; eth0 is such a NIC. ib0: live
# changes only. ib1: a mode. ib2: its profile has only the port's GUID. ib3: its profile
# has the offload. ib4: the netdev is as wanted, its profile is not.
POLICY = """
  interfaces:
    - {match: {device: mlx4_0, pkey: 0x8001}, transport_mode: connected, mtu: auto}
    - {match: {device: mlx4_0}, mtu: 2044, tso: off, pkey_children: [0x8001]}
    - {match: {device: mlx4_1}, transport_mode: connected}
    - {match: {device: mlx4_2}, transport_mode: datagram}
    - {match: {device: mlx4_3}, tso: off}
    - {match: {device: mlx4_4}, transport_mode: connected}
    - {match: {device: rxe0}, tso: off}
"""
SHORT_POLICY = """
  interfaces:
    - {match: {device: mlx4_1}, transport_mode: connected}
    - {match: {device: rxe0}, tso: off}
"""
SHORT = {"IPOIB-MODE-01/ib1", "ROCE-TSO-01/roce0"}
LIVE = {
    "IPOIB-PKEY-01/ib0.8001",
    "IPOIB-MTU-01/ib0",
    "IPOIB-TSO-02/ib0",
    "ROCE-TSO-01/roce0",
}
LINK_DOWN = {
    "IPOIB-PROFILE-01/ib2",
    "IPOIB-MODE-01/ib1",
    "IPOIB-MODE-01/ib4",
    "IPOIB-TSO-02/ib3",
}
CONNECTED = ("connected", CONNECTED_MTU, REQUESTED)
FOUND = {
    **dict.fromkeys(NETDEVS[:4], ("datagram", UD_4K, "on")),
    "ib4": CONNECTED,
}
LIVE_BECOMES = {**FOUND, "ib0": ("datagram", UD_2K, "off"), "ib0.8001": CONNECTED}
BECOMES = {**LIVE_BECOMES, "ib1": CONNECTED, "ib3": ("datagram", UD_4K, "off")}


@pytest.fixture(scope="module")
def host() -> Iterator[PreparedHost]:
    with Guest("hypervisor", systemd=True, nics=[ALONE]) as guest:
        modules.load(guest, *SoftRoce.modules[1:], "veth")
        FABRIC.load(guest)
        start_network_manager(guest)
        for number, netdev in enumerate(NETDEVS):
            add_infiniband_profile(guest, netdev, [f"10.97.{number}.2/24"])
        words = "infiniband.mac-address $(cat /sys/class/net/ib2/address)"
        guest.run(
            f"nmcli connection modify ib2 {words} connection.interface-name ''\n"
            "nmcli connection modify ib3 ethtool.feature-tso on\n"
            "for each in ib2 ib3; do nmcli connection up $each; done\n"
            "ip link add roce0 type veth peer name peer0\n"
            "ip link set peer0 up; ip link set roce0 up\n"
            "nmcli device set roce0 managed yes\n"
            "nmcli connection add type ethernet con-name roce0 ifname roce0"
            " ipv4.method manual ipv4.addresses 10.99.0.2/24 ipv6.method disabled\n"
            "nmcli connection up roce0\n"
            "rdma link add rxe0 type rxe netdev roce0",
            check=True,
        )
        for number, netdev in enumerate(NETDEVS):
            wait_for_addresses(guest, netdev, [f"10.97.{number}.2/24"])
        guest.run(f"echo connected > {NET}/ib4/mode", check=True)
        yield PreparedHost(guest, NETDEVS)


def activations(host: PreparedHost) -> dict[str, str]:
    """Return the activation of a profile on each netdev."""
    line = "nmcli -t -f DEVICE,ACTIVE-PATH connection show --active"
    return dict(row.split(":") for row in host.said(line).splitlines())


def refused(host: PreparedHost, netdevs: list[str]) -> dict[str, str]:
    """Request a Reapply of each netdev, and return NetworkManager's refusals."""
    asked = {n: host.guest.run(f"nmcli device reapply {n}") for n in netdevs}
    return {name: one.stderr for name, one in asked.items() if one.exit_code}


def offload(host: PreparedHost) -> str:
    return host.said("ethtool -k roce0 | sed -n 's/^.*tx-tcp-segmentation: //p'")


def test_a_later_setup_costs_no_link(host: PreparedHost) -> None:
    host.becomes(FOUND)
    host.load_policy(SHORT_POLICY)
    kept = host.kept()
    applied = host.command("apply")
    assert applied.exit_code == 0, applied
    assert outcomes(applied) == dict.fromkeys(SHORT, "done")
    host.becomes({**FOUND, "ib1": CONNECTED})
    assert offload(host) == "off"
    now = activations(host)
    assert refused(host, ["ib1", "roce0"]) == {}
    assert activations(host) == now
    host.becomes({**FOUND, "ib1": CONNECTED})
    host.said("ovirt-rdma-host revert")
    host.becomes(FOUND)
    assert offload(host) == "on"
    assert host.kept() == kept


def test_no_kind_of_step_costs_a_link_later(host: PreparedHost) -> None:
    host.becomes(FOUND)
    was_on = offload(host)
    assert was_on == "on"
    host.load_policy(POLICY)
    found, kept, before = host.facts(), host.kept(), activations(host)
    assert refused(host, [*NETDEVS, "roce0"]) == {}

    applied = host.command("apply", "--live-only")
    assert applied.exit_code == 0, applied
    done = {step for step, outcome in outcomes(applied).items() if outcome == "done"}
    assert done == LIVE
    host.becomes(LIVE_BECOMES)
    assert offload(host) == "off"
    now = activations(host)
    assert refused(host, [*now]) == {}
    assert {name: now[name] for name in before} == before
    assert activations(host) == now
    host.becomes(LIVE_BECOMES)

    applied = host.command("apply")
    assert applied.exit_code == 0, applied
    assert outcomes(applied) == dict.fromkeys(LINK_DOWN, "done")
    host.becomes(BECOMES)
    now = activations(host)
    assert refused(host, [*now]) == {}
    assert activations(host) == now
    host.becomes(BECOMES)
    assert host.done("apply").startswith("Nothing to do on hypervisor")

    # As nmstate does for VDSM: a network with an MTU and an address.
    host.said(
        "nmcli connection modify ib0 infiniband.mtu 1500 +ipv4.addresses 10.98.0.2/24"
        "; nmcli device reapply ib0"
    )
    host.becomes({**BECOMES, "ib0": ("datagram", 1500, "off")})
    host.said(
        "nmcli connection modify ib0 infiniband.mtu 2044 -ipv4.addresses 10.98.0.2/24"
        "; nmcli device reapply ib0"
    )
    assert activations(host) == now

    # Profiles that are activated again, and new netdevs, have all values.
    host.said("for each in ib0 ib0.8001 roce0; do nmcli connection up $each; done")
    host.becomes(BECOMES)
    assert offload(host) == "off"
    FABRIC.unbind(host.guest, 0)
    FABRIC.bind(host.guest, 0)
    host.becomes(BECOMES)

    reverted = host.command("revert")
    assert reverted.exit_code == 0, reverted
    host.becomes(FOUND)
    assert offload(host) == was_on
    assert refused(host, [*NETDEVS, "roce0"]) == {}
    for number, netdev in enumerate(NETDEVS):
        wait_for_addresses(host.guest, netdev, [f"10.97.{number}.2/24"])
    assert host.kept() == kept
    assert host.facts() == found


def test_an_rdma_device_that_comes_later_gets_its_type_of_service(
    host: PreparedHost,
) -> None:
    """As mlx5's device for a bond does, which comes after its netdevs."""
    host.load_policy(
        "  interfaces:\n    - {match: {device: rxe0}, roce: {priority: 3}}"
    )
    host.done("apply")
    file = "/sys/kernel/config/rdma_cm/rxe0/ports/1/default_roce_tos"
    assert host.said(f"cat {file}") == "106"
    # udev loaded it before our rules were installed.
    host.said(
        "udevadm control --reload; rdma link delete rxe0; "
        "rmdir /sys/kernel/config/rdma_cm/rxe0; "
        "rdma link add rxe0 type rxe netdev roce0"
    )
    wants = "udevadm info -q property /sys/class/infiniband/rxe0"
    found = host.said(f"until {wants} | grep ^SYSTEMD_WANTS; do sleep 0.2; done")
    assert "ovirt-rdma-netdev@rxe0.service" in found
    host.said(f"until grep -qx 106 {file}; do sleep 0.5; done")
    host.done("revert")
    assert host.said(f"cat {file}") == "0"


def test_a_nic_gets_its_settings_again_before_it_is_an_rdma_device(
    host: PreparedHost,
) -> None:
    # udev loaded it before our rules were installed.
    host.said("modprobe -r virtio_net; modprobe virtio_net")
    wants = "udevadm info -q property /sys/class/net/eth0 | grep ^SYSTEMD_WANTS"
    found = host.said(f"until {wants}; do sleep 0.2; done")
    assert found == "SYSTEMD_WANTS=ovirt-rdma-netdev@eth0.service"
