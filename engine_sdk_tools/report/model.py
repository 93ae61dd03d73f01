# SPDX-License-Identifier: GPL-2.0-or-later
"""The report as data, from the engine's data and the hosts' own reports, with the words
for it, and groups of equal hosts. Pure.

:mod:`.page` makes a page of it; ``ovirt-rdma report -o json`` prints it. docs/report.md
describes each field. None means unknown. What hosts and files say may be anything.

A host's facts are reduced to one row, so that those of hundreds of hosts need not be in
memory together.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import partial
from typing import Any, NamedTuple, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.domains.transport import (
    InUse,
    connection_transport,
    nfs_export,
    route_to,
    server_addresses,
    transports_in_use,
)
from ovirt_rdma.engine_sdk_tools.domains.transport import matrix_of as domain_matrix
from ovirt_rdma.engine_sdk_tools.fleet import check
from ovirt_rdma.engine_sdk_tools.hosts.report import (
    HostReport,
    versions_of,
    with_own_bugs_caught,
)
from ovirt_rdma.engine_sdk_tools.model import (
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Cell,
    Domain,
    Engine,
    Host,
    Matrix,
    counted,
    natural,
    worst_of,
)
from ovirt_rdma.host.daemon.versions import Versions
from ovirt_rdma.host.export import RDMA
from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.devices import SWITCH, Neighbour, NetdevGraph
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.policy.model import TCP, Policy
from ovirt_rdma.storage.benchmark.model import (
    Benchmark,
    Load,
    NetworkPath,
    Setting,
    Spread,
)
from ovirt_rdma.storage.benchmark.verdict import Limit, Ratio, verdict

# Characters of a text of a file.
_TEXT = 300
# Of one result. ``bench`` itself makes at most 6 loads for each of 32 mounts.
_MOST_ROWS, _MOST_OTHERS = 192, 20
_T = TypeVar("_T")


def picked(cls: type[_T], *sources: object, **values: Any) -> _T:
    """Return a ``cls`` of ``values`` and, for its other fields, the attributes of the
    same names of the first of ``sources`` that has them.
    """
    for field in fields(cls):  # type: ignore[arg-type]
        if field.name not in values:
            source = next(one for one in sources if hasattr(one, field.name))
            values[field.name] = getattr(source, field.name)
    return cls(**values)


def shortened(value: Any, most: int) -> Any:
    """Return a text, tuple or dataclass with at most ``most`` characters in a text."""
    if isinstance(value, str):
        return value if len(value) <= most else f"{value[:most]}..."
    if isinstance(value, tuple):
        return tuple(shortened(one, most) for one in value)
    if is_dataclass(value) and not isinstance(value, type):
        names = [field.name for field in fields(value)]
        its = {name: shortened(getattr(value, name), most) for name in names}
        return replace(value, **its)
    return value


@dataclass(frozen=True)
class Measured:
    """The repeats of one load over one mount; ``connections`` are those that exist."""

    setting: Setting
    load: Load
    connections: int
    repeats: int
    bytes_per_s: Spread
    operations_per_s: Spread
    p99_9_us: float
    cpu_s_per_gb: Optional[Spread]


@dataclass(frozen=True)
class HostBenchmark:
    """A result, and its verdict by this version. ``host`` and ``domain`` are the
    engine's names of those with that hostname and export, None without one.
    """

    hostname: str
    host: Optional[str]
    domain: Optional[str]
    export: Optional[str]
    taken_at: str
    kernel: str
    path: Optional[NetworkPath]
    better: str
    sentence: str
    nfs_version: Optional[str]
    ratios: tuple[Ratio, ...]
    limits: tuple[Limit, ...]
    link_limit_mbps: Optional[float]
    rows: tuple[Measured, ...]
    skipped: tuple[str, ...]


def benchmarks_of(
    results: Iterable[Benchmark],
    hosts: Sequence[tuple[str, str]],
    domains: Mapping[str, str],
) -> tuple[HostBenchmark, ...]:
    """Return the results, each once, by host and export, the newest first. ``hosts``
    are names and addresses, ``domains`` names by export.
    """
    found = []
    for result in dict.fromkeys(shortened(one, _TEXT) for one in results):
        judged = verdict(result)
        rows = [
            picked(
                Measured,
                row,
                repeats=len(row.jobs),
                bytes_per_s=row.rate,
                operations_per_s=row.operations,
                cpu_s_per_gb=row.cpu,
            )
            for row in result.rows[:_MOST_ROWS]
        ]
        its = picked(
            HostBenchmark,
            judged,
            result,
            host=_host_named(result.hostname, hosts),
            domain=domains.get(result.export) if result.export else None,
            sentence=f"{judged.sentence[0].upper()}{judged.sentence[1:]}.",
            nfs_version=judged.version,
            skipped=result.skipped[:_MOST_OTHERS],
            rows=tuple(rows),
        )
        found.append(its)
    found.sort(key=lambda one: one.taken_at, reverse=True)
    return tuple(
        sorted(found, key=lambda one: (one.host or one.hostname, one.export or ""))
    )


def _host_named(hostname: str, hosts: Sequence[tuple[str, str]]) -> Optional[str]:
    """Return the name of the host that calls itself ``hostname``; None if none or
    several do. The engine may know it by another name, or without its domain.
    """

    # An IP address has no domain to leave out.
    def short(name: str) -> str:
        address = name.replace(".", "").isdigit()
        return name if address else name.partition(".")[0].lower()

    for form in (str.lower, short):
        found = [host[0] for host in hosts if form(hostname) in map(form, host)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


# Before a host's name, so that its verdict is readable without colour.
SIGNS = {OK: "✓", WARN: "!", FAIL: "✕", UNKNOWN: "?", NONE: "-"}


def rate_text(mbps: Optional[int]) -> str:
    """Return a rate for people: ``100 Gb/s``; "" if it is unknown."""
    if not mbps:
        return ""
    return f"{mbps / 1000:g} Gb/s" if mbps >= 1000 else f"{mbps} Mb/s"


@dataclass(frozen=True)
class Attached:
    """A netdev on a port, with an IP address; as a text, the network that it is on."""

    netdev: str
    network: Optional[str] = None
    subnets: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.network or ", ".join(self.subnets) or "no logical network"


@dataclass(frozen=True)
class Port:
    """An RDMA port; as a text, ``port 1 ACTIVE, InfiniBand 100 Gb/s, ib0``."""

    number: int
    state: str
    link_layer: str
    rate_mbps: Optional[int] = None
    attached: tuple[Attached, ...] = ()
    neighbours: tuple[Neighbour, ...] = ()

    @property
    def is_active(self) -> bool:
        """Whether its link is up."""
        return self.state == "ACTIVE"

    def __str__(self) -> str:
        layer = f"{self.link_layer} {rate_text(self.rate_mbps)}".strip()
        netdevs = ", ".join(dict.fromkeys(one.netdev for one in self.attached))
        parts = (f"port {self.number} {self.state}", layer, netdevs or "no IP address")
        return ", ".join(filter(None, parts))


@dataclass(frozen=True)
class Device:
    """An RDMA device; as a text, ``mlx5_0, ConnectX-5 (mlx5_core)``."""

    name: str
    product: str = ""
    driver: Optional[str] = None
    firmware: Optional[str] = None
    ports: tuple[Port, ...] = ()

    def __str__(self) -> str:
        product = f", {self.product}" if self.product else ""
        return f"{self.name}{product}" + (f" ({self.driver})" if self.driver else "")


@dataclass(frozen=True)
class ServerPath:
    """How a host reaches an NFS server: by ``netdev``, None for no route or unknown.
    ``transports`` has the number of the server's domains by what the host uses.
    """

    server: str
    netdev: Optional[str] = None
    attached: Optional[Attached] = None
    transports: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True)
class PlanStep:
    """A step that ``ovirt-rdma-host plan`` shows on the host."""

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
    """A mount whose transport is not the one that its rule requests."""

    export: str
    transport: str
    rule: str
    reason: str
    since: Optional[str] = None


@dataclass(frozen=True)
class ReportHost:
    """A host by the engine and by itself; ``problem`` is on what it did not report."""

    name: str
    id: str
    address: str
    data_center: Optional[str]
    cluster: Optional[str]
    status: Optional[str]
    worst: str
    versions: Optional[Versions] = None
    read_at: Optional[float] = None
    devices: Optional[tuple[Device, ...]] = None
    paths: Optional[tuple[ServerPath, ...]] = None
    steps: Optional[tuple[PlanStep, ...]] = None
    fallen: tuple[Fallen, ...] = ()
    problem: str = ""
    fix: str = ""

    @property
    def place(self) -> str:
        """Its data center and cluster, for people."""
        names = filter(None, (self.data_center, self.cluster))
        return " / ".join(names) or "no cluster"

    @property
    def cables(self) -> Iterator[tuple[str, Port, Optional[Neighbour]]]:
        """A device's name, an active port, and what it is cabled to; None: unknown."""
        for device in self.devices or ():
            for port in device.ports:
                for neighbour in port.neighbours or (None,) if port.is_active else ():
                    yield device.name, port, neighbour


