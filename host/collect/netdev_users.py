# SPDX-License-Identifier: GPL-2.0-or-later
"""Find out which netdevs are in use, and by what.

Users are mounts of network file systems, connections of NFS, Gluster and Ceph, sessions
of block storage (iSCSI, iSER, SRP, NVMe over fabrics), logical networks, migrations,
consoles of virtual machines, the engine's connection, the default gateway, the SSH
session that runs this program, and links of containers. Virtual machines follow from
the netdevs (:mod:`ovirt_rdma.host.facts.uses`). VDSM does not keep the roles of
networks on the host. So a migration network is detected only while a VM migrates, by
its TCP connections. A management network that is neither ovirtmgmt nor the default
route is detected only while the engine is connected. A use whose netdev, and a table
that could not be read, are uses of an unknown netdev.

The texts of NVMe's sessions are those of nvmf_get_address() in
drivers/nvme/host/fabrics.c.

Connections are those of /proc/net/tcp and tcp6: get_tcp4_sock() in net/ipv4/tcp_ipv4.c
and get_tcp6_sock().
"""

from __future__ import annotations

import ipaddress
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Optional, Union

from ovirt_rdma.host.collect.storage import (
    ISER,
    MOUNTINFO,
    SRP,
    Session,
    parse_mountinfo,
    read_sessions,
)
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import ARPHRD_LOOPBACK, Guid, NetdevUse
from ovirt_rdma.host.facts.model import Facts, NfsMount
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.system.tree import FileTree


