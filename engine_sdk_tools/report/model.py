# SPDX-License-Identifier: GPL-2.0-or-later
"""The report as data: hosts, domains, benchmarks, history, their sentences, and the
fabric: groups of equal hosts, networks, switches and cables. Pure.

The document ``history -o json`` comes from a host, so it may be anything. A newer
version of the add-on may add keys; only those that are read here are checked.

A result is judged again by this version. It comes from a file, so every text in it may
be anything; :func:`ovirt_rdma.storage.benchmark.model.load` checked types and numbers.

:mod:`.hosts` makes it from the engine's data and the hosts' reports, :mod:`.page` a
page of it; ``ovirt-rdma report -o json`` prints it. docs/report.md describes the
document. None in a field means unknown.

Hosts are equal for the picture if their cluster, their devices and ports, and their
ways to storage are; for plans, if their steps are. What a port is cabled to is no
difference: each rack has switches of its own, so that 250 equal hosts would be as many
groups as there are racks, and most of those beyond MOST_GROUPS, where no port is drawn.
Lines from the group lead to all its switches instead.

A switch is one by its id. What a port is cabled to is the other end's own word
(host/facts, Neighbour), so two that claim the same id are one here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import timezone
from typing import Any, NamedTuple, Optional

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
from ovirt_rdma.host.system.json_codec import json_type
from ovirt_rdma.storage.benchmark.limits import Limit
from ovirt_rdma.storage.benchmark.model import (
    Benchmark,
    Load,
    NetworkPath,
    Row,
    Rows,
    Setting,
    Spread,
)
from ovirt_rdma.storage.benchmark.verdict import Ratio, verdict

# Of one host, the newest.
MOST_RUNS = 50
# A step's id has a netdev or a PCI address; a sentence may list several steps.
_MOST_STEPS, _WORD, _SENTENCE = 200, 100, 1000
INTERRUPTED = "interrupted"
# The key of a change that is still applied.
_APPLIED = "held"


@dataclass(frozen=True)
class HostRun:
    """A run that changed a host: ``at`` in ISO 8601, ``by`` the command.

    ``outcome`` is ``done``, ``rolled back``, ``partly rolled back`` or INTERRUPTED,
    with a ``sentence`` unless it is done. ``steps`` are the ids of the steps that it
    applied, ``applied`` is the number of those that are still applied.
    """

    number: int
    at: str
    by: str
    outcome: str
    sentence: str = ""
    steps: tuple[str, ...] = ()
    applied: int = 0


@dataclass(frozen=True)
class EngineEvent:
    """An event that this program has written in the engine; ``at`` in ISO 8601."""

    at: str
    severity: str
    text: str


class _Wrong(ValueError):
    """The document is not a history; ``str()`` says where."""


def runs_of(
    history: Optional[Mapping[str, Any]],
) -> tuple[Optional[tuple[HostRun, ...]], str]:
    """Return the newest MOST_RUNS runs, the newest first, and "".

    Returns None and a sentence if the document has another form; None and "" if there
    is no document.
    """
    if history is None:
        return None, ""
    try:
        runs = _list(history, "runs", "")
        return tuple(
            _run(run, f"runs[{number}]") for number, run in enumerate(runs[:MOST_RUNS])
        ), ""
    except _Wrong as wrong:
        return None, f"its history is not one of ovirt-rdma-host: {wrong}"


def own_events(events: Iterable[Any]) -> tuple[EngineEvent, ...]:
    """Return events of the engine, which are objects of the SDK, as data."""
    return tuple(
        EngineEvent(
            f"{event.time.astimezone(timezone.utc):%Y-%m-%dT%H:%M:%SZ}"
            if event.time
            else "",
            str(getattr(event.severity, "value", "") or ""),
            str(event.description or ""),
        )
        for event in events
    )


def _run(run: object, where: str) -> HostRun:
    acts = _list(run, "acts", where)[:_MOST_STEPS]
    steps: dict[str, bool] = {}
    for number, act in enumerate(acts):
        place = f"{where}.acts[{number}]"
        step = _text(act, "step", place, _WORD)
        applied = _get(act, _APPLIED, place)
        if not isinstance(applied, bool):
            raise _Wrong(f"{place}.{_APPLIED} is {json_type(applied)}")
        steps[step] = steps.get(step, False) or applied
    its_number = _get(run, "run", where)
    if not isinstance(its_number, int) or isinstance(its_number, bool):
        raise _Wrong(f"{where}.run is {json_type(its_number)}")
    verb = _text(run, "verb", where, _WORD)
    return HostRun(
        its_number,
        _text(run, "at", where, _WORD),
        _text(run, "by", where, _SENTENCE) or verb,
        _text(run, "outcome", where, _WORD) or INTERRUPTED,
        _text(run, "sentence", where, _SENTENCE),
        tuple(steps),
        sum(steps.values()),
    )


def _get(data: object, key: str, where: str) -> object:
    if not isinstance(data, Mapping):
        raise _Wrong(f"{where or 'it'} is {json_type(data)}, not an object")
    if key not in data:
        raise _Wrong(f"{where}{'.' if where else ''}{key} is missing")
    return data[key]


def _list(data: object, key: str, where: str) -> list[object]:
    value = _get(data, key, where)
    if not isinstance(value, list):
        raise _Wrong(f"{where}{'.' if where else ''}{key} is {json_type(value)}")
    return value


def _text(data: object, key: str, where: str, most: int) -> str:
    """Return a text, "" for null; of a long one its beginning."""
    value = _get(data, key, where)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _Wrong(f"{where}.{key} is {json_type(value)}, not a string")
    return value if len(value) <= most else f"{value[:most]}..."


# Condense results of ``ovirt-rdma-host bench`` for the report.

# Of one result. ``bench`` itself makes at most 5 loads for each of 32 mounts.
_MOST_ROWS, _MOST_SKIPPED = 192, 20


@dataclass(frozen=True)
class Measured:
    """The repeats of one load over one mount.

    connections: that exist, which may be fewer than ``setting`` asked for
    bytes_per_s, operations_per_s: median, least and most of the repeats
    p99_9_us: the median of the repeats, in microseconds
    cpu_s_per_gb: busy seconds of the host's processors for 10^9 bytes; None: unknown
    """

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
    """A result, and its verdict.

    hostname: as the host itself said; ``host`` is the engine's name of the host with
        that name or address, and ``domain`` the domain with that export; None: none
    better: the transport ``rdma`` or ``tcp``, ``either`` or ``unknown``
    nfs_version: the verdict's, which ``ratios`` and ``options`` are about
    link_limit_mbps: what the port can carry as payload, in Mb/s; None if unknown
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
    options: str
    reasons: tuple[str, ...]
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
    found = [_condensed(result, hosts, domains) for result in dict.fromkeys(results)]
    found.sort(key=lambda one: one.taken_at, reverse=True)
    found.sort(key=lambda one: (one.host or one.hostname, one.export or ""))
    return tuple(found)


