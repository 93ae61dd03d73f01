# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts of netdevs and RDMA devices.

RDMA devices, their ports, and the PCI functions that are or could be one: data.

None in a field that may be None means: not there, or not to be told on this host.

Netdevs, what is built on them, who owns their settings and who uses them: data.

None in a field that may be None means: not there, or not to be told on this host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


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

    Listed are functions with an RDMA device, all of vendor 0x15b3 (Mellanox, NVIDIA)
    that are network or InfiniBand controllers, and all of the classes InfiniBand
    (0x0207, 0x0c06) and fabric controller (0x0208: Omni-Path). ``class_code`` as
    ``0x020700``; ``driver`` is None where none is bound. ``physical_function`` is a
    VF's PF; ``vfs`` and ``max_vfs`` are a PF's, None where it has no SR-IOV.
    ``port_types`` are mlx4's ``mlx4_portN`` (``ib``, ``eth``, ``auto (eth)``) and
    ``port_mtus`` its ``mlx4_portN_mtu`` in bytes (0 for an Ethernet port), by port
    from 1; empty elsewhere.
    """

    pci: PciIdentity
    class_code: str
    driver: Optional[str] = None
    numa_node: Optional[int] = None
    physical_function: Optional[str] = None
    vfs: Optional[int] = None
    max_vfs: Optional[int] = None
    port_types: tuple[str, ...] = ()
    port_mtus: tuple[int, ...] = ()


@dataclass(frozen=True)
class Gid:
    """One used entry of a port's GID table.

    ``gid`` is the kernel's text (eight groups of four hex digits), ``type`` is
    ``IB/RoCE v1`` or ``RoCE v2``, ``netdev`` the netdev that owns the entry;
    the last two are None where the kernel gives none (an InfiniBand port's entries
    have no netdev).
    """

    index: int
    gid: str
    type: Optional[str] = None
    netdev: Optional[str] = None


@dataclass(frozen=True)
class PKey:
    """One used entry of a port's P_Key table; ``value`` as ``0x8001``, bit 15 says
    full member.
    """

    index: int
    value: str


@dataclass(frozen=True)
class RdmaPort:
    """A port: ``state`` as ``ACTIVE``, ``link_layer`` as ``InfiniBand`` or
    ``Ethernet``.

    ``rate_mbps`` is the signalling rate in Mb/s (the kernel's), ``data_rate_mbps``
    what is left after encoding. ``max_mtu`` and ``active_mtu`` are IB MTUs in bytes
    (256 to 4096; OPA 8192, 10240), None where ``ibv_devinfo`` cannot tell.
    ``guid`` as ``0002:c903:00fb:1231``; ``lid`` and ``sm_lid`` are 0 where there is
    none. ``default_gid_type`` is the RDMA CM's choice for RoCE (configfs).
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
    pkeys: tuple[PKey, ...] = ()
    gids: tuple[Gid, ...] = ()


@dataclass(frozen=True)
class RdmaDevice:
    """An RDMA device (an HCA, on InfiniBand); ``node_type`` as ``CA`` or ``RNIC``.

    ``driver`` is that of the bus device (``mlx5_core``), ``rdma_rxe`` for Soft-RoCE,
    None for other devices without a bus device. ``hw_rev`` as ``a0``, ``hca_type``
    as ``MT4099``, ``board_id`` (PSID) as ``MT_1090120019``: the driver's own texts.
    """

    name: str
    node_type: str
    node_guid: str
    driver: Optional[str] = None
    firmware: Optional[str] = None
    pci: Optional[PciIdentity] = None
    hw_rev: Optional[str] = None
    hca_type: Optional[str] = None
    board_id: Optional[str] = None
    numa_node: Optional[int] = None
    ports: tuple[RdmaPort, ...] = ()


# Netdev types (include/uapi/linux/if_arp.h).
ARPHRD_ETHER = 1
ARPHRD_INFINIBAND = 32
ARPHRD_LOOPBACK = 772


@dataclass(frozen=True)
class Ipoib:
    """What is IPoIB's own of a netdev.

    ``mode`` is ``datagram`` or ``connected``. ``pkey`` as ``0x8001``. ``parent`` is
    the netdev that a P_Key child was made on; None for a port's base interface.
    ``umcast`` says whether user multicast is on. ``sysfs`` says whether the netdev
    has sysfs files ``mode`` and ``umcast``: children made by ``ip link`` have not.
    """

    mode: Optional[str] = None
    pkey: Optional[str] = None
    parent: Optional[str] = None
    umcast: Optional[bool] = None
    sysfs: bool = True


@dataclass(frozen=True)
class Offload:
    """A feature as ``ethtool -k`` shows it, by the kernel's name (``rx-gro``), which
    ``ethtool -K`` takes too.

    ``fixed`` is its ``[fixed]``: the driver does not let it be changed.
    ``requested`` is what was asked for where that differs from ``on``.
    """

    name: str
    on: bool
    fixed: bool = False
    requested: Optional[bool] = None


@dataclass(frozen=True)
class Bond:
    """A bond: ``mode`` as ``active-backup``, ``fail_over_mac`` as ``active``."""

    mode: str
    active: Optional[str] = None
    fail_over_mac: Optional[str] = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True)
