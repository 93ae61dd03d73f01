# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the facts of a host, as plain data with a schema version, and their JSON form.

Activity is what rules look at of two samples of counters. A dump of facts must stay
small on a host with thousands of mounts, so it has some numbers for each NFS mount over
RDMA, and the error counters of ports that are not 0. Values are totals; ``new_...`` and
``grown`` are their growth between the samples.
:func:`ovirt_rdma.host.facts.statistics.activity_between` makes it.

Facts are read by :mod:`ovirt_rdma.host.collect.collector` and printed by
``ovirt-rdma-host facts -o json``. Every read-only verb accepts them (``--facts FILE``),
so a dump of a user's host can be a test fixture. None in a field means that the value
does not exist or is unknown on this host. Nothing here reads or changes the host. A
dump that this version does not understand completely is refused, with the place of the
first mistake.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.facts.devices import (
    Adapter,
    Netdev,
    NetdevUse,
    NetworkManager,
    OvirtNetwork,
    RdmaDevice,
)
from ovirt_rdma.host.system.json_codec import (
    Envelope,
    Records,
    UnreadableJson,
    WrongRecord,
    WrongVersion,
    plain,
    read_json,
)
from ovirt_rdma.host.system.text import whole

# drivers/infiniband, net/sunrpc, fs and drivers/nvme in Linux 6.12, and the drivers
# below them that have module options; i40iw is irdma's predecessor.
_RDMA_CORE = "ib_core ib_cm iw_cm rdma_cm ib_uverbs rdma_ucm ib_umad"
_INFINIBAND = "mlx4_core mlx4_ib mlx4_en mlx5_core mlx5_ib ib_mthca ib_qib hfi1 rdmavt"
_ROCE_AND_IWARP = "bnxt_re irdma i40iw iw_cxgb4 ocrdma qedr hns_roce hns_roce_hw_v2"
_OTHER_ADAPTERS = "usnic_verbs vmw_pvrdma efa erdma mana_ib rdma_rxe siw"
_IP_AND_NFS = "ib_ipoib sunrpc rpcrdma lockd nfs nfsv3 nfsv4 nfsd"
_BLOCK = "ib_srp ib_srpt ib_iser ib_isert nvme_rdma nvmet_rdma"
CONCERNED = frozenset(
    f"{_RDMA_CORE} {_INFINIBAND} {_ROCE_AND_IWARP} {_OTHER_ADAPTERS} {_IP_AND_NFS} "
    f"{_BLOCK}".split()
)

# rpcrdma is client and server of NFS/RDMA. Their old names, and one for IPv6, are its
# aliases (net/sunrpc/xprtrdma/module.c).
ALIASES = dict.fromkeys(("xprtrdma", "svcrdma", "rpcrdma6"), "rpcrdma")


def module_name(name: str) -> str:
    """Return the kernel's name of a module: ``rdma_cm`` for ``rdma-cm``, ``rpcrdma``
    for ``svcrdma``.
    """
    plain = name.replace("-", "_")
    return ALIASES.get(plain, plain)


@dataclass(frozen=True)
class Requests:
    """Requests of a kind between the samples: their number, and sums of the time until
    they were sent and until their replies.
    """

    count: int = 0
    queue_ms: int = 0
    rtt_ms: int = 0


@dataclass(frozen=True)
class MountActivity:
    """An NFS mount over RDMA, all its connections and operations together.

    operations, retransmissions: requests, and how many were sent again
    reads, writes: READ and READ_PLUS, WRITE requests
    server_read, server_written: bytes by the file system's own count, or None
    copies, cancelled_copies: COPY and OFFLOAD_CANCEL requests of NFS 4.2
    connects, sends, backlog: of the connections; backlog is a sum, see bklog_u in
    statistics
    layout: the pNFS layout in use, whose reads and writes are not counted here
    connections: how many there are
    still: connections over which nothing was sent or received between the samples
    unanswered: connections that sent at least ten requests between the samples,
    and got no reply, although others did
    """

    mountpoint: str
    operations: int = 0
    retransmissions: int = 0
    reads: int = 0
    writes: int = 0
    server_read: Optional[int] = None
    server_written: Optional[int] = None
    copies: int = 0
    cancelled_copies: int = 0
    connects: int = 0
    sends: int = 0
    backlog: int = 0
    connections: int = 0
    new_operations: int = 0
    new_retransmissions: int = 0
    new_reads: Requests = Requests()
    new_writes: Requests = Requests()
    new_connects: int = 0
    new_sends: int = 0
    new_backlog: int = 0
    still: int = 0
    unanswered: int = 0
    layout: Optional[str] = None