def _condensed(
    result: Benchmark, hosts: Sequence[tuple[str, str]], domains: Mapping[str, str]
) -> HostBenchmark:
    judged = verdict(result)
    return HostBenchmark(
        result.hostname,
        _host_named(result.hostname, hosts),
        domains.get(result.export) if result.export else None,
        result.export,
        result.taken_at,
        result.kernel,
        result.path,
        judged.better,
        f"{judged.sentence[0].upper()}{judged.sentence[1:]}.",
        judged.version,
        judged.ratios,
        judged.limits,
        judged.link_limit_mbps,
        judged.options,
        judged.reasons,
        tuple(map(_measured, Rows.of(result).rows[:_MOST_ROWS])),
        result.skipped[:_MOST_SKIPPED],
    )


def _host_named(hostname: str, hosts: Sequence[tuple[str, str]]) -> Optional[str]:
    """Return the name of the host that calls itself ``hostname``; None if none or
    several do. The engine may know it by another name, or without its domain.
    """
    for form in (_whole, _short):
        own = form(hostname)
        found = [host[0] for host in hosts if own in map(form, host)]
        if found:
            return found[0] if len(found) == 1 else None
    return None


def _whole(name: str) -> str:
    return name.lower()


def _short(name: str) -> str:
    # An IP address has no domain to leave out.
    return name if name.replace(".", "").isdigit() else name.partition(".")[0].lower()


def _measured(row: Row) -> Measured:
    return Measured(
        row.setting,
        row.load,
        row.connections,
        len(row.jobs),
        row.rate,
        row.operations,
        row.p99_9_us,
        row.cpu,
    )


# Define the report: engine, hosts, domains and their fabric at one time, as data.


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
    ``versions`` are those that it reported, None without them. ``read_at`` is in
    seconds since 1970.
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
    versions: Optional[Versions] = None
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


# Put the report's data into words, for its page and its picture.

