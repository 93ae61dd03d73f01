# SPDX-License-Identifier: GPL-2.0-or-later
"""Who would notice if a netdev lost its link.

NFS, block storage and the engine's networks are known as long as they are there.
VDSM keeps no network's role on the host, so a migration network is seen only while
something migrates over it, by its TCP connections; and the management network, where
the engine calls it neither ovirtmgmt nor the default route, only while the engine is
connected.
"""

from __future__ import annotations

from collections.abc import Iterator

from ovirt_rdma.host.facts import Facts, NetdevUse
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.netdev_paths import NetdevPaths
from ovirt_rdma.host.read_storage_sessions import StorageSession
from ovirt_rdma.host.socket_table import Connection, parse_connections

SOCKET_TABLES = "/proc/net"

_MANAGEMENT = "ovirtmgmt"
# VDSM's `management_port` (lib/vdsm/common/config.py.in).
_VDSM_PORT = 54321
# libvirtd's ports for TCP and TLS (libvirtd.conf): with VDSM, libvirt talks to libvirt
# as long as a VM migrates.
_LIBVIRT_PORTS = frozenset({16509, 16514})
# qemu.conf's migration_port_min and _max; any program may get one of them by chance,
# so they mean something only while libvirt talks to libvirt.
_MIGRATION_PORTS = range(49152, 49216)


def read_netdev_uses(
    tree: FileTree,
    facts: Facts,
    sessions: tuple[StorageSession, ...],
    problems: list[str],
) -> tuple[NetdevUse, ...]:
    """Return the uses, by netdev; ``facts`` is all else that is known of the host, but
    for the ``sessions`` of block storage.
    """
    paths = NetdevPaths(facts)
    found = {
        *_nfs(facts, paths, problems),
        *_networks(facts, paths),
        *_connections(_established(tree, problems), paths),
    }
    for session in sessions:
        found.update(_session(session, facts, paths, problems))
    return tuple(sorted(found, key=lambda use: (use.netdev, use.purpose, use.what)))


def _nfs(facts: Facts, paths: NetdevPaths, problems: list[str]) -> Iterator[NetdevUse]:
    for mount in facts.nfs_mounts:
        if mount.address is None:
            continue
        what = f"{mount.source} at {mount.mountpoint}"
        netdevs = paths.towards(mount.address)
        if netdevs is None:
            problems.append(_not_told("nfs", what))
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
    found: list[Connection] = []
    for name in ("tcp", "tcp6"):
        path = f"{SOCKET_TABLES}/{name}"
        if name not in tree.names(SOCKET_TABLES):  # tcp6 is not, without IPv6
            continue
        connections, odd = parse_connections(tree.data(path, problems) or b"")
        found.extend(connections)
        if odd:
            problems.append(f"{path} has {odd} lines that are no connection")
    return found


def _session(
    session: StorageSession, facts: Facts, paths: NetdevPaths, problems: list[str]
) -> Iterator[NetdevUse]:
    netdevs: list[str] = []
    if session.rdma_port:
        # Only InfiniBand's port can be without a netdev: then there is none to lose.
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
            told = paths.towards(session.remote)
            netdevs = told or []
        if not netdevs:
            problems.append(_not_told(session.purpose, session.what))
    for netdev in netdevs:
        yield NetdevUse(netdev, session.purpose, session.what)


def _not_told(purpose: str, what: str) -> str:
    return f"it cannot be told which netdev {what} ({purpose}) goes over"