class Dcb:
    """What ``dcb`` tells of an Ethernet netdev behind RoCE.

    ``pfc_priorities`` are those with priority flow control on. ``ecn_priorities``
    those with ECN of RoCE on, as the driver's sysfs tells (mlx5 only). ``trust`` as
    ``dscp`` or ``pcp``. None: not to be told.
    """

    pfc_priorities: Optional[tuple[int, ...]] = None
    ecn_priorities: Optional[tuple[int, ...]] = None
    trust: Optional[str] = None
    pause_rx: Optional[bool] = None
    pause_tx: Optional[bool] = None


@dataclass(frozen=True)
class Netdev:
    """A netdev; ``type`` is the ARPHRD number, ``mtu`` in bytes, ``addresses``
    as ``10.0.0.1/24``, ``uppers`` and ``lowers`` the directly stacked netdevs.

    ``driver`` is that of the bus device (``mlx5_core``); for a virtual netdev the
    kind that ``ip -d`` shows (``bond``, ``bridge``, ``vlan``, ``ipoib``).
    ``rdma_device`` and ``rdma_port`` are those that the netdev itself belongs to: an
    IPoIB netdev and its P_Key children, or the Ethernet netdev of a RoCE port; not
    bonds, bridges and VLANs above.
    ``owner`` is the service that sets it up, ``NetworkManager``, ``systemd-networkd``
    or ``ifupdown``; None where none of them does.
    ``offloads``, ``ipoib``, ``bond``, ``dcb`` and ``owner`` are read for netdevs of
    RDMA ports and what is stacked on them, and are empty or None elsewhere.
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
    owner: Optional[str] = None
    ipoib: Optional[Ipoib] = None
    bond: Optional[Bond] = None
    dcb: Optional[Dcb] = None
    offloads: tuple[Offload, ...] = ()


@dataclass(frozen=True)
class Property:
    """One property of a profile: ``infiniband.transport-mode``, as nmcli prints it."""

    name: str
    value: str


@dataclass(frozen=True)
class Profile:
    """A NetworkManager profile; ``active_on`` is the netdev on which it is active.

    ``type`` as ``infiniband``; ``file`` is where NetworkManager keeps it, None where
    it is in memory only. ``properties`` are those of the sections connection,
    infiniband, 802-3-ethernet, bond and ethtool that have a value.
    """

    name: str
    uuid: str
    type: str
    interface_name: Optional[str] = None
    active_on: Optional[str] = None
    file: Optional[str] = None
    properties: tuple[Property, ...] = ()

    def value(self, name: str) -> Optional[str]:
        """Return the value of a property, or None where it has none."""
        return next((p.value for p in self.properties if p.name == name), None)


@dataclass(frozen=True)
class NetworkManager:
    """NetworkManager on this host: ``managed`` and ``unmanaged`` name netdevs.

    A netdev in neither list is unknown to it. ``profiles`` are those of type
    infiniband, and of any type where active on a netdev of an RDMA port or above it.
    """

    running: bool
    version: Optional[str] = None
    managed: tuple[str, ...] = ()
    unmanaged: tuple[str, ...] = ()
    profiles: tuple[Profile, ...] = ()


@dataclass(frozen=True)
class OvirtNetwork:
    """A logical network as VDSM keeps it; ``southbound`` is the NIC, bond or VLAN
    netdev below it, ``mtu`` in bytes (VDSM's default is 1500).
    """

    name: str
    southbound: Optional[str] = None
    bridged: bool = False
    vlan: Optional[int] = None
    mtu: Optional[int] = None
    default_route: bool = False


@dataclass(frozen=True)
class NetdevUse:
    """Somebody who would notice if ``netdev`` lost its link.

    ``purpose`` is ``nfs``, ``iscsi``, ``srp``, ``nvme``, ``migration`` or
    ``management``; ``what`` names it (``10.0.0.1:/data at /rhev/...``). ``netdev``
    is the one that carries the address or session: those below it are used too.
    """

    netdev: str
    purpose: str
    what: str
