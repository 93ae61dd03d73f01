# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the state of the double's engine and hosts: plain data that tests may change;
its audit log; and its transitions, which advance without a clock, each time they are
read. The handlers work on it; this module does not use HTTP.
"""

from __future__ import annotations

import datetime
import threading
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Optional, Protocol, TypeVar, Union

from engine_double import behaviours
from engine_double.behaviours import Behaviour


class _HasName(Protocol):
    name: str


_Named = TypeVar("_Named", bound=_HasName)


def new_id(name: str = "") -> str:
    """A UUID; the same for the same name, so that failures can be read."""
    if not name:
        return str(uuid.uuid4())
    return str(uuid.uuid5(uuid.NAMESPACE_URL, name))


# -- the engine's data


@dataclass
class SimDataCenter:
    """``status`` as the API says it: uninitialized, up, maintenance, ..."""

    id: str
    name: str
    status: str = "up"
    version: str = "4.7"


@dataclass
class SimCluster:
    """``networks``: a row for each logical network in it, by the network's id.
    ``upgrade_in_progress``: its hosts are being upgraded one after another, by the
    program that named ``upgrade_correlation_id``.
    """

    id: str
    name: str
    data_center: str
    version: str = "4.7"
    upgrade_in_progress: bool = False
    upgrade_correlation_id: Optional[str] = None
    networks: dict[str, SimClusterNetwork] = field(default_factory=dict)


@dataclass
class SimClusterNetwork:
    """How a cluster uses a network; ``usages`` are the API's words."""

    network: str
    required: bool = False
    usages: set[str] = field(default_factory=set)


@dataclass
class SimNetwork:
    """``mtu`` 0 is the default, 1500."""

    id: str
    name: str
    data_center: str
    vm: bool = True
    mtu: int = 0
    vlan: Optional[int] = None


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

    ``running_vms`` and ``leases`` (names of VMs) are what a deactivation is refused
    for. ``activation_fails``: it is attached, and not activated. ``disks`` are the
    names of its VMs' disks. ``ovf_update_runs`` is the double's own.
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
    activation_fails: bool = False
    disks: list[str] = field(default_factory=list)
    ovf_update_runs: bool = False


@dataclass
class SimExport:
    """An export of an NFS server, by ``SERVER:/PATH``.

    ``answers``: TCP mounts work. ``rdma``: the server listens for RDMA. ``domain`` is
    the id of a domain that lies there already, so that an add becomes an import.
    """

    name: str
    answers: bool = True
    rdma: bool = True
    domain: Optional[str] = None


# -- a host


@dataclass
class SimNic:
    """A netdev that VDSM reports as a nic, or a bond of two.

    ``max_mtu`` is what the device can do. ``infiniband``: an IPoIB netdev, whose MAC
    has 20 bytes. ``ports`` are the names of a bond's nics, ``bond_mode`` its word.
    ``address``/``netmask``/``gateway``/``boot_protocol``: what the netdev has now.
    """

    id: str
    name: str
    mac: str
    mtu: int = 1500
    max_mtu: int = 9000
    status: str = "up"
    infiniband: bool = False
    address: Optional[str] = None
    netmask: Optional[str] = None
    gateway: Optional[str] = None
    boot_protocol: str = "none"
    address_v6: Optional[str] = None
    netmask_v6: Optional[str] = None
    gateway_v6: Optional[str] = None
    boot_protocol_v6: str = "none"
    ports: tuple[str, ...] = ()
    bond_mode: Optional[str] = None


class SimAssignment(NamedTuple):
    """How a network gets its address of IPv4, or with ``v6`` of IPv6, on a nic."""

    method: str
    address: Optional[str] = None
    netmask: Optional[str] = None
    gateway: Optional[str] = None
    v6: bool = False


@dataclass
class SimAttachment:
    """A logical network on a nic."""

    id: str
    network: str
    nic: str
    addresses: list[SimAssignment] = field(default_factory=list)
    properties: dict[str, str] = field(default_factory=dict)


@dataclass
class SimHook:
    """A VDSM hook as getCaps reports it."""

    name: str
    event: str