@dataclass(frozen=True)
class ReportDomain:
    """An NFS domain; ``used`` has the number of hosts by what they use."""

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
    """All of it. ``checks`` is the matrix of ``hosts check``, ``transports`` that of
    ``domain verify``; both have the rows of ``hosts``.
    """

    made_at: str
    version: str
    engine_url: str
    engine_version: Optional[str]
    hosts: tuple[ReportHost, ...]
    domains: tuple[ReportDomain, ...]
    checks: Matrix
    transports: Matrix
    benchmarks: tuple[HostBenchmark, ...] = ()
    notes: tuple[str, ...] = ()

    def cells(self, row: int) -> tuple[Cell, ...]:
        """Return the cells of a host in both matrices."""
        return self.checks.cells[row] + self.transports.cells[row]


def neighbour_text(neighbour: Neighbour) -> str:
    """Return what a port is cabled to: a switch as ``leaf1``, else with its kind."""
    name = neighbour.name or neighbour.id or "without a name"
    if neighbour.kind == SWITCH:
        return name
    return f"{name} ({neighbour.kind or 'of unknown kind'})"


def transports_text(used: Iterable[tuple[str, int]]) -> str:
    """Return the numbers by transport: ``7 rdma, 1 tcp``."""
    return ", ".join(f"{number} {word}" for word, number in used)


