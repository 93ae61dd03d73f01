# SPDX-License-Identifier: GPL-2.0-or-later
"""Compare two samples of the kernel's statistics: what a mount did between them. Pure.

Every counter only grows, until the mount or the device is made again. Then there is no
difference, and the later sample is the first one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.host.facts import port_counters
from ovirt_rdma.host.facts.port_counters import LOSSES, repeats
from ovirt_rdma.host.facts.statistics import (
    READS,
    WRITES,
    MountStatistics,
    OperationStatistics,
    PortCounters,
    Transport,
)

# Operations that move file data to or from the server's disks.
DATA = frozenset({*READS, *WRITES, "COMMIT"})

# The port of a server acknowledges packets, whatever its NFS threads do.
WAITED = repeats(port_counters.WAITED)
SENT_AGAIN = repeats(port_counters.WAITED, port_counters.AGAIN)


@dataclass(frozen=True)
class PortErrors:
    """By how much each of LOSSES grew on a port, and in how many samples one of
    WAITED did.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    times: int = 0


@dataclass(frozen=True)
class Calls:
    """Calls of one kind between two samples: their number, and the mean milliseconds
    of each in the queue of this host, on the way to the server and back, and in all.
    """

    count: int = 0
    queue_ms: float = 0.0
    rtt_ms: float = 0.0
    execute_ms: float = 0.0


@dataclass(frozen=True)
class Load:
    """What a mount did in ``seconds``.

    - ``data``: READ, WRITE and COMMIT; ``other``: all other calls
    - ``sent_again``: transmissions beyond the first; ``timeouts``: of calls
    - ``bytes_sent``, ``bytes_received``: of calls and replies
    - ``connects``: connections made; ``backlog``: the mean number of calls that waited
      for a slot; ``on_wire``: the mean number of calls that the server had
    """

    seconds: float
    data: Calls
    other: Calls
    sent_again: int = 0
    timeouts: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    connects: int = 0
    backlog: float = 0.0
    on_wire: float = 0.0

    @property
    def count(self) -> int:
        """The number of all calls."""
        return self.data.count + self.other.count

    @property
    def all(self) -> Calls:
        """All calls together."""
        return _joined(self.data, self.other)


def load_between(
    before: Optional[MountStatistics], after: MountStatistics, seconds: float
) -> Optional[Load]:
    """Return what a mount did in the ``seconds`` between two samples.

    None if there is no earlier sample, or if it is of an earlier mount at that point.
    """
    if before is None or seconds <= 0 or not _same(before, after):
        return None
    earlier = {one.name: one for one in before.operations}
    differences = [_difference(earlier.get(o.name), o) for o in after.operations]
    if any(one is None for one in differences):
        return None
    done = [one for one in differences if one is not None]
    sends = _grown(before.transports, after.transports, "sends")
    backlog = _grown(before.transports, after.transports, "bklog_u")
    connects = _grown(before.transports, after.transports, "connect_count")
    return Load(
        seconds,
        _calls(one for one in done if one.name in DATA),
        _calls(one for one in done if one.name not in DATA),
        sent_again=sum(max(0, one.transmissions - one.operations) for one in done),
        timeouts=sum(one.timeouts for one in done),
        bytes_sent=sum(one.bytes_sent for one in done),
        bytes_received=sum(one.bytes_received for one in done),
        connects=connects,
        backlog=backlog / sends if sends else 0.0,
        # Little's law: the time that all calls together were on the wire.
        on_wire=sum(one.rtt_ms for one in done) / (1000.0 * seconds),
    )


def _same(before: MountStatistics, after: MountStatistics) -> bool:
    if before.mountpoint != after.mountpoint or before.source != after.source:
        return False
    return None in (before.age_s, after.age_s) or (
        (before.age_s or 0) <= (after.age_s or 0)
    )


def _difference(
    before: Optional[OperationStatistics], after: OperationStatistics
) -> Optional[OperationStatistics]:
    """Return the difference; None if a counter is smaller than before."""
    if before is None:
        return after
    names = (
        "operations",
        "transmissions",
        "timeouts",
        "bytes_sent",
        "bytes_received",
        "queue_ms",
        "rtt_ms",
        "execute_ms",
    )
    grown = {name: getattr(after, name) - getattr(before, name) for name in names}
    if any(value < 0 for value in grown.values()):
        return None
    return OperationStatistics(after.name, **grown)


def _calls(operations: Iterable[OperationStatistics]) -> Calls:
    some = list(operations)
    count = sum(one.operations for one in some)
    if not count:
        return Calls()
    return Calls(
        count,
        sum(one.queue_ms for one in some) / count,
        sum(one.rtt_ms for one in some) / count,
        sum(one.execute_ms for one in some) / count,
    )


def _joined(one: Calls, other: Calls) -> Calls:
    count = one.count + other.count
    if not count:
        return Calls()

    def mean(a: float, b: float) -> float:
        return (a * one.count + b * other.count) / count

    return Calls(
        count,
        mean(one.queue_ms, other.queue_ms),
        mean(one.rtt_ms, other.rtt_ms),
        mean(one.execute_ms, other.execute_ms),
    )


def _grown(
    before: tuple[Transport, ...], after: tuple[Transport, ...], name: str
) -> int:
    """Return by how much a counter grew on all connections together.

    A connection that was made meanwhile counts from 0; one that ended does not count.
    """
    total = 0
    for number, transport in enumerate(after):
        value = transport.get(name) or 0
        was = before[number].get(name) or 0 if number < len(before) else 0
        total += max(0, value - was)
    return total


def port_errors(
    before: Iterable[PortCounters], after: Iterable[PortCounters]
) -> dict[tuple[str, int], dict[str, int]]:
    """Return which LOSSES of each port grew, and by how much, by device and port
    number. Ports without an error are left out.
    """
    earlier = {(one.device, one.port): _errors(one) for one in before}
    found = {}
    for port in after:
        was = earlier.get((port.device, port.port))
        if was is None:
            continue
        grown = {
            name: value - was[name]
            for name, value in _errors(port).items()
            if name in was and value > was[name]
        }
        if grown:
            found[port.device, port.port] = grown
    return found


def recent_errors(
    samples: Sequence[Iterable[PortCounters]],
) -> dict[tuple[str, int], PortErrors]:
    """Return the errors of each port over ``samples``, the oldest first, by device and
    port number.
    """
    found: dict[tuple[str, int], PortErrors] = {}
    for before, after in zip(samples, samples[1:]):
        for place, grown in port_errors(before, after).items():
            have = found.get(place, PortErrors())
            counts = dict(have.counts)
            for name, count in grown.items():
                counts[name] = counts.get(name, 0) + count
            waited = not WAITED.isdisjoint(grown)
            found[place] = PortErrors(counts, have.times + waited)
    return found


def _errors(port: PortCounters) -> dict[str, int]:
    return {
        counter.name: counter.value
        for counter in (*port.counters, *port.hardware)
        if counter.name in LOSSES and counter.value is not None
    }
