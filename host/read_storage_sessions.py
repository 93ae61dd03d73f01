# SPDX-License-Identifier: GPL-2.0-or-later
"""Sessions of block storage over a network: iSCSI and iSER, SRP, NVMe over fabrics.

The texts are those of the kernel's drivers/scsi/scsi_transport_iscsi.c, libiscsi.c,
drivers/infiniband/ulp/srp/ib_srp.c and nvmf_get_address() in
drivers/nvme/host/fabrics.c.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.file_tree import FileTree

ISCSI_CONNECTIONS = "/sys/class/iscsi_connection"
ISCSI_SESSIONS = "/sys/class/iscsi_session"
ISCSI_HOSTS = "/sys/class/iscsi_host"
SCSI_HOSTS = "/sys/class/scsi_host"
SRP_PORTS = "/sys/class/srp_remote_ports"
NVME = "/sys/class/nvme"

_CONNECTION = re.compile(r"connection([0-9]+):[0-9]+")
_SCSI_HOST = re.compile(r"host[0-9]+")
# Others (pcie, fc, loop) use no netdev.
_NVME_TRANSPORTS = ("rdma", "tcp")
_ISER = "iser"


@dataclass(frozen=True)
class StorageSession:
    """A session, and what is known of its way; ``purpose`` and ``what`` as in
    :class:`ovirt_rdma.host.facts.NetdevUse`.

    ``netdev`` is one that it is bound to, ``local`` and ``remote`` are IP addresses,
    ``rdma_port`` an RDMA device and its port.
    """

    purpose: str
    what: str
    netdev: Optional[str] = None
    local: Optional[str] = None
    remote: Optional[str] = None
    rdma_port: Optional[tuple[str, int]] = None


def read_storage_sessions(
    tree: FileTree, problems: list[str]
) -> tuple[StorageSession, ...]:
    """Return all sessions; one that is being taken down may lack what it had."""
    return (
        *_iscsi(tree, problems),
        *_srp(tree, problems),
        *_nvme(tree, problems),
    )


def unknown_ways(sessions: Iterable[StorageSession]) -> list[str]:
    """Return the IP addresses to which only the route tells the way."""
    remotes = [s.remote for s in sessions if s.remote and not (s.local or s.rdma_port)]
    return [remote for remote in remotes if _has_route(remote)]


def _iscsi(tree: FileTree, problems: list[str]) -> list[StorageSession]:
    found = []
    for name in tree.names(ISCSI_CONNECTIONS):
        match = _CONNECTION.fullmatch(name)
        if not match:
            problems.append(f"{ISCSI_CONNECTIONS} has a connection named {name!a}")
            continue
        folder = f"{ISCSI_CONNECTIONS}/{name}"
        session = f"{ISCSI_SESSIONS}/session{match.group(1)}"
        # A connection that is down has only what it was asked to connect to.
        remote = _first(tree, folder, "address", "persistent_address")
        port = _first(tree, folder, "port", "persistent_port")
        target = tree.text(f"{session}/targetname", problems) or f"of {name}"
        host = _scsi_host(tree, session)
        transport = tree.text(f"{SCSI_HOSTS}/{host}/proc_name") if host else None
        over = " over iSER" if transport and _ISER in transport else ""
        found.append(
            StorageSession(
                "iscsi",
                f"{target} at {_end(remote, port)}{over}",
                netdev=tree.text(f"{ISCSI_HOSTS}/{host}/netdev") if host else None,
                local=tree.text(f"{ISCSI_HOSTS}/{host}/ipaddress") if host else None,
                remote=remote,
            )
        )
    return found


def _scsi_host(tree: FileTree, session: str) -> Optional[str]:
    """Return ``host3`` of .../host3/session1/iscsi_session/session1."""
    place = tree.real_path(session)
    parts = place.parts if place else ()
    return next((part for part in reversed(parts) if _SCSI_HOST.fullmatch(part)), None)


def _srp(tree: FileTree, problems: list[str]) -> list[StorageSession]:
    states = _srp_states(tree)
    found = []
    for host in tree.names(SCSI_HOSTS):
        folder = f"{SCSI_HOSTS}/{host}"
        if "local_ib_device" not in tree.names(folder):
            continue
        device = tree.text(f"{folder}/local_ib_device", problems)
        port = tree.text(f"{folder}/local_ib_port", problems)
        if device is None or port is None:
            continue
        if not (port.isascii() and port.isdecimal()):
            problems.append(f"{folder}/local_ib_port reads {port!a}, not a number")
            continue
        target = tree.text(f"{folder}/ioc_guid") or "of unknown GUID"
        state = states.get(host.removeprefix("host"))
        found.append(
            StorageSession(
                "srp",
                f"target {target} as {host}" + (f", {state}" if state else ""),
                rdma_port=(device, int(port[:9])),
            )
        )
    return found


def _srp_states(tree: FileTree) -> dict[str, str]:
    """Return the states of SRP's remote ports, ``port-HOST:N``, by HOST."""
    states = {}
    for name in tree.names(SRP_PORTS):
        state = tree.text(f"{SRP_PORTS}/{name}/state")
        if state:
            states[name.removeprefix("port-").partition(":")[0]] = state
    return states


def _nvme(tree: FileTree, problems: list[str]) -> list[StorageSession]:
    found = []
    for name in tree.names(NVME):
        folder = f"{NVME}/{name}"
        if tree.text(f"{folder}/transport", problems) not in _NVME_TRANSPORTS:
            continue
        text = tree.text(f"{folder}/address", problems)
        subsystem = tree.text(f"{folder}/subsysnqn") or name
        # traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.2,host_iface=ib0
        values = dict(
            part.split("=", 1) for part in (text or "").split(",") if "=" in part
        )
        found.append(
            StorageSession(
                "nvme",
                f"{subsystem} at {_end(values.get('traddr'), values.get('trsvcid'))}",
                netdev=values.get("host_iface"),
                # NVMe over TCP has its own end as src_addr since Linux 6.1.
                local=values.get("host_traddr") or values.get("src_addr"),
                remote=values.get("traddr"),
            )
        )
    return found


def _has_route(remote: str) -> bool:
    """Whether one route leads there: not to a name, and a link-local address is on
    each link.
    """
    plain, _, scope = remote.partition("%")
    try:
        address = ipaddress.ip_address(plain)
    except ValueError:
        return False
    return bool(scope) or not address.is_link_local


def _first(tree: FileTree, folder: str, *names: str) -> Optional[str]:
    texts = (tree.text(f"{folder}/{name}") for name in names)
    return next((text for text in texts if text), None)


def _end(address: Optional[str], port: Optional[str]) -> str:
    if address is None:
        return "an unknown address"
    address = f"[{address}]" if ":" in address else address
    return f"{address}:{port}" if port else address
