# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what a benchmark means: RDMA or TCP, the limit that was met, mount options. Pure.

The evidence for a verdict is condensed from facts and counters.

TCP may be the better choice: a host whose processors are busy with Soft-RoCE, or an
array that answers RDMA badly. Differences within the spread of the repeats are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import prod
from typing import Optional

from ovirt_rdma.host.export import RDMA, TCP, netid_for, nfs_check, transport_of
from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.statistics import (
    LOSSES,
    READS,
    WRITES,
    MountStatistics,
    Statistics,
    growth,
    load_between,
    moved_without_requests,
)
from ovirt_rdma.host.policy.model import DEFAULT_PORT
from ovirt_rdma.host.rules.adapters import mbps
from ovirt_rdma.host.server_kinds import KINDS
from ovirt_rdma.storage.benchmark.limits import (
    Limit,
    limits,
    mb,
    more_connections,
    physical_mbps,
)
from ovirt_rdma.storage.benchmark.model import (
    LOCAL,
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Benchmark,
    NetworkPath,
    Row,
    Rows,
    Sample,
    Setting,
    apart,
)
from ovirt_rdma.storage.readiness import ports_behind

MIXED = "mixed"


def path_to(facts: Facts, address: str) -> NetworkPath:
    """Return how ``facts``' host reaches ``address``."""
    route = next((one for one in facts.routes if one.destination == address), None)
    if route is None or route.netdev is None:
        return NetworkPath(address)
    mtu = next((d.mtu for d in facts.netdevs if d.name == route.netdev), None)
    path = NetworkPath(address, route.netdev, mtu)
    own: Optional[int] = 0
    behind = ports_behind(
        facts.rdma_devices, facts.netdevs, route.netdev, route.source or ""
    )
    if behind:
        device, port = behind[0]
        own = _rate(device, port)
        slot = device.pci.address if device.pci else None
        link = next((a.pci_link for a in facts.adapters if a.pci.address == slot), None)
        known = mbps(link.speed_gts, link.width) if link else None
        path = replace(
            path,
            device=device.name,
            port=port.number,
            link_layer=port.link_layer,
            data_rate_mbps=own,
            active_mtu=port.active_mtu,
            max_mtu=port.max_mtu,
            pcie_mbps=known,
            pcie_link=f"{link.speed_gts:g} GT/s x{link.width}"
            if link and known
            else None,
        )
    others = [
        (rate, f"{device.name}/{port.number}")
        for device in facts.rdma_devices
        for port in device.ports
        if port.is_active and (device.name, port.number) != (path.device, path.port)
        if own is not None and (rate := _rate(device, port) or 0) > own
    ]
    if not others:
        return path
    fastest_mbps, fastest = max(others)
    return replace(path, fastest=fastest, fastest_mbps=fastest_mbps)


def _rate(device: RdmaDevice, port: RdmaPort) -> Optional[int]:
    # Soft-RoCE invents a rate if the netdev below has none (rxe_query_port).
    return None if device.is_soft_roce else port.data_rate_mbps


# proc(5): user nice system idle iowait irq softirq steal guest guest_nice. Time stolen
# by a hypervisor was not there to use. Guest times are part of user and nice; what
# virtual machines compute is not the work of this benchmark.
_CPU = re.compile(r"^(cpu[0-9]+)((?: [0-9]{1,20}){8,10})$", re.MULTILINE)


@dataclass(frozen=True)
class Moment:
    """The counters of one moment.

    cpus: the busy ticks of each processor, without those of virtual machines, and all
        of them, by name, as ``cpu0``
    tcp_resent: segments, without those that the other side had already (DSACK, RFC
        2883): they were late, not lost
    tcp_out_of_order: segments that arrived behind a gap (tcp_data_queue_ofo in
        net/ipv4/tcp_input.c): the only sign of losses on a host that reads
    """

    statistics: Statistics
    cpus: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    tcp_resent: Optional[int] = None
    tcp_out_of_order: Optional[int] = None

    @classmethod
    def of(cls, statistics: Statistics, stat: str, snmp: str, netstat: str) -> Moment:
        """Return the moment of the texts of /proc/stat, /proc/net/snmp and netstat."""
        resent = _tcp(snmp, "Tcp:", "RetransSegs")
        late = _tcp(netstat, "TcpExt:", "TCPDSACKRecv")
        return cls(
            statistics,
            dict(map(_cpu, _CPU.finditer(stat))),
            None if resent is None or late is None else resent - late,
            _tcp(netstat, "TcpExt:", "TCPOFOQueue"),
        )


