# SPDX-License-Identifier: GPL-2.0-or-later
"""Netdevs, what is built on them, who owns their settings and who uses them: data.

None in a field that may be None means: not there, or not to be told on this host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.rdma_facts import PciIdentity

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
