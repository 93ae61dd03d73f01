# SPDX-License-Identifier: GPL-2.0-or-later
"""Find out which netdevs are in use, and by what.

Users are NFS mounts, sessions of block storage (iSCSI, iSER, SRP, NVMe over fabrics),
logical networks, migrations, and the engine's connection. VDSM does not keep the roles
of networks on the host. So a migration network is detected only while a VM migrates, by
its TCP connections. A management network that is neither ovirtmgmt nor the default
route is detected only while the engine is connected.

The texts of sessions are those of the kernel's drivers/scsi/scsi_transport_iscsi.c,
libiscsi.c, drivers/infiniband/ulp/srp/ib_srp.c and nvmf_get_address() in
drivers/nvme/host/fabrics.c.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.collect.parsers.sockets import (
    Connection,
    parse_connections,
    plain_address,
)
from ovirt_rdma.host.facts.devices import ARPHRD_LOOPBACK, NetdevUse
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.system.tree import FileTree


class NetdevPaths:
    """Find netdevs by address or remote end; without ``lo``, which has no link."""

    def __init__(self, facts: Facts) -> None:
        self._netdevs = [n for n in facts.netdevs if n.type != ARPHRD_LOOPBACK]
        self.names = {netdev.name for netdev in self._netdevs}
        self._by_address: dict[str, list[str]] = {}
        for netdev in self._netdevs:
            for text in netdev.addresses:
                address = plain_address(text.partition("/")[0])
                self._by_address.setdefault(address, []).append(netdev.name)
        self._routes = {_same(route.destination): route for route in facts.routes}
        # The local ends of RDMA connections, by remote address.
        self._ends: dict[str, set[str]] = {}
        for cm_id in facts.cm_ids or ():
            if cm_id.source and cm_id.destination:
                remote = _address_of(cm_id.destination)
                self._ends.setdefault(remote, set()).add(_address_of(cm_id.source))

    def carrying(self, address: str) -> list[str]:
        """Return the netdevs that have ``address`` (``fe80::1%eth0``: ``eth0``)."""
        scope = address.partition("%")[2]
        if scope in self.names:
            return [scope]
        return self._by_address.get(plain_address(address), [])

    def towards(self, remote: str) -> Optional[list[str]]:
        """Return the netdevs by which ``remote`` is reached; None if unknown.

        An RDMA connection to it shows the local end. Otherwise the route decides, or,
        without a route in the facts, the networks that contain ``remote``.
        """
        scope = remote.partition("%")[2]
        if scope in self.names:
            return [scope]
        ends = () if scope else sorted(self._ends.get(plain_address(remote), ()))
        connected = [name for end in ends for name in self.carrying(end)]
        if connected:
            return list(dict.fromkeys(connected))
        route = self._routes.get(_same(remote))
        if route:
            return [route.netdev] if route.netdev in self.names else []
        return self._on_link(plain_address(remote)) or None

    def _on_link(self, remote: str) -> list[str]:
        """Return the netdevs with the smallest network that contains ``remote``."""
        try:
            address = ipaddress.ip_address(remote)
        except ValueError:
            return []
        if address.is_link_local:
            return []  # in the network of each netdev
        best: dict[str, None] = {}
        longest = 0
        for netdev in self._netdevs:
            for text in netdev.addresses:
                try:
                    network = ipaddress.ip_interface(text).network
                except ValueError:
                    continue
                if address not in network or network.prefixlen < longest:
                    continue
                if network.prefixlen > longest:
                    best, longest = {}, network.prefixlen
                best[netdev.name] = None
        return list(best)


def _same(address: str) -> str:
    """Return an address in its normal form, with its scope: ``fe80::1%3``."""
    plain, percent, scope = address.partition("%")
    return f"{plain_address(plain)}{percent}{scope}"


def _address_of(end: str) -> str:
    """Return the address of ``10.0.0.1:20049`` or ``[fd00::1]:20049``."""
    return plain_address(end.rpartition(":")[0].strip("[]"))


ISCSI_CONNECTIONS = "/sys/class/iscsi_connection"
ISCSI_SESSIONS = "/sys/class/iscsi_session"
ISCSI_HOSTS = "/sys/class/iscsi_host"
SCSI_HOSTS = "/sys/class/scsi_host"
SRP_PORTS = "/sys/class/srp_remote_ports"
NVME = "/sys/class/nvme"

_CONNECTION = re.compile(r"connection([0-9]+):[0-9]+")
_SCSI_HOST = re.compile(r"host[0-9]+")
# Other transports (pcie, fc, loop) use no netdev.
_NVME_TRANSPORTS = ("rdma", "tcp")
_ISER = "iser"


@dataclass(frozen=True)
class StorageSession:
    """A session and its network path, as far as it is known.

    ``purpose`` and ``what`` as in :class:`ovirt_rdma.host.facts.model.NetdevUse`.
    ``netdev`` is the one that the session is bound to; ``local`` and ``remote`` are IP
    addresses; ``rdma_port`` is an RDMA device and its port.
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
    """Return all sessions; one that is being closed may have lost some values."""
    return (
        *_iscsi(tree, problems),
        *_srp(tree, problems),
        *_nvme(tree, problems),
    )


