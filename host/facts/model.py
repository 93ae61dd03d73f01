# SPDX-License-Identifier: GPL-2.0-or-later
"""Facts of a host: release, software, mounts, and all parts together.

Kernel modules and their settings, units, and what else is installed: data.

None in a field that may be None means: not there, or not to be told on this host.

What is true of a host, as plain data with a schema version.

Facts are read by :mod:`ovirt_rdma.host.collect.collector`, printed by ``ovirt-rdma-host
facts -o json`` and accepted back by every read-only verb (``--facts FILE``), so
a dump from a user's host is a test fixture. Nothing here touches the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    ARPHRD_LOOPBACK,
    Adapter,
    Bond,
    Dcb,
    Gid,
    Ipoib,
    Netdev,
    NetdevUse,
    NetworkManager,
    Offload,
    OvirtNetwork,
    PciIdentity,
    PKey,
    Profile,
    Property,
    RdmaDevice,
    RdmaPort,
)


@dataclass(frozen=True)
class ModuleFile:
    """The file that ``modprobe`` would load, below /lib/modules/RELEASE.

    ``path`` as ``kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz`` (the kernel's own) or
    ``extra/...``, ``updates/...``, ``weak-updates/...`` (from another tree).
    """

    name: str
    path: str


@dataclass(frozen=True)
class ModuleParameter:
    """A loaded module's parameter, /sys/module/MODULE/parameters/NAME."""

    module: str
    name: str
    value: str


@dataclass(frozen=True)
class ModprobeLine:
    """A line of modprobe.d(5) about a module that concerns RDMA or NFS.

    ``command`` is ``options``, ``blacklist``, ``install``, ``remove``, ``softdep`` or
    ``alias``; ``text`` is what follows the module's name. Lines are in the order in
    which modprobe reads them.
    """

    file: str
    line: int
    command: str
    module: str
    text: str = ""


@dataclass(frozen=True)
class LoadLine:
    """A line that has a module loaded at boot: modules-load.d(5), or rdma-core's
    /etc/rdma/modules/*.conf, which its units load for the hardware that is there.
    """

    file: str
    line: int
    module: str


@dataclass(frozen=True)
class Modules:
    """Kernel modules that concern RDMA and NFS, loaded (or built in), and available
    for the running kernel. ``available`` is None where that cannot be told.
    """

    loaded: tuple[str, ...] = ()
    available: Optional[tuple[str, ...]] = None
    files: tuple[ModuleFile, ...] = ()
    parameters: tuple[ModuleParameter, ...] = ()
    modprobe_lines: tuple[ModprobeLine, ...] = ()
    load_lines: tuple[LoadLine, ...] = ()


@dataclass(frozen=True)
class KernelOption:
    """A symbol of the kernel's configuration, without ``CONFIG_``; ``value`` is
    ``y``, ``m``, ``n`` (not set) or the text it is set to.
    """

    name: str
    value: str


@dataclass(frozen=True)
class Unit:
    """A systemd unit, as ``systemctl show`` has it: ``load`` as ``loaded`` or
    ``not-found``, ``active`` as ``active`` or ``failed``, ``enabled`` as ``enabled``,
    ``static`` or empty.
    """

    name: str
    load: str
    active: str
    enabled: str = ""


@dataclass(frozen=True)
class UdevLine:
    """A line of a udev rules file that sets something of an IPoIB netdev.

    ``text`` is the rule with continued lines joined.
    """

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class RdmaStack:
    """An RDMA stack that is not the distribution's: ``name`` as ``MLNX_OFED`` or
    ``DOCA``, ``evidence`` says what showed it.
    """

    name: str
    version: Optional[str] = None
    evidence: str = ""


@dataclass(frozen=True)
class OwnFile:
    """A configuration file of ours that is there; ``text`` is None where it could not
    be read.
    """

    path: str
    text: Optional[str] = None


@dataclass(frozen=True)
class VdsmDaemon:
    """A running daemon of VDSM, ``vdsmd`` or ``supervdsmd``, and its SELinux context:
    ``system_u:system_r:virtd_t:s0-s0:c0.c1023``.
    """

    name: str
    pid: int
    context: str


@dataclass(frozen=True)
class SELinux:
    """SELinux where it is on: enforcing or permissive, and VDSM's daemons that run."""

    enforcing: bool
    daemons: tuple[VdsmDaemon, ...] = ()


@dataclass(frozen=True)
class Software:
    """What is installed and configured.

    ``distribution`` as ``el9`` (rpm's dist tag form) or ``debian12``, made from
    os-release. ``vdsm_version`` as ``4.50.5.1``. ``kernel_config`` is None where no
    configuration of the running kernel was found; ``subnet_manager`` names the unit
    of a subnet manager that runs on this host. ``own_files`` are those files of ours
    in modprobe.d and modules-load.d that are there. ``selinux`` is None where that is
    off.
    """

    distribution: Optional[str] = None
    vdsm_version: Optional[str] = None
    rdma_core: Optional[str] = None
    stacks: tuple[RdmaStack, ...] = ()
    kernel_config: Optional[tuple[KernelOption, ...]] = None
    units: tuple[Unit, ...] = ()
    udev_lines: tuple[UdevLine, ...] = ()
    subnet_manager: Optional[str] = None
    own_files: tuple[OwnFile, ...] = ()
    selinux: Optional[SELinux] = None


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