# Before a host's name, so that its verdict is readable without colour.
SIGNS = {OK: "✓", WARN: "!", FAIL: "✕", UNKNOWN: "?", NONE: "-"}
# From this rate on, in Mb/s, a rate is shown in Gb/s.
_GB = 1000


def counted(number: int, noun: str) -> str:
    """Return ``1 host``, ``2 hosts``; for nouns whose plural ends in s."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


def rate_text(mbps: Optional[int]) -> str:
    """Return a rate for people: ``100 Gb/s``; "" if it is unknown."""
    if not mbps:
        return ""
    return f"{mbps / _GB:g} Gb/s" if mbps >= _GB else f"{mbps} Mb/s"


def device_text(device: Device) -> str:
    """Return a device for people: ``mlx5_0, ConnectX-5 (mlx5_core)``."""
    product = f", {device.product}" if device.product else ""
    driver = f" ({device.driver})" if device.driver else ""
    return f"{device.name}{product}{driver}"


def port_text(port: Port) -> str:
    """Return a port for people: ``port 1 ACTIVE, InfiniBand 100 Gb/s, ib0``."""
    netdevs = ", ".join(dict.fromkeys(one.netdev for one in port.attached))
    parts = (
        f"port {port.number} {port.state}",
        f"{port.link_layer} {rate_text(port.rate_mbps)}".strip(),
        netdevs or "no IP address",
    )
    return ", ".join(part for part in parts if part)


def neighbour_text(neighbour: Neighbour) -> str:
    """Return what a port is cabled to for people: a switch by its name, ``leaf1``, all
    else with its kind, ``hv2 mlx5_0 (host)``.
    """
    name = neighbour.name or neighbour.id or "without a name"
    if neighbour.kind == SWITCH:
        return name
    return f"{name} ({neighbour.kind or 'of unknown kind'})"


def transports_text(counted: Iterable[tuple[str, int]]) -> str:
    """Return the numbers by transport: ``7 rdma, 1 tcp``."""
    return ", ".join(f"{number} {word}" for word, number in counted)


def verdict_text(report: Report) -> str:
    """Return the report in one sentence."""
    hosts, bad = report.hosts, [h for h in report.hosts if h.worst == FAIL]
    unknown = [h for h in hosts if h.worst == UNKNOWN]
    doubtful = [h for h in hosts if h.worst == WARN]
    if not hosts:
        return "The engine has no host."
    if not bad and not unknown and not doubtful:
        return (
            f"All is well: {counted(len(hosts), 'host')}, and each domain is mounted "
            "as requested."
        )
    parts = [
        f"{len(some)} {one if len(some) == 1 else many}"
        for some, one, many in (
            (bad, "has a failed check", "have a failed check"),
            (unknown, "is not known to be well", "are not known to be well"),
            (doubtful, "has a warning", "have a warning"),
        )
        if some
    ]
    return f"Of {counted(len(hosts), 'host')}, {', '.join(parts)}."


# Up to this many hosts, each is drawn alone.
MOST_ALONE = 12
# More groups of one cluster are drawn as one, "other hosts".
MOST_GROUPS = 8


@dataclass(frozen=True)
class HostGroup:
    """Hosts that are equal; the first stands for all. ``others``: they are not equal,
    but too few of a kind to be drawn.
    """

    hosts: tuple[ReportHost, ...]
    others: bool = False

    @property
    def first(self) -> ReportHost:
        """The host that stands for all."""
        return self.hosts[0]


def groups_of(report: Report) -> tuple[HostGroup, ...]:
    """Return the groups of the picture, cluster by cluster, the largest first."""
    alone = len(report.hosts) <= MOST_ALONE
    clusters: dict[tuple[str, str], dict[object, list[ReportHost]]] = {}
    for host in report.hosts:
        cluster = clusters.setdefault((host.data_center or "", host.cluster or ""), {})
        cluster.setdefault(host.id or host.name if alone else _kind(host), []).append(
            host
        )
    found: list[HostGroup] = []
    for key in sorted(clusters, key=lambda key: tuple(map(natural, key))):
        groups = [tuple(sorted_hosts(hosts)) for hosts in clusters[key].values()]
        if alone:
            groups.sort(key=lambda hosts: natural(hosts[0].name))
        else:
            groups.sort(key=lambda hosts: (-len(hosts), natural(hosts[0].name)))
        most = len(groups)
        if not alone and most > MOST_GROUPS:
            most = MOST_GROUPS - 1
        found += [HostGroup(hosts) for hosts in groups[:most]]
        rest = [host for hosts in groups[most:] for host in hosts]
        if rest:
            found.append(HostGroup(tuple(sorted_hosts(rest)), others=True))
    return tuple(found)


def _kind(host: ReportHost) -> object:
    """Return what equal hosts have in common."""
    if host.devices is None:
        return "no report"
    devices = tuple(
        replace(
            device,
            firmware=None,
            ports=tuple(replace(port, neighbours=()) for port in device.ports),
        )
        for device in host.devices
    )
    return devices, host.paths


@dataclass(frozen=True)
class PlanGroup:
    """Hosts with the same plan."""

    hosts: tuple[ReportHost, ...]
    steps: tuple[PlanStep, ...]


def plans_of(report: Report) -> tuple[PlanGroup, ...]:
    """Return the plans that have steps, each once with its hosts; the one of the most
    hosts first.
    """
    plans: dict[tuple[PlanStep, ...], list[ReportHost]] = {}
    for host in report.hosts:
        if host.steps:
            plans.setdefault(host.steps, []).append(host)
    groups = [
        PlanGroup(tuple(sorted_hosts(hosts)), steps) for steps, hosts in plans.items()
    ]
    return tuple(
        sorted(groups, key=lambda one: (-len(one.hosts), natural(one.hosts[0].name)))
    )


def sorted_hosts(hosts: Sequence[ReportHost]) -> list[ReportHost]:
    """Return the hosts by name, with hv2 before hv10."""
    return sorted(hosts, key=lambda host: natural(host.name))


def names_of(hosts: Iterable[ReportHost], most: Optional[int] = None) -> str:
    """Return the names of hosts as :func:`in_order` does."""
    return in_order((host.name for host in hosts), most)


def in_order(names: Iterable[str], most: Optional[int] = None) -> str:
    """Return names in order: ``hv1 to hv4, hv6``.

    Names that differ by consecutive numbers are shown as first and last, from three on.
    Of more than ``most`` such parts, only the number of the remaining names is shown.
    """
    runs: list[list[str]] = []
    for name in sorted(names, key=natural):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[tuple[str, int]] = []
    for run in runs:
        if len(run) > 2:
            parts.append((f"{run[0]} to {run[-1]}", len(run)))
        else:
            parts += [(name, 1) for name in run]
    shown = parts if most is None or len(parts) <= most else parts[:most]
    text = ", ".join(part for part, _ in shown)
    left = sum(map(len, runs)) - sum(number for _, number in shown)
    return f"{text} and {left} more" if left else text


def _follows(before: str, name: str) -> bool:
    """Whether ``name`` is ``before`` with the next number in one place."""
    one, other = re.split(r"([0-9]{1,18})", before), re.split(r"([0-9]{1,18})", name)
    if len(one) != len(other):
        return False
    differ = [(a, b) for a, b in zip(one, other) if a != b]
    if len(differ) != 1:
        return False
    ((a, b),) = differ
    number = a.isascii() and a.isdigit() and b.isascii() and b.isdigit()
    return number and int(b) == int(a) + 1 and (len(a) == len(b) or a[0] != "0")


# Reduce the hosts of a report to their fabric: networks, switches and cables.

# More switches are drawn as one, those with the fewest ports.
MOST_SWITCHES = 16


class Network(NamedTuple):
    """A network: the logical network or, without one, its subnets."""

    name: str
    subnets: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The network for people."""
        return self.name or ", ".join(self.subnets) or "no logical network"


