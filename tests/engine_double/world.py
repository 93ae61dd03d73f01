# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the state of the double's engine and hosts: plain data that tests may change.

The handlers work on it; this module does not use HTTP. The fields of networks are here,
their rules in networks.py and setup_networks.py.
"""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Optional, Protocol, TypeVar

from engine_double import behaviours
from engine_double.behaviours import Behaviour
from engine_double.event_log import EventLog
from engine_double.hosts_of_the_world import SimHost
from engine_double.transitions import Transitions


class _HasName(Protocol):
    name: str


_Named = TypeVar("_Named", bound=_HasName)


def new_id(name: str = "") -> str:
    """A UUID; the same for the same name, so that failures can be read."""
    if not name:
        return str(uuid.uuid4())
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


@dataclass
class SimDataCenter:
    """``status`` as the API says it: uninitialized, up, maintenance, ..."""

    id: str
    name: str
    status: str = "up"
    version: str = "4.7"


@dataclass
class SimCluster:
    """``features`` are the ids of the enabled additional features.

    ``networks``: a row for each logical network in it, by the network's id.
    ``upgrade_in_progress``: its hosts are being upgraded one after another, by the
    program that named ``upgrade_correlation_id``.
    """

    id: str
    name: str
    data_center: str
    version: str = "4.7"
    upgrade_in_progress: bool = False
    upgrade_correlation_id: Optional[str] = None
    features: set[str] = field(default_factory=set)
    networks: dict[str, SimClusterNetwork] = field(default_factory=dict)


@dataclass
class SimClusterNetwork:
    """How a cluster uses a network; ``usages`` are the API's words."""

    network: str
    required: bool = False
    usages: set[str] = field(default_factory=set)
    # Whether all hosts that are up have it; only then a host must have it.
    operational: bool = True


@dataclass
class SimNetwork:
    """``mtu`` 0 is the default, 1500."""

    id: str
    name: str
    data_center: str
    vm: bool = True
    mtu: int = 0
    vlan: Optional[int] = None
    description: str = ""
    comment: str = ""


@dataclass
class SimConnection:
    """A row of storage_server_connections; ``nfs_version`` is the API's word."""

    id: str
    type: str = "nfs"
    address: str = ""
    path: str = ""
    nfs_version: Optional[str] = None
    nfs_timeo: Optional[int] = None
    nfs_retrans: Optional[int] = None
    mount_options: Optional[str] = None
    vfs_type: Optional[str] = None
    # Of iSCSI: shown in lists, and refused where files are wanted.
    target: Optional[str] = None

    @property
    def export(self) -> str:
        return f"{self.address}:{self.path}" if self.address else self.path


@dataclass
class SimDomain:
    """A storage domain; ``status`` is the one in its data center.

    ``running_vms``, ``leases`` (names of VMs), ``cds_in_use``, ``image_transfers`` and
    ``tasks`` are what a deactivation is refused for. ``ovf_update_fails``: only a
    forced deactivation gets through. ``activation_fails``: it is attached, and not
    activated. ``disks`` are the names of its VMs' disks. ``ovf_update_runs`` is the
    double's own.
    """

    id: str
    name: str
    type: str = "data"
    storage_type: str = "nfs"
    connection: Optional[str] = None
    data_center: Optional[str] = None
    status: str = "unattached"
    master: bool = False
    hosted_engine: bool = False
    running_vms: list[str] = field(default_factory=list)
    leases: list[str] = field(default_factory=list)
    cds_in_use: list[str] = field(default_factory=list)
    image_transfers: list[str] = field(default_factory=list)
    tasks: list[str] = field(default_factory=list)
    ovf_update_fails: bool = False
    activation_fails: bool = False
    disks: list[str] = field(default_factory=list)
    ovf_update_runs: bool = False
    comment: str = ""
    description: str = ""
    external_status: str = "ok"


@dataclass
class SimExport:
    """An export of an NFS server, by ``SERVER:/PATH``.

    ``answers``: TCP mounts work. ``rdma``: the server listens for RDMA. ``denied``:
    permissions are wrong (469). ``domain`` is the id of a domain that lies there
    already, so that an add becomes an import.
    """

    name: str
    answers: bool = True
    rdma: bool = True
    denied: bool = False
    domain: Optional[str] = None
    domain_name: str = "found"


