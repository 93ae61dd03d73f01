# SPDX-License-Identifier: GPL-2.0-or-later
"""What is true of a host, as plain data with a schema version.

Facts are read by :mod:`ovirt_rdma.host.reader`, printed by ``ovirt-rdma-host
facts -o json`` and accepted back by every read-only verb (``--facts FILE``), so
a dump from a user's host is a test fixture. Nothing here touches the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

SCHEMA_VERSION = 1

# Stands for a text that the kernel did not give or that could not be understood;
# ``Facts.problems`` then says which.
UNKNOWN = "unknown"

# Netdev types (include/uapi/linux/if_arp.h).
ARPHRD_ETHER = 1
ARPHRD_INFINIBAND = 32
ARPHRD_LOOPBACK = 772


@dataclass(frozen=True)
class PciIdentity:
    """The PCI function behind an RDMA device or a netdev; ids as ``0x15b3``."""

    address: str
    vendor: str
    device: str
    revision: str


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
class RdmaPort:
    """A port: ``state`` as ``ACTIVE``, ``link_layer`` as ``InfiniBand`` or
    ``Ethernet``, ``rate_mbps`` the signalling rate in Mb/s.
    """

    number: int
    state: str
    physical_state: str
    link_layer: str
    rate_mbps: Optional[int] = None
    gids: tuple[Gid, ...] = ()


@dataclass(frozen=True)
class RdmaDevice:
    """An RDMA device (an HCA, on InfiniBand); ``node_type`` as ``CA`` or ``RNIC``.

    ``driver`` is that of the bus device (``mlx5_core``), ``rdma_rxe`` for Soft-RoCE,
    None for other devices without a bus device.
    """

    name: str
    node_type: str
    node_guid: str
    driver: Optional[str] = None
    firmware: Optional[str] = None
    pci: Optional[PciIdentity] = None
    ports: tuple[RdmaPort, ...] = ()


@dataclass(frozen=True)
class Netdev:
    """A netdev; ``type`` is the ARPHRD number, ``mtu`` in bytes, ``addresses``
    as ``10.0.0.1/24``, ``uppers`` and ``lowers`` the directly stacked netdevs.

    ``driver`` is that of the bus device (``mlx5_core``); for a virtual netdev the
    kind that ``ip -d`` shows (``bond``, ``bridge``, ``vlan``, ``ipoib``).
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


@dataclass(frozen=True)
class Route:
    """How the kernel reaches ``destination``, an IP address.

    ``source`` is the source address it would use. ``netdev`` is None, and
    ``problem`` the kernel's own words, where there is no route.
    """

    destination: str
    netdev: Optional[str] = None
    source: Optional[str] = None
    gateway: Optional[str] = None
    problem: Optional[str] = None


@dataclass(frozen=True)
class Modules:
    """Kernel modules that concern RDMA and NFS, loaded (or built in), and available
    for the running kernel. ``available`` is None where that cannot be told.
    """

    loaded: tuple[str, ...] = ()
    available: Optional[tuple[str, ...]] = None


@dataclass(frozen=True)
class MountTransport:
    """One ``xprt:`` line of mountstats: the protocol and its counters, in the
    kernel's order (net/sunrpc/xprtrdma/transport.c, xprtsock.c).
    """

    protocol: str
    counters: tuple[int, ...] = ()


@dataclass(frozen=True)
class NfsMount:
    """An NFS mount as the kernel shows it.

    ``source`` is ``server:/path`` with the path normalised, ``options`` the text
    that /proc/mounts has, ``protocol`` and ``port`` what it says (``proto=``,
    ``port=``), ``address`` the server address in use (``addr=``). From mountstats
    come ``age_s``, the whole seconds since it was mounted (``age:``), and
    ``transports``, one a connection; None and empty where mountstats has no entry
    for the mount point.
    """

    source: str
    mountpoint: str
    fstype: str
    options: str
    version: Optional[str] = None
    protocol: Optional[str] = None
    port: Optional[int] = None
    address: Optional[str] = None
    age_s: Optional[int] = None
    transports: tuple[MountTransport, ...] = ()


@dataclass(frozen=True)
class CmId:
    """An RDMA CM id (``rdma resource show cm_id``).

    ``owner`` is a kernel module in brackets, ``[rpcrdma]``, or a process name;
    addresses as ``10.0.0.1:20049`` or ``[fd00::1]:20049``.
    """

    device: Optional[str]
    state: str
    owner: str
    source: Optional[str] = None
    destination: Optional[str] = None


@dataclass(frozen=True)
class DegradedMark:
    """vdsmd's note that a mount is not what its rule says, and why.

    ``rule`` is the rule's name and ``wanted`` what it said (``prefer-rdma``),
    ``transport`` what the kernel uses (``tcp``). ``since`` is when it was mounted,
    as ``2026-11-21T02:51:34Z``, and ``mounted_s`` the same in seconds after boot,
    which no clock that is set changes; both are None where that is not known.
    """

    mountpoint: str
    export: str
    rule: str
    wanted: str
    transport: str
    reason: str
    fix: str = ""
    since: Optional[str] = None
    mounted_s: Optional[float] = None


@dataclass(frozen=True)
class Facts:
    """Everything read off one host.

    ``uptime_s`` in seconds, 0.0 where it could not be read; ``booted_at`` in seconds
    since 1970, UTC. ``cm_ids`` is None where the ``rdma`` tool could not tell.
    ``degraded_marks`` is what vdsmd has noted, also on mounts that are gone by now.
    ``problems`` are sentences about what could not be read.
    """

    hostname: str
    kernel_release: str
    uptime_s: float
    booted_at: Optional[int] = None
    rdma_devices: tuple[RdmaDevice, ...] = ()
    netdevs: tuple[Netdev, ...] = ()
    routes: tuple[Route, ...] = ()
    modules: Modules = Modules()
    nfs_mounts: tuple[NfsMount, ...] = ()
    cm_ids: Optional[tuple[CmId, ...]] = None
    degraded_marks: tuple[DegradedMark, ...] = ()
    problems: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