@dataclass
class NetworkUse:
    """What hosts report of a network; ``layers`` are link layers by number of ports,
    ``rates`` in Mb/s, ``managers`` the LIDs of subnet managers.
    """

    hosts: int = 0
    layers: Counter[str] = field(default_factory=Counter)
    rates: set[int] = field(default_factory=set)
    managers: set[int] = field(default_factory=set)


class Cable(NamedTuple):
    """A cable of an active port; ``neighbour`` is None if its other end is unknown."""

    host: str
    device: str
    port: Port
    neighbour: Optional[Neighbour]


@dataclass
class SwitchUse:
    """A switch: its ports that hosts are cabled to, their hosts, and ports by the
    network that they lead to.
    """

    title: str
    ports: int = 0
    hosts: set[str] = field(default_factory=set)
    networks: Counter[Network] = field(default_factory=Counter)

    def add(self, host: str, networks: Iterable[Network]) -> None:
        """Add a port of ``host``, which is on ``networks``."""
        self.ports += 1
        self.hosts.add(host)
        self.networks.update(set(networks))


SwitchKey = tuple[str, str]
"""``("switch", ID)``, MORE or NO_SWITCH."""
MORE, NO_SWITCH = ("more", ""), ("unknown", "")


class Switches:
    """The switches of a report. ``all`` has them by key, in the order of their names;
    last come, each as one, those beyond MOST_SWITCHES (MORE), and what is cabled to no
    switch that is known (NO_SWITCH). It is empty if no switch is known.
    """

    def __init__(self, hosts: Sequence[ReportHost]) -> None:
        cables = [cable for host in hosts for cable in cables_of(host)]
        number: Counter[str] = Counter()
        names: dict[str, str] = {}
        for _, _, _, neighbour in cables:
            its = switch_of(neighbour)
            if its and neighbour:
                number[its] += 1
                if neighbour.name:
                    names.setdefault(its, neighbour.name)
        most = [its for its, _ in number.most_common(MOST_SWITCHES)]
        drawn = {its: names.get(its, its) for its in most}
        self.all: dict[SwitchKey, SwitchUse] = {
            ("switch", its): SwitchUse(drawn[its])
            for its in sorted(drawn, key=lambda its: natural(drawn[its]))
        }
        if not drawn:
            return
        self.all[MORE] = SwitchUse(f"{len(number) - len(drawn)} more switches")
        self.all[NO_SWITCH] = SwitchUse("no switch known")
        for cable in cables:
            use = self.all[self.key_of(cable.neighbour)]
            use.add(cable.host, map(network_of, cable.port.attached))
        for host in hosts:
            for _, network in other_ways(host):
                self.all[NO_SWITCH].add(host.name, (network,) if network else ())
        for key in (MORE, NO_SWITCH):
            if not self.all[key].ports:
                del self.all[key]

    def key_of(self, neighbour: Optional[Neighbour]) -> SwitchKey:
        """Return the key of what a port is cabled to."""
        switch = switch_of(neighbour)
        if switch is None:
            return NO_SWITCH
        return ("switch", switch) if ("switch", switch) in self.all else MORE


