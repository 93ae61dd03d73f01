# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what each netdev of a host is, for programs that choose one, and who uses it.
Pure.

``ovirt-rdma-host facts --interfaces`` prints it, Ansible gets it as local facts, and
``ovirt-rdma network attach --nic-match`` chooses by it.

Who uses a netdev is the one list that plans, runs, reverts, boots, hooks and units ask
before a link goes down. Facts have the uses that the host shows: mounts, storage
sessions, connections, routes. The others follow from the netdevs themselves: virtual
machines and containers on a bridge, virtual functions that virtual machines have, and,
if a netdev is removed, what is built on it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    ARPHRD_LOOPBACK,
    Guid,
    Netdev,
    NetdevGraph,
    NetdevUse,
    VirtualFunction,
)
from ovirt_rdma.host.facts.infiniband import vlan_of_pkey
from ovirt_rdma.host.facts.model import Facts
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
        ipoib, is_vlan = netdev.ipoib, netdev.driver == "vlan"
        parent = (
            ipoib.parent
            if ipoib
            else next(iter(netdev.lowers if is_vlan else ()), None)
        )
        guid = port.guid if port else None
        if netdev.type == ARPHRD_INFINIBAND:
            own = Guid.of_address(netdev.address)
            guid = own.in_groups if own and own.assigned else None
        on_it = [n for n in self._facts.ovirt_networks if n.southbound == netdev.name]
        # The tag of a VLAN: its network's, or that in its name, ``eth0.100``.
        tags = [network.vlan for network in on_it if network.vlan is not None]
        before, _, tag = netdev.name.rpartition(".")
        if before in netdev.lowers and tag.isdecimal():
            tags.append(int(tag))
        return Interface(
            name=netdev.name,
            link_layer=_LINK_LAYERS.get(netdev.type),
            driver=netdev.driver,
            bus_info=pci.address if pci else None,
            device=netdev.rdma_device,
            port=netdev.rdma_port,
            guid=guid,
            parent=parent,
            pkey=ipoib.pkey if ipoib else None,
            pkey_vlan=vlan_of_pkey(ipoib.pkey or "") if ipoib else None,
            vlan=next(iter(tags if is_vlan else ()), None),
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


# Kinds of netdevs (``ip -d``). A tap belongs to a virtual machine, a veth to a
# container; a virtual netdev of unknown kind could be either.
_OF_MACHINES = {"tun": "vm", "veth": "container", None: "unknown"}
_BONDS = ("bond", "team")
_ON_A_NETDEV = {"macvtap": "vm", "ipvtap": "vm"}
# The drivers whose PF keeps its link while VFs are made. i40e and ixgbe reset theirs
# (i40e_pci_sriov_configure, ixgbe_sriov_reinit); of the others it is unknown.
_MLX5 = "mlx5_core"


class NetdevUsers:
    """The users of the netdevs in ``facts``.

    A link that is down for a moment interrupts traffic only. If a netdev is removed,
    although it comes back, bonds, bridges and logical networks on it lose it too. Uses
    of an unknown netdev count for each netdev.
    """

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self._graph = NetdevGraph(facts.netdevs)
        self._netdevs = {netdev.name: netdev for netdev in facts.netdevs}
        self.all = (*facts.netdev_uses, *_machines(self._netdevs))

    def uses(self, *netdevs: str) -> tuple[NetdevUse, ...]:
        """Return the known uses of ``netdevs`` and of all netdevs on them."""
        above = set(self._graph.above(*netdevs))
        return tuple(use for use in self.all if use.netdev in above)

    def carriers(self, name: str) -> tuple[str, ...]:
        """Return ``name`` and the bonds, VLANs and bridges on it."""
        return self._graph.carriers(name)

    def of(self, *netdevs: str, removed: bool = False) -> tuple[str, ...]:
        """Return who is interrupted if the links of ``netdevs`` go down, or if they are
        ``removed``, as text: ``nfs: 10.0.0.1:/data at /rhev/...``.
        """
        uses = [*self.uses(*netdevs), *(use for use in self.all if use.netdev is None)]
        texts = [f"{use.purpose}: {use.what}" for use in uses]
        if removed:
            texts += self._built_on(netdevs)
        return tuple(dict.fromkeys(texts))

    def of_adapter(self, address: str, removed: bool = False) -> tuple[str, ...]:
        """Return the same for all netdevs of the PCI function ``address``: those of all
        its ports and of its virtual functions.
        """
        vfs = self._vfs(address)
        return self._of({address, *(vf.address for vf in vfs)}, vfs, removed)

    def of_vfs(
        self, address: str, numbers: Optional[Collection[int]] = None
    ) -> tuple[str, ...]:
        """Return who is interrupted if the VFs ``numbers`` of ``address``, or all of
        them, lose their drivers or are removed.
        """
        vfs = [v for v in self._vfs(address) if numbers is None or v.number in numbers]
        return self._of({vf.address for vf in vfs}, vfs, removed=True) if vfs else ()

    def _of(
        self, addresses: Collection[str], vfs: Sequence[VirtualFunction], removed: bool
    ) -> tuple[str, ...]:
        users = self.of(*self._of_functions(addresses, vfs), removed=removed)
        guests = (
            f"vm: VF {vf.number} ({vf.address})" for vf in vfs if vf.in_virtual_machine
        )
        return tuple(dict.fromkeys((*users, *guests)))

    def of_new_vfs(self, address: str) -> Optional[tuple[str, ...]]:
        """Return who is interrupted while ``address`` makes VFs; None if its driver is
        known to keep the links up.

        mlx5 keeps them, but replaces the RDMA device of two bonded functions
        (mlx5_eswitch_enable, mlx5_lag_disable_change).
        """
        drivers = [a.driver for a in self.facts.adapters if a.pci.address == address]
        bonded = any(
            upper.driver == "bond"
            for netdev in self._present(self._of_functions({address}, ()))
            for upper in self._present(netdev.uppers)
            if netdev.type == ARPHRD_ETHER
        )
        return self.of_adapter(address) if bonded or drivers != [_MLX5] else None

    def of_port(self, name: str) -> tuple[str, ...]:
        """Return who is interrupted if the Ethernet port of the netdev ``name`` goes
        down: those of its virtual functions too.
        """
        netdev = self._netdevs.get(name)
        address = netdev.pci.address if netdev and netdev.pci else name
        return tuple(dict.fromkeys((*self.of(name), *self.of_adapter(address))))

    def of_mtu(self, name: str) -> tuple[str, ...]:
        """Return who is interrupted if the MTU of the netdev ``name`` changes.

        Ethernet drivers and mlx5's enhanced IPoIB open their queues again. On Ethernet
        that MTU is also the limit of the virtual functions.
        """
        netdev = self._netdevs.get(name)
        if netdev is None or netdev.type == ARPHRD_ETHER:
            return self.of_port(name)
        drivers = {device.name: device.driver for device in self.facts.rdma_devices}
        queues_stay = drivers.get(netdev.rdma_device or "", _MLX5) != _MLX5
        return () if queues_stay else self.of(name)

    def _vfs(self, address: str) -> list[VirtualFunction]:
        adapters = [a for a in self.facts.adapters if a.pci.address == address]
        return [vf for adapter in adapters for vf in adapter.virtual_functions]

    def _of_functions(
        self, addresses: Collection[str], vfs: Iterable[VirtualFunction]
    ) -> list[str]:
        """Return the netdevs of PCI functions, and the functions themselves: one whose
        netdev is in a container is used by its address.
        """
        devices = {
            device.name
            for device in self.facts.rdma_devices
            if device.pci and device.pci.address in addresses
        }
        netdevs = [
            netdev.name
            for netdev in self.facts.netdevs
            if (netdev.pci and netdev.pci.address in addresses)
            or netdev.rdma_device in devices
        ]
        return [*netdevs, *(vf.netdev for vf in vfs if vf.netdev), *addresses]

    def _built_on(self, netdevs: Collection[str]) -> Iterator[str]:
        above = self._graph.above(*netdevs)
        networks = [n for n in self.facts.ovirt_networks if n.southbound in above]
        for network in networks:
            yield f"engine: network {network.name} on {network.southbound}"
        # With a network on it, that says it.
        for netdev in () if networks else self._present(above):
            child = netdev.ipoib is not None and netdev.ipoib.parent is not None
            if netdev.name not in netdevs and not child and netdev.driver != "vlan":
                yield f"{netdev.driver or 'netdev'}: {netdev.name}"

    def _present(self, names: Iterable[str]) -> Iterator[Netdev]:
        return (self._netdevs[name] for name in names if name in self._netdevs)


def _machines(netdevs: dict[str, Netdev]) -> Iterator[NetdevUse]:
    """Yield the ports of virtual machines and containers on bridges and netdevs."""
    for port in netdevs.values():
        if port.driver in _ON_A_NETDEV:
            what = f"{port.name} on {', '.join(port.lowers)}"
            yield NetdevUse(port.name, _ON_A_NETDEV[port.driver], what)
        if port.pci or port.rdma_device or port.driver not in _OF_MACHINES:
            continue
        for upper in port.uppers:
            if upper not in netdevs or netdevs[upper].driver not in _BONDS:
                what = f"{port.name} on {upper}"
                yield NetdevUse(upper, _OF_MACHINES[port.driver], what)