@dataclass(frozen=True)
class ConnectionActivity:
    """A connection over RDMA in the kernel's sysfs; see SunrpcTransport of statistics.

    name: ``switch-3/xprt-5-rdma``
    waits: requests wait in this host in both samples, though none is under way that
    could end
    """

    name: str
    destination: Optional[str] = None
    state: tuple[str, ...] = ()
    slots_max: Optional[int] = None
    waits: bool = False

    @property
    def connected(self) -> bool:
        """Whether the kernel says so."""
        return "CONNECTED" in self.state


@dataclass(frozen=True)
class PortError:
    """An error counter that is not 0, and its growth."""

    name: str
    value: int
    grown: int = 0


@dataclass(frozen=True)
class PortActivity:
    """A port of an RDMA device: received packets (None if unknown), and errors.

    read: whether the device has any of the error counters, and answered
    """

    device: str
    port: int
    read: bool = False
    packets: Optional[int] = None
    new_packets: int = 0
    errors: tuple[PortError, ...] = ()


@dataclass(frozen=True)
class Activity:
    """What happened in ``seconds``, and before since each mount or device exists.

    connections: those over RDMA in the kernel's sysfs; None if it shows none
    """

    seconds: float
    mounts: tuple[MountActivity, ...] = ()
    connections: Optional[tuple[ConnectionActivity, ...]] = None
    ports: tuple[PortActivity, ...] = ()


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

    ``command`` is ``options``, ``blacklist`` or ``install``; ``text`` is the text after
    the module's name. Lines are in the order in which modprobe reads them.
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


# While a unit starts, systemd calls it activating.
RUNNING = ("active", "activating", "reloading")


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


# A udev rule's assignment, not a match (==, !=), of the transport mode: the prefix for
# escapes, and the value.
SETS_MODE = r'ATTR\{mode\}\s*[:+]?=\s*(e?)"([^"]*)"'


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


# opensm in EL and Debian, opensm in MLNX_OFED, and Omni-Path's fabric manager.
SUBNET_MANAGERS = ("opensm.service", "opensmd.service", "opafm.service")


@dataclass(frozen=True)
class Software:
    """Installed and configured software.

    distribution: ``el9`` (as rpm's dist tag) or ``debian12``, from os-release
    vdsm_version: such as ``4.50.5.1``
    kernel_config: None if there is no configuration of the running kernel
    own_files: our existing configuration files
    """

    distribution: Optional[str] = None
    vdsm_version: Optional[str] = None
    rdma_core: Optional[str] = None
    stacks: tuple[RdmaStack, ...] = ()
    kernel_config: Optional[tuple[KernelOption, ...]] = None
    units: tuple[Unit, ...] = ()
    udev_lines: tuple[UdevLine, ...] = ()
    own_files: tuple[OwnFile, ...] = ()

    @property
    def subnet_manager(self) -> Optional[str]:
        """The unit of the subnet manager that is running on this host."""
        running = (unit.name for unit in self.units if unit.active == "active")
        return next((name for name in running if name in SUBNET_MANAGERS), None)


