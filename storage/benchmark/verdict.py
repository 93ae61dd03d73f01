# SPDX-License-Identifier: GPL-2.0-or-later
"""Say what a benchmark means: RDMA or TCP, and the limit that was met. Pure.

The evidence is condensed from facts and counters. TCP may be the better choice: a host
whose processors are busy with Soft-RoCE, or an array that answers RDMA badly.
Differences within the spread of the repeats are none.

Three kinds of loads are judged: large reads, large writes, small requests. For each,
the first check of :data:`CHECKS` that finds evidence names the limit. Without evidence
none is named: a sound component must not be blamed. The shares below are choices of
ours, with the reason beside each.

Disks and NFS threads of the server do not show on this host. The server is named if
many requests are answered little faster than one, or if both transports end at the same
rate and it is late, while this host has nothing to do.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Callable, Optional

from ovirt_rdma.host.export import DEFAULT_TIMEOUT, RDMA, TCP, nfs_check, transport_of
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.statistics import (
    LOSSES,
    READS,
    WRITES,
    Statistics,
    growth,
    load_between,
    moved_without_requests,
)
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
    Sample,
    Setting,
    apart,
)
from ovirt_rdma.storage.readiness import ports_behind

LARGE_READS, LARGE_WRITES, SMALL = "large reads", "large writes", "small requests"
LOADS = {
    LARGE_READS: SEQUENTIAL_READ,
    LARGE_WRITES: SEQUENTIAL_WRITE,
    SMALL: RANDOM_READ,
}
# Good NFS reaches 96 % of the payload over RDMA; a TCP stream less.
_FULL = 0.85
_BUSY_ONE, _BUSY_ALL = 0.95, 0.90
# One packet in 10,000: congestion control halves its rate for fewer.
_LOSS, _TCP_LOSS = 1e-4, 1e-3
# Behind a lost segment all others of the window are out of order.
_TCP_GAPS = 1e-2
# The samples include the start of fio: a processor that is busy in the whole run shows
# as less, in the lab as 0.55 in a run of one second.
_BUSY_PARTLY = 0.50
# One thread answers one request at a time, two answer twice as many.
_FEW_ANSWERS = 4.0
# Flash answers in less than 0.5 ms, a rotating disk in 4 to 15 ms: by any transport.
_DISK_MS = 2.0
# Rates that differ by less, in parts of the smaller one, are equal.
_EQUAL = 0.15


@dataclass(frozen=True)
class Limit:
    """A limit. ``kind`` is stable, for programs; ``loads`` are those that met it."""

    kind: str
    loads: tuple[str, ...]
    sentence: str
    evidence: str
    fix: str = ""


def possible(benchmark: Benchmark) -> Optional[float]:
    """Return the most bytes per second that the port can carry; None if unknown, or if
    clearly more was measured: there is another way too, as with a bond.
    """
    most = max((row.rate.most for row in benchmark.rows), default=0.0)
    limit = (physical_mbps(benchmark.path) or 0.0) * 1e6 / 8
    return limit if most <= limit / _FULL and limit else None


def is_full(benchmark: Benchmark, row: Row) -> bool:
    """Whether ``row`` uses all that the port has."""
    limit = possible(benchmark)
    return limit is not None and row.rate.most >= _FULL * limit


def _other(
    benchmark: Benchmark, row: Row, name: str, transport: str, depth: int = DEPTH
) -> Optional[Row]:
    """Return the row of a load by ``transport``, mounted as that of ``row``."""
    return benchmark.row(replace(row.setting, transport=transport), name, depth)


def physical_mbps(path: Optional[NetworkPath]) -> Optional[float]:
    """Return the payload that the port on ``path`` can carry, in Mb/s; or None.

    Headers of each packet: InfiniBand LRH 8, BTH 12, ICRC 4, VCRC 2 bytes (IBTA 1, 9);
    RoCE v2 Ethernet with gap 38, IP 20, UDP 8, BTH 12, ICRC 4 (IBTA A17).
    """
    if path is None or not path.data_rate_mbps:
        return None
    headers = 26 if path.link_layer == "InfiniBand" else 82
    mtu = path.active_mtu or 4096
    return path.data_rate_mbps * mtu / (mtu + headers)


def mb(rate: float) -> str:
    """Return bytes per second for people: ``1234 MB/s``, or ``1.2 MB/s``."""
    value = rate / 1e6
    return f"{value:.0f} MB/s" if value >= 10 else f"{value:.1f} MB/s"


def limits(benchmark: Benchmark, setting: Setting) -> tuple[Limit, ...]:
    """Return the limits that ``setting`` met, that of large reads first."""
    found: dict[str, Limit] = {}
    for load, name in LOADS.items():
        row = benchmark.row(setting, name)
        # What went over another transport says nothing about this one.
        if row is None or row.others:
            continue
        checked = (check(benchmark, load, row) for check in CHECKS)
        named = next(filter(None, checked), None)
        if named:
            kind, *texts = named
            same = found.get(kind, Limit(kind, (), *texts))
            found[kind] = replace(same, loads=(*same.loads, load))
    return tuple(found.values())


Found = Optional[tuple[str, str, str, str]]
"""Kind, sentence, evidence and fix of a limit; None without evidence."""


def _losses(benchmark: Benchmark, load: str, row: Row) -> Found:
    path, operations = benchmark.path, row.total("operations")
    errors, packets = row.total("path_errors"), row.total("packets")
    moved = sum(job.bytes_per_s * job.sample.seconds for job in row.jobs)
    segments = max(moved / ((path and path.netdev_mtu) or 1500), 1e4)
    of = f" in {packets} packets" if packets else ""
    rdma = [(errors, _LOSS * max(packets, 1e4), f"errors of the port{of}")]
    tcp = [
        (row.total("tcp_resent"), _TCP_LOSS * segments, "TCP segments sent again"),
        (row.total("tcp_out_of_order"), _TCP_GAPS * segments, "TCP segments with gaps"),
    ]
    counts = rdma if row.setting.transport == RDMA else tcp
    # A server that took longer than `timeo` is no loss, if the port counts no errors:
    # the kernel then makes an RDMA connection again (xprt_rdma_timer in
    # net/sunrpc/xprtrdma/transport.c).
    counted = any(sample.path_errors is not None for sample in row.samples)
    longest_us = max(job.p99_9_us for job in row.jobs)
    if errors or not counted or longest_us < DEFAULT_TIMEOUT * 1e5:
        again = row.total("transmissions") - operations
        counts.append((again, _LOSS * operations, f"of {operations} requests repeated"))
        counts.append((row.total("reconnects"), 0.0, "reconnects"))
    signs = [f"{count} {what}" for count, most, what in counts if count > most]
    if not signs:
        return None
    return (
        "losses",
        "packets are lost on the way",
        f"{row.setting}, {row.load}: {', '.join(signs)}",
        "look at cables, transceivers and, with RoCE, flow control (PFC, ECN): "
        "ovirt-rdma-host check",
    )


def _cpu(benchmark: Benchmark, load: str, row: Row) -> Found:
    one = row.average("busiest_cpu")
    together = row.average("busy_share")
    # A faster processor would not make a full port faster.
    full = load != SMALL and is_full(benchmark, row)
    if full or (one < _BUSY_ONE and together < _BUSY_ALL):
        return None
    return (
        "cpu",
        "a processor of this host is fully used",
        f"{row.load}: the busiest processor is {one:.0%} busy, all are {together:.0%}",
        "take load from this host; check the power profile and where the adapter's "
        "interrupts go; more connections (nconnect) may use more processors",
    )


def _slots(benchmark: Benchmark, load: str, row: Row) -> Found:
    backlog = row.average("backlog")
    if row.setting.transport != RDMA or backlog < 1 or is_full(benchmark, row):
        return None
    slots = benchmark.slots
    return (
        "slots",
        "requests wait for a slot of the connection",
        f"{row.load}: {backlog:.1f} requests wait on average, with "
        f"{slots if slots is not None else 'an unknown number of'} slots",
        "set sunrpc.rdma_slot_table_entries to 128 or more in modprobe.d and remount, "
        "or use nconnect",
    )


def _link(benchmark: Benchmark, load: str, row: Row) -> Found:
    limit = possible(benchmark)
    names = (SEQUENTIAL_READ, SEQUENTIAL_WRITE)
    both = [_other(benchmark, row, name, how) for name in names for how in (RDMA, TCP)]
    rates = [one.rate.middle for one in both if one]
    if load == SMALL:
        return None
    if limit is not None and is_full(benchmark, row):
        evidence = f"{mb(row.rate.most)} of {mb(limit)}, which the port carries"
    elif limit is None and len(rates) == len(both) and _about_equal(*rates):
        evidence = (
            f"reads and writes by both transports end at {mb(row.rate.middle)}, and no "
            "processor is fully used"
        )
    else:
        return None
    return "link-rate", "the link is fully used", f"{row.load}: {evidence}", ""


def _about_equal(*rates: float) -> bool:
    """Whether all of the rates are known and equal, as far as a benchmark shows it."""
    return min(rates) > 0 and max(rates) / min(rates) <= 1 + _EQUAL


def _server(benchmark: Benchmark, load: str, row: Row) -> Found:
    """Find a server that is late, whatever in it is."""
    evidence = _one_by_one(benchmark, row) if load == SMALL else ""
    evidence = evidence or _late_by_both(benchmark, load, row)
    if not evidence:
        return None
    return (
        "server",
        "the server is the limit: its disks, sync, NFS threads or processors",
        f"{row.load}: {evidence}",
        "on the server look at the disks (iostat -x), its cache and processors, sync "
        "exports, and raise the number of NFS threads (nfs.conf, [nfsd] threads)",
    )


def _one_by_one(benchmark: Benchmark, row: Row) -> str:
    """Return the evidence that many small requests are answered little faster than one;
    "" without.
    """
    first = benchmark.row(row.setting, RANDOM_READ, 1)
    # A host that waits for its server has nothing to do.
    if (
        first is None
        or row.average("busiest_cpu") >= _BUSY_PARTLY
        or not first.operations.middle
    ):
        return ""
    gain = row.operations.middle / first.operations.middle
    rtt, alone = row.average("rtt_ms"), first.average("rtt_ms")
    # Where the time is: at the server or the network, not in this host's queues.
    waits = 0 < rtt >= 3 * row.average("queue_ms")
    if gain >= _FEW_ANSWERS or not waits or rtt < 3 * alone:
        return ""
    return (
        f"{DEPTH} requests under way are answered {gain:.1f} times as fast as one; "
        f"each then takes {rtt:.2f} ms at the server"
    )


def _late_by_both(benchmark: Benchmark, load: str, row: Row) -> str:
    """Return the evidence that the server is late by both transports; "" without."""
    how = TCP if row.setting.transport == RDMA else RDMA
    other = _other(benchmark, row, LOADS[load], how)
    # Equal rates prove nothing if one of them is that of a path that loses packets.
    if not other or _losses(benchmark, load, other):
        return ""
    if not _about_equal(row.rate.middle, other.rate.middle):
        return ""
    if load == LARGE_WRITES:
        reads = benchmark.row(row.setting, SEQUENTIAL_READ)
        if not reads or row.rate.most > 0.6 * reads.rate.least:
            return ""
        return (
            f"writes end at {mb(row.rate.middle)} by both transports, reads reach "
            f"{mb(reads.rate.middle)}"
        )
    both = [_other(benchmark, row, RANDOM_READ, how, 1) for how in (RDMA, TCP)]
    times = [
        one.average("rtt_ms")
        for one in both
        if one and one.average("busiest_cpu") < _BUSY_PARTLY
    ]
    if len(times) < len(both) or min(times) < _DISK_MS:
        return ""
    return (
        f"a read of 4 KiB takes {min(times):.1f} ms at the server, with nothing else "
        "under way, and both transports are equally fast"
    )


CHECKS: tuple[Callable[[Benchmark, str, Row], Found], ...] = (
    _losses,
    _cpu,
    _slots,
    _link,
    _server,
)


MIXED = "mixed"


def path_to(facts: Facts, address: str) -> NetworkPath:
    """Return how ``facts``' host reaches ``address``."""
    route = next((one for one in facts.routes if one.destination == address), None)
    if route is None or route.netdev is None:
        return NetworkPath(address)
    mtu = next((d.mtu for d in facts.netdevs if d.name == route.netdev), None)
    path = NetworkPath(address, route.netdev, mtu)
    behind = ports_behind(facts.rdma_devices, facts.netdevs, route)
    if not behind:
        return path
    device, port = behind[0]
    return replace(
        path,
        device=device.name,
        port=port.number,
        link_layer=port.link_layer,
        # Soft-RoCE invents a rate if the netdev below has none (rxe_query_port).
        data_rate_mbps=None if device.is_soft_roce else port.data_rate_mbps,
        active_mtu=port.active_mtu,
    )


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
            dict(map(_cpu_times, _CPU.finditer(stat))),
            None if resent is None or late is None else resent - late,
            _tcp(netstat, "TcpExt:", "TCPOFOQueue"),
        )


