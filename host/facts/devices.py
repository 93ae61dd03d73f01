# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the facts of adapters, virtual functions (SR-IOV), RDMA devices and netdevs,
as plain data.

None in a field means that the value does not exist or is unknown on this host.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class PciLink:
    """The PCIe link of a function (/sys/bus/pci/devices/ADDRESS, drivers/pci/pci.c).

    speed_gts, width: the link as it is, in GT/s for each of ``width`` lanes
    most_speed_gts, most_width: what the adapter can have
    slot_speed_gts, slot_width: what the port above it can have
    None in a field: the kernel does not know (``Unknown``).
    """

    speed_gts: Optional[float] = None
    width: Optional[int] = None
    most_speed_gts: Optional[float] = None
    most_width: Optional[int] = None
    slot_speed_gts: Optional[float] = None
    slot_width: Optional[int] = None


# These reserve a function for a guest, or for a program in user space. From 10.0 on,
# libvirt prefers to vfio-pci its variant for the adapter (mlx5_vfio_pci); each has the
# name of its module (Linux drivers/vfio/pci).
_PASSTHROUGH = re.compile(
    r".*_vfio_pci|vfio-pci|pci-stub|xen-pciback|uio_pci_generic|igb_uio"
)


def is_passthrough(driver: Optional[str]) -> bool:
    """Whether ``driver`` reserves a PCI function for a guest or for user space."""
    return bool(_PASSTHROUGH.fullmatch(driver or ""))


# Of a VF to which none is assigned, as in VfPort.
NO_GUID = "0000:0000:0000:0000"


def mlx4_function(pf: str, number: int) -> str:
    """Return the name that mlx4's folder ``iov`` has for VF ``number`` of the function
    at ``pf`` (get_name() in drivers/infiniband/hw/mlx4/sysfs.c). It looks like the VF's
    PCI address, and on most hosts it is that.
    """
    slave = number + 1
    return f"{pf[:8]}{slave // 8:02d}.{slave % 8}"


@dataclass(frozen=True)
class VfPort:
    """What a PF has set for one port of a VF, by its number from 1.

    ``guid`` as ``0002:c903:00fb:1231``: zeros if none is assigned. ``pkey_indexes``
    (mlx4): where in the port's own P_Key table the VF's first entries are.
    """

    number: int
    guid: Optional[str] = None
    pkey_indexes: tuple[int, ...] = ()


@dataclass(frozen=True)
class VirtualFunction:
    """A VF, as its PF and this host see it.

    number: from 0, as in ``virtfn0`` and ``ip link set ib0 vf 0``
    driver: ``vfio-pci`` or its variant while a virtual machine has it, None if none is
        bound
    netdev: of the VF on this host, None if there is none
    node_guid: that the PF has set (mlx5); zeros if none was assigned
    link_state: ``auto``, ``enable`` or ``disable`` (mlx5)
    ports: of InfiniBand
    """

    number: int
    address: str
    driver: Optional[str] = None
    netdev: Optional[str] = None
    node_guid: Optional[str] = None
    link_state: Optional[str] = None
    ports: tuple[VfPort, ...] = ()

    @property
    def in_virtual_machine(self) -> bool:
        """Whether a virtual machine has it, or will have it when it starts."""
        return is_passthrough(self.driver)


@dataclass(frozen=True)
class PciIdentity:
    """The PCI function behind an RDMA device or a netdev; ids as ``0x15b3``."""

    address: str
    vendor: str
    device: str
    revision: str


