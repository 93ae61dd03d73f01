# SPDX-License-Identifier: GPL-2.0-or-later
"""Name the limit that a benchmark met, from evidence. Pure.

Three kinds of loads are judged: large reads, large writes, small requests. For each,
the first check of :data:`CHECKS` that finds evidence names the limit. Without evidence
none is named: a sound component must not be blamed. The shares below are choices of
ours, with the reason beside each.

Disks and NFS threads of the server do not show on this host. The disks are named if
both transports end at the same rate and a single small read is late; the threads, if
many requests are answered little faster than one while this host has nothing to do.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Callable, Optional

from ovirt_rdma.host.export import DEFAULT_TIMEOUT, RDMA, TCP, Export, nfs_check
from ovirt_rdma.host.server_kinds import KINDS
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
    LOCAL,
    RANDOM_READ,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Benchmark,
    LinkResult,
    NetworkPath,
    Row,
    Rows,
    Sample,
    Setting,
    apart,
)

LARGE_READS, LARGE_WRITES, SMALL = "large reads", "large writes", "small requests"
LOADS = {
    LARGE_READS: SEQUENTIAL_READ,
    LARGE_WRITES: SEQUENTIAL_WRITE,
    SMALL: RANDOM_READ,
}
# ib_read_bw reaches 98 % of the payload, good NFS 96 %; a TCP stream less.
_FULL = 0.85
# What a run exceeds by more than this is no limit: a stream of iperf3 may be slower
# than the link.
_EXCEEDED = 1 / _FULL
# Headers of PCIe packets take a tenth to a quarter: 8 GT/s x8 moves 52 of 63 Gb/s.
_PCIE_FULL = 0.70
_BUSY_ONE, _BUSY_ALL = 0.95, 0.90
# One packet in 10,000: congestion control halves its rate for fewer.
_LOSS, _TCP_LOSS = 1e-4, 1e-3
# Behind a lost segment all others of the window are out of order.
_TCP_GAPS = 1e-2
_SMALL_RSIZE = 256 << 10
_LARGEST_RSIZE = 1 << 20
_GAIN = 1.25
# The samples include the start of fio: a processor that is busy in the whole run shows
# as less, in the lab as 0.55 in a run of one second.
_BUSY_PARTLY = 0.50
_FEW_ANSWERS = 4.0
# One thread answers one request at a time, two answer twice as many, and a disk that
# sorts what waits for it gains that too. What the server has in memory shows as a gain.
_ONE_BY_ONE = 1.5
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


@dataclass(frozen=True)
class Case:
    """A benchmark, and the setting whose limit is looked for."""

    benchmark: Benchmark
    setting: Setting

    @cached_property
    def rows(self) -> Rows:
        """The rows of all settings."""
        return Rows.of(self.benchmark)

    @property
    def path(self) -> Optional[NetworkPath]:
        """How this host reaches the server."""
        return self.benchmark.path

    def row(self, load: str, transport: Optional[str] = None) -> Optional[Row]:
        """Return the row of a kind of load, at the usual depth, of this transport."""
        setting = self.setting
        if transport:
            setting = Setting(transport, setting.version, setting.nconnect)
        return self.rows.one(setting, LOADS[load], DEPTH)

    @cached_property
    def link_rate(self) -> Optional[float]:
        """The bytes per second that a tool measured on the way to the server; None
        without.
        """
        kinds = (RDMA,) if self.setting.transport == RDMA else (RDMA, TCP)
        return max(
            (
                result.bytes_per_s
                for result in self.benchmark.link
                if result.transport in kinds and self._is_on_the_way(result)
            ),
            default=None,
        )

    def _is_on_the_way(self, result: LinkResult) -> bool:
        path, export = self.path, Export.maybe(self.benchmark.export or "")
        servers = (path and path.address, export and export.server)
        netdev = path and path.netdev
        return result.peer in servers or (
            netdev is not None and result.netdev == netdev
        )

    @cached_property
    def possible(self) -> Optional[float]:
        """The most bytes per second that the link, or a tool on it, has; or None.

        Not less than the largest rate of the run.
        """
        limit = physical_mbps(self.path)
        known = [limit * 1e6 / 8] if limit else []
        known += [self.link_rate] if self.link_rate else []
        most = max((job.bytes_per_s for job in self.benchmark.jobs), default=0.0)
        kept = [rate for rate in known if most <= _EXCEEDED * rate]
        return max(min(kept), most) if kept else None

    def is_full(self, row: Row) -> bool:
        """Whether ``row`` uses all that the link has."""
        return self.possible is not None and row.rate.most >= _FULL * self.possible


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


Found = Optional[tuple[str, str, str, str]]
"""Kind, sentence, evidence and fix of a limit; None without evidence."""

Check = Callable[[Case, str, Row], Found]


def limits(benchmark: Benchmark, setting: Setting) -> tuple[Limit, ...]:
    """Return the limits that ``setting`` met, that of large reads first."""
    case = Case(benchmark, setting)
    found: dict[str, Limit] = {}
    for load in LOADS:
        row = case.row(load)
        named = row and next(
            (one for check in CHECKS if (one := check(case, load, row))), None
        )
        if named:
            kind, *texts = named
            same = found.get(kind, Limit(kind, (), *texts))
            found[kind] = replace(same, loads=(*same.loads, load))
    return tuple(found.values())


def _transport(case: Case, load: str, row: Row) -> Found:
    wanted = case.setting.transport
    shown = {sample.transport for sample in row.samples} - {None}
    if shown <= {wanted}:
        return None
    if LOCAL in shown:
        return (
            "local-io",
            "this host is its own server, and reads and writes the files itself "
            "(LOCALIO)",
            f"{row.load}: mountstats shows more data than its requests can carry",
            "measure from another host; ovirt-rdma-host explain NFS-LOCALIO-01",
        )
    other = ", ".join(sorted(str(one) for one in shown - {wanted}))
    return (
        "transport",
        f"the mount was asked for {wanted.upper()} and is not over it",
        f"mountstats shows {other} for {case.setting}",
        f"{nfs_check(str(case.benchmark.export))} says why; another mount of the "
        "server may share its connection",
    )


def _wrong_path(case: Case, load: str, row: Row) -> Found:
    path = case.path
    if path is None or path.fastest is None or path.netdev is None:
        return None
    if path.device is None:
        # Its rate is unknown: it may be the faster one.
        sentence = "the server is reached by a netdev without RDMA"
        own, port = f"{path.netdev}, which is no RDMA port", "an RDMA port"
    elif case.is_full(row) and load != SMALL:
        sentence = f"the server is reached by a slower port than {path.fastest}"
        own = f"{path.netdev} ({path.device}/{path.port}, {path.data_rate_mbps} Mb/s)"
        port = "the faster port"
    else:
        return None
    return (
        "wrong-path",
        sentence,
        f"the route to {path.address} is {own}; {path.fastest} has "
        f"{path.fastest_mbps} Mb/s",
        f"give the server an address in the network of {port}, and use it in the "
        "storage domain",
    )


def _no_rdma(case: Case, load: str, row: Row) -> Found:
    reason = case.benchmark.no_rdma
    if reason is None or case.setting.transport == RDMA or case.is_full(row):
        return None
    return (
        "transport",
        "only TCP can be used: the server is not ready for RDMA",
        reason,
        f"{nfs_check(str(case.benchmark.export))} says what to do",
    )


def _losses(case: Case, load: str, row: Row) -> Found:
    samples = row.samples
    operations = sum(s.operations for s in samples)
    again = sum(max(0, s.transmissions - s.operations) for s in samples)
    errors, packets = _known(samples, "path_errors"), _known(samples, "packets")
    reconnects = sum(s.reconnects for s in samples)
    resent = _known(samples, "tcp_resent")
    moved = sum(j.bytes_per_s * j.sample.seconds for j in row.jobs)
    segments = moved / ((case.path and case.path.netdev_mtu) or 1500)
    signs = []
    if case.setting.transport == RDMA and errors > _LOSS * max(packets, 1e4):
        of = f" in {packets:.0f} packets" if packets else ""
        signs.append(f"{errors:.0f} errors of the port{of}")
    if case.setting.transport == TCP and resent > _TCP_LOSS * max(segments, 1e4):
        signs.append(f"{resent:.0f} TCP segments sent again")
    gaps = _known(samples, "tcp_out_of_order")
    if case.setting.transport == TCP and gaps > _TCP_GAPS * max(segments, 1e4):
        signs.append(f"{gaps:.0f} TCP segments out of order")
    if not _timed_out(row, errors):
        if again > _LOSS * operations:
            signs.append(f"{again} of {operations} requests sent again")
        if reconnects:
            signs.append(f"{reconnects} reconnects")
    if not signs:
        return None
    return (
        "losses",
        "packets are lost on the way",
        f"{case.setting}, {row.load}: {', '.join(signs)}",
        "look at cables, transceivers and, with RoCE, flow control (PFC, ECN): "
        "ovirt-rdma-host check",
    )


def _timed_out(row: Row, errors: float) -> bool:
    """Whether requests were sent again because a server took longer than ``timeo``.

    The kernel then makes an RDMA connection again (xprt_rdma_timer in
    net/sunrpc/xprtrdma/transport.c), and the port counts no errors.
    """
    counts = any(sample.path_errors is not None for sample in row.samples)
    longest_us = max(job.p99_9_us for job in row.jobs)
    return counts and not errors and longest_us >= DEFAULT_TIMEOUT * 1e5


def _known(samples: Iterable[Sample], name: str) -> float:
    return sum(getattr(sample, name) or 0 for sample in samples)


def _cpu(case: Case, load: str, row: Row) -> Found:
    # A faster processor would not make a full port faster.
    if load != SMALL and case.is_full(row):
        return None
    one = row.average(lambda s: s.busiest_cpu)
    together = row.average(lambda s: s.cpu_s / s.cpus / s.seconds if s.seconds else 0)
    if one < _BUSY_ONE and together < _BUSY_ALL:
        return None
    if together >= _BUSY_ALL:
        sentence = "this host's processors are fully used"
    else:
        sentence = "one processor of this host is fully used"
    return (
        "cpu",
        sentence,
        f"{row.load}: the busiest processor is {one:.0%} busy, all are {together:.0%}",
        "check the power profile and where the adapter's interrupts go; more "
        "connections (nconnect) may use more processors"
        if together < _BUSY_ALL
        else "take load from this host, or use faster processors",
    )


def _size(case: Case, load: str, row: Row) -> Found:
    if load == SMALL or case.is_full(row):
        return None
    name = "rsize" if load == LARGE_READS else "wsize"
    sizes = {getattr(sample, name) for sample in row.samples} - {None}
    size = min(sizes, default=None)
    if size is None or size > _SMALL_RSIZE:
        return None
    kind = KINDS.get(case.benchmark.server_kind or "")
    fix = (
        f"remove {name}= from the mount options, and raise the server's largest block "
        "(/proc/fs/nfsd/max_block_size; more memory raises its default)"
    )
    if kind and case.setting.transport == RDMA and (kind.largest or 0) >= size:
        fix = f"more than {kind.largest} is unstable with {kind.title}: use nconnect"
    elif kind and kind.name != "linux":
        fix = f"remove {name}= from the mount options; see documents of {kind.title}"
    return (
        "rsize",
        f"requests are small: {name} is {size >> 10} KiB",
        f"{row.load}: mountstats shows {name}={size}; 1 MiB needs "
        f"{_LARGEST_RSIZE // size} requests in place of one",
        fix,
    )


def _slots(case: Case, load: str, row: Row) -> Found:
    if case.setting.transport != RDMA or case.is_full(row):
        return None
    worst = row
    if row.average(lambda s: s.backlog) < 1:
        deepest = case.rows.deepest(case.setting, RANDOM_READ)
        first = case.rows.one(case.setting, RANDOM_READ, 1)
        if load != SMALL or deepest is None or first is None:
            return None
        # A server at its own limit takes longer for each of many requests.
        alone = first.average(lambda s: s.rtt_ms)
        quick = 0 < deepest.average(lambda s: s.rtt_ms) <= 2 * alone
        if deepest.average(lambda s: s.backlog) < 1 or not quick:
            return None
        worst = deepest
    backlog = worst.average(lambda s: s.backlog)
    slots = case.benchmark.slots
    return (
        "slots",
        "requests wait for a slot of the connection",
        f"{worst.load}: {backlog:.1f} requests wait on average, with "
        f"{slots if slots is not None else 'an unknown number of'} slots",
        "set sunrpc.rdma_slot_table_entries to 128 or more in modprobe.d and remount, "
        "or use nconnect",
    )


def _pcie(case: Case, load: str, row: Row) -> Found:
    path = case.path
    if load == SMALL or path is None or not path.pcie_mbps or not path.data_rate_mbps:
        return None
    best = max(row.rate.most, case.link_rate or 0.0) * 8 / 1e6
    if path.pcie_mbps >= path.data_rate_mbps or best < _PCIE_FULL * path.pcie_mbps:
        return None
    return (
        "pcie",
        "the PCIe link of the adapter is narrower than its port",
        f"{path.device} has {path.pcie_link}, {path.pcie_mbps} Mb/s, of which "
        f"{best:.0f} are used; the port has {path.data_rate_mbps} Mb/s",
        "ovirt-rdma-host explain PCIE-01",
    )


def _link(case: Case, load: str, row: Row) -> Found:
    if load == SMALL:
        return None
    possible = case.possible
    if possible is not None:
        if not case.is_full(row):
            return None
        evidence = f"{mb(row.rate.most)} of {mb(possible)}, which the link can carry"
    else:
        found = _same_everywhere(case)
        if found is None:
            return None
        evidence = (
            f"reads and writes by both transports end at {mb(found)}, and no processor "
            "is fully used"
        )
    return (
        "link-rate",
        "the link is fully used",
        f"{row.load}: {evidence}",
        "",
    )


def _same_everywhere(case: Case) -> Optional[float]:
    """Return the rate of large reads and writes by both transports, if it is one."""
    rows = [
        case.row(load, transport)
        for load in (LARGE_READS, LARGE_WRITES)
        for transport in (RDMA, TCP)
    ]
    rates = [row.rate.middle for row in rows if row]
    if len(rates) < len(rows) or not _about_equal(*rates):
        return None
    return sum(rates) / len(rates)


def _mtu(case: Case, load: str, row: Row) -> Found:
    path = case.path
    if load == SMALL or path is None or case.setting.transport != RDMA:
        return None
    if not path.active_mtu or not path.max_mtu or 2 * path.active_mtu > path.max_mtu:
        return None
    if case.is_full(row):
        return None
    return (
        "mtu",
        "the packets are small: the port's MTU is below what it can have",
        f"{path.device}/{path.port}: active MTU {path.active_mtu} of {path.max_mtu}, "
        f"netdev {path.netdev} {path.netdev_mtu}",
        "InfiniBand: raise the MTU of the partition; RoCE: MTU 4200 or more on netdev, "
        "switch and server",
    )


def _connections(case: Case, load: str, row: Row) -> Found:
    if row.connections > 1:
        return None
    for setting in case.rows.alike(case.setting, case.setting.nconnect):
        other = case.rows.one(setting, LOADS[load], DEPTH)
        if other is None:
            continue
        if other.connections > 1:
            more = other.rate.middle >= _GAIN * row.rate.middle
            if more and apart(other.rate, row.rate):
                return (
                    "connections",
                    "one connection is not enough",
                    f"{row.load}: {mb(row.rate.middle)} by one connection, "
                    f"{mb(other.rate.middle)} by {other.connections}",
                    f"mount with nconnect={setting.nconnect}",
                )
        elif load != SMALL and case.possible and not case.is_full(row):
            return (
                "connections",
                f"nconnect={setting.nconnect} was ignored: there is one connection",
                f"{setting}: mountstats shows {other.connections} connection, "
                f"{mb(other.rate.middle)} of {mb(case.possible)}, which the link has",
                "kernels before 6.9 ignore nconnect for NFS 4 over RDMA: use NFS 3, or "
                "a later kernel",
            )
    return None


def _server_disk(case: Case, load: str, row: Row) -> Found:
    """Find the server's disks, also for slow writes."""
    other = case.row(load, TCP if case.setting.transport == RDMA else RDMA)
    # Equal rates prove nothing if one of them is that of a path that loses packets.
    if not other or _losses(Case(case.benchmark, other.setting), load, other):
        return None
    if not _about_equal(row.rate.middle, other.rate.middle):
        return None
    reads = case.row(LARGE_READS)
    slow = _slow_read_ms(case, other.setting)
    if load != LARGE_WRITES and 0 < _gain(case) < _ONE_BY_ONE:
        return None
    sentence = "the server's disks are the limit, behind any transport"
    if load == LARGE_WRITES and reads and row.rate.most <= 0.6 * reads.rate.least:
        sentence = "the server takes writes no faster: its disks, sync or processors"
        evidence = (
            f"writes end at {mb(row.rate.middle)} and {mb(other.rate.middle)} by both "
            f"transports, reads reach {mb(reads.rate.middle)}"
        )
    elif load != LARGE_WRITES and slow:
        evidence = (
            f"a read of 4 KiB takes {slow:.1f} ms at the server, with nothing else "
            "under way, and both transports are equally fast"
        )
    else:
        return None
    return (
        "server-disk",
        sentence,
        f"{row.load}: {evidence}",
        "look at the server's disks (iostat -x), its cache and processors, and sync or "
        "async exports",
    )