class World:
    """All data of the engine, and the real state of its hosts.

    ``reads_per_stage``: the number of reads after which a status changes to the next.
    ``connecting_reads``: the number of reads for which a host is shown as up before its
    storage is connected, and as in maintenance before it is disconnected.
    ``retry_reads``: the number of reads after which the engine tries again to move a
    host to maintenance. ``seconds`` is the engine's clock; only tests move it. ``lock``
    is locked while a request is served; tests that change something while requests are
    under way lock it too. ``meanwhile`` is called with an object's id while the engine
    carries out what it answers only afterwards; others can ask it then.
    """

    def __init__(self, *, reads_per_stage: int = 1) -> None:
        self.lock = threading.RLock()
        self.transitions = Transitions(reads_per_stage)
        self.meanwhile: Optional[Callable[[str], None]] = None
        self.connecting_reads = 2
        self.retry_reads = 5
        self.log = EventLog()
        self.data_centers: dict[str, SimDataCenter] = {}
        self.clusters: dict[str, SimCluster] = {}
        self.hosts: dict[str, SimHost] = {}
        self.domains: dict[str, SimDomain] = {}
        self.connections: dict[str, SimConnection] = {}
        self.networks: dict[str, SimNetwork] = {}
        self.exports: dict[str, SimExport] = {}
        # (name, version) -> value; version "" is "general".
        self.options: dict[tuple[str, str], str] = {}
        self.passwords = {"admin@ovirt@internalsso": "secret"}
        # Names of users by their tokens, and roles by the names of users.
        self.users: dict[str, str] = {}
        self.roles: dict[str, str] = {}
        self.version = "4.5.7"
        self.product = "oVirt Engine"
        self.ca_pem = ""
        # Ids of behaviours that this engine does not have: see does().
        self.kind: set[str] = set(behaviours.left_out)
        self._own_ids = 0
        # Data of the other modules of the double: {module: data}.
        self.more: dict[str, Any] = {}

    def does(self, behaviour: Behaviour) -> bool:
        """Whether this engine has the behaviour; by default it has all."""
        return behaviour.id not in self.kind

    # -- by name, for tests

    def host(self, name: str) -> SimHost:
        return _named(self.hosts, name)

    def domain(self, name: str) -> SimDomain:
        return _named(self.domains, name)

    def data_center(self, name: str) -> SimDataCenter:
        return _named(self.data_centers, name)

    def cluster(self, name: str) -> SimCluster:
        return _named(self.clusters, name)

    def network(self, name: str) -> SimNetwork:
        return _named(self.networks, name)

    def connection_of(self, domain: str) -> SimConnection:
        """The connection of the domain with this name."""
        return self.connections[self.domain(domain).connection or ""]

    def export(self, name: str) -> SimExport:
        """Return the export ``SERVER:/PATH``; by default it works."""
        return self.exports.setdefault(name, SimExport(name))

    # -- what belongs together

    def data_center_of(self, host: SimHost) -> str:
        return self.clusters[host.cluster].data_center

    def hosts_of(self, data_center: Optional[str]) -> list[SimHost]:
        return [h for h in self.hosts.values() if self.data_center_of(h) == data_center]

    def domains_of(self, data_center: Optional[str]) -> list[SimDomain]:
        every = self.domains.values()
        return [d for d in every if d.data_center and d.data_center == data_center]

    def spm_of(self, data_center: Optional[str]) -> Optional[SimHost]:
        return next((h for h in self.hosts_of(data_center) if h.spm), None)

    def domains_using(self, connection: str) -> list[SimDomain]:
        return [d for d in self.domains.values() if d.connection == connection]

    # -- time

    def advance(self, stages: int = 1) -> None:
        """Advance all transitions by this number of stages."""
        with self.lock:
            for _ in range(stages):
                self.transitions.advance()

    def settle(self) -> None:
        """Let all transitions come to their end, or to a state that stays."""
        with self.lock:
            for _ in range(20):
                self.transitions.advance()

    def let_others_look(self, name: str) -> None:
        """Call ``meanwhile`` without the lock, which this thread has locked once."""
        if self.meanwhile is None:
            return
        self.lock.release()
        try:
            self.meanwhile(name)
        finally:
            self.lock.acquire()

    @property
    def seconds(self) -> float:
        """The engine's clock; only tests move it."""
        return self.log.seconds

    @seconds.setter
    def seconds(self, seconds: float) -> None:
        self.log.seconds = seconds

    def now(self) -> float:
        """The engine's clock, in seconds."""
        return self.seconds

    def time(self) -> datetime.datetime:
        return self.log.first_time + datetime.timedelta(seconds=self.seconds)

    def own_correlation_id(self) -> str:
        """Return one of the engine's own, for work without a request."""
        self._own_ids += 1
        return f"{0x5B0F2C00 + self._own_ids:x}"

    def domain_monitoring_times_out(self) -> None:
        """Make hosts non-operational that have long not seen an active domain."""
        from engine_double.domain_life import monitoring_times_out

        with self.lock:
            monitoring_times_out(self)

    def recover(self) -> None:
        """Try the hosts that are non_operational again, as engines do by themselves."""
        from engine_double.host_life import recover

        recover(self)

    def add_host(self, host: SimHost) -> SimHost:
        host.world = self
        self.hosts[host.id] = host
        return host


def _named(objects: Mapping[str, _Named], name: str) -> _Named:
    for found in objects.values():
        if found.name == name:
            return found
    raise KeyError(f"there is no {name} among {[o.name for o in objects.values()]}")
