# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the facts of a host, as plain data with a schema version.

Facts are read by :mod:`ovirt_rdma.host.collect.collector` and printed by
``ovirt-rdma-host facts -o json``. Every read-only verb accepts them (``--facts FILE``),
so a dump of a user's host can be a test fixture. None in a field means that the value
does not exist or is unknown on this host. Nothing here reads or changes the host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.activity import Activity
from ovirt_rdma.host.facts.devices import (
    Adapter,
    Netdev,
    NetdevUse,
    NetworkManager,
    OvirtNetwork,
    RdmaDevice,
    Tuning,
)


@dataclass(frozen=True)
class ModuleFile:
    """The file that ``modprobe`` loads for a module, below /lib/modules/RELEASE.

    ``path`` is for example ``kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz`` (the kernel's
    own) or ``extra/...``, ``updates/...``, ``weak-updates/...`` (from another source).
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
    ``alias``; ``text`` is the text after the module's name. Lines are in the order in
    which modprobe reads them.
    """

    file: str
    line: int
    command: str
    module: str
    text: str = ""


@dataclass(frozen=True)
class LoadLine:
    """A line by which a module is loaded at boot: of modules-load.d(5), or of
    rdma-core's /etc/rdma/modules/*.conf, which its units load for present hardware.
    """

    file: str
    line: int
    module: str


@dataclass(frozen=True)
class Modules:
    """Kernel modules for RDMA and NFS: loaded or built in, and available for the
    running kernel. ``available`` is None if that is unknown.
    """

    loaded: tuple[str, ...] = ()
    available: Optional[tuple[str, ...]] = None
    files: tuple[ModuleFile, ...] = ()
    parameters: tuple[ModuleParameter, ...] = ()
    modprobe_lines: tuple[ModprobeLine, ...] = ()
    load_lines: tuple[LoadLine, ...] = ()


@dataclass(frozen=True)
class KernelOption:
    """A symbol of the kernel's configuration, without ``CONFIG_``; ``value`` is ``y``,
    ``m``, ``n`` (not set) or a text.
    """

    name: str
    value: str


@dataclass(frozen=True)
class Unit:
    """A systemd unit in ``systemctl show``: ``load`` as ``loaded`` or ``not-found``,
    ``active`` as ``active`` or ``failed``, ``enabled`` as ``enabled``, ``static`` or
    empty.
    """

    name: str
    load: str
    active: str
    enabled: str = ""


@dataclass(frozen=True)
class UdevLine:
    """A udev rule that sets a property of IPoIB netdevs.

    ``text`` is the rule with its continued lines joined.
    """

    file: str
    line: int
    text: str


@dataclass(frozen=True)
class RdmaStack:
    """An RDMA stack of a vendor: ``name`` as ``MLNX_OFED`` or ``DOCA``; ``evidence``
    names the files or commands that show it.
    """

    name: str
    version: Optional[str] = None
    evidence: str = ""


@dataclass(frozen=True)
class OwnFile:
    """An existing configuration file of ours; ``text`` is None if it could not be
    read.
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
    """SELinux, if enabled: enforcing or permissive, and VDSM's running daemons."""

    enforcing: bool
    daemons: tuple[VdsmDaemon, ...] = ()


@dataclass(frozen=True)
class Software:
    """Installed and configured software.

    distribution: ``el9`` (as rpm's dist tag) or ``debian12``, from os-release
    vdsm_version: such as ``4.50.5.1``
    kernel_config: None if there is no configuration of the running kernel
    subnet_manager: the unit of a subnet manager that is running on this host
    own_files: our existing configuration files
    selinux: None if SELinux is disabled
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


# For a text that the kernel did not have or that is invalid; ``Facts.problems`` says
# which.
UNKNOWN = "unknown"

_NO_MODULES = Modules()
_NO_SOFTWARE = Software()


@dataclass(frozen=True)
class Route:
    """How the kernel reaches ``destination``, an IP address.

    ``source`` is the source address it would use. Without a route ``netdev`` is None
    and ``problem`` is the kernel's message.
    """

    destination: str
    netdev: Optional[str] = None
    source: Optional[str] = None
    gateway: Optional[str] = None
    problem: Optional[str] = None


@dataclass(frozen=True)
class NfsMount:
    """An NFS mount as the kernel shows it.

    source: ``server:/path`` with the path normalised
    options: the text in /proc/mounts
    protocol, port: from its ``proto=`` and ``port=``
    address: the server address in use (``addr=``)
    age_s: the whole seconds since it was mounted (``age:`` of mountstats), or None
    protocols: of each connection (``xprt:`` of mountstats); empty without an entry
    there
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
    protocols: tuple[str, ...] = ()


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
    """vdsmd's record that the transport of a mount differs from its rule, and why.

    rule, wanted: the rule's name and its transport (``prefer-rdma``)
    transport: the one in use (``tcp``), or ``unproven`` if the kernel does not show it
    since: when it was mounted, as ``2026-11-21T02:51:34Z``, or None
    mounted_s: the same in seconds after boot, which setting the clock does not change
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
    """All facts of one host.

    host_uuid: the host's id in VDSM, in small letters; None without root privileges
    uptime_s: in seconds, 0.0 if it could not be read
    booted_at: in seconds since 1970, UTC
    cm_ids: None if the ``rdma`` tool failed
    degraded_marks: vdsmd's marks, also of mounts that no longer exist
    network_manager: None if it is not installed
    tuning, activity: None if they were not read
    problems: sentences about what could not be read
    """

    hostname: str
    kernel_release: str
    uptime_s: float
    host_uuid: Optional[str] = None
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
    tuning: Optional[Tuning] = None
    activity: Optional[Activity] = None
    problems: tuple[str, ...] = ()
