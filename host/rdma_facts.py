# SPDX-License-Identifier: GPL-2.0-or-later
"""RDMA devices, their ports, and the PCI functions that are or could be one: data.

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
