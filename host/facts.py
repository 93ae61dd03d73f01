# SPDX-License-Identifier: GPL-2.0-or-later
"""What is true of a host, as plain data with a schema version.

Facts are read by :mod:`ovirt_rdma.host.reader`, printed by ``ovirt-rdma-host
facts -o json`` and accepted back by every read-only verb (``--facts FILE``), so
a dump from a user's host is a test fixture. Nothing here touches the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.netdev_facts import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    ARPHRD_LOOPBACK,
    Bond,
    Dcb,
    Ipoib,
    Netdev,
    NetdevUse,
    NetworkManager,
    Offload,
    OvirtNetwork,
    Profile,
    Property,
)
from ovirt_rdma.host.rdma_facts import (
    Adapter,
    Gid,
    PciIdentity,
    PKey,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.software_facts import (
    KernelOption,
    LoadLine,
    ModprobeLine,
    ModuleFile,
    ModuleParameter,
    Modules,
    OwnFile,
    RdmaStack,
    SELinux,
    Software,
    UdevLine,
    Unit,
    VdsmDaemon,
)

__all__ = [
    "ARPHRD_ETHER",
    "ARPHRD_INFINIBAND",
    "ARPHRD_LOOPBACK",
    "SCHEMA_VERSION",
    "UNKNOWN",
    "Adapter",
    "Bond",
    "CmId",
    "Dcb",
    "DegradedMark",
    "Facts",
    "Gid",
    "Ipoib",
    "KernelOption",
    "LoadLine",
    "ModprobeLine",
    "ModuleFile",
    "ModuleParameter",
    "Modules",
    "MountTransport",
    "Netdev",
    "NetdevUse",
    "NetworkManager",
    "NfsMount",
    "Offload",
    "OvirtNetwork",
    "OwnFile",
    "PKey",
    "PciIdentity",
    "Profile",
    "Property",
    "RdmaDevice",
    "RdmaPort",
    "RdmaStack",
    "Route",
    "SELinux",
    "Software",
    "UdevLine",
    "Unit",
    "VdsmDaemon",
]

SCHEMA_VERSION = 1

# Stands for a text that the kernel did not give or that could not be understood;
# ``Facts.problems`` then says which.
UNKNOWN = "unknown"

_NO_MODULES = Modules()
_NO_SOFTWARE = Software()


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
    ``transport`` what the kernel uses (``tcp``), ``unproven`` where it does not tell
    clearly. ``since`` is when it was mounted,
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
    ``network_manager`` is None where it is not installed. ``problems`` are sentences
    about what could not be read.
    """

    hostname: str
    kernel_release: str
    uptime_s: float
    booted_at: Optional[int] = None
    adapters: tuple[Adapter, ...] = ()
    rdma_devices: tuple[RdmaDevice, ...] = ()
    netdevs: tuple[Netdev, ...] = ()
    netdev_uses: tuple[NetdevUse, ...] = ()
    network_manager: Optional[NetworkManager] = None
    ovirt_networks: tuple[OvirtNetwork, ...] = ()
    routes: tuple[Route, ...] = ()
    modules: Modules = _NO_MODULES
    software: Software = _NO_SOFTWARE
    nfs_mounts: tuple[NfsMount, ...] = ()
    cm_ids: Optional[tuple[CmId, ...]] = None
    degraded_marks: tuple[DegradedMark, ...] = ()
    problems: tuple[str, ...] = ()
    schema_version: int = SCHEMA_VERSION
