# SPDX-License-Identifier: GPL-2.0-or-later
"""Name the limit that a benchmark met, from evidence. Pure.

Three kinds of loads are judged: large reads, large writes, small requests. For each,
the first check of :data:`CHECKS` that finds evidence names the limit. Without evidence
none is named: a sound component must not be blamed. The shares below are choices of
ours, with the reason beside each.

Disks and NFS threads of the server do not show on this host. The server is named if
many requests are answered little faster than one, or if both transports end at the same
rate and it is late, while this host has nothing to do.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Callable, Optional

from ovirt_rdma.host.export import DEFAULT_TIMEOUT, RDMA, TCP
from ovirt_rdma.storage.benchmark.model import (
    DEPTH,
    RANDOM_READ,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Benchmark,
    NetworkPath,
    Row,
    Rows,
    Setting,
    apart,
)

LARGE_READS, LARGE_WRITES, SMALL = "large reads", "large writes", "small requests"
LOADS = {
    LARGE_READS: SEQUENTIAL_READ,
    LARGE_WRITES: SEQUENTIAL_WRITE,
    SMALL: RANDOM_READ,
}
# Good NFS reaches 96 % of the payload over RDMA; a TCP stream less.
_FULL = 0.85
# Headers of PCIe packets take a tenth to a quarter: 8 GT/s x8 moves 52 of 63 Gb/s.
_PCIE_FULL = 0.70
_BUSY_ONE, _BUSY_ALL = 0.95, 0.90
# One packet in 10,000: congestion control halves its rate for fewer.
_LOSS, _TCP_LOSS = 1e-4, 1e-3
# Behind a lost segment all others of the window are out of order.
_TCP_GAPS = 1e-2
_GAIN = 1.25
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


def possible(rows: Rows) -> Optional[float]:
    """Return the most bytes per second that the port can carry; None if unknown, or if
    clearly more was measured: there is another way too, as with a bond.
    """
    most = max((row.rate.most for row in rows.rows), default=0.0)
    limit = (physical_mbps(rows.benchmark.path) or 0.0) * 1e6 / 8
    return limit if most <= limit / _FULL and limit else None


def is_full(rows: Rows, row: Row) -> bool:
    """Whether ``row`` uses all that the port has."""
    limit = possible(rows)
    return limit is not None and row.rate.most >= _FULL * limit


def _other(
    rows: Rows, row: Row, name: str, transport: str, depth: int = DEPTH
) -> Optional[Row]:
    """Return the row of a load by ``transport``, mounted as that of ``row``."""
    return rows.one(replace(row.setting, transport=transport), name, depth)


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
    rows = Rows.of(benchmark)
    found: dict[str, Limit] = {}
    for load, name in LOADS.items():
        row = rows.one(setting, name)
        # What went over another transport says nothing about this one.
        if row is None or row.others:
            continue
        checked = (check(rows, load, row) for check in CHECKS)
        named = next(filter(None, checked), None)
        if named:
            kind, *texts = named
            same = found.get(kind, Limit(kind, (), *texts))
            found[kind] = replace(same, loads=(*same.loads, load))
    return tuple(found.values())


Found = Optional[tuple[str, str, str, str]]
"""Kind, sentence, evidence and fix of a limit; None without evidence."""


def _losses(rows: Rows, load: str, row: Row) -> Found:
    path, operations = rows.benchmark.path, row.total("operations")
    errors, packets = row.total("path_errors"), row.total("packets")
    moved = sum(job.bytes_per_s * job.sample.seconds for job in row.jobs)
    segments = max(moved / ((path and path.netdev_mtu) or 1500), 1e4)
    rdma = [(errors, _LOSS * max(packets, 1e4), f"errors in {packets} packets")]
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


def _cpu(rows: Rows, load: str, row: Row) -> Found:
    one = row.average("busiest_cpu")
    together = row.average("busy_share")
    # A faster processor would not make a full port faster.
    full = load != SMALL and is_full(rows, row)
    if full or (one < _BUSY_ONE and together < _BUSY_ALL):
        return None
    return (
        "cpu",
        "a processor of this host is fully used",
        f"{row.load}: the busiest processor is {one:.0%} busy, all are {together:.0%}",
        "take load from this host; check the power profile and where the adapter's "
        "interrupts go; more connections (nconnect) may use more processors",
    )


def _slots(rows: Rows, load: str, row: Row) -> Found:
    backlog = row.average("backlog")
    if row.setting.transport != RDMA or backlog < 1 or is_full(rows, row):
        return None
    slots = rows.benchmark.slots
    return (
        "slots",
        "requests wait for a slot of the connection",
        f"{row.load}: {backlog:.1f} requests wait on average, with "
        f"{slots if slots is not None else 'an unknown number of'} slots",
        "set sunrpc.rdma_slot_table_entries to 128 or more in modprobe.d and remount, "
        "or use nconnect",
    )


def _pcie(rows: Rows, load: str, row: Row) -> Found:
    path, used = rows.benchmark.path, row.rate.most * 8 / 1e6
    if load == SMALL or path is None or not path.pcie_mbps or not path.data_rate_mbps:
        return None
    if path.pcie_mbps >= path.data_rate_mbps or used < _PCIE_FULL * path.pcie_mbps:
        return None
    return (
        "pcie",
        "the PCIe link of the adapter is narrower than its port",
        f"{path.device} has {path.pcie_link}, {path.pcie_mbps} Mb/s, of which "
        f"{used:.0f} are used; the port has {path.data_rate_mbps} Mb/s",
        "ovirt-rdma-host explain PCIE-01",
    )


def _link(rows: Rows, load: str, row: Row) -> Found:
    path, limit = rows.benchmark.path, possible(rows)
    names = (SEQUENTIAL_READ, SEQUENTIAL_WRITE)
    both = [_other(rows, row, name, how) for name in names for how in (RDMA, TCP)]
    rates = [one.rate.middle for one in both if one]
    if load == SMALL:
        return None
    if limit is not None and is_full(rows, row):
        evidence = f"{mb(row.rate.most)} of {mb(limit)}, which the port carries"
    elif limit is None and len(rates) == len(both) and _about_equal(*rates):
        evidence = (
            f"reads and writes by both transports end at {mb(row.rate.middle)}, and no "
            "processor is fully used"
        )
    else:
        return None
    fix = ""
    if path and path.fastest:
        fix = (
            f"{path.fastest} has {path.fastest_mbps} Mb/s: give the server an address "
            "in its network, and use that in the storage domain"
        )
    return "link-rate", "the link is fully used", f"{row.load}: {evidence}", fix


def _about_equal(*rates: float) -> bool:
    """Whether all of the rates are known and equal, as far as a benchmark shows it."""
    return min(rates) > 0 and max(rates) / min(rates) <= 1 + _EQUAL


def _server(rows: Rows, load: str, row: Row) -> Found:
    """Find a server that is late, whatever in it is."""
    evidence = _one_by_one(rows, row) if load == SMALL else ""
    evidence = evidence or _late_by_both(rows, load, row)
    if not evidence:
        return None
    return (
        "server",
        "the server is the limit: its disks, sync, NFS threads or processors",
        f"{row.load}: {evidence}",
        "on the server look at the disks (iostat -x), its cache and processors, sync "
        "exports, and raise the number of NFS threads (nfs.conf, [nfsd] threads)",
    )


def _one_by_one(rows: Rows, row: Row) -> str:
    """Return the evidence that many small requests are answered little faster than one;
    "" without.
    """
    first = rows.one(row.setting, RANDOM_READ, 1)
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


def _late_by_both(rows: Rows, load: str, row: Row) -> str:
    """Return the evidence that the server is late by both transports; "" without."""
    how = TCP if row.setting.transport == RDMA else RDMA
    other = _other(rows, row, LOADS[load], how)
    # Equal rates prove nothing if one of them is that of a path that loses packets.
    if not other or _losses(rows, load, other):
        return ""
    if not _about_equal(row.rate.middle, other.rate.middle):
        return ""
    if load == LARGE_WRITES:
        reads = rows.one(row.setting, SEQUENTIAL_READ)
        if not reads or row.rate.most > 0.6 * reads.rate.least:
            return ""
        return (
            f"writes end at {mb(row.rate.middle)} by both transports, reads reach "
            f"{mb(reads.rate.middle)}"
        )
    both = [_other(rows, row, RANDOM_READ, how, 1) for how in (RDMA, TCP)]
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


def more_connections(rows: Rows, row: Row) -> Optional[Row]:
    """Return the row with more connections that was clearly faster; or None."""
    for setting in rows.alike(row.setting, row.setting.nconnect):
        other = rows.one(setting, row.load.name)
        if other and other.connections > row.connections:
            more = other.rate.middle >= _GAIN * row.rate.middle
            if more and apart(other.rate, row.rate):
                return other
    return None


def _connections(rows: Rows, load: str, row: Row) -> Found:
    other = more_connections(rows, row)
    if other is None:
        return None
    return (
        "connections",
        "one connection is not enough",
        f"{row.load}: {mb(row.rate.middle)} by {row.connections}, "
        f"{mb(other.rate.middle)} by {other.connections}",
        f"mount with nconnect={other.setting.nconnect}",
    )


def _mtu(rows: Rows, load: str, row: Row) -> Found:
    path = rows.benchmark.path
    if load == SMALL or path is None or row.setting.transport != RDMA:
        return None
    if not path.active_mtu or not path.max_mtu or 2 * path.active_mtu > path.max_mtu:
        return None
    if is_full(rows, row):
        return None
    return (
        "mtu",
        "the packets are small: the port's MTU is below what it can have",
        f"{path.device}/{path.port}: active MTU {path.active_mtu} of {path.max_mtu}, "
        f"netdev {path.netdev} {path.netdev_mtu}",
        "InfiniBand: raise the MTU of the partition; RoCE: MTU 4200 or more on netdev, "
        "switch and server",
    )


CHECKS: tuple[Callable[[Rows, str, Row], Found], ...] = (
    _losses,
    _cpu,
    _slots,
    _pcie,
    _link,
    _connections,
    _server,
    _mtu,
)