@dataclass(frozen=True)
class Adapter:
    """A PCI function that is an RDMA adapter, or could be one.

    Included are functions with an RDMA device, network and InfiniBand controllers of
    vendor 0x15b3 (Mellanox, NVIDIA), the classes InfiniBand (0x0207, 0x0c06) and fabric
    controller (0x0208: Omni-Path), and the ids of :mod:`adapter_models`.

    driver: None if none is bound
    physical_function: the PF of a VF
    vfs, max_vfs: of a PF; None without SR-IOV
    virtual_functions: of a PF, in the order of their numbers
    port_types: mlx4's ``mlx4_portN`` (``ib``, ``eth``, ``auto (eth)``), by port from 1
    port_mtus: mlx4's ``mlx4_portN_mtu`` in bytes (0 for an Ethernet port)
    The last two are empty for other drivers than mlx4.
    pci_link: of PFs with an RDMA device
    auxiliary: the devices that the driver offers to an RDMA module (``ice.roce.0``);
    None if unknown
    """

    pci: PciIdentity
    driver: Optional[str] = None
    physical_function: Optional[str] = None
    vfs: Optional[int] = None
    max_vfs: Optional[int] = None
    virtual_functions: tuple[VirtualFunction, ...] = ()
    port_types: tuple[str, ...] = ()
    port_mtus: tuple[int, ...] = ()
    pci_link: Optional[PciLink] = None
    auxiliary: Optional[tuple[str, ...]] = None


@dataclass(frozen=True)
class Gid:
    """One used entry of a port's GID table.

    ``gid`` is the kernel's text (eight groups of four hex digits), ``type`` is
    ``IB/RoCE v1`` or ``RoCE v2``, ``netdev`` owns the entry. The last two are None if
    the kernel has none; entries of InfiniBand ports have no netdev.
    """

    index: int
    gid: str
    type: Optional[str] = None
    netdev: Optional[str] = None


class Guid(str):
    """A port's GUID as 16 hex digits.

    It is at the end of the 20 bytes of an IPoIB address (RFC 4391 section 9.1.1), and
    of the GIDs of an InfiniBand port.
    """

    @classmethod
    def of_address(cls, address: str) -> Optional[Guid]:
        """Return the GUID in a netdev's address; None if that is not IPoIB's."""
        digits = address.strip().lower().replace(":", "")
        return cls(digits[-16:]) if len(digits) == 40 else None

    @classmethod
    def of_gid(cls, gid: str) -> Guid:
        """Return the GUID in a GID of an InfiniBand port."""
        return cls(gid.lower().replace(":", "")[-16:])

    @property
    def assigned(self) -> bool:
        """Whether it is not 0, as that of all VFs without one is."""
        return bool(self.strip("0"))

    @property
    def in_groups(self) -> str:
        """The form of the kernel: ``0002:c903:00fb:1231``."""
        return ":".join(self[at : at + 4] for at in range(0, 16, 4))

    @property
    def in_bytes(self) -> str:
        """The form of addresses: ``00:02:c9:03:00:fb:12:31``."""
        return ":".join(self[at : at + 2] for at in range(0, 16, 2))


@dataclass(frozen=True)
class PKey:
    """One used entry of a port's P_Key table; ``value`` such as ``0x8001``."""

    index: int
    value: str


# The kinds of a neighbour.
SWITCH, ROUTER, HOST = "switch", "router", "host"


@dataclass(frozen=True)
class Neighbour:
    """The other end of a port's cable, by its own words: they may be anything.

    kind: ``switch``, ``router`` or ``host`` (cabled back to back); None if it does not
        say
    id: on InfiniBand the node GUID, as ``0002:c903:00fb:1230``; on Ethernet the chassis
        id of LLDP, mostly a MAC address
    name: its node description or system name
    port: its port that the cable is in: on InfiniBand a number, on Ethernet the port id
        of LLDP, such as ``Ethernet1/7``
    description: its words for that port (LLDP)
    netdev: the host's own end on Ethernet; a port of a RoCE bond has several cables
    """

    kind: Optional[str]
    id: Optional[str]
    name: Optional[str]
    port: Optional[str]
    description: Optional[str]
    netdev: Optional[str]

    @property
    def port_title(self) -> Optional[str]:
        """The port for people: ``588 (xe-0/0/4)``."""
        if self.description in (None, self.port):
            return self.port
        return f"{self.port} ({self.description})" if self.port else self.description


