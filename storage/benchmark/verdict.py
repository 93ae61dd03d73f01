# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what a benchmark means: RDMA or TCP, the limit that was met, mount options. Pure.

The evidence for a verdict is condensed from facts and counters.

TCP may be the better choice: a host whose processors are busy with Soft-RoCE, or an
array that answers RDMA badly. Differences within the spread of the repeats are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import Optional

from ovirt_rdma.host.export import RDMA, TCP, netid_for, transport_of
from ovirt_rdma.host.facts.devices import PciLink, RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.statistics import (
    LOSSES,
    MountStatistics,
    Statistics,
    growth,
    moved_without_requests,
)
from ovirt_rdma.host.rules.adapters import mbps
from ovirt_rdma.host.server_kinds import KINDS
from ovirt_rdma.storage.benchmark.limits import Limit, limits, mb, physical_mbps
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
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
    found = ports_behind(
        facts.rdma_devices, facts.netdevs, route.netdev, route.source or ""
    )
    if not found:
        fastest, fastest_mbps = _faster(facts, 0, None)
        return NetworkPath(
            address,
            route.netdev,
            mtu,
            fastest=fastest,
            fastest_mbps=fastest_mbps,
        )
    device, port = found[0]
    rate = _rate(device, port)
    link = _pci_link(facts, device)
    fastest, fastest_mbps = _faster(facts, rate, (device.name, port.number))
    return NetworkPath(
        address,
        route.netdev,
        mtu,
        device.name,
        port.number,
        port.link_layer,
        rate,
        port.active_mtu,
        port.max_mtu,
        mbps(link.speed_gts, link.width) if link else None,
        _link_text(link),
        fastest,
        fastest_mbps,
    )


def _rate(device: RdmaDevice, port: RdmaPort) -> Optional[int]:
    # Soft-RoCE invents a rate if the netdev below has none (rxe_query_port).
    return None if device.is_soft_roce else port.data_rate_mbps


def _pci_link(facts: Facts, device: RdmaDevice) -> Optional[PciLink]:
    address = device.pci.address if device.pci else None
    return next((a.pci_link for a in facts.adapters if a.pci.address == address), None)


def _link_text(link: Optional[PciLink]) -> Optional[str]:
    if not link or not link.speed_gts or not link.width:
        return None
    return f"{link.speed_gts:g} GT/s x{link.width}"


def _faster(
    facts: Facts, rate: Optional[int], own: Optional[tuple[str, int]]
) -> tuple[Optional[str], Optional[int]]:
    """Return the fastest other port, if it is faster than ``rate`` (None: unknown)."""
    others = [
        (_rate(device, port) or 0, f"{device.name}/{port.number}")
        for device in facts.rdma_devices
        for port in device.ports
        if port.is_active and (device.name, port.number) != own
    ]
    best, name = max(others, default=(0, ""))
    if rate is None or best <= rate:
        return None, None
    return name, best


@dataclass(frozen=True)
class Cpu:
    """The times of one processor in /proc/stat, in ticks of USER_HZ; ``busy`` is
    without that of virtual machines.
    """

    busy: int
    total: int


@dataclass(frozen=True)
class Moment:
    """The counters of one moment.

    cpus: by name, as ``cpu0``; tcp_resent: segments, and tcp_out_of_order: those that
    arrived before an earlier one; None if unknown
    """

    statistics: Statistics
    cpus: tuple[tuple[str, Cpu], ...] = ()
    tcp_resent: Optional[int] = None
    tcp_out_of_order: Optional[int] = None


# proc(5): user nice system idle iowait irq softirq steal guest guest_nice. Time stolen
# by a hypervisor was not there to use. Guest times are part of user and nice; what
# virtual machines compute is not the work of this benchmark.
_IDLE = (3, 4)
_STEAL = 7
_TIMES = 8


def cpu_times(text: str) -> tuple[tuple[str, Cpu], ...]:
    """Return the processors in the text of /proc/stat."""
    found = []
    for line in text.split("\n"):
        words = line.split()
        if len(words) < 1 + _TIMES or not re.fullmatch(r"cpu[0-9]{1,5}", words[0]):
            continue
        known = words[1 : 1 + _TIMES + 2]
        if not all(re.fullmatch(r"[0-9]{1,20}", word) for word in known):
            continue
        times, guests = [int(word) for word in known[:_TIMES]], known[_TIMES:]
        total = sum(times) - times[_STEAL]
        busy = total - sum(times[at] for at in _IDLE) - sum(map(int, guests))
        found.append((words[0], Cpu(max(0, busy), total)))
    return tuple(found)