def _cpu(found: re.Match[str]) -> tuple[str, tuple[int, int]]:
    times = [int(word) for word in found[2].split()]
    idle, stolen, guests = sum(times[3:5]), times[7], sum(times[8:])
    total = sum(times[:8]) - stolen
    return found[1], (max(0, total - idle - guests), total)


def _tcp(text: str, title: str, name: str) -> Optional[int]:
    lines = [line.split() for line in text.split("\n") if line.startswith(title)]
    for names, values in zip(lines[::2], lines[1::2]):
        found = dict(zip(names, values)).get(name, "")
        if re.fullmatch(r"[0-9]{1,20}", found):
            return int(found)
    return None


def sample_between(
    before: Moment, after: Moment, mountpoint: str, path: Optional[NetworkPath]
) -> Sample:
    """Return what was counted between two moments, for the mount at ``mountpoint``."""
    seconds = max(0.01, after.statistics.taken_s - before.statistics.taken_s)
    shares = [0.0]
    for name, (busy, total) in after.cpus.items():
        was_busy, was_total = before.cpus.get(name, (busy, total))
        if total > was_total:
            shares.append(min(1.0, max(0, busy - was_busy) / (total - was_total)))
    place = (path.device, path.port) if path else None
    old, new = (
        next((p for p in moment.statistics.ports if p[:2] == place), None)
        for moment in (before, after)
    )
    losses = [growth(old.get(n), new.get(n)) for n in LOSSES] if old and new else []
    known = [count for count in losses if count is not None]
    sample = Sample(
        seconds=round(seconds, 2),
        cpu_s=round(sum(shares) * seconds, 3),
        cpus=max(1, len(after.cpus)),
        busiest_cpu=round(max(shares), 3),
        path_errors=sum(known) if known else None,
        packets=growth(old.packets, new.packets) if old and new else None,
        tcp_resent=growth(before.tcp_resent, after.tcp_resent),
        tcp_out_of_order=growth(before.tcp_out_of_order, after.tcp_out_of_order),
    )
    mounts = [
        next((m for m in moment.statistics.mounts if m.mountpoint == mountpoint), None)
        for moment in (before, after)
    ]
    return _with_mount(sample, *mounts)


def _with_mount(
    sample: Sample, old: Optional[MountStatistics], new: Optional[MountStatistics]
) -> Sample:
    load = load_between(old, new, sample.seconds) if new else None
    if old is None or new is None or load is None:
        return sample
    kinds = {transport_of(one.protocol) for one in new.transports}
    transport = kinds.pop() if len(kinds) == 1 else MIXED if kinds else None
    if moved_without_requests(old, new):
        transport = LOCAL
    data = [one for one in load.operations if one.name in (*READS, *WRITES)]
    operations, transmissions, rtt_ms, queue_ms = (
        sum(getattr(one, name) for one in data)
        for name in ("operations", "transmissions", "rtt_ms", "queue_ms")
    )
    return replace(
        sample,
        transport=transport,
        connections=len(new.transports),
        rsize=new.rsize,
        wsize=new.wsize,
        operations=operations,
        transmissions=transmissions,
        rtt_ms=round(rtt_ms / (operations or 1), 3),
        queue_ms=round(queue_ms / (operations or 1), 3),
        backlog=round(load.backlog, 3),
        reconnects=load.connects if len(new.transports) == len(old.transports) else 0,
    )