@dataclass(frozen=True)
class RdmaPort:
    """A port: ``state`` as ``ACTIVE``, ``link_layer`` as ``InfiniBand`` or
    ``Ethernet``.

    ``rate_mbps`` is the kernel's signalling rate in Mb/s, ``data_rate_mbps`` the rate
    after encoding. ``max_mtu`` and ``active_mtu`` are IB MTUs in bytes (256 to 4096;
    OPA 8192, 10240), None if ``ibv_devinfo`` does not show them. ``guid`` as
    ``0002:c903:00fb:1231``. ``lid`` and ``sm_lid`` are 0 if there is none.
    ``default_gid_type`` is the RDMA CM's choice for RoCE (configfs), ``default_tos``
    the type of service of its connections, 0 if nothing shows another. ``neighbours``
    is empty if it is unknown what the port is cabled to.
    """

    number: int
    state: str
    physical_state: str
    link_layer: str
    rate_mbps: Optional[int] = None
    data_rate_mbps: Optional[int] = None
    max_mtu: Optional[int] = None
    active_mtu: Optional[int] = None
    lid: Optional[int] = None
    sm_lid: Optional[int] = None
    guid: Optional[str] = None
    default_gid_type: Optional[str] = None
    default_tos: Optional[int] = None
    pkeys: tuple[PKey, ...] = ()
    gids: tuple[Gid, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether its link is up, and configured by the subnet manager."""
        return self.state == "ACTIVE"

    @property
    def is_infiniband(self) -> bool:
        """Whether its link layer is InfiniBand (or Omni-Path)."""
        return self.link_layer == "InfiniBand"

    @property
    def is_ethernet(self) -> bool:
        """Whether its link layer is Ethernet, of RoCE or iWARP."""
        return self.link_layer == "Ethernet"


SOFT_ROCE = "rdma_rxe"


@dataclass(frozen=True)
class RdmaDevice:
    """An RDMA device (an HCA, on InfiniBand); ``node_type`` as ``CA`` or ``RNIC``.

    ``driver`` is that of the bus device (``mlx5_core``), ``rdma_rxe`` for Soft-RoCE,
    None for other devices without a bus device. ``hw_rev`` as ``a0`` and ``hca_type``
    as ``MT4099`` are the driver's own texts.
    """

    name: str
    node_type: str
    node_guid: str
    driver: Optional[str] = None
    firmware: Optional[str] = None
    pci: Optional[PciIdentity] = None
    hw_rev: Optional[str] = None
    hca_type: Optional[str] = None
    ports: tuple[RdmaPort, ...] = ()

    @property
    def is_iwarp(self) -> bool:
        """Whether it is an iWARP device, whose GIDs begin with a MAC address."""
        return self.node_type == "RNIC"

    @property
    def is_soft_roce(self) -> bool:
        """Whether it is Soft-RoCE, in software on any netdev."""
        return self.driver == SOFT_ROCE


# Netdev types (include/uapi/linux/if_arp.h).
ARPHRD_ETHER = 1
ARPHRD_INFINIBAND = 32
ARPHRD_LOOPBACK = 772


@dataclass(frozen=True)
class Ipoib:
    """The IPoIB settings of a netdev.

    ``mode`` is ``datagram`` or ``connected``. ``pkey`` as ``0x8001``. ``parent`` is
    the netdev below a P_Key child; None for a port's base netdev. ``sysfs``: the netdev
    has the sysfs file ``mode``, which children created with ``ip link`` do not have.
    """

    mode: Optional[str] = None
    pkey: Optional[str] = None
    parent: Optional[str] = None
    sysfs: bool = True


# The names of the kernel, and of ``ethtool -k`` and ``-K``.
TSO_FEATURES = ("tx-tcp-segmentation", "tx-tcp6-segmentation")


@dataclass(frozen=True)
class Offload:
    """One of TSO_FEATURES of a netdev.

    ``fixed``: the driver does not allow a change. ``requested`` is the requested value
    if it differs from ``on``.
    """

    name: str
    on: bool
    fixed: bool = False
    requested: Optional[bool] = None


@dataclass(frozen=True)
class Bond:
    """A bond: ``mode`` as ``active-backup``, ``fail_over_mac`` as ``active``. Its
    members are the netdevs below it.
    """

    mode: str
    active: Optional[str] = None
    fail_over_mac: Optional[str] = None


@dataclass(frozen=True)
class PriorityOf:
    """The priority that ``value`` stands for: a DSCP, or a priority of the kernel."""

    value: int
    priority: int


# Drivers round the size of a buffer to cells of less (mlx5/core/en_dcbnl.c,
# mlx5e_query_port_buffers_cell_size).
CELL = 1024


@dataclass(frozen=True)
class Buffer:
    """A receive buffer of an Ethernet port: its bytes, and the priorities in it."""

    size: int
    priorities: tuple[int, ...] = ()


@dataclass(frozen=True)
class Dcb:
    """The data center bridging of an Ethernet netdev behind RoCE; None means unknown.

    ``pfc_priorities`` are those with priority flow control. ``ecn_priorities`` are
    those with ECN for RoCE, from the driver's sysfs (mlx5 only). ``trust`` is ``dscp``
    or ``pcp``. ``dscp_priorities`` has the entries for a DSCP. ``buffers`` are the
    receive buffers, by number.
    """

    pfc_priorities: Optional[tuple[int, ...]] = None
    ecn_priorities: Optional[tuple[int, ...]] = None
    trust: Optional[str] = None
    pause_rx: Optional[bool] = None
    pause_tx: Optional[bool] = None
    dscp_priorities: Optional[tuple[PriorityOf, ...]] = None
    buffers: Optional[tuple[Buffer, ...]] = None

    def value(self, name: str) -> Optional[str]:
        """Return a setting as text; None if it is unknown.

        ``pause``: ``rx tx``, ``rx``, ``tx`` or ``off``. ``pfc`` and ``dscp-26``:
        priorities as ``3,4``, or ``none``. ``buffers``: ``SIZE:PRIORITIES`` each.
        """
        if name == "pause":
            sides = {"rx": self.pause_rx, "tx": self.pause_tx}
            if None in sides.values():
                return None
            return " ".join(side for side, on in sides.items() if on) or "off"
        if name == "buffers":
            return buffers_text(self.buffers) if self.buffers else None
        priorities, entries = self.pfc_priorities, self.dscp_priorities
        if name != "pfc":
            of = [] if entries is None else entries
            found = (one.priority for one in of if name == f"dscp-{one.value}")
            priorities = None if entries is None else tuple(found)
        if priorities is None:
            return None
        return ",".join(str(one) for one in sorted(priorities)) or "none"


def buffers_text(buffers: Iterable[Buffer]) -> str:
    """Return buffers as text: ``130944:0,1 131072:3``."""
    return " ".join(
        f"{one.size}:{','.join(str(prio) for prio in one.priorities)}"
        for one in buffers
    )


@dataclass(frozen=True)
class Netdev:
    """A netdev.

    type: the ARPHRD number
    mtu: in bytes
    addresses: such as ``10.0.0.1/24``
    uppers, lowers: the netdevs directly above and below
    driver: of the bus device (``mlx5_core``); for a virtual netdev the kind in
        ``ip -d`` (``bond``, ``bridge``, ``vlan``, ``ipoib``)
    rdma_device, rdma_port: of an IPoIB netdev and its P_Key children, or of the
        Ethernet netdev of a RoCE port; None for bonds, bridges and VLANs above them
    arp_ignore: the larger of its own and that of all (net.ipv4.conf); from 1 on only
        the netdev with an IPv4 address answers ARP for it
    egress: of a VLAN: the entries that are not 0 of its map from priorities of the
        kernel to those of its tag; None if unknown

    ``offloads``, ``bond``, ``dcb`` and ``arp_ignore`` are read only for netdevs of RDMA
    ports and above them; otherwise they are empty or None.
    """

    name: str
    type: int
    mtu: int
    address: str
    operstate: str
    driver: Optional[str] = None
    pci: Optional[PciIdentity] = None
    uppers: tuple[str, ...] = ()
    lowers: tuple[str, ...] = ()
    addresses: tuple[str, ...] = ()
    rdma_device: Optional[str] = None
    rdma_port: Optional[int] = None
    carrier: Optional[bool] = None
    ipoib: Optional[Ipoib] = None
    bond: Optional[Bond] = None
    dcb: Optional[Dcb] = None
    offloads: tuple[Offload, ...] = ()
    egress: Optional[tuple[PriorityOf, ...]] = None
    arp_ignore: Optional[int] = None


class NetdevGraph:
    """Which netdevs are stacked on which: bonds, VLANs, bridges, and P_Key children.

    The kernel does not list a child as an upper of its parent.
    """

    def __init__(self, netdevs: Iterable[Netdev]) -> None:
        self._uppers: dict[str, tuple[str, ...]] = {}
        self._lowers: dict[str, tuple[str, ...]] = {}
        self._children: dict[str, tuple[str, ...]] = {}
        for netdev in netdevs:
            self._uppers[netdev.name] = netdev.uppers
            self._lowers[netdev.name] = netdev.lowers
            parent = netdev.ipoib.parent if netdev.ipoib else None
            if parent:
                children = self._children.get(parent, ())
                self._children[parent] = (*children, netdev.name)

    def above(self, *names: str) -> tuple[str, ...]:
        """Return ``names`` and all netdevs stacked on them, P_Key children included."""
        return _reached(names, self._uppers, self._children)

    def carriers(self, name: str) -> tuple[str, ...]:
        """Return ``name`` and the bonds, VLANs and bridges on it."""
        return _reached([name], self._uppers)

    def below(self, name: str) -> tuple[str, ...]:
        """Return ``name`` and all netdevs below it; not the parent of a P_Key child."""
        return _reached([name], self._lowers)


def _reached(
    names: Iterable[str], *links: Mapping[str, tuple[str, ...]]
) -> tuple[str, ...]:
    reached = dict.fromkeys(names)
    waiting = list(reached)
    while waiting:
        name = waiting.pop()
        new = [n for link in links for n in link.get(name, ()) if n not in reached]
        waiting += new
        reached.update(dict.fromkeys(new))
    return tuple(reached)


@dataclass(frozen=True)
class Property:
    """One property of a profile: ``infiniband.transport-mode``, as nmcli prints it."""

    name: str
    value: str


@dataclass(frozen=True)
class Profile:
    """A NetworkManager profile; ``active_on`` is the netdev on which it is active.

    ``type`` as ``infiniband``; ``file`` is its keyfile, None if it is in memory only.
    ``properties`` are those of the sections connection, infiniband, 802-3-ethernet,
    bond and ethtool that have a value.
    """

    name: str
    uuid: str
    type: str
    interface_name: Optional[str] = None
    active_on: Optional[str] = None
    file: Optional[str] = None
    properties: tuple[Property, ...] = ()

    def value(self, name: str) -> Optional[str]:
        """Return the value of a property, or None if it has none."""
        return next((p.value for p in self.properties if p.name == name), None)


@dataclass(frozen=True)
class NetworkManager:
    """NetworkManager on this host: ``managed`` and ``unmanaged`` name netdevs.

    A netdev in neither list is unknown to it. ``profiles`` are those of type
    infiniband, and those that are active on a netdev of an RDMA port or above it.
    ``running`` is None if ``nmcli`` failed: then the rest may lack some.
    """

    running: Optional[bool]
    managed: tuple[str, ...] = ()
    unmanaged: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()


@dataclass(frozen=True)
class OvirtNetwork:
    """A logical network in VDSM's files; ``southbound`` is the NIC, bond or VLAN netdev
    below it, ``mtu`` is in bytes (VDSM's default is 1500). ``ipoib_mode`` is the
    transport mode that it asks for, as the admin wrote it.
    """

    name: str
    southbound: Optional[str] = None
    bridged: bool = False
    vlan: Optional[int] = None
    mtu: Optional[int] = None
    default_route: bool = False
    ipoib_mode: Optional[str] = None


@dataclass(frozen=True)
class NetdevUse:
    """A user of ``netdev``, which would be interrupted if the netdev lost its link.

    ``purpose`` is ``nfs``, ``mount`` (other network storage), ``iscsi``,
    ``srp``, ``nvme``, ``migration``, ``display``, ``management``, ``route``, ``ssh``,
    ``vm``, ``container`` or ``unknown``; ``what`` names the user
    (``10.0.0.1:/data at /rhev/...``). ``netdev`` has the address or session; the
    netdevs below it are in use too. It is the PCI address of an adapter that has no
    netdev in this network namespace, and None if any netdev could be the one.
    """

    netdev: Optional[str]
    purpose: str
    what: str
