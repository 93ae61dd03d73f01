# SPDX-License-Identifier: GPL-2.0-or-later
"""Name the limits of the server: its disks and its NFS threads. Pure.

Neither shows on this host. The disks are named if both transports end at the same rate
and a single small read is late; the threads, if many requests are answered little
faster than one while this host has nothing to do.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.storage.benchmark.case import (
    LARGE_READS,
    LARGE_WRITES,
    SMALL,
    Case,
    Limit,
    mb,
)
from ovirt_rdma.storage.benchmark.model import DEPTH, RANDOM_READ, Setting
from ovirt_rdma.storage.benchmark.summary import Row

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


def server_disk(case: Case, load: str, row: Row, other: Row) -> Optional[Limit]:
    """Return the limit if the server's disks are it, also for slow writes; or None.
    ``other`` is the row of the other transport.
    """
    if not about_equal(row.rate.middle, other.rate.middle):
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
    return Limit(
        "server-disk",
        (load,),
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


def about_equal(*rates: float) -> bool:
    """Whether all of the rates are known and equal, as far as a benchmark shows it."""
    return min(rates) > 0 and max(rates) / min(rates) <= 1 + _EQUAL


def server_threads(case: Case, load: str, row: Row) -> Optional[Limit]:
    """Return the limit if the server has too few NFS threads; or None."""
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
    return Limit(
        "server-threads",
        (load,),
        "the server answers few requests at a time",
        f"{DEPTH} requests under way are answered {gain:.1f} times as fast as one; "
        f"each then takes {rtt:.2f} ms at the server",
        "raise the number of nfsd threads on the server (nfs.conf, [nfsd] threads), "
        "and look at its processors",
    )