def _cpu_times(found: re.Match[str]) -> tuple[str, tuple[int, int]]:
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
    old_port, new_port = (
        next((p for p in moment.statistics.ports if p[:2] == place), None)
        for moment in (before, after)
    )
    errors = packets = None
    if old_port and new_port:
        losses = [growth(old_port.get(n), new_port.get(n)) for n in LOSSES]
        known = [count for count in losses if count is not None]
        errors = sum(known) if known else None
        packets = growth(old_port.packets, new_port.packets)
    sample = Sample(
        seconds=round(seconds, 2),
        cpu_s=round(sum(shares) * seconds, 3),
        cpus=max(1, len(after.cpus)),
        busiest_cpu=round(max(shares), 3),
        path_errors=errors,
        packets=packets,
        tcp_resent=growth(before.tcp_resent, after.tcp_resent),
        tcp_out_of_order=growth(before.tcp_out_of_order, after.tcp_out_of_order),
    )
    old, new = (
        next((m for m in moment.statistics.mounts if m.mountpoint == mountpoint), None)
        for moment in (before, after)
    )
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
    version: the NFS version
    ratios: by load, that of large reads first
    limits: of the transport that is recommended
    rdma_limits: if TCP is recommended: what limits RDMA, where it is another limit
    link_limit_mbps: what the port can carry as payload, in Mb/s; None if unknown
    """

    sentence: str
    better: str
    version: Optional[str] = None
    ratios: tuple[Ratio, ...] = ()
    limits: tuple[Limit, ...] = ()
    rdma_limits: tuple[Limit, ...] = ()
    link_limit_mbps: Optional[float] = None


def verdict(benchmark: Benchmark) -> Verdict:
    """Return the verdict."""
    if not benchmark.rows:
        return Verdict("nothing was measured", UNKNOWN)
    settings = [row.setting for row in benchmark.rows]
    by_transport = {one.transport: one for one in reversed(settings)}
    rdma, tcp = by_transport.get(RDMA), by_transport.get(TCP)
    kept = [job for row in benchmark.rows if not row.others for job in row.jobs]
    sound = replace(benchmark, jobs=tuple(kept))
    ratios = tuple(_ratios(sound, rdma, tcp)) if rdma and tcp else ()
    better, sentence = _conclusion(ratios, sound, rdma, tcp)
    chosen = (tcp if better == TCP else rdma) or tcp or rdma or settings[0]
    astray = [
        row for row in benchmark.rows if row.setting in (rdma, tcp) and row.others
    ]
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
    physical = physical_mbps(benchmark.path)
    return Verdict(
        "; ".join(clauses),
        better,
        chosen.version,
        ratios,
        found,
        rdma_limits,
        physical and round(physical),
    )


def _not_measured(benchmark: Benchmark, astray: Sequence[Row]) -> str:
    check = nfs_check(benchmark.export)
    way = f"its mount went over another transport, and {check} says why"
    if any(LOCAL in row.others for row in astray):
        way = "the data did not leave this host (LOCALIO): measure from another one"
    return f"{astray[0].setting.transport.upper()} was not measured: {way}"


def _ratios(benchmark: Benchmark, rdma: Setting, tcp: Setting) -> Iterator[Ratio]:
    for load in _NAMES:
        one, other = benchmark.row(rdma, load), benchmark.row(tcp, load)
        # Less than a byte per second is nothing: no ratio, and none that rounds to 0.
        if one and other and other.rate.middle >= 1:
            value = max(one.rate.middle / other.rate.middle, 0.001)
            yield Ratio(load, round(value, 3), apart(one.rate, other.rate))


def _conclusion(
    ratios: Sequence[Ratio],
    benchmark: Benchmark,
    rdma: Optional[Setting],
    tcp: Optional[Setting],
) -> tuple[str, str]:
    if not ratios:
        only = "RDMA" if rdma else "TCP"
        row = benchmark.row(rdma or tcp, SEQUENTIAL_READ)
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
    return _equal(benchmark, rdma, tcp)


def _equal(
    benchmark: Benchmark, rdma: Optional[Setting], tcp: Optional[Setting]
) -> tuple[str, str]:
    """Return the conclusion for equal rates: what a byte costs decides."""
    one, other = (benchmark.row(setting, SEQUENTIAL_READ) for setting in (rdma, tcp))
    same = "RDMA and TCP are equally fast here"
    if one and other and one.cpu and other.cpu and apart(one.cpu, other.cpu):
        share = one.cpu.middle / other.cpu.middle if other.cpu.middle else 1.0
        if share <= 1 / _MATTERS:
            return RDMA, f"{same}, and RDMA takes {share:.0%} of TCP's CPU: keep RDMA"
        if share >= _MATTERS:
            return TCP, f"{same}, and TCP takes {1 / share:.0%} of RDMA's CPU: use TCP"
    return EITHER, f"{same}: either is right"
