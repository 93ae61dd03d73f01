# SPDX-License-Identifier: GPL-2.0-or-later
"""The facts overview's tables about netdevs, who owns them and who uses them."""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.cli.facts_section import Section, known, number
from ovirt_rdma.host.facts import Dcb, Facts, Netdev, Profile

_TSO = "tx-tcp-segmentation"


def netdevs(facts: Facts) -> Section:
    """All netdevs."""
    return Section(
        "netdevs",
        ("NETDEV", "STATE", "MTU", "DRIVER", "BELOW IT", "ADDRESSES"),
        [
            (
                netdev.name,
                netdev.operstate,
                str(netdev.mtu),
                netdev.driver,
                known(*netdev.lowers),
                known(*netdev.addresses),
            )
            for netdev in facts.netdevs
        ],
        even_empty=True,
    )


def ipoib(facts: Facts) -> Section:
    """What is IPoIB's own."""
    return Section(
        "IPoIB",
        ("NETDEV", "RDMA PORT", "P_KEY", "CHILD OF", "MODE", "MTU", "TSO", "PROFILE"),
        [
            (
                netdev.name,
                _rdma_port(netdev),
                netdev.ipoib.pkey,
                netdev.ipoib.parent,
                netdev.ipoib.mode,
                str(netdev.mtu),
                _offload(netdev, _TSO),
                _owner(facts, netdev),
            )
            for netdev in facts.netdevs
            if netdev.ipoib
        ],
    )


def _rdma_port(netdev: Netdev) -> Optional[str]:
    return known(netdev.rdma_device, number(netdev.rdma_port), between="/")


def _offload(netdev: Netdev, name: str) -> Optional[str]:
    for offload in netdev.offloads:
        if offload.name == name:
            return ("on" if offload.on else "off") + (
                " [fixed]" if offload.fixed else ""
            )
    return None


def _owner(facts: Facts, netdev: Netdev) -> Optional[str]:
    manager = facts.network_manager
    for profile in manager.profiles if manager else ():
        if profile.active_on == netdev.name:
            return profile.name
    if netdev.owner:
        return netdev.owner
    return "unmanaged" if manager and netdev.name in manager.unmanaged else None


def roce(facts: Facts) -> Section:
    """Flow control of the Ethernet netdevs behind RoCE."""
    gid_types: dict[tuple[Optional[str], Optional[int]], Optional[str]] = {
        (device.name, port.number): port.default_gid_type
        for device in facts.rdma_devices
        for port in device.ports
    }
    return Section(
        "RoCE",
        ("NETDEV", "RDMA PORT", "DEFAULT GID TYPE", "PFC", "ECN", "TRUST", "PAUSE"),
        [
            (
                netdev.name,
                _rdma_port(netdev),
                gid_types.get((netdev.rdma_device, netdev.rdma_port)),
                _priorities(netdev.dcb.pfc_priorities),
                _priorities(netdev.dcb.ecn_priorities),
                netdev.dcb.trust,
                _pause(netdev.dcb),
            )
            for netdev in facts.netdevs
            if netdev.dcb and netdev.rdma_device
        ],
    )


def _priorities(found: Optional[tuple[int, ...]]) -> Optional[str]:
    if found is None:
        return None
    return f"priority {', '.join(map(str, found))}" if found else "off"


def _pause(dcb: Dcb) -> Optional[str]:
    if dcb.pause_rx is None and dcb.pause_tx is None:
        return None
    on = known("rx" if dcb.pause_rx else None, "tx" if dcb.pause_tx else None)
    return on or "off"


def bonds(facts: Facts) -> Section:
    """Bonds."""
    return Section(
        "bonds",
        ("BOND", "MODE", "ACTIVE", "FAIL_OVER_MAC", "MEMBERS"),
        [
            (
                netdev.name,
                netdev.bond.mode,
                netdev.bond.active,
                netdev.bond.fail_over_mac,
                known(*netdev.bond.members),
            )
            for netdev in facts.netdevs
            if netdev.bond
        ],
    )


def profiles(facts: Facts) -> Section:
    """NetworkManager's profiles for InfiniBand and above RDMA ports."""
    manager = facts.network_manager
    return Section(
        "NetworkManager profiles",
        ("PROFILE", "TYPE", "FOR", "ACTIVE ON", "SETTINGS"),
        [
            (
                profile.name,
                profile.type,
                profile.interface_name,
                profile.active_on,
                _settings(profile),
            )
            for profile in (manager.profiles if manager else ())
        ],
    )


def _settings(profile: Profile) -> Optional[str]:
    """Return what is no part of the section connection."""
    return known(
        *(
            f"{p.name} {p.value}"
            for p in profile.properties
            if not p.name.startswith("connection.")
        )
    )


def networks(facts: Facts) -> Section:
    """The engine's logical networks."""
    return Section(
        "oVirt networks",
        ("NETWORK", "ON", "BRIDGE", "VLAN", "MTU", "DEFAULT ROUTE"),
        [
            (
                network.name,
                network.southbound,
                "yes" if network.bridged else "no",
                number(network.vlan),
                number(network.mtu),
                "yes" if network.default_route else None,
            )
            for network in facts.ovirt_networks
        ],
    )


def uses(facts: Facts) -> Section:
    """Who would notice if a netdev lost its link."""
    return Section(
        "who uses netdevs",
        ("NETDEV", "FOR", "WHAT"),
        [(use.netdev, use.purpose, use.what) for use in facts.netdev_uses],
    )


def routes(facts: Facts) -> Section:
    """Routes to storage servers and to what was asked for."""
    return Section(
        "routes",
        ("TO", "NETDEV", "FROM", "GATEWAY"),
        [
            (route.destination, route.netdev or route.problem, route.source,
             route.gateway)
            for route in facts.routes
        ],
    )  # fmt: skip


def mounts(facts: Facts) -> Section:
    """NFS mounts."""
    return Section(
        "NFS mounts",
        ("EXPORT", "MOUNTED AT", "NFS", "PROTOCOL", "TRANSPORTS"),
        [
            (
                mount.source,
                mount.mountpoint,
                mount.version,
                mount.protocol,
                known(*(t.protocol for t in mount.transports), between=" "),
            )
            for mount in facts.nfs_mounts
        ],
        even_empty=True,
    )
