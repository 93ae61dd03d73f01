# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the sessions of SRP and iSCSI in sysfs.

SRP: drivers/infiniband/ulp/srp/ib_srp.c and drivers/scsi/scsi_transport_srp.c; iSCSI,
with iSER: libiscsi.c and scsi_transport_iscsi.c in drivers/scsi. Nothing waits for a
target that does not respond. open-iscsi has one connection a session.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.system.numbers import whole
from ovirt_rdma.host.system.tree import FileTree

SRP, ISER, ISCSI = "srp", "iser", "iscsi"
# The states in sysfs of a session that works.
RUNNING, LOGGED_IN = "running", "LOGGED_IN"
# The timeouts of an SRP session, and the word for one that is off.
TIMEOUTS = ("fast_io_fail_tmo", "dev_loss_tmo", "reconnect_delay")
_OFF = "off"

SRP_PORTS = "/sys/class/srp_remote_ports"
SCSI_HOSTS = "/sys/class/scsi_host"
_ISCSI_SESSIONS = "/sys/class/iscsi_session"
_ISCSI_CONNECTIONS = "/sys/class/iscsi_connection"
_ISCSI_HOSTS = "/sys/class/iscsi_host"
_HOST = re.compile(r"host([0-9]+)")

_MIB, _GIB = 1 << 20, 1 << 30


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
    shows no address then. ``remote_port`` is SRP's in sysfs, and ``timeouts`` (seconds
    or ``off``) are in the order of TIMEOUTS.

    ``iqn``, ``portal``, ``interface`` (the name of open-iscsi's record) and ``number``
    are for iSCSI and iSER; ``netdev`` is the one that the session is bound to,
    ``local`` and ``remote`` are the addresses of its connection.

    ``state`` is as in sysfs: ``running``, ``blocked``, ``fail-fast`` or ``lost`` for
    SRP, ``LOGGED_IN``, ``FAILED`` or ``FREE`` for iSCSI.
    """

    protocol: str
    host: Optional[int]
    state: str
    device: Optional[str] = None
    port: Optional[int] = None
    id_ext: Optional[str] = None
    ioc_guid: Optional[str] = None
    dgid: Optional[str] = None
    remote_port: Optional[str] = None
    timeouts: tuple[Union[int, str, None], ...] = (None, None, None)
    iqn: Optional[str] = None
    portal: Optional[str] = None
    interface: Optional[str] = None
    number: Optional[int] = None
    netdev: Optional[str] = None
    local: Optional[str] = None
    remote: Optional[str] = None
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


def read_sessions(tree: FileTree, problems: list[str]) -> tuple[Session, ...]:
    """Return all sessions, without their LUNs. One that is being removed is a sentence
    in ``problems``, and left out if it cannot be said what it is.
    """
    return (*_srp(tree, problems), *_iscsi(tree, problems))


def _srp(tree: FileTree, problems: list[str]) -> Iterator[Session]:
    # port-HOST:N
    remote_ports = {
        name.removeprefix("port-").partition(":")[0]: name
        for name in tree.names(SRP_PORTS)
    }
    for name in tree.names(SCSI_HOSTS):
        folder, host = f"{SCSI_HOSTS}/{name}", _HOST.fullmatch(name)
        if "local_ib_device" not in tree.names(folder) or host is None:
            continue
        device, port, id_ext, ioc_guid = (
            tree.text(f"{folder}/{key}", problems)
            for key in ("local_ib_device", "local_ib_port", "id_ext", "ioc_guid")
        )
        if device is None or port is None or id_ext is None or ioc_guid is None:
            continue
        number = whole(port)
        if number is None:
            problems.append(f"{folder}/local_ib_port reads {port!a}, not a number")
            continue
        dgid = tree.text(f"{folder}/dgid")
        remote = remote_ports.get(host[1])
        texts = [
            tree.text(f"{SRP_PORTS}/{remote}/{key}") if remote else None
            for key in ("state", *TIMEOUTS)
        ]
        yield Session(
            SRP,
            int(host[1]),
            texts[0] or "unknown",
            device=device,
            port=number,
            id_ext=id_ext.removeprefix("0x"),
            ioc_guid=ioc_guid.removeprefix("0x"),
            dgid=dgid.replace(":", "") if dgid else None,
            remote_port=remote,
            timeouts=tuple(
                _OFF if text == _OFF else whole(text or "") for text in texts[1:]
            ),
        )


def _iscsi(tree: FileTree, problems: list[str]) -> Iterator[Session]:
    for name in tree.names(_ISCSI_SESSIONS):
        folder, number = f"{_ISCSI_SESSIONS}/{name}", name.removeprefix("session")
        # .../host3/session1/iscsi_session/session1
        place = tree.real_path(folder)
        hosts = [
            part for part in (place.parts if place else ()) if _HOST.fullmatch(part)
        ]
        host = hosts[-1] if hosts else ""
        transport = tree.text(f"{SCSI_HOSTS}/{host}/proc_name") if host else None
        connection = f"{_ISCSI_CONNECTIONS}/connection{number}:0"
        address = tree.text(f"{connection}/persistent_address")
        port = tree.text(f"{connection}/persistent_port")
        shown = f"[{address}]" if address and ":" in address else address
        yield Session(
            ISER if transport and ISER in transport else ISCSI,
            whole(host.removeprefix("host")),
            tree.text(f"{folder}/state") or "unknown",
            iqn=tree.text(f"{folder}/targetname", problems) or f"of {name}",
            portal=f"{shown}:{port}" if address and port else shown,
            interface=tree.text(f"{folder}/ifacename"),
            number=whole(number),
            netdev=tree.text(f"{_ISCSI_HOSTS}/{host}/netdev") if host else None,
            local=tree.text(f"{_ISCSI_HOSTS}/{host}/ipaddress") if host else None,
            # A connection that is down has only the persistent address.
            remote=tree.text(f"{connection}/address") or address,
        )