@dataclass
class SimHost:
    """A host.

    What the engine knows: ``status``, ``spm``. What is so on the host: ``mounts``
    (export to ``tcp`` or ``rdma``), ``addon`` (ovirt-rdma installed and enabled),
    ``stock_because`` (why its launcher started stock vdsmd), ``policy_text`` (its
    loaded policy as YAML, None for none), ``rdma_ready`` (its RDMA ports work) and
    ``hooks``. ``reachable``: the engine and SSH get to it. ``cut_off``: a network
    change cuts the engine off from it, so that the connectivity check fails.

    ``vms`` are all virtual machines on it, by name, and these are among them:
    ``stuck_vms`` (their migration begins and fails), ``unscheduled_vms`` (no other host
    can take them now), ``pinned_vms`` (they stay on their host), ``manual_vms``
    (migrated by people only, not by the engine of itself), ``inactive_vms`` (paused, or
    powering up).

    In the way of maintenance: ``spm_contending``, ``running_operations`` (names of
    jobs' steps on it), ``spm_stop_fails`` (so many times SPM cannot be stopped).
    ``connecting``: it is up, and its storage is not connected yet. ``disconnecting``:
    it is in maintenance, and its storage is not disconnected yet.
    """

    id: str
    name: str
    address: str
    cluster: str
    status: str = "up"
    spm: bool = False
    mounts: dict[str, str] = field(default_factory=dict)
    addon: bool = False
    stock_because: str = ""
    policy_text: Optional[str] = None
    rdma_ready: bool = True
    reachable: bool = True
    cut_off: bool = False
    vms: list[str] = field(default_factory=list)
    stuck_vms: list[str] = field(default_factory=list)
    unscheduled_vms: list[str] = field(default_factory=list)
    pinned_vms: list[str] = field(default_factory=list)
    manual_vms: list[str] = field(default_factory=list)
    inactive_vms: list[str] = field(default_factory=list)
    spm_contending: bool = False
    running_operations: list[str] = field(default_factory=list)
    spm_stop_fails: int = 0
    connecting: bool = False
    disconnecting: bool = False
    hosted_engine: bool = False
    nics: list[SimNic] = field(default_factory=list)
    attachments: list[SimAttachment] = field(default_factory=list)
    hooks: list[SimHook] = field(default_factory=list)
    fingerprint: Optional[str] = None
    public_key: Optional[str] = None
    port: int = 22
    memory: int = 64 << 30
    more: dict[str, Any] = field(default_factory=dict)
    world: Optional[World] = field(default=None, repr=False, compare=False)

    def nic(self, name: str) -> SimNic:
        return next(nic for nic in self.nics if nic.name == name)

    def reboot(self) -> None:
        """Restart it, as a power cut does: mounts and uncommitted networks go."""
        from engine_double.host_life import reboot

        assert self.world is not None
        reboot(self.world, self)


# -- the audit log. Codes and severities: AuditLogType.java; the wording is ours.

ENGINE = "oVirt"


@dataclass(frozen=True)
class SimEvent:
    """An event; ``host``, ``domain``, ``data_center`` and ``cluster`` are ids."""

    id: int
    code: int
    severity: str
    description: str
    time: datetime.datetime
    correlation_id: Optional[str] = None
    host: Optional[str] = None
    domain: Optional[str] = None
    data_center: Optional[str] = None
    cluster: Optional[str] = None
    origin: str = ENGINE
    custom_id: int = -1


@dataclass
class EventLog:
    """All events, oldest first; ids are unique and grow."""

    events: list[SimEvent] = field(default_factory=list)
    next_id: int = 100
    seconds: float = 0.0
    first_time: datetime.datetime = datetime.datetime(
        2026, 1, 1, tzinfo=datetime.timezone.utc
    )

    def record(
        self, code: int, severity: str, description: str, **about: Any
    ) -> SimEvent:
        """Record an event, with the next id and a time of its own; ``about`` are other
        fields of SimEvent.
        """
        age = datetime.timedelta(seconds=self.seconds + len(self.events))
        time = self.first_time + age
        event = SimEvent(self.next_id, code, severity, description, time, **about)
        # Other clients write to the log too: the ids of one client are not consecutive.
        self.next_id += 3
        self.events.append(event)
        return event

    def codes(self) -> list[int]:
        return [event.code for event in self.events]


# -- transitions

Stage = Callable[[], object]


@dataclass(frozen=True)
class After:
    """A stage that begins after this number of reads, not after ``reads_per_stage``."""

    reads: int
    stage: Stage


class Transitions:
    """The future stages of each object, by its id.

    An object enters its next stage after it has been read ``reads_per_stage`` times,
    or when a test says so.
    """

    def __init__(self, reads_per_stage: int = 1) -> None:
        self.reads_per_stage = reads_per_stage
        self._stages: dict[str, list[After]] = {}
        self._reads: dict[str, int] = {}

    def begin(self, name: str, *stages: Union[Stage, After]) -> None:
        """Let ``name`` go through ``stages``, instead of its earlier ones."""
        self._stages[name] = [
            one if isinstance(one, After) else After(self.reads_per_stage, one)
            for one in stages
        ]
        self._reads[name] = 0

    def stop(self, name: str) -> None:
        self._stages.pop(name, None)

    def under_way(self, name: str = "") -> bool:
        return name in self._stages if name else bool(self._stages)

    def shown(self, name: str) -> None:
        """``name`` has been read by a client."""
        if name in self._stages:
            self._reads[name] += 1
            if self._reads[name] >= self._stages[name][0].reads:
                self.advance(name)

    def advance(self, name: str = "") -> None:
        """Advance ``name`` by one stage; without a name, everything."""
        for which in [name] if name else list(self._stages):
            stages = self._stages.get(which)
            if stages is None:
                continue
            self._reads[which] = 0
            stages.pop(0).stage()
            # A stage may have begun other stages.
            if self._stages.get(which) is stages and not stages:
                del self._stages[which]


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

    def time(self) -> datetime.datetime:
        return self.log.first_time + datetime.timedelta(seconds=self.seconds)

    def own_correlation_id(self) -> str:
        """Return one of the engine's own, for work without a request."""
        self._own_ids += 1
        return f"{0x5B0F2C00 + self._own_ids:x}"

    def add_host(self, host: SimHost) -> SimHost:
        host.world = self
        self.hosts[host.id] = host
        return host


def _named(objects: Mapping[str, _Named], name: str) -> _Named:
    for found in objects.values():
        if found.name == name:
            return found
    raise KeyError(f"there is no {name} among {[o.name for o in objects.values()]}")
