# SPDX-License-Identifier: GPL-2.0-or-later
"""Represent the block storage of a host as data: sessions, LUNs and their users."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.policy.block_fields import Timeout

SRP, ISER = "srp", "iser"
# The states in sysfs of a session that works.
RUNNING, LOGGED_IN = "running", "LOGGED_IN"
# The order in which sysfs has them is of no importance.
_MIB, _GIB = 1 << 20, 1 << 30
TIMEOUTS = ("fast_io_fail_tmo", "dev_loss_tmo", "reconnect_delay")


@dataclass(frozen=True)
class Lun:
    """A LUN as one session sees it, which is one path to it.

    ``device`` is ``sdb``; ``wwid`` is the one that multipath and VDSM use, such as
    ``36001405...``; ``size`` is in bytes, ``state`` that of the SCSI device. ``map`` is
    the multipath map above it. ``not_offered`` is a clause why VDSM does not offer the
    LUN to the engine; None if it does, unless it is a managed volume.
    """

    device: str
    number: int
    wwid: Optional[str] = None
    size: Optional[int] = None
    vendor: str = ""
    model: str = ""
    state: str = "unknown"
    map: Optional[str] = None
    not_offered: Optional[str] = None

    @property
    def shown_size(self) -> str:
        """The size in sentences and tables: ``1 GiB``."""
        if self.size is None:
            return "unknown size"
        if self.size < _GIB:
            return f"{self.size / _MIB:.4g} MiB"
        return f"{self.size / _GIB:.4g} GiB"


@dataclass(frozen=True)
class Session:
    """A login to a target. ``host`` is the number of its SCSI host.

    ``device`` and ``port`` are the local RDMA port of an SRP session. ``id_ext`` and
    ``ioc_guid`` are 16 hex digits; ``dgid`` is 32, and None for RDMA CM: the kernel
    shows no address then. ``iqn``, ``portal``, ``interface`` (the name of open-iscsi's
    record) and ``number`` are for iSER. ``state`` is as in sysfs: ``running``,
    ``blocked``, ``fail-fast`` or ``lost`` for SRP, ``LOGGED_IN``, ``FAILED`` or
    ``FREE`` for iSER.
    ``timeouts`` are in the order of TIMEOUTS.
    """

    protocol: str
    host: int
    state: str
    device: Optional[str] = None
    port: Optional[int] = None
    id_ext: Optional[str] = None
    ioc_guid: Optional[str] = None
    dgid: Optional[str] = None
    iqn: Optional[str] = None
    portal: Optional[str] = None
    interface: Optional[str] = None
    number: Optional[int] = None
    remote_port: Optional[str] = None
    timeouts: tuple[Timeout, ...] = (None, None, None)
    luns: tuple[Lun, ...] = ()

    @property
    def target(self) -> str:
        """The target in sentences and tables."""
        return self.iqn or self.ioc_guid or "unknown"

    @property
    def title(self) -> str:
        """The session in sentences: ``0002c90300fb1230 by mlx4_0/1``."""
        if self.device:
            return f"{self.target} by {self.device}/{self.port}"
        return f"{self.target} at {self.portal}" if self.portal else self.target

    @property
    def is_up(self) -> bool:
        """Whether its LUNs can be used."""
        return self.state in {RUNNING, LOGGED_IN}


@dataclass(frozen=True)
class User:
    """What uses a LUN: ``what`` is a clause such as ``process 812 (qemu-kvm)``."""

    device: str
    what: str

    def __str__(self) -> str:
        """The user with its device."""
        return f"{self.device}: {self.what}"


@dataclass(frozen=True)
class BlockFacts:
    """The block storage over RDMA of a host.

    ``srp_ports`` are the local ports where ib_srp can log in, as in sysfs
    (``srp-mlx4_0-1``); None if the module is not loaded. ``srp_daemon`` is whether that
    program runs. ``problems`` are sentences about what could not be read.
    """

    sessions: tuple[Session, ...] = ()
    srp_ports: Optional[tuple[str, ...]] = None
    srp_daemon: bool = False
    problems: tuple[str, ...] = ()


class BlockProblem(Problem):
    """A login, logout or rescan failed."""


class BlockRefused(Problem):
    """It is refused, because something uses the LUNs; nothing was changed."""

    exit_code = 4
