# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``apply`` and ``revert`` with NetworkManager on the fabric.

There are an admin's own profile, netdevs without one, and one that NetworkManager does
not manage.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prepared_host import (
    JOURNAL,
    REQUESTED,
    PreparedHost,
    complaints,
    outcomes,
)

from lab.guest import Guest
from lab.ib_pair import ib_pair
from lab.infiniband import InfiniBand, PciFunction
from lab.network_manager import start_network_manager
from ovirt_rdma.host.facts.infiniband import CONNECTED_MTU, HEADER

# Takes too long for make check, where test_reapply_lab.py has NetworkManager.
pytestmark = pytest.mark.faults

# ConnectX-2. ib1 belongs to the server, and a dummy keeps its name.
FABRIC = InfiniBand(
    hcas=4, pkeys=(0xFFFF, 0x8001), pci=PciFunction(revision=0xB0, driver="mlx4_core")
)
NETDEVS = ("ib0", "ib2", "ib3")
UD_2K, UD_4K = 2048 - HEADER, 4096 - HEADER
FOUND = dict.fromkeys(NETDEVS, ("datagram", UD_4K, "on"))
CONNECTED = ("connected", CONNECTED_MTU, REQUESTED)
PROFILES = "/etc/NetworkManager/system-connections"

POLICY = """
  interfaces:
    - {match: {device: mlx4_0}, transport_mode: connected, mtu: 9000}
    - {match: {device: mlx4_2, pkey: 0x8001}, transport_mode: datagram}
    - {match: {device: mlx4_2}, transport_mode: datagram, mtu: 2044, tso: off,
       pkey_children: [0x8001]}
    - {match: {device: mlx4_3}, transport_mode: connected, mtu: auto}
"""
BECOMES = {
    "ib0": ("connected", 9000, REQUESTED),
    "ib2": ("datagram", UD_2K, "off"),
    "ib2.8001": ("datagram", UD_4K, "on"),
    "ib3": CONNECTED,
}
STEPS = {
    "IPOIB-PROFILE-01/ib2",
    "IPOIB-PKEY-01/ib2.8001",
    "IPOIB-MODE-01/ib0",
    "IPOIB-MODE-01/ib3",
    "IPOIB-MTU-01/ib0",
    "IPOIB-MTU-01/ib2",
    "IPOIB-TSO-02/ib2",
}


@pytest.fixture(scope="module")
def host() -> Iterator[PreparedHost]:
    guest = Guest("hypervisor", systemd=True)
    with ib_pair(FABRIC, guest=guest, network_manager=True):
        start_network_manager(guest, ["ib1", "ib3"])
        guest.run("ip link set ib3 up; ip link add ib1 type dummy", check=True)
        yield PreparedHost(guest, NETDEVS)


def says(host: PreparedHost, profile: str) -> list[str]:
    """Return mode, MTU and TSO of the profile with that name."""
    names = "infiniband.transport-mode,infiniband.mtu,ethtool.feature-tso"
    return host.said(f"nmcli -g {names} connection show id {profile}").split("\n")


def addresses(host: PreparedHost, netdev: str) -> set[str]:
    line = f"ip -br address show dev {netdev} scope global"
    return set(host.said(line).split()[2:])


def test_apply_keeps_what_is_set_and_revert_brings_all_back(host: PreparedHost) -> None:
    host.becomes(FOUND)
    found, kept, had = host.facts(), host.kept(), addresses(host, "ib0")
    host.load_policy(POLICY)
    applied = host.command("apply")
    assert (applied.exit_code, complaints(applied)) == (0, ""), applied
    assert outcomes(applied) == dict.fromkeys(STEPS, "done")
    host.becomes(BECOMES)
    assert says(host, "ib0") == ["connected", "9000"]
    assert says(host, "ib2") == ["datagram", str(UD_2K)]
    assert says(host, "ib2.8001")[0] == "datagram"
    assert addresses(host, "ib0") == had
    journal = host.said(f"md5sum {JOURNAL}")
    assert host.done("apply").startswith("Nothing to do on hypervisor")
    assert host.said(f"md5sum {JOURNAL}") == journal

    # NetworkManager activates each profile again; then as nmstate would change it, if
    # a Reapply is refused (test_reapply_lab.py).
    host.said("for each in ib0 ib2 ib2.8001; do nmcli connection up $each; done")
    host.becomes(BECOMES)
    host.said(
        "nmcli connection modify ib2 connection.id storage infiniband.mtu 1500"
        " ipv4.method manual ipv4.addresses 10.98.0.2/24; nmcli connection up storage"
    )
    host.becomes({**BECOMES, "ib2": ("datagram", 1500, "off")})
    assert says(host, "storage") == ["datagram", "1500"]
    host.said(
        "nmcli connection modify storage connection.id ib2 infiniband.mtu 2044"
        " ipv4.method disabled ipv4.addresses ''; nmcli connection up ib2"
    )

    # Our unit sets it again on a new netdev that NetworkManager does not manage.
    FABRIC.unbind(host.guest, 3)
    FABRIC.bind(host.guest, 3)
    host.becomes(BECOMES)
    unit = "ovirt-rdma-netdev@ib3.service"
    assert "was datagram, is connected" in host.said(f"journalctl -u {unit}")
    host.said("ip link set ib3 up")

    # Changes that need NetworkManager are not forgotten.
    host.said("systemctl stop NetworkManager")
    reverted = host.command("revert")
    assert reverted.exit_code == 1, reverted
    assert "NetworkManager is not running" in reverted.stdout
    assert "systemctl start NetworkManager" in reverted.stdout
    start_network_manager(host.guest, ["ib1", "ib3"])
    reverted = host.command("revert")
    assert (reverted.exit_code, complaints(reverted)) == (0, ""), reverted
    host.becomes(FOUND)
    FABRIC.wait_for_carrier(host.guest, *NETDEVS)
    assert host.kept() == kept
    assert host.facts() == found


def test_a_profile_without_a_mode_is_refused_by_network_manager(
    host: PreparedHost,
) -> None:
    """Return nmstate's profile for VDSM's request on a netdev without our profile."""
    path = f"{PROFILES}/engine.nmconnection"
    text = (
        "[connection]\nid=engine\ntype=infiniband\ninterface-name=ib2\n[infiniband]\n"
    )
    host.guest.run(f"umask 077; cat > {path}", input=text, check=True)
    loaded = host.guest.run(f"nmcli connection load {path}; rm {path}")
    assert "Could not load file" in loaded.stderr
    said = host.said("journalctl -u NetworkManager | grep engine.nmconnection")
    assert "infiniband.transport-mode: property is invalid" in said


def test_what_network_manager_refuses_is_taken_back(host: PreparedHost) -> None:
    found, kept = host.shapes(), host.kept()
    host.load_policy(
        "  interfaces: [{match: {device: mlx4_2}, transport_mode: datagram}]\n"
        "  modules: [nvme_rdma]"
    )
    host.said("mount -o remount,ro /sys")
    try:
        applied = host.command("apply")
    finally:
        host.said("mount -o remount,rw /sys")
    assert applied.exit_code == 6, applied
    assert "the new profile of ib2 cannot be activated" in applied.stdout
    assert "all is as before" in applied.stdout
    assert (host.shapes(), host.kept()) == (found, kept)