def tcp_resent(snmp: str, netstat: str) -> Optional[int]:
    """Return RetransSegs less TCPDSACKRecv, of the texts of /proc/net/snmp and netstat;
    None if either is not there.

    With a DSACK the other side says that it had the segment already (RFC 2883): it was
    late, not lost.
    """
    resent = _tcp(snmp, "Tcp:", "RetransSegs")
    late = _tcp(netstat, "TcpExt:", "TCPDSACKRecv")
    return None if resent is None or late is None else resent - late


def tcp_out_of_order(text: str) -> Optional[int]:
    """Return TCPOFOQueue in the text of /proc/net/netstat; None if it is not there.

    The kernel counts a segment that arrives behind a gap (tcp_data_queue_ofo in
    net/ipv4/tcp_input.c): the only sign of losses on a host that reads.
    """
    return _tcp(text, "TcpExt:", "TCPOFOQueue")


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
    old, new = _mount(before, mountpoint), _mount(after, mountpoint)
    shares, cpu_s = _cpu(before, after, seconds)
    errors, packets = _port(before, after, path)
    counted = _counted(old, new) if old and new else {}
    return Sample(
        seconds=round(seconds, 2),
        cpu_s=round(cpu_s, 3),
        cpus=max(1, len(after.cpus)),
        busiest_cpu=round(max(shares, default=0.0), 3),
        path_errors=errors,
        packets=packets,
        tcp_resent=growth(before.tcp_resent, after.tcp_resent),
        tcp_out_of_order=growth(before.tcp_out_of_order, after.tcp_out_of_order),
        **counted,  # type: ignore[arg-type]
    )


def _mount(moment: Moment, mountpoint: str) -> Optional[MountStatistics]:
    mounts = moment.statistics.mounts
    return next((one for one in mounts if one.mountpoint == mountpoint), None)


def _cpu(before: Moment, after: Moment, seconds: float) -> tuple[list[float], float]:
    """Return the busy share of each processor, and the busy seconds of all."""
    earlier = dict(before.cpus)
    shares = []
    for name, now in after.cpus:
        then = earlier.get(name)
        total = now.total - then.total if then else 0
        if then and total > 0:
            shares.append(min(1.0, max(0, now.busy - then.busy) / total))
    return shares, sum(shares) * seconds


def _port(
    before: Moment, after: Moment, path: Optional[NetworkPath]
) -> tuple[Optional[int], Optional[int]]:
    """Return errors and received packets of the port on ``path``."""
    if path is None or path.device is None:
        return None, None
    own = (path.device, path.port)
    old = next((p for p in before.statistics.ports if (p.device, p.port) == own), None)
    new = next((p for p in after.statistics.ports if (p.device, p.port) == own), None)
    if old is None or new is None:
        return None, None
    grown = (growth(old.get(name), new.get(name)) for name in LOSSES)
    known = [count for count in grown if count is not None]
    return (
        sum(known) if known else None,
        growth(old.packets, new.packets),
    )


def _counted(old: MountStatistics, new: MountStatistics) -> dict[str, object]:
    kinds = {transport_of(one.protocol) for one in new.transports}
    operations, transmissions, rtt, queue = (
        max(0, _total(new, field) - _total(old, field))
        for field in ("operations", "transmissions", "rtt_ms", "queue_ms")
    )
    sends, backlog, connects = (
        max(0, _sum(new, name) - _sum(old, name))
        for name in ("sends", "bklog_u", "connect_count")
    )
    transport = kinds.pop() if len(kinds) == 1 else MIXED if kinds else None
    if moved_without_requests(old, new):
        transport = LOCAL
    return {
        "transport": transport,
        "connections": len(new.transports),
        "rsize": new.rsize,
        "wsize": new.wsize,
        "operations": operations,
        "transmissions": transmissions,
        "rtt_ms": _average(rtt, operations),
        "queue_ms": _average(queue, operations),
        "backlog": _average(backlog, sends),
        "reconnects": connects if len(new.transports) == len(old.transports) else 0,
    }


def _total(mount: MountStatistics, field: str) -> int:
    return sum(getattr(one, field) for one in (*mount.reads, *mount.writes))