class NetdevPaths:
    """Find netdevs by address or remote end; without ``lo``, which has no link."""

    def __init__(self, facts: Facts) -> None:
        self.netdevs = [n for n in facts.netdevs if n.type != ARPHRD_LOOPBACK]
        self.names = {netdev.name for netdev in self.netdevs}
        self._by_address: dict[str, list[str]] = {}
        for netdev in self.netdevs:
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

        An RDMA connection to it shows the local end. Otherwise the route decides.
        """
        scope = remote.partition("%")[2]
        if scope in self.names:
            return [scope]
        ends = () if scope else sorted(self._ends.get(plain_address(remote), ()))
        connected = [name for end in ends for name in self.carrying(end)]
        if connected:
            return list(dict.fromkeys(connected))
        route = self._routes.get(_same(remote))
        if route is None:
            return None
        # By lo an address of this host is reached, which goes with its netdev.
        return [route.netdev] if route.netdev in self.names else self.carrying(remote)


def _ip(text: str) -> Union[ipaddress.IPv4Address, ipaddress.IPv6Address, None]:
    """Return an IP address without its scope; None for another text."""
    try:
        return ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None


def _same(address: str) -> str:
    """Return an address in its normal form, with its scope: ``fe80::1%3``."""
    plain, percent, scope = address.partition("%")
    return f"{plain_address(plain)}{percent}{scope}"


def _address_of(end: str) -> str:
    """Return the address of ``10.0.0.1:20049`` or ``[fd00::1]:20049``."""
    return plain_address(end.rpartition(":")[0].strip("[]"))


NVME = "/sys/class/nvme"
# Other transports (pcie, fc, loop) use no netdev.
_NVME_TRANSPORTS = ("rdma", "tcp")
_UNKNOWN_ADDRESS = "an unknown address"


@dataclass(frozen=True)
class StorageSession:
    """A session or mount and its network path, as far as it is known.

    ``purpose`` and ``what`` as in :class:`ovirt_rdma.host.facts.devices.NetdevUse`.
    ``netdev`` is the one that the session is bound to; ``local`` and ``remote`` are IP
    addresses; ``rdma_port`` is an RDMA device and its port; ``ports`` are TCP ports of
    servers of its kind.
    """

    purpose: str
    what: str
    netdev: Optional[str] = None
    local: Optional[str] = None
    remote: Optional[str] = None
    rdma_port: Optional[tuple[str, int]] = None
    ports: frozenset[int] = frozenset()


def read_storage_sessions(
    tree: FileTree, nfs: Iterable[NfsMount], problems: list[str]
) -> tuple[StorageSession, ...]:
    """Return all sessions and mounts, with those of ``nfs``; one that is being closed
    may have lost some values.
    """
    return (
        *(
            StorageSession("nfs", f"{m.source} at {m.mountpoint}", remote=m.address)
            for m in nfs
        ),
        *map(_of_session, read_sessions(tree, problems)),
        *_nvme(tree, problems),
        *_mounts(tree, problems),
    )


def addresses_to_route(sessions: Iterable[StorageSession]) -> list[str]:
    """Return the remote IP addresses of sessions for which the route is needed."""
    remotes = [s.remote for s in sessions if s.remote and not (s.local or s.rdma_port)]
    # Not names, and no link-local address without scope: that is on each link.
    return [
        remote
        for remote in remotes
        if (address := _ip(remote)) and ("%" in remote or not address.is_link_local)
    ]


def _of_session(one: Session) -> StorageSession:
    if one.protocol == SRP:
        what = f"target 0x{one.ioc_guid} as host{one.host}, {one.state}"
        return StorageSession("srp", what, rdma_port=(one.device or "", one.port or 0))
    over = " over iSER" if one.protocol == ISER else ""
    what = f"{one.iqn} at {one.portal or _UNKNOWN_ADDRESS}{over}"
    return StorageSession("iscsi", what, one.netdev, one.local, one.remote)


def _nvme(tree: FileTree, problems: list[str]) -> Iterator[StorageSession]:
    for name in tree.names(NVME):
        folder = f"{NVME}/{name}"
        if tree.text(f"{folder}/transport", problems) not in _NVME_TRANSPORTS:
            continue
        text = tree.text(f"{folder}/address", problems) or ""
        # traddr=10.0.0.1,trsvcid=4420,host_traddr=10.0.0.2,host_iface=ib0
        values = dict(part.split("=", 1) for part in text.split(",") if "=" in part)
        remote, port = values.get("traddr"), values.get("trsvcid")
        end = f"[{remote}]" if remote and ":" in remote else remote or _UNKNOWN_ADDRESS
        yield StorageSession(
            "nvme",
            f"{tree.text(f'{folder}/subsysnqn') or name} at {end}"
            + (f":{port}" if remote and port else ""),
            netdev=values.get("host_iface"),
            # NVMe over TCP shows its local end as src_addr since Linux 6.1.
            local=values.get("host_traddr") or values.get("src_addr"),
            remote=remote,
        )


# Monitors, to which each client stays connected: images (RBD) show in no mount.
_CEPH_PORTS = {3300, 6789}
# Network file systems except NFS, with the TCP ports of their servers (those of IANA;
# BeeGFS and Gluster by their manuals). The kernel shows the server's address as addr=
# (fs/smb/client/cifsfs.c) or in the source (fs/ceph/super.c, Lustre's NIDs).
_FILE_SYSTEMS = {
    "9p": {564},
    "afs": set(),
    "beegfs": {8003, 8005, 8008},
    "ceph": _CEPH_PORTS,
    "cifs": {445, 139},
    "fuse.ceph": _CEPH_PORTS,
    "fuse.ceph-fuse": _CEPH_PORTS,
    "fuse.glusterfs": {24007},
    "fuse.sshfs": {22},
    "lustre": {988},
    "smb3": {445, 139},
}
_IPV4 = r"(?<![\w.])(?:[0-9]{1,3}\.){3}[0-9]{1,3}(?![\w.])"
_ADDRESS = re.compile(rf"{_IPV4}|(?<=\[)[0-9a-f:]+(?=\])")


def _mounts(tree: FileTree, problems: list[str]) -> Iterator[StorageSession]:
    """Yield the network mounts, one for each address of their servers."""
    entries, odd = parse_mountinfo(tree.data(MOUNTINFO, problems) or b"")
    problems += odd
    for mount in entries.values():
        options = dict(o.partition("=")[::2] for o in mount.options.split(","))
        # A hypervisor serves 9p to this guest without a network.
        if mount.fstype not in _FILE_SYSTEMS or options.get("trans") == "virtio":
            continue
        texts = (mount.source, options.get("addr", ""), options.get("mon_addr", ""))
        what = f"{mount.source} at {mount.mountpoint}"
        ports = frozenset(_FILE_SYSTEMS[mount.fstype])
        found = {part for text in texts for part in _ADDRESS.findall(text)}
        if _ip(texts[1]):
            found = {texts[1]}
        for remote in sorted(found) or [None]:
            yield StorageSession("mount", what, remote=remote, ports=ports)


SOCKET_TABLES = "/proc/net"
# The programs of Gluster that have data: its clients with self-heal, and its bricks.
_GLUSTER = ("glusterfs", "glusterfsd")
_NFS_PORT = 2049
_NAMESPACES = "/run/netns"
# More network namespaces are not looked at; a service with PrivateNetwork= has one.
_MOST_NAMESPACES = 64
# Routes that are up, and no refusal (include/uapi/linux/route.h).
_UP, _REJECT = 0x1, 0x200
# A session's processes are not nested deeper.
_MOST_PARENTS = 40

_MANAGEMENT = "ovirtmgmt"
# VDSM's `management_port` (lib/vdsm/common/config.py.in).
_VDSM_PORT = 54321
# libvirtd's ports for TCP and TLS (libvirtd.conf). With VDSM, two libvirtd are
# connected while a VM migrates.
_LIBVIRT_PORTS = frozenset({16509, 16514})
# qemu.conf's migration_port_min and _max. Any program may get one of these ports, so
# they are used only while two libvirtd are connected.
_MIGRATION_PORTS = range(49152, 49216)
# VDSM's remote_display_port_min and _max (lib/vdsm/tool/configurators/libvirt.py).
_DISPLAY_PORTS = range(5900, 6924)


def read_netdev_uses(
    tree: FileTree,
    facts: Facts,
    sessions: tuple[StorageSession, ...],
    problems: list[str],
    *,
    tools: Optional[Tools] = None,
    unread: Sequence[str] = (),
) -> tuple[NetdevUse, ...]:
    """Return the uses, sorted by netdev.

    ``facts`` are the other facts of the host, ``sessions`` those of storage.
    With ``tools`` other network namespaces are read. ``unread`` are sentences about
    users that could not be read: they are uses of an unknown netdev.
    """
    paths = NetdevPaths(facts)
    blind = list(unread)
    established = _established(tree, blind)
    uses = {
        *_networks(facts, paths),
        *_other_paths(facts, established, paths),
        *_gluster(tree, established, paths),
        *_connections(established, paths),
        *_default_routes(tree, paths, blind),
        *_ssh(tree, established, paths),
        *_containers(tree, tools, paths, blind),
    }
    for session in sessions:
        uses.update(_session(session, facts, paths, established, problems))
    problems += blind[len(unread) :]
    uses.update(NetdevUse(None, "unknown", sentence) for sentence in blind)
    return tuple(sorted(uses, key=lambda u: (u.netdev or "", u.purpose, u.what)))


def _networks(facts: Facts, paths: NetdevPaths) -> Iterator[NetdevUse]:
    for network in facts.ovirt_networks:
        management = network.default_route or network.name == _MANAGEMENT
        if management and network.southbound in paths.names:
            yield NetdevUse(network.southbound, "management", f"network {network.name}")


def _other_paths(
    facts: Facts, established: list[Connection], paths: NetdevPaths
) -> Iterator[NetdevUse]:
    """Yield the netdevs of connections of NFS with an address that no mount shows: a
    mount keeps its own when a connection moves, or has more (trunking, pNFS), and a
    server has its clients of RDMA.
    """
    shown = {plain_address(mount.address or "") for mount in facts.nfs_mounts}
    for one in established:
        if one.remote_port == _NFS_PORT and one.remote not in shown:
            for netdev in paths.carrying(one.local):
                yield NetdevUse(netdev, "nfs", f"a TCP connection with {one.remote}")
    for cm_id in facts.cm_ids or ():
        remote = _address_of(cm_id.destination or "")
        if cm_id.owner == "[rpcrdma]" and remote and remote not in shown:
            for netdev in paths.carrying(_address_of(cm_id.source or "")):
                yield NetdevUse(netdev, "nfs", f"an RDMA connection with {remote}")


def _connections(
    connections: list[Connection], paths: NetdevPaths
) -> Iterator[NetdevUse]:
    libvirt = [c for c in connections if c.ports & _LIBVIRT_PORTS]
    migrating = {c for c in libvirt if c.local != c.remote}
    if migrating:
        migrating |= {c for c in connections if c.ports.intersection(_MIGRATION_PORTS)}
    for one in connections:
        found = []
        if one in migrating:
            found.append(("migration", f"a VM, with {one.remote}"))
        if one.local_port in _DISPLAY_PORTS:
            found.append(("display", f"a console, with {one.remote}"))
        if one.local_port == _VDSM_PORT:
            found.append(("management", f"VDSM, connected from {one.remote}"))
        if one.ports & _CEPH_PORTS:
            found.append(("mount", f"Ceph, with {one.remote}"))
        for purpose, what in found:
            for netdev in paths.carrying(one.local):
                yield NetdevUse(netdev, purpose, what)


def _gluster(
    tree: FileTree, established: list[Connection], paths: NetdevPaths
) -> Iterator[NetdevUse]:
    """Yield the netdevs of Gluster: a mount shows one server of its volume, which has
    bricks on others. These have ports that any program may get.
    """
    for process in tree.names("/proc"):
        if tree.text(f"/proc/{process}/comm") in _GLUSTER:
            folder = f"/proc/{process}/fd"
            sockets = {tree.link_name(f"{folder}/{n}") for n in tree.names(folder)}
            for one in established:
                if one.socket in sockets:
                    for netdev in paths.carrying(one.local):
                        yield NetdevUse(netdev, "mount", f"Gluster, with {one.remote}")


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


# Of a line of /proc/net/route (fib_route_seq_show(), net/ipv4/fib_trie.c) and of
# ipv6_route (ipv6_route_native_seq_show(), net/ipv6): where netdev, gateway, metric,
# flags, destination and mask or length are, and the base of the metric.
_ROUTES = {
    "route": ((0, 2, 6, 3, 1, 7), 10),
    "ipv6_route": ((9, 4, 5, 8, 0, 1), 16),
}


def _default_routes(
    tree: FileTree, paths: NetdevPaths, blind: list[str]
) -> Iterator[NetdevUse]:
    """Yield the netdevs of the default gateways that the kernel prefers."""
    for name, (places, base) in _ROUTES.items():
        path = f"{SOCKET_TABLES}/{name}"
        data = tree.data(path, blind) if name in tree.names(SOCKET_TABLES) else None
        routes: list[tuple[int, str, str]] = []
        for line in (data or b"").decode("utf-8", "replace").splitlines():
            words = line.split()
            if not words or words[0] == "Iface":
                continue
            try:
                netdev, gateway, metric, flags, *zeros = (words[n] for n in places)
                packed = bytes.fromhex(gateway)
                if len(packed) == 4 and sys.byteorder == "little":
                    packed = packed[::-1]
                route = int(metric, base), netdev, str(ipaddress.ip_address(packed))
                # Up, no refusal, and to everywhere.
                is_up = int(flags, 16) & (_UP | _REJECT) == _UP
                if is_up and not any(int(zero, 16) for zero in zeros):
                    routes.append(route)
            except (ValueError, IndexError):
                blind.append(f"{path} has a line that is no route")
        for metric_of, netdev, gateway in routes:
            if metric_of == min(routes)[0] and netdev in paths.names:
                yield NetdevUse(netdev, "route", f"default gateway {gateway}")


def _ssh(
    tree: FileTree, established: list[Connection], paths: NetdevPaths
) -> Iterator[NetdevUse]:
    """Yield the netdev of the SSH session in which this process runs. sudo removes
    SSH_CONNECTION (ssh(1)), but a parent of ours has it.
    """
    ends = {
        (c.remote, f"{c.remote_port}", c.local, f"{c.local_port}") for c in established
    }
    process = "self"
    for _ in range(_MOST_PARENTS):
        environment = tree.data(f"/proc/{process}/environ") or b""
        for variable in environment.split(b"\0"):
            name, _, value = variable.decode("utf-8", "replace").partition("=")
            remote, remote_port, local, port = (value.split() + 4 * [""])[:4]
            end = plain_address(remote), remote_port, plain_address(local), port
            if name == "SSH_CONNECTION" and end in ends:
                for netdev in paths.carrying(local):
                    yield NetdevUse(netdev, "ssh", f"this session, from {end[0]}")
                return
        status = tree.text(f"/proc/{process}/status") or ""
        parents = re.findall(r"^PPid:\s*([0-9]{1,10})$", status, re.MULTILINE)
        if not parents or parents[0] == "0":
            return
        process = parents[0]


def _containers(
    tree: FileTree, tools: Optional[Tools], paths: NetdevPaths, blind: list[str]
) -> Iterator[NetdevUse]:
    """Yield what other network namespaces have on netdevs of ours, and the netdevs of
    adapters that were moved there. A veth's other end is a netdev of ours, which shows.
    """
    if tools is None:
        return
    known = {tree.link_name("/proc/self/ns/net"), None}
    found = {}
    for process in tree.names("/proc"):
        path = f"/proc/{process}/ns/net"
        space = tree.link_name(path) if process.isdecimal() else None
        if space not in known:
            known.add(space)
            name = tree.text(f"/proc/{process}/comm") or "a process"
            found[path] = f"{name} ({process})"
    for name in tree.names(_NAMESPACES):
        found[f"{_NAMESPACES}/{name}"] = f"the namespace {name}"
    if len(found) > _MOST_NAMESPACES:
        blind.append(f"there are more than {_MOST_NAMESPACES} network namespaces")
    indexes = {tree.text(f"{NET_CLASS}/{name}/ifindex"): name for name in paths.names}
    parents = {
        Guid.of_address(netdev.address): netdev.name
        for netdev in paths.netdevs
        if netdev.ipoib and not netdev.ipoib.parent
    }
    for space, owner in list(found.items())[:_MOST_NAMESPACES]:
        argv = ["nsenter", f"--net={space}", "ip", "-j", "-d", "link", "show"]
        failures: list[str] = []
        rows = tools.rows(argv, failures)
        if rows is None and (tree.link_name(space) or space.startswith(_NAMESPACES)):
            blind += failures  # its process has not just ended
        for row in rows or []:
            info = row.get("linkinfo")
            kind = info.get("info_kind") if isinstance(info, dict) else None
            what = f"{kind or 'netdev'} {row.get('ifname')} of {owner}"
            below = indexes.get(str(row.get("link_index")))
            if below and "link_netnsid" in row and kind != "veth":
                yield NetdevUse(below, "container", what)
            # A P_Key child shows no link_netnsid (ipoib_link_ops has no get_link_net),
            # but has the GUID of its parent.
            parent = parents.get(Guid.of_address(str(row.get("address"))))
            if parent and kind == "ipoib":
                yield NetdevUse(parent, "container", what)
            if row.get("parentbus") == "pci":
                yield NetdevUse(str(row.get("parentdev")), "container", what)


def _session(
    session: StorageSession,
    facts: Facts,
    paths: NetdevPaths,
    established: list[Connection],
    problems: list[str],
) -> Iterator[NetdevUse]:
    netdevs: Optional[list[str]]
    if session.rdma_port:
        # An InfiniBand port may have no netdev: then its adapter is in use.
        netdevs = [
            netdev.name
            for netdev in facts.netdevs
            if (netdev.rdma_device, netdev.rdma_port) == session.rdma_port
        ] or [
            device.pci.address
            for device in facts.rdma_devices
            if device.pci and device.name == session.rdma_port[0]
        ]
    elif session.netdev in paths.names:
        netdevs = [session.netdev]
    else:
        netdevs = paths.carrying(session.local or "") or None
        if netdevs is None and session.remote:
            netdevs = paths.towards(session.remote)
        ends = [c.local for c in established if c.remote_port in session.ports]
        if netdevs is None and ends:
            netdevs = [name for end in ends for name in paths.carrying(end)]
    if netdevs is None:
        what = session.what
        problems.append(f"the netdev that {what} ({session.purpose}) uses is unknown")
        yield NetdevUse(None, session.purpose, f"{what}, by an unknown netdev")
    for name in dict.fromkeys(netdevs or ()):
        yield NetdevUse(name, session.purpose, session.what)


_ESTABLISHED = b"01"  # include/net/tcp_states.h


@dataclass(frozen=True)
class Connection:
    """An established connection; addresses in the form of :func:`plain_address`.

    ``socket`` is what /proc/PID/fd shows of it: ``socket:[1617]``.
    """

    local: str
    local_port: int
    remote: str
    remote_port: int
    socket: str

    @property
    def ports(self) -> set[int]:
        """The ports of both ends."""
        return {self.local_port, self.remote_port}


def parse_connections(data: bytes) -> tuple[tuple[Connection, ...], int]:
    """Return the established connections, and the number of invalid lines."""
    connections = []
    invalid = 0
    for line in data.split(b"\n")[1:]:  # without the headings
        try:
            _, local, remote, state, *rest = line.split()
            if state == _ESTABLISHED:
                socket = f"socket:[{b''.join(rest[5:6]).decode('latin-1')}]"
                connections.append(Connection(*_end(local), *_end(remote), socket))
        except (ValueError, OverflowError):
            invalid += bool(line.strip())
    return tuple(connections), invalid


def _end(text: bytes) -> tuple[str, int]:
    """Read ``0200000A:C000``: 32-bit words in the host's byte order, each printed as
    one number, and the port.
    """
    words, port = text.split(b":")
    numbers = [int(words[place : place + 8], 16) for place in range(0, len(words), 8)]
    packed = b"".join(number.to_bytes(4, sys.byteorder) for number in numbers)
    return plain_address(str(ipaddress.ip_address(packed))), int(port, 16)


def plain_address(text: str) -> str:
    """Return an IP address in a normal form, for comparison.

    IPv4 mapped into IPv6 becomes IPv4, and a scope (``%eth0``) is removed. Other text
    is returned unchanged.
    """
    address = _ip(text)
    return str(getattr(address, "ipv4_mapped", None) or address or text)
