# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the report: engine, hosts, domains and their fabric at one time, as data.

:mod:`.hosts` makes it from the engine's data and the hosts' reports, :mod:`.page` a
page of it; ``ovirt-rdma report -o json`` prints it. docs/report.md describes the
document. None in a field means unknown.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.engine_sdk_tools.matrix import Cell, Matrix
from ovirt_rdma.engine_sdk_tools.report.benchmarks import HostBenchmark
from ovirt_rdma.engine_sdk_tools.report.history import EngineEvent, HostRun
from ovirt_rdma.host.facts.devices import Neighbour


@dataclass(frozen=True)
class Attached:
    """A netdev on a port that has an IP address: the logical ``network`` on it, if any,
    and its ``subnets``, as ``10.0.0.0/24``.
    """

    netdev: str
    network: Optional[str] = None
    subnets: tuple[str, ...] = ()


@dataclass(frozen=True)
class Port:
    """An RDMA port: ``state`` as ``ACTIVE``, ``link_layer`` as ``InfiniBand``.

    ``rate_mbps`` is the signalling rate in Mb/s. ``sm_lid`` is the LID of the subnet
    manager, None on Ethernet and without one. ``attached`` are the netdevs on it,
    ``neighbours`` what it is cabled to; empty if that is unknown.
    """

    number: int
    state: str
    link_layer: str
    rate_mbps: Optional[int] = None
    sm_lid: Optional[int] = None
    attached: tuple[Attached, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether its link is up."""
        return self.state == "ACTIVE"


@dataclass(frozen=True)
class Device:
    """An RDMA device; ``product`` as ``ConnectX-5``, or the driver's own word."""

    name: str
    product: str = ""
    driver: Optional[str] = None
    firmware: Optional[str] = None
    ports: tuple[Port, ...] = ()


@dataclass(frozen=True)
class ServerPath:
    """How a host reaches an NFS server: by ``netdev``, None for no route or unknown.

    ``attached`` are the logical network and subnets on it. ``transports`` has the
    number of the server's domains by what the host uses: ``rdma``, ``tcp``, ``not
    mounted``, ``unproven`` or ``unknown``.
    """

    server: str
    netdev: Optional[str] = None
    attached: Optional[Attached] = None
    transports: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class PlanStep:
    """A step that ``ovirt-rdma-host plan`` shows on the host; ``effect`` is ``live``,
    ``link-down`` or ``reboot``. ``refused`` is why it cannot be applied, or "".
    """

    id: str
    effect: str
    sentence: str
    before: str
    after: str
    reason: str
    refused: str = ""
    users: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fallen:
    """A mount whose transport is not the one that its rule requests, as vdsmd recorded
    it; ``since`` in ISO 8601.
    """

    export: str
    transport: str
    rule: str
    reason: str
    since: Optional[str] = None


@dataclass(frozen=True)
class ReportHost:
    """A host: the engine's words for it, then its own.

    ``problem`` and ``fix`` say what it did not report. ``devices``, ``paths`` and
    ``steps`` are None without its facts, ``runs`` without its history;
    ``runs_problem`` says why a history that it reported cannot be read.
    ``read_at`` is in seconds since 1970.
    """

    name: str
    id: str
    address: str
    data_center: Optional[str]
    cluster: Optional[str]
    status: Optional[str]
    worst: str
    kernel: Optional[str] = None
    vdsm: Optional[str] = None
    read_at: Optional[float] = None
    devices: Optional[tuple[Device, ...]] = None
    paths: Optional[tuple[ServerPath, ...]] = None
    steps: Optional[tuple[PlanStep, ...]] = None
    fallen: tuple[Fallen, ...] = ()
    runs: Optional[tuple[HostRun, ...]] = None
    runs_problem: str = ""
    problem: str = ""
    fix: str = ""


@dataclass(frozen=True)
class ReportDomain:
    """An NFS domain: ``engine_asks`` is the transport that its storage connection
    requests. ``used`` has the number of hosts by what they use, as in ServerPath.
    """

    name: str
    id: str
    data_center: Optional[str]
    status: Optional[str]
    server: str
    export: str
    nfs_version: Optional[str]
    engine_asks: str
    used: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class Report:
    """All of it. ``made_at`` is in ISO 8601, UTC. ``checks`` is the matrix of ``hosts
    check``, ``transports`` that of ``domain verify``; both have the rows of ``hosts``.

    ``events`` are None if they could not be read. ``benchmarks`` are those that were
    given. ``notes`` are sentences on what is missing.
    """

    made_at: str
    version: str
    engine_url: str
    engine_version: Optional[str]
    hosts: tuple[ReportHost, ...]
    domains: tuple[ReportDomain, ...]
    checks: Matrix
    transports: Matrix
    events: Optional[tuple[EngineEvent, ...]] = None
    benchmarks: tuple[HostBenchmark, ...] = ()
    notes: tuple[str, ...] = ()

    def cells(self, row: int) -> tuple[Cell, ...]:
        """Return the cells of a host in both matrices."""
        return self.checks.cells[row] + self.transports.cells[row]