def verdict_text(report: Report) -> str:
    """Return the report in one sentence."""
    hosts = counted(len(report.hosts), "host")
    worst = Counter(host.worst for host in report.hosts)
    parts = [
        f"{worst[verdict]} {one if worst[verdict] == 1 else many}"
        for verdict, one, many in (
            (FAIL, "has a failed check", "have a failed check"),
            (UNKNOWN, "is not known to be well", "are not known to be well"),
            (WARN, "has a warning", "have a warning"),
        )
        if worst[verdict]
    ]
    if not report.hosts:
        return "The engine has no host."
    if not parts:
        used = [{word for word, _ in domain.used} for domain in report.domains]
        mounted = used and all(words and words <= {RDMA, TCP} for words in used)
        also = ", and each domain is mounted as requested" if mounted else ""
        return f"All is well: {hosts}{also}."
    return f"Of {hosts}, {', '.join(parts)}."


# Up to this many hosts, each is drawn alone.
MOST_ALONE = 12
# More groups of one cluster are drawn as one, "other hosts".
MOST_GROUPS = 8


class HostGroup(NamedTuple):
    """Equal hosts; the first stands for all. ``others``: each too few to be drawn."""

    hosts: tuple[ReportHost, ...]
    others: bool = False


def groups_of(report: Report) -> tuple[HostGroup, ...]:
    """Return the groups of the picture, by cluster, the largest first. Equal hosts have
    equal devices, ports and ways to storage, whatever cables: each rack has its own
    switches.
    """
    alone = len(report.hosts) <= MOST_ALONE
    clusters: dict[str, dict[object, list[ReportHost]]] = {}
    for host in sorted(report.hosts, key=lambda host: natural(host.name)):
        kinds = clusters.setdefault(host.place, {})
        kinds.setdefault(host.name if alone else _kind(host), []).append(host)
    found: list[HostGroup] = []
    for place in sorted(clusters, key=natural):
        groups = sorted(clusters[place].values(), key=len, reverse=True)
        most = len(groups)
        if not alone and most > MOST_GROUPS:
            most = MOST_GROUPS - 1
        found += [HostGroup(tuple(hosts)) for hosts in groups[:most]]
        rest = tuple(host for hosts in groups[most:] for host in hosts)
        if rest:
            found.append(HostGroup(rest, others=True))
    return tuple(found)