def _sum(mount: MountStatistics, counter: str) -> int:
    return sum(one.get(counter) or 0 for one in mount.transports)


def _average(total: int, count: int) -> float:
    return round(total / count, 3) if count else 0.0


def slots_of(facts: Facts) -> Optional[int]:
    """Return the slots of an RDMA connection to come; None if unknown."""
    return facts.tuning.rdma_slots if facts.tuning else None


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


def verdict(benchmark: Benchmark, port: int = 20049) -> Verdict:
    """Return the verdict. ``port`` is that of NFS over RDMA, for the options."""
    rows = Rows.of(benchmark)
    physical = physical_mbps(benchmark.path)
    if not rows.rows:
        return Verdict(_without_mount(benchmark), UNKNOWN, link_limit_mbps=physical)
    version = _best_version(rows)
    first = Setting(RDMA, version), Setting(TCP, version)
    rdma, tcp = (next(iter(rows.alike(one)), None) for one in first)
    astray = next((one for one in (rdma, tcp) if _is_astray(rows, one)), None)
    rows = rows.as_asked()
    ratios = tuple(_ratios(rows, rdma, tcp)) if rdma and tcp else ()
    better, sentence = _conclusion(ratios, rows, rdma, tcp)
    chosen = (tcp if better == TCP else rdma) or tcp or rdma
    found = limits(benchmark, chosen) if chosen else ()
    over_rdma = limits(benchmark, rdma) if rdma else ()
    if astray:
        better, found = UNKNOWN, limits(benchmark, astray)
        sentence = _not_measured(Rows.of(benchmark), astray)
    kinds = {one.kind for one in found}
    other = tuple(one for one in over_rdma if one.kind not in kinds)
    rdma_limits = other if better == TCP else ()
    ipv6 = benchmark.path is not None and ":" in benchmark.path.address
    options, reasons = _options(rows, chosen, better, port, ipv6=ipv6)
    kind = KINDS.get(benchmark.server_kind or "")
    if kind and kind.options and options and chosen and chosen.transport == RDMA:
        options = f"{options},{kind.options}"
        more = f"{kind.title} is unstable with larger requests"
        reasons = (*reasons, f"{more} ({kind.documents[0][1]})")
    clauses = [sentence, _limit_clause(found)]
    if rdma_limits:
        clauses.append(
            f"RDMA may be faster without its limit: {rdma_limits[0].sentence}"
        )
    return Verdict(
        sentence="; ".join(clauses),
        better=better,
        version=version,
        ratios=ratios,
        limits=found,
        rdma_limits=rdma_limits,
        link_limit_mbps=physical and round(physical),
        options=options,
        reasons=reasons,
    )


def _without_mount(benchmark: Benchmark) -> str:
    best = max((r.bytes_per_s for r in benchmark.link), default=None)
    if best is None:
        return "nothing was measured"
    return f"the link carries {mb(best)}; no export was measured"


def _is_astray(rows: Rows, setting: Optional[Setting]) -> bool:
    return any(row.is_astray for row in rows.rows if row.setting == setting)


def _not_measured(rows: Rows, setting: Setting) -> str:
    name = setting.transport.upper()
    samples = [s for row in rows.rows if row.setting == setting for s in row.samples]
    if any(sample.transport == LOCAL for sample in samples):
        return f"{name} was not measured: the data did not leave this host"
    return f"{name} was not measured: its mount went over another transport"


def _score(rows: Rows, setting: Setting) -> float:
    """Return the product of the rates of all loads, to compare settings by."""
    found = [rows.one(setting, load, DEPTH) for load in _NAMES]
    return prod(row.rate.middle for row in found if row)


def _best_version(rows: Rows) -> str:
    """Return the fastest version with both transports; without one, the fastest."""
    settings = rows.settings
    rdma, tcp = (
        {one.version for one in settings if one.transport == transport}
        for transport in (RDMA, TCP)
    )
    both = [one for one in settings if one.version in rdma & tcp]
    return max(both or settings, key=lambda one: _score(rows, one)).version


def _ratios(rows: Rows, rdma: Setting, tcp: Setting) -> Iterator[Ratio]:
    for load in _NAMES:
        one, other = rows.one(rdma, load, DEPTH), rows.one(tcp, load, DEPTH)
        # Less than a byte per second is nothing: no ratio, and none that rounds to 0.
        if one and other and other.rate.middle >= 1:
            value = max(one.rate.middle / other.rate.middle, 0.001)
            yield Ratio(load, round(value, 3), apart(one.rate, other.rate))


