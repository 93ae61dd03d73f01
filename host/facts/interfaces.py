# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what each netdev of a host is, for programs that choose one. Pure.

``ovirt-rdma-host facts --interfaces`` prints it, Ansible gets it as local facts, and
``ovirt-rdma network attach --nic-match`` chooses by it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    ARPHRD_LOOPBACK,
    Guid,
    Netdev,
    NetdevGraph,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.pkeys import vlan_of_pkey
from ovirt_rdma.host.system.json_codec import plain

INFINIBAND, ETHERNET = "InfiniBand", "Ethernet"
_LINK_LAYERS = {ARPHRD_INFINIBAND: INFINIBAND, ARPHRD_ETHER: ETHERNET}

STORAGE = "storage"
# Kinds of netdevs that have others as their ports.
_MASTERS = ("bond", "bridge")
# The roles that a use gives. The host does not know the network for displays.
_ROLES = {
    "nfs": STORAGE,
    "iscsi": STORAGE,
    "srp": STORAGE,
    "nvme": STORAGE,
    "migration": "migration",
    "management": "management",
}


@dataclass(frozen=True)
class Interface:
    """What a netdev is. None: it does not exist, or is unknown.

    link_layer: INFINIBAND or ETHERNET; None for others
    bus_info: the PCI address of the adapter, as ``ethtool -i`` prints it
    device, port: the RDMA port, for IPoIB netdevs, P_Key children and RoCE; not for
        bonds, bridges and VLANs above them
    guid: of the InfiniBand port, or of the RoCE port, as ``0002:c903:00fb:1231``
    parent: the netdev below a P_Key child or a VLAN
    pkey: of an IPoIB netdev, as ``0x8064``
    pkey_vlan: the VLAN for which ``pkey`` stands by convention
    vlan: the tag of a VLAN
    mtu: in bytes
    speed_mbps: the signalling rate of the RDMA port, in Mb/s
    networks: the logical networks on it
    roles: some of ``storage``, ``migration``, ``management``, ``bond``, ``bond-port``,
        ``bridge`` and ``bridge-port``. The first three are those of the netdevs above
        it too. ``migration`` is seen only while a VM migrates.
    """

    name: str
    link_layer: Optional[str] = None
    driver: Optional[str] = None
    bus_info: Optional[str] = None
    device: Optional[str] = None
    port: Optional[int] = None
    guid: Optional[str] = None
    parent: Optional[str] = None
    pkey: Optional[str] = None
    pkey_vlan: Optional[int] = None
    vlan: Optional[int] = None
    mtu: Optional[int] = None
    speed_mbps: Optional[int] = None
    networks: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()


def interfaces_of(facts: Facts) -> tuple[Interface, ...]:
    """Return the netdevs of ``facts`` by name, without ``lo`` and those of VMs."""
    host = _Host(facts)
    return tuple(
        host.interface(netdev)
        for netdev in facts.netdevs
        # A virtual machine's NIC is a tun device here.
        if netdev.type != ARPHRD_LOOPBACK and netdev.driver != "tun"
    )


def content_of(facts: Facts) -> dict[str, object]:
    """Return the content of a document with the interfaces of ``facts``."""
    interfaces = [plain(interface) for interface in interfaces_of(facts)]
    return {"host": facts.hostname, "interfaces": interfaces}


class _Host:
    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._graph = NetdevGraph(facts.netdevs)
        self._drivers = {netdev.name: netdev.driver for netdev in facts.netdevs}
        self._ports = {
            (device.name, port.number): (device, port)
            for device in facts.rdma_devices
            for port in device.ports
        }

    def interface(self, netdev: Netdev) -> Interface:
        place = netdev.rdma_device or "", netdev.rdma_port or 0
        device, port = self._ports.get(place, (None, None))
        pci = netdev.pci or (device.pci if device else None)
        pkey = netdev.ipoib.pkey if netdev.ipoib else None
        on_it = [n for n in self._facts.ovirt_networks if n.southbound == netdev.name]
        return Interface(
            name=netdev.name,
            link_layer=_LINK_LAYERS.get(netdev.type),
            driver=netdev.driver,
            bus_info=pci.address if pci else None,
            device=netdev.rdma_device,
            port=netdev.rdma_port,
            guid=_guid(netdev, port),
            parent=_parent(netdev),
            pkey=pkey,
            pkey_vlan=vlan_of_pkey(pkey) if pkey else None,
            vlan=_vlan(netdev, [n.vlan for n in on_it if n.vlan is not None]),
            mtu=netdev.mtu,
            speed_mbps=port.rate_mbps if port else None,
            networks=tuple(network.name for network in on_it),
            roles=tuple(sorted(self._roles(netdev))),
        )

    def _roles(self, netdev: Netdev) -> set[str]:
        above = set(self._graph.carriers(netdev.name))
        uses = {use.purpose for use in self._facts.netdev_uses if use.netdev in above}
        uppers = {self._drivers.get(upper) for upper in netdev.uppers}
        roles = {role for purpose, role in _ROLES.items() if purpose in uses}
        roles |= {kind for kind in _MASTERS if netdev.driver == kind}
        return roles | {f"{kind}-port" for kind in _MASTERS if kind in uppers}


def _guid(netdev: Netdev, port: Optional[RdmaPort]) -> Optional[str]:
    if netdev.type == ARPHRD_INFINIBAND:
        guid = Guid.of_address(netdev.address)
        return guid.in_groups if guid and guid.assigned else None
    return port.guid if port else None


def _parent(netdev: Netdev) -> Optional[str]:
    if netdev.ipoib:
        return netdev.ipoib.parent
    return netdev.lowers[0] if netdev.driver == "vlan" and netdev.lowers else None


def _vlan(netdev: Netdev, of_networks: list[int]) -> Optional[int]:
    """Return the tag of a VLAN: its network's, or that in its name, ``eth0.100``."""
    if netdev.driver != "vlan":
        return None
    if of_networks:
        return of_networks[0]
    parent, _, tag = netdev.name.rpartition(".")
    return int(tag) if parent in netdev.lowers and tag.isdecimal() else None