def _kind(host: ReportHost) -> object:
    """Return what equal hosts have in common."""
    if host.devices is None:
        return "no report"
    devices = []
    for device in host.devices:
        ports = tuple(replace(port, neighbours=()) for port in device.ports)
        devices.append(replace(device, firmware=None, ports=ports))
    return tuple(devices), host.paths


def in_order(names: Iterable[str], most: Optional[int] = None) -> str:
    """Return names in order: ``hv1 to hv4, hv6``; from three consecutive numbers on. Of
    more than ``most`` parts, only the number of the remaining names is shown.
    """
    runs: list[list[str]] = []
    for name in sorted(names, key=natural):
        if runs and _next(runs[-1][-1]) == name:
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[tuple[str, int]] = []
    for run in runs:
        whole = [(f"{run[0]} to {run[-1]}", len(run))]
        parts += whole if len(run) > 2 else [(name, 1) for name in run]
    text = ", ".join(part for part, _ in parts[:most])
    left = sum(number for _, number in parts[most:]) if most else 0
    return f"{text} and {left} more" if left else text


def _next(name: str) -> str:
    """Return ``name`` with the next number in place of its last."""
    last = re.compile(r"([0-9]{1,18})([^0-9]*)\Z")
    return last.sub(lambda its: f"{int(its[1]) + 1:0{len(its[1])}}{its[2]}", name)


# Make it.

# Of each list that a host reports, and of a text: its facts may be anything.
_MOST, _MOST_TEXT = 200, 255


@dataclass(frozen=True)
class Row:
    """A host's part of the report, and its rows of both matrices. ``used`` is what it
    uses for each domain; None for those of other data centers.
    """

    host: ReportHost
    check: check.HostRow
    transports: tuple[Cell, ...]
    used: tuple[Optional[str], ...]


def row_of(
    engine: Engine,
    host: Host,
    report: HostReport,
    policy: Optional[Policy],
    domains: Sequence[Domain],
) -> Row:
    """Return the part of ``host``; ``domains`` are the columns of the second matrix."""
    checked = check.row_of(host, report, policy, check.connections_of(engine, host))
    return with_own_bugs_caught(report, partial(_row, engine, host, checked, domains))


def _row(
    engine: Engine,
    host: Host,
    checked: check.HostRow,
    domains: Sequence[Domain],
    report: HostReport,
) -> Row:
    center = engine.center_of(host)
    inside = [d for d in domains if center is not None and d.data_center == center]
    found = dict(zip(inside, transports_in_use(host, report, inside)))
    nothing = Cell(NONE, "-", source="engine")
    cells = tuple(found[d].cell if d in found else nothing for d in domains)
    facts = report.facts
    known = _attached(facts) if facts else {}
    part = picked(
        ReportHost,
        host,
        report,
        data_center=engine.center_name(center),
        cluster=next((c.name for c in engine.clusters if c.id == host.cluster), None),
        worst=worst_of(cell.verdict for cell in (*checked.cells, *cells)),
        versions=versions_of(report),
        devices=tuple(_devices(facts, known)) if facts else None,
        paths=tuple(_paths(facts, known, found)) if facts else None,
        steps=None
        if checked.steps is None
        else tuple(picked(PlanStep, step) for step in checked.steps[:_MOST]),
        fallen=tuple(
            picked(Fallen, review.mark, since=review.since)
            for used in found.values()
            if (review := used.review) and review.mark and used.cell.verdict != OK
        )[:_MOST],
    )
    used = tuple(found[d].word if d in found else None for d in domains)
    return Row(part, checked, cells, used)


