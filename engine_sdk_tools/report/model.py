# SPDX-License-Identifier: GPL-2.0-or-later
"""The report as data, with the words for it, and groups of equal hosts. Pure.

:mod:`.hosts` makes it from the engine's data and the hosts' reports, :mod:`.page` a
page of it; ``ovirt-rdma report -o json`` prints it. docs/report.md describes each
field. None means unknown. What hosts and files say may be anything.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Any, NamedTuple, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.model import (
    FAIL,
    NONE,
    OK,
    UNKNOWN,
    WARN,
    Cell,
    Matrix,
    natural,
)
from ovirt_rdma.host.daemon.versions import Versions
from ovirt_rdma.host.facts.devices import SWITCH, Neighbour
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
    """Return the results, each once, by host and export, the newest of each first.

    ``hosts`` are the names and addresses of the engine's hosts, ``domains`` the names
    of its domains by export.
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
    for form in (str.lower, _short):
        found = [host[0] for host in hosts if form(hostname) in map(form, host)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _short(name: str) -> str:
    # An IP address has no domain to leave out.
    return name if name.replace(".", "").isdigit() else name.partition(".")[0].lower()


# Before a host's name, so that its verdict is readable without colour.
SIGNS = {OK: "✓", WARN: "!", FAIL: "✕", UNKNOWN: "?", NONE: "-"}


def counted(number: int, noun: str) -> str:
    """Return ``1 host``, ``2 hosts``; for nouns whose plural ends in s."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


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
    """A host: the engine's words for it, then its own. ``problem`` and ``fix`` say what
    it did not report.
    """

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
        """A device's name, an active port of it, and what that is cabled to; None if
        this is unknown.
        """
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
    """Return what a port is cabled to for people: a switch by its name, ``leaf1``, all
    else with its kind, ``hv2 mlx5_0 (host)``.
    """
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
        return f"All is well: {hosts}, and each domain is mounted as requested."
    return f"Of {hosts}, {', '.join(parts)}."


# Up to this many hosts, each is drawn alone.
MOST_ALONE = 12
# More groups of one cluster are drawn as one, "other hosts".
MOST_GROUPS = 8


class HostGroup(NamedTuple):
    """Hosts that are equal; the first stands for all. ``others``: they are not equal,
    but too few of a kind to be drawn.
    """

    hosts: tuple[ReportHost, ...]
    others: bool = False


def groups_of(report: Report) -> tuple[HostGroup, ...]:
    """Return the groups of the picture, cluster by cluster, the largest first.

    Hosts are equal if their cluster, their devices and ports, and their ways to storage
    are. What a port is cabled to is no difference: each rack has switches of its own.
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
    """Return names in order: ``hv1 to hv4, hv6``.

    Names whose last numbers are consecutive are shown as first and last, from three on.
    Of more than ``most`` such parts, only the number of the remaining names is shown.
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