def _slow_read_ms(case: Case, other: Setting) -> float:
    """Return how long one small read takes if a disk may be the reason, else 0."""
    rows = [case.rows.one(one, RANDOM_READ, 1) for one in (case.setting, other)]
    found = [row for row in rows if row]
    times = [row.average(lambda s: s.rtt_ms) for row in found]
    # A host that waits for one read has nothing to do.
    busy = max((row.average(lambda s: s.busiest_cpu) for row in found), default=0.0)
    if len(found) < len(rows) or min(times) < _DISK_MS or busy >= _BUSY_PARTLY:
        return 0.0
    return times[0]


def _gain(case: Case) -> float:
    """Return how much faster many small reads are answered than one; 0 if unknown."""
    first = case.rows.one(case.setting, RANDOM_READ, 1)
    many = case.row(SMALL)
    if first is None or many is None or not first.operations.middle:
        return 0.0
    return many.operations.middle / first.operations.middle


def _about_equal(*rates: float) -> bool:
    """Whether all of the rates are known and equal, as far as a benchmark shows it."""
    return min(rates) > 0 and max(rates) / min(rates) <= 1 + _EQUAL


def _server_threads(case: Case, load: str, row: Row) -> Found:
    first = case.rows.one(case.setting, RANDOM_READ, 1)
    gain = _gain(case)
    # A host that waits for its server has nothing to do.
    busy = row.average(lambda s: s.busiest_cpu) >= _BUSY_PARTLY
    if load != SMALL or first is None or not gain or busy:
        return None
    rtt = row.average(lambda s: s.rtt_ms)
    # Where the time is: at the server or the network, not in this host's queues.
    waits = rtt > 0 and rtt >= 3 * row.average(lambda s: s.queue_ms)
    if gain >= _FEW_ANSWERS or not waits or rtt < 3 * first.average(lambda s: s.rtt_ms):
        return None
    return (
        "server-threads",
        "the server answers few requests at a time",
        f"{DEPTH} requests under way are answered {gain:.1f} times as fast as one; "
        f"each then takes {rtt:.2f} ms at the server",
        "raise the number of nfsd threads on the server (nfs.conf, [nfsd] threads), "
        "and look at its processors",
    )


CHECKS: tuple[Check, ...] = (
    _transport,
    _wrong_path,
    _losses,
    # What comes after this may be another limit over RDMA.
    _no_rdma,
    _cpu,
    _size,
    _slots,
    _pcie,
    _link,
    _server_disk,
    _connections,
    _mtu,
    _server_threads,
)