def addresses_to_route(sessions: Iterable[StorageSession]) -> list[str]:
    """Return the remote IP addresses of sessions for which the route is needed."""
    remotes = [s.remote for s in sessions if s.remote and not (s.local or s.rdma_port)]
    return [remote for remote in remotes if _has_route(remote)]


def _iscsi(tree: FileTree, problems: list[str]) -> list[StorageSession]:
    sessions = []
    for name in tree.names(ISCSI_CONNECTIONS):
        match = _CONNECTION.fullmatch(name)
        if not match:
            problems.append(f"{ISCSI_CONNECTIONS} has a connection named {name!a}")
            continue
        folder = f"{ISCSI_CONNECTIONS}/{name}"
        session = f"{ISCSI_SESSIONS}/session{match.group(1)}"
        # A connection that is down has only the persistent address.
        remote = _first(tree, folder, "address", "persistent_address")
        port = _first(tree, folder, "port", "persistent_port")
        target = tree.text(f"{session}/targetname", problems) or f"of {name}"
        host = _scsi_host(tree, session)
        transport = tree.text(f"{SCSI_HOSTS}/{host}/proc_name") if host else None
        over = " over iSER" if transport and _ISER in transport else ""
        sessions.append(
            StorageSession(
                "iscsi",
                f"{target} at {_end(remote, port)}{over}",
                netdev=tree.text(f"{ISCSI_HOSTS}/{host}/netdev") if host else None,
                local=tree.text(f"{ISCSI_HOSTS}/{host}/ipaddress") if host else None,
                remote=remote,
            )
        )
    return sessions


def _scsi_host(tree: FileTree, session: str) -> Optional[str]:
    """Return ``host3`` of .../host3/session1/iscsi_session/session1."""
    place = tree.real_path(session)
    parts = place.parts if place else ()
    return next((part for part in reversed(parts) if _SCSI_HOST.fullmatch(part)), None)


def _srp(tree: FileTree, problems: list[str]) -> list[StorageSession]:
    states = _srp_states(tree)
    sessions = []
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
        sessions.append(
            StorageSession(
                "srp",
                f"target {target} as {host}" + (f", {state}" if state else ""),
                rdma_port=(device, int(port[:9])),
            )
        )
    return sessions


def _srp_states(tree: FileTree) -> dict[str, str]:
    """Return the states of SRP's remote ports, ``port-HOST:N``, by HOST."""
    states = {}
    for name in tree.names(SRP_PORTS):
        state = tree.text(f"{SRP_PORTS}/{name}/state")
        if state:
            states[name.removeprefix("port-").partition(":")[0]] = state
    return states


def _nvme(tree: FileTree, problems: list[str]) -> list[StorageSession]:
    sessions = []
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
        sessions.append(
            StorageSession(
                "nvme",
                f"{subsystem} at {_end(values.get('traddr'), values.get('trsvcid'))}",
                netdev=values.get("host_iface"),
                # NVMe over TCP shows its local end as src_addr since Linux 6.1.
                local=values.get("host_traddr") or values.get("src_addr"),
                remote=values.get("traddr"),
            )
        )
    return sessions