def _conclusion(
    ratios: tuple[Ratio, ...],
    rows: Rows,
    rdma: Optional[Setting],
    tcp: Optional[Setting],
) -> tuple[str, str]:
    if not rdma or not tcp or not ratios:
        only = "RDMA" if rdma else "TCP"
        row = rows.one(rdma or tcp, SEQUENTIAL_READ)
        rate = f" ({mb(row.rate.middle)})" if row else ""
        return UNKNOWN, f"only {only} was measured{rate}: nothing can be compared"
    faster = [r for r in ratios if r.certain and r.value >= _MATTERS]
    slower = [r for r in ratios if r.certain and r.value <= 1 / _MATTERS]
    if faster and not slower:
        return RDMA, f"RDMA {_times(faster[0], faster[0].value)} TCP here: keep it"
    if slower and not faster:
        return TCP, f"TCP {_times(slower[0], 1 / slower[0].value)} RDMA here: use TCP"
    if faster and slower:
        return EITHER, (
            f"RDMA {_times(faster[0], faster[0].value)} TCP here, but TCP "
            f"{_times(slower[0], 1 / slower[0].value)} RDMA: choose by what your "
            "machines do"
        )
    return _equal(rows, rdma, tcp)


def _times(ratio: Ratio, value: float) -> str:
    return f"{_NAMES[ratio.load]} {value:.1f} times"


def _equal(rows: Rows, rdma: Setting, tcp: Setting) -> tuple[str, str]:
    """Return the conclusion for equal rates: what a byte costs decides."""
    one, other = (rows.one(s, SEQUENTIAL_READ, DEPTH) for s in (rdma, tcp))
    same = "RDMA and TCP are equally fast here"
    if one and other and one.cpu and other.cpu and apart(one.cpu, other.cpu):
        share = one.cpu.middle / other.cpu.middle if other.cpu.middle else 1.0
        if share <= 1 / _MATTERS:
            return RDMA, f"{same}, and RDMA takes {share:.0%} of TCP's CPU: keep RDMA"
        if share >= _MATTERS:
            return TCP, f"{same}, and TCP takes {1 / share:.0%} of RDMA's CPU: use TCP"
    return EITHER, f"{same}: either is right"


def _limit_clause(found: tuple[Limit, ...]) -> str:
    if not found:
        return "no limit was found"
    first = found[0]
    return f"the limit of {first.loads[0]}: {first.sentence}"


def _options(
    rows: Rows, chosen: Optional[Setting], better: str, port: int, *, ipv6: bool
) -> tuple[str, tuple[str, ...]]:
    """Return the options to recommend, and the reasons."""
    if chosen is None or better == UNKNOWN:
        return "", ()
    reasons = []
    options = [f"proto={netid_for(chosen.transport, ipv6=ipv6)}"]
    if chosen.transport == RDMA:
        options.append(f"port={port}")
    versions = {one.version for one in rows.settings}
    if len(versions) > 1:
        others = ", ".join(sorted(versions - {chosen.version}))
        reasons.append(
            f"NFS {chosen.version} was the fastest with both transports; measured too: "
            f"{others}"
        )
    best = _more_connections(rows, chosen)
    if best:
        row, other = best
        options.append(f"nconnect={other.setting.nconnect}")
        reasons.append(
            f"{other.connections} connections move {mb(other.rate.middle)}, one moves "
            f"{mb(row.rate.middle)} ({row.load})"
        )
    return ",".join(options), tuple(reasons)


def _more_connections(rows: Rows, chosen: Setting) -> Optional[tuple[Row, Row]]:
    """Return the rows that show that more connections help; None if they do not."""
    better = []
    for setting in rows.alike(chosen, chosen.nconnect):
        for load in _NAMES:
            row, other = rows.one(chosen, load, DEPTH), rows.one(setting, load, DEPTH)
            if row and other and other.connections > row.connections:
                gain = other.rate.middle / row.rate.middle if row.rate.middle else 0.0
                if gain >= _MATTERS and apart(row.rate, other.rate):
                    better.append((gain, row, other))
    if not better:
        return None
    _, row, other = max(better, key=lambda one: one[0])
    return row, other