def report_of(
    engine: Engine,
    rows: Sequence[Row],
    policy: Optional[Policy],
    domains: Sequence[Domain],
    *,
    made_at: str,
    version: str,
    results: Iterable[Benchmark] = (),
    notes: tuple[str, ...] = (),
    policy_file: Optional[str] = None,
) -> Report:
    """Return the report of the rows of :func:`row_of`, and of ``results`` of ``bench``;
    ``notes`` come after those on the engine's data. ``policy_file`` has the policy.
    """
    checks = check.check(engine, [row.check for row in rows], policy, policy_file)
    hosts = []
    for row, cells in zip(rows, checks.cells):
        # The cell of the policy needs all hosts.
        worst = worst_of(cell.verdict for cell in (*cells, *row.transports))
        hosts.append(replace(row.host, worst=worst))
    shown = []
    for number, domain in enumerate(domains):
        connection, export = domain.connection, nfs_export(domain.connection)
        used = Counter(word for row in rows if (word := row.used[number]))
        shown.append(
            ReportDomain(
                domain.name,
                domain.id,
                engine.center_name(domain.data_center),
                domain.status,
                export.server if export else "",
                connection.export if connection else "",
                connection.nfs_version if connection else None,
                connection_transport(connection) if connection else TCP,
                tuple(used.most_common()),
            )
        )
    return Report(
        made_at,
        version,
        engine.url,
        engine.version,
        tuple(hosts),
        tuple(shown),
        checks,
        domain_matrix(
            engine, [(row.check.host, row.transports) for row in rows], domains
        ),
        benchmarks_of(
            results,
            [(host.name, host.address) for host in hosts],
            {domain.export: domain.name for domain in shown if domain.export},
        ),
        (*engine.problems, *notes),
    )


def _attached(facts: Facts) -> dict[str, Attached]:
    """Return the network and subnets on each netdev, by its name."""
    networks: dict[Optional[str], str] = {}
    for network in facts.ovirt_networks:
        # A bridge has the network's name.
        for name in (network.southbound, network.name):
            networks.setdefault(name, network.name)
    return {
        netdev.name: Attached(
            netdev.name, networks.get(netdev.name), tuple(_subnets(netdev.addresses))
        )
        for netdev in facts.netdevs
    }


def _subnets(addresses: Iterable[str]) -> Iterator[str]:
    for text in addresses:
        try:
            network = ipaddress.ip_interface(text).network
        except ValueError:
            continue
        if not network.is_link_local:
            yield str(network)


def _devices(facts: Facts, known: dict[str, Attached]) -> Iterator[Device]:
    graph = NetdevGraph(facts.netdevs)
    for device in facts.rdma_devices[:_MOST]:
        ports = []
        for port in device.ports[:_MOST]:
            its = (device.name, port.number)
            base = [n for n in facts.netdevs if (n.rdma_device, n.rdma_port) == its]
            # The netdev of a Soft-RoCE or RoCE port may only be in the GID table.
            gids = [gid.netdev for gid in port.gids if gid.netdev]
            above = graph.above(*(netdev.name for netdev in base), *gids)
            attached = [known[name] for name in above if name in known]
            some = [one for one in attached if one.subnets or one.network][:_MOST]
            ends = shortened(port.neighbours[:_MOST], _MOST_TEXT)
            ports.append(picked(Port, port, attached=tuple(some), neighbours=ends))
        model = model_of(device.pci) if device.pci else None
        product = "Soft-RoCE" if device.is_soft_roce else device.hca_type or ""
        product = model.name if model else product
        yield picked(Device, device, product=product, ports=tuple(ports))


def _paths(
    facts: Facts, known: dict[str, Attached], found: dict[Domain, InUse]
) -> Iterator[ServerPath]:
    servers: dict[str, Counter[str]] = {}
    netdevs: dict[str, Optional[str]] = {}
    for domain, used in found.items():
        export = nfs_export(domain.connection)
        server = export.server if export else ""
        servers.setdefault(server, Counter())[used.word] += 1
        if export and server not in netdevs:
            route = route_to(facts, server_addresses(facts, export))
            netdevs[server] = route.netdev if route else None
    for server, used_by in servers.items():
        netdev = netdevs.get(server)
        attached = known.get(netdev, Attached(netdev)) if netdev else None
        yield ServerPath(server, netdev, attached, tuple(used_by.most_common()))