def _has_route(remote: str) -> bool:
    """Whether ``remote`` can have one route: not a name, and not a link-local address
    without scope, which is on each link.
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


SOCKET_TABLES = "/proc/net"

_MANAGEMENT = "ovirtmgmt"
# VDSM's `management_port` (lib/vdsm/common/config.py.in).
_VDSM_PORT = 54321
# libvirtd's ports for TCP and TLS (libvirtd.conf). With VDSM, two libvirtd are
# connected while a VM migrates.
_LIBVIRT_PORTS = frozenset({16509, 16514})
# qemu.conf's migration_port_min and _max. Any program may get one of these ports, so
# they are used only while two libvirtd are connected.
_MIGRATION_PORTS = range(49152, 49216)


def read_netdev_uses(
    tree: FileTree,
    facts: Facts,
    sessions: tuple[StorageSession, ...],
    problems: list[str],
    *,
    connections: bool = True,
) -> tuple[NetdevUse, ...]:
    """Return the uses, sorted by netdev.

    ``facts`` are the other facts of the host, ``sessions`` those of block storage.
    Without ``connections``: those that last, not those of the present TCP connections.
    """
    paths = NetdevPaths(facts)
    uses = {
        *_nfs(facts, paths, problems),
        *_networks(facts, paths),
        *_connections(_established(tree, problems) if connections else [], paths),
    }
    for session in sessions:
        uses.update(_session(session, facts, paths, problems))
    return tuple(sorted(uses, key=lambda use: (use.netdev, use.purpose, use.what)))


def _nfs(facts: Facts, paths: NetdevPaths, problems: list[str]) -> Iterator[NetdevUse]:
    for mount in facts.nfs_mounts:
        if mount.address is None:
            continue
        what = f"{mount.source} at {mount.mountpoint}"
        netdevs = paths.towards(mount.address)
        if netdevs is None:
            problems.append(_unknown("nfs", what))
        for netdev in netdevs or ():
            yield NetdevUse(netdev, "nfs", what)


def _networks(facts: Facts, paths: NetdevPaths) -> Iterator[NetdevUse]:
    for network in facts.ovirt_networks:
        management = network.default_route or network.name == _MANAGEMENT
        if management and network.southbound in paths.names:
            yield NetdevUse(network.southbound, "management", f"network {network.name}")


def _connections(
    connections: list[Connection], paths: NetdevPaths
) -> Iterator[NetdevUse]:
    libvirt = [c for c in connections if _ports(c) & _LIBVIRT_PORTS]
    migrating = {c for c in libvirt if c.local != c.remote}
    if migrating:
        migrating.update(
            c for c in connections if _ports(c).intersection(_MIGRATION_PORTS)
        )
    for connection in migrating:
        for netdev in paths.carrying(connection.local):
            yield NetdevUse(netdev, "migration", f"a VM, with {connection.remote}")
    for connection in connections:
        if connection.local_port == _VDSM_PORT:
            for netdev in paths.carrying(connection.local):
                what = f"VDSM, connected from {connection.remote}"
                yield NetdevUse(netdev, "management", what)


def _ports(connection: Connection) -> set[int]:
    return {connection.local_port, connection.remote_port}


def _established(tree: FileTree, problems: list[str]) -> list[Connection]:
    connections: list[Connection] = []
    for name in ("tcp", "tcp6"):
        path = f"{SOCKET_TABLES}/{name}"
        if name not in tree.names(SOCKET_TABLES):  # no tcp6 without IPv6
            continue
        parsed, invalid = parse_connections(tree.data(path, problems) or b"")
        connections.extend(parsed)
        if invalid:
            problems.append(f"{path} has {invalid} lines that are not connections")
    return connections


def _session(
    session: StorageSession, facts: Facts, paths: NetdevPaths, problems: list[str]
) -> Iterator[NetdevUse]:
    netdevs: list[str] = []
    if session.rdma_port:
        # An InfiniBand port may have no netdev: then none is in use.
        netdevs = [
            netdev.name
            for netdev in facts.netdevs
            if (netdev.rdma_device, netdev.rdma_port) == session.rdma_port
        ]
    elif session.netdev in paths.names:
        netdevs = [session.netdev]
    else:
        if session.local:
            netdevs = paths.carrying(session.local)
        if not netdevs and session.remote:
            netdevs = paths.towards(session.remote) or []
        if not netdevs:
            problems.append(_unknown(session.purpose, session.what))
    for netdev in netdevs:
        yield NetdevUse(netdev, session.purpose, session.what)


def _unknown(purpose: str, what: str) -> str:
    return f"the netdev that {what} ({purpose}) uses is unknown"