EITHER, UNKNOWN = "either", "unknown"
_NAMES = {
    SEQUENTIAL_READ: "reads",
    SEQUENTIAL_WRITE: "writes",
    RANDOM_READ: "reads small blocks",
    RANDOM_WRITE: "writes small blocks",
}
# Less than a tenth is no reason to change storage.
_MATTERS = 1.10


@dataclass(frozen=True)
class Ratio:
    """RDMA in parts of TCP, for a load: ``value``; ``certain`` if it is more than the
    spread.
    """

    load: str
    value: float
    certain: bool


@dataclass(frozen=True)
class Verdict:
    """The conclusion.

    sentence: the whole conclusion in one sentence
    better: RDMA, TCP, ``either`` or ``unknown``
    version: the fastest NFS version that was measured over both transports, and is
        compared; without one the fastest
    ratios: by load, that of large reads first
    limits: of the setting that is recommended, without more connections
    rdma_limits: if TCP is recommended: what limits RDMA, where it is another limit
    link_limit_mbps: what the port can carry as payload, in Mb/s; None if unknown
    options: the mount options to use with that version; empty if nothing is compared
    reasons: why these options, a sentence each
    """

    sentence: str
    better: str
    version: Optional[str] = None
    ratios: tuple[Ratio, ...] = ()
    limits: tuple[Limit, ...] = ()
    rdma_limits: tuple[Limit, ...] = ()
    link_limit_mbps: Optional[float] = None
    options: str = ""
    reasons: tuple[str, ...] = ()


def verdict(benchmark: Benchmark) -> Verdict:
    """Return the verdict."""
    measured = Rows.of(benchmark)
    if not measured.rows:
        return Verdict("nothing was measured", UNKNOWN)
    version = _best_version(measured)
    rdma, tcp = (
        next(iter(measured.alike(Setting(transport, version))), None)
        for transport in (RDMA, TCP)
    )
    rows = Rows(benchmark, tuple(one for one in measured.rows if not one.others))
    ratios = tuple(_ratios(rows, rdma, tcp)) if rdma and tcp else ()
    better, sentence = _conclusion(ratios, rows, rdma, tcp)
    chosen = (tcp if better == TCP else rdma) or tcp or rdma or measured.settings[0]
    astray = [row for row in measured.rows if row.setting in (rdma, tcp) and row.others]
    if astray:
        better, chosen = UNKNOWN, min((row.setting for row in astray), key=str)
        sentence = _not_measured(
            benchmark, [row for row in astray if row.setting == chosen]
        )
    found = limits(benchmark, chosen)
    kinds = {one.kind for one in found}
    over_rdma = limits(benchmark, rdma) if rdma and better == TCP else ()
    rdma_limits = tuple(one for one in over_rdma if one.kind not in kinds)
    clauses = [sentence, "no limit was found"]
    if found:
        clauses[1] = f"the limit of {found[0].loads[0]}: {found[0].sentence}"
    if rdma_limits:
        clauses.append(
            f"RDMA may be faster without its limit: {rdma_limits[0].sentence}"
        )
    known = better != UNKNOWN
    options, reasons = _options(rows, chosen) if known else ([], [])
    physical = physical_mbps(benchmark.path)
    return Verdict(
        "; ".join(clauses),
        better,
        version,
        ratios,
        found,
        rdma_limits,
        physical and round(physical),
        ",".join(options),
        tuple(reasons),
    )


def _not_measured(benchmark: Benchmark, astray: Sequence[Row]) -> str:
    check = nfs_check(benchmark.export)
    way = f"its mount went over another transport, and {check} says why"
    if any(LOCAL in row.others for row in astray):
        way = "the data did not leave this host (LOCALIO): measure from another one"
    return f"{astray[0].setting.transport.upper()} was not measured: {way}"


def _best_version(rows: Rows) -> str:
    """Return the fastest version with both transports; without one, the fastest."""
    rdma, tcp = (
        {one.version for one in rows.settings if one.transport == transport}
        for transport in (RDMA, TCP)
    )
    both = [one for one in rows.settings if one.version in rdma & tcp]

    def score(setting: Setting) -> float:
        found = [rows.one(setting, load) for load in _NAMES]
        return prod(row.rate.middle for row in found if row)

    return max(both or rows.settings, key=score).version


