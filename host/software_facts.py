# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernel modules and their settings, units, and what else is installed: data.

None in a field that may be None means: not there, or not to be told on this host.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


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