# For a text that the kernel did not have or that is invalid; ``Facts.problems`` says
# which.
UNKNOWN = "unknown"


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
    server_program: what an NFS 4.1 server says that it is (``impl_id:`` of mountstats),
        ``NetApp Release 9.9.1P3 (netapp.com)``; most servers say nothing
    """

    source: str
    mountpoint: str
    options: str
    version: Optional[str] = None
    protocol: Optional[str] = None
    port: Optional[int] = None
    address: Optional[str] = None
    age_s: Optional[int] = None
    protocols: tuple[str, ...] = ()
    server_program: Optional[str] = None


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
class NfsExport:
    """A folder that this host's NFS server exports to ``client``, and its file system.

    path: as clients write it; folder: where it is here (``rootdir`` of nfs.conf)
    options: all of them, defaults too, as in /var/lib/nfs/etab
    uid, gid, mode: the folder's owner, and its permissions
    free, size, free_files: of the file system, in bytes and files; size 0: no limit
    problem: why the folder cannot be looked at

    None is unknown.
    """

    path: str
    folder: str
    client: str
    options: str
    uid: Optional[int] = None
    gid: Optional[int] = None
    mode: Optional[int] = None
    read_only: Optional[bool] = None
    free: Optional[int] = None
    size: Optional[int] = None
    free_files: Optional[int] = None
    problem: Optional[str] = None


@dataclass(frozen=True)
class NfsServer:
    """The kernel's NFS server on this host, from /proc/fs/nfsd; None is unknown.

    threads: 0 if it is stopped
    listeners: ``rdma 20049``, ``tcp 2049``, each once
    versions: those offered, ``3``, ``4.0``, ``4.1``, ``4.2``
    clients: the NFS 4 clients
    queued, woken: how often a connection had requests, and a thread was idle then
    max_requests: requests at once over an RDMA connection (svc_rdma/max_requests)
    max_block_size: the largest read or write, in bytes
    configured: the folders in exports(5), exported or not
    """

    threads: Optional[int] = None
    listeners: Optional[tuple[str, ...]] = None
    versions: Optional[tuple[str, ...]] = None
    clients: Optional[int] = None
    queued: Optional[int] = None
    woken: Optional[int] = None
    max_requests: Optional[int] = None
    max_block_size: Optional[int] = None
    exports: Optional[tuple[NfsExport, ...]] = None
    configured: tuple[str, ...] = ()

    @property
    def rdma_ports(self) -> tuple[int, ...]:
        """The ports on which it listens over RDMA."""
        words = (listener.partition(" ") for listener in self.listeners or ())
        ports = (whole(port) for name, _, port in words if name == "rdma")
        return tuple(port for port in ports if port is not None)


@dataclass(frozen=True)
class Facts:
    """All facts of one host.

    host_uuid: the host's id in VDSM, in small letters; None without root privileges
    uptime_s: in seconds, 0.0 if it could not be read
    booted_at: in seconds since 1970, UTC
    cm_ids: None if the ``rdma`` tool failed
    degraded_marks: vdsmd's marks, also of mounts that no longer exist
    network_manager: None if it is not installed
    rdma_slots: requests under way for each connection over RDMA, for connections to
    come (/proc/sys/sunrpc/rdma_slot_table_entries); None until rpcrdma is loaded
    activity: None if it was not read
    nfs_server: None if this host has no NFS server
    problems: sentences about what could not be read
    """

    hostname: str = UNKNOWN
    kernel_release: str = UNKNOWN
    uptime_s: float = 0.0
    host_uuid: Optional[str] = None
    booted_at: Optional[int] = None
    adapters: tuple[Adapter, ...] = ()
    rdma_devices: tuple[RdmaDevice, ...] = ()
    netdevs: tuple[Netdev, ...] = ()
    netdev_uses: tuple[NetdevUse, ...] = ()
    network_manager: Optional[NetworkManager] = None
    ovirt_networks: tuple[OvirtNetwork, ...] = ()
    routes: tuple[Route, ...] = ()
    modules: Modules = Modules()
    software: Software = Software()
    nfs_mounts: tuple[NfsMount, ...] = ()
    cm_ids: Optional[tuple[CmId, ...]] = None
    degraded_marks: tuple[DegradedMark, ...] = ()
    rdma_slots: Optional[int] = None
    activity: Optional[Activity] = None
    nfs_server: Optional[NfsServer] = None
    problems: tuple[str, ...] = ()


_MAKE = "ovirt-rdma-host facts -o json"
_FIX = f"regenerate it on the host it describes: {_MAKE}"
FACTS = Envelope("facts", 2)


class FactsProblem(Problem):
    """The file or data is not a facts dump of this schema version."""


def to_json_dict(facts: Facts) -> dict[str, Any]:
    """Return facts as dicts, lists, strings, numbers and None, keys in field order,
    after ``schema_version`` and ``kind``.
    """
    return FACTS.around(plain(facts))


def to_json(facts: Facts) -> str:
    """Return facts as JSON text that ends in a newline.

    Pure ASCII: bytes of the kernel that are not UTF-8 become ``\\udcXX`` escapes, which
    are read back as the same bytes.
    """
    return FACTS.text(plain(facts))


def from_json_dict(data: object, where: str) -> Facts:
    """Return the facts in ``data``, a result of :func:`to_json_dict`.

    ``where`` names the source in errors. Raises FactsProblem with the key path of the
    mistake: another schema version, a missing or unknown key, a value of the wrong
    type, or an end of a route that is not an IP address.
    """
    try:
        content = FACTS.content(data)
        return Records("the facts", _check).read(Facts, content)
    except WrongVersion as wrong:
        raise FactsProblem(
            "facts-file-version",
            f"{where}: {wrong}",
            f"{_FIX} (with the version of ovirt-rdma that reads it)",
        ) from None
    except WrongRecord as wrong:
        raise FactsProblem("facts-file-invalid", f"{where}: {wrong}", _FIX) from None


def load(path: Union[str, Path]) -> Facts:
    """Return the facts in a JSON file.

    Raises FactsProblem if it cannot be read, is not JSON (with line and column) or is
    not a facts dump.
    """
    where = f"facts file {path}"
    try:
        data = read_json(path)
    except UnreadableJson as error:
        fix = _FIX if error.is_file else f"give the name of a file made with: {_MAKE}"
        raise FactsProblem("facts-file-unreadable", f"{where}: {error}", fix) from None
    return from_json_dict(data, where)


def _check(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    """Check what decisions need besides types: the ends of a route are IP addresses.
    Other addresses are the kernel's text.
    """
    for key in ("destination", "source") if cls is Route else ():
        try:
            ipaddress.ip_address("::" if values[key] is None else values[key])
        except ValueError:
            return key, f"is {values[key]!a}, not an IP address"
    return "", ""