def _ratios(rows: Rows, rdma: Setting, tcp: Setting) -> Iterator[Ratio]:
    for load in _NAMES:
        one, other = rows.one(rdma, load), rows.one(tcp, load)
        # Less than a byte per second is nothing: no ratio, and none that rounds to 0.
        if one and other and other.rate.middle >= 1:
            value = max(one.rate.middle / other.rate.middle, 0.001)
            yield Ratio(load, round(value, 3), apart(one.rate, other.rate))


def _conclusion(
    ratios: Sequence[Ratio],
    rows: Rows,
    rdma: Optional[Setting],
    tcp: Optional[Setting],
) -> tuple[str, str]:
    if not ratios:
        only = "RDMA" if rdma else "TCP"
        row = rows.one(rdma or tcp, SEQUENTIAL_READ)
        rate = f" ({mb(row.rate.middle)})" if row else ""
        return UNKNOWN, f"only {only} was measured{rate}: nothing can be compared"
    faster = [r for r in ratios if r.certain and r.value >= _MATTERS]
    slower = [r for r in ratios if r.certain and r.value <= 1 / _MATTERS]
    quick = f"RDMA {_NAMES[faster[0].load]} {faster[0].value:.1f}" if faster else ""
    late = f"TCP {_NAMES[slower[0].load]} {1 / slower[0].value:.1f}" if slower else ""
    if faster and not slower:
        return RDMA, f"{quick} times TCP here: keep it"
    if slower and not faster:
        return TCP, f"{late} times RDMA here: use TCP"
    if faster and slower:
        return EITHER, (
            f"{quick} times TCP here, but {late} times RDMA: choose by what your "
            "machines do"
        )
    return _equal(rows, rdma, tcp)


def _equal(
    rows: Rows, rdma: Optional[Setting], tcp: Optional[Setting]
) -> tuple[str, str]:
    """Return the conclusion for equal rates: what a byte costs decides."""
    one, other = (rows.one(setting, SEQUENTIAL_READ) for setting in (rdma, tcp))
    same = "RDMA and TCP are equally fast here"
    if one and other and one.cpu and other.cpu and apart(one.cpu, other.cpu):
        share = one.cpu.middle / other.cpu.middle if other.cpu.middle else 1.0
        if share <= 1 / _MATTERS:
            return RDMA, f"{same}, and RDMA takes {share:.0%} of TCP's CPU: keep RDMA"
        if share >= _MATTERS:
            return TCP, f"{same}, and TCP takes {1 / share:.0%} of RDMA's CPU: use TCP"
    return EITHER, f"{same}: either is right"


def _options(rows: Rows, chosen: Setting) -> tuple[list[str], list[str]]:
    """Return the options to recommend, and the reasons."""
    path = rows.benchmark.path
    ipv6 = path is not None and ":" in path.address
    options, reasons = [f"proto={netid_for(chosen.transport, ipv6=ipv6)}"], []
    if chosen.transport == RDMA:
        options.append(f"port={DEFAULT_PORT}")
    versions = {one.version for one in rows.settings} - {chosen.version}
    if versions:
        reasons.append(
            f"NFS {chosen.version} was the fastest with both transports; measured too: "
            f"{', '.join(sorted(versions))}"
        )
    faster = [
        other
        for load in _NAMES
        if (row := rows.one(chosen, load)) and (other := more_connections(rows, row))
    ]
    if faster:
        options.append(f"nconnect={faster[0].setting.nconnect}")
        reasons.append(
            f"{faster[0].connections} connections move {mb(faster[0].rate.middle)} "
            f"({faster[0].load}), clearly more than one"
        )
    kind = KINDS.get(rows.benchmark.server_kind or "")
    if kind and kind.options and chosen.transport == RDMA:
        options.append(kind.options)
        more = f"{kind.title} is unstable with larger requests"
        reasons.append(f"{more} ({kind.document})")
    return options, reasons