def switch_of(neighbour: Optional[Neighbour]) -> Optional[str]:
    """Return a switch's id, or its name without one; None for anything else."""
    if neighbour is None or neighbour.kind != SWITCH:
        return None
    return neighbour.id or neighbour.name


def cables_of(host: ReportHost) -> Iterator[Cable]:
    """Yield the cables of the active ports of ``host``; for a port of which nothing is
    known, one that leads nowhere.
    """
    for device in host.devices or ():
        for port in device.ports:
            for neighbour in port.neighbours or (None,) if port.is_active else ():
                yield Cable(host.name, device.name, port, neighbour)


def other_ways(
    host: ReportHost,
) -> Iterator[tuple[ServerPath, Optional[Network]]]:
    """Yield the ways of ``host`` to servers by netdevs whose network no active RDMA
    port is on, each network once.
    """
    led = {
        network_of(attached)
        for cable in cables_of(host)
        for attached in cable.port.attached
    }
    for path in host.paths or ():
        network = network_of(path.attached) if path.attached else None
        if path.netdev and network not in led:
            if network:
                led.add(network)
            yield path, network


def network_of(attached: Attached) -> Network:
    """Return the network that a netdev is on."""
    return Network(attached.network or "", () if attached.network else attached.subnets)


def networks_of(hosts: Iterable[ReportHost]) -> dict[Network, NetworkUse]:
    """Return the networks of active ports, and those by which servers are reached; that
    of the most hosts first.
    """
    found: dict[Network, NetworkUse] = {}
    for host in hosts:
        its: set[Network] = set()
        for device in host.devices or ():
            for port in device.ports:
                for attached in port.attached if port.is_active else ():
                    network = network_of(attached)
                    use = found.setdefault(network, NetworkUse())
                    its.add(network)
                    use.layers[port.link_layer] += 1
                    use.rates.add(port.rate_mbps or 0)
                    use.managers |= {port.sm_lid} - {None}  # type: ignore[arg-type]
        for path in host.paths or ():
            if path.attached is not None:
                network = network_of(path.attached)
                found.setdefault(network, NetworkUse())
                its.add(network)
        for network in its:
            found[network].hosts += 1
    order = sorted(found, key=lambda network: -found[network].hosts)
    return {network: found[network] for network in order}
