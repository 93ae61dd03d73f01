# SPDX-License-Identifier: GPL-2.0-or-later
"""Look at all NFS mounts once: statistics, questions to the servers, signs, verdicts.

Nothing waits for a mount: the kernel's statistics are in /proc and /sys, and processes
that can be given up ask the servers.
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Callable, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import (
    LOSSES,
    MountStatistics,
    PortCounters,
    Statistics,
    growth,
    load_between,
)
from ovirt_rdma.host.mount_options import RDMA
from ovirt_rdma.host.paths import PROBES, under
from ovirt_rdma.host.policy.model import Policy, rule_for
from ovirt_rdma.host.system.tree import FileTree
from ovirt_rdma.storage.health.probe import Answer, Asked, Probes
from ovirt_rdma.storage.health.signs import (
    ACCEPTS,
    REFUSES,
    Questions,
    Server,
    ServerSigns,
    signs_of,
)
from ovirt_rdma.storage.health.state import OK, MountHealth
from ovirt_rdma.storage.health.verdict import (
    SENT_AGAIN,
    WAITED,
    Seen,
    judge,
    needs_signs,
)
from ovirt_rdma.storage.mounts import prove

# A single look needs two samples; VDSM alone makes several calls in this time.
BETWEEN_S = 1.0
# A connection that loses packets is mostly quiet: it waits before it sends them again.
# Half a minute has three looks of 10 s, also if they come a little late.
ERRORS_S = 35.0


def _read(tree: FileTree) -> Statistics:
    """Read what is judged: the firmware is asked for each counter of a port."""
    return read_statistics(tree, counters=LOSSES)


@dataclass(frozen=True)
class Seeing:
    """What a look uses; tests replace it."""

    reader: HostReader
    probes: Probes = field(default_factory=Probes)
    questions: Questions = field(default_factory=Questions)
    read: Callable[[FileTree], Statistics] = _read
    sleep: Callable[[float], None] = time.sleep
    clock: Callable[[], float] = time.monotonic


@dataclass(frozen=True)
class Look:
    """The result of a look: the health of each mount, and sentences about what could
    not be read.
    """

    mounts: tuple[MountHealth, ...]
    problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class PortErrors:
    """By how much each of LOSSES grew on a port, and in how many samples one of
    WAITED did.
    """

    counts: Mapping[str, int] = field(default_factory=dict)
    times: int = 0


def recent_errors(
    samples: Sequence[Iterable[PortCounters]],
) -> dict[tuple[str, int], PortErrors]:
    """Return the errors of each port that has some over ``samples``, the oldest first,
    by device and port number. Pure.
    """
    found: dict[tuple[str, int], PortErrors] = {}
    for before, after in zip(samples, samples[1:]):
        earlier = {(one.device, one.port): one for one in before}
        for port in after:
            place = port.device, port.port
            was = earlier.get(place)
            grown = {n: growth(was.get(n), port.get(n)) for n in LOSSES} if was else {}
            more = {name: count for name, count in grown.items() if count}
            if more:
                have = found.get(place, PortErrors())
                counts = Counter(have.counts) + Counter(more)
                times = have.times + (not WAITED.isdisjoint(more))
                found[place] = PortErrors(counts, times)
    return found


class Looker:
    """Looks at the mounts of the host below ``root``, again and again.

    Between the looks it keeps the last statistics, the counters of ports of the last
    ERRORS_S seconds, and when each mount last answered.
    """

    def __init__(self, root: str = "/", seeing: Optional[Seeing] = None) -> None:
        self._root, self._tree = root, FileTree(root)
        self._with = seeing or Seeing(
            HostReader(root), Probes(folder=str(under(root, PROBES)))
        )
        self._before: Optional[Statistics] = None
        self._ports: list[tuple[float, tuple[PortCounters, ...]]] = []
        self._answered: dict[str, float] = {}

    def look(
        self,
        policy: Policy,
        exports: Sequence[Export] = (),
        *,
        read: bool = False,
    ) -> Look:
        """Look at the mounts of ``exports``, or at all if there are none.

        ``read``: also read 4 KiB of each storage domain, which costs some calls more.
        """
        using = self._with
        problems: list[str] = []
        before = self._before or using.read(self._tree)
        begun = using.clock()
        mounts = _chosen(using.reader.nfs_mounts(problems), exports)
        answers = using.probes.ask([Asked(m.mountpoint, read) for m in mounts])
        now = using.clock()
        if self._before is None and mounts:
            using.sleep(max(0.0, BETWEEN_S - (now - begun)))
        after = self._before = using.read(self._tree)
        # A mount that was made again, or is gone, was not what was asked.
        present = {(m.mountpoint, m.source) for m in using.reader.nfs_mounts(problems)}
        mounts = [m for m in mounts if (m.mountpoint, m.source) in present]
        silent = self._silent(mounts, answers, now)
        seen = [
            dataclasses.replace(
                _seen(mount, answers[mount.mountpoint], before, after, policy),
                silent_s=silent[mount.mountpoint],
            )
            for mount in mounts
        ]
        judged = [judge(one) for one in self._with_signs(seen, before, after)]
        problems += after.problems
        return Look(tuple(_shared(judged, mounts)), tuple(dict.fromkeys(problems)))

    def _silent(
        self, mounts: Iterable[NfsMount], answers: Mapping[str, Answer], now: float
    ) -> dict[str, float]:
        """Return the seconds since each mount last answered."""
        last = self._answered
        self._answered = {}
        for mount in mounts:
            place = mount.mountpoint
            late = answers[place].late or answers[place].problem
            self._answered[place] = last.get(place, now) if late else now
        return {place: now - at for place, at in self._answered.items()}

    def _with_signs(
        self, seen: Sequence[Seen], before: Statistics, after: Statistics
    ) -> list[Seen]:
        """Return the same with the signs of servers that are in trouble."""
        errors = self._recent_errors(before, after)
        # The last one of a server counts: best a silent one, over RDMA.
        bad = [one for one in seen if one.mount.address and needs_signs(one)]
        bad.sort(key=lambda one: (not one.is_answered, one.transport == RDMA))
        asked = {
            one.mount.address: Server(
                one.mount.address,
                one.transport,
                one.port,
                not one.is_answered,
                one.tcp_port,
            )
            for one in bad
            if one.mount.address
        }
        signs = signs_of(
            asked.values(), self._root, self._with.questions, self._with.reader
        )
        netdevs = self._netdevs(seen, signs)
        return [_with_others(one, seen, signs, netdevs, errors) for one in seen]

    def _recent_errors(
        self, before: Statistics, after: Statistics
    ) -> dict[tuple[str, int], PortErrors]:
        kept = self._ports or [(before.taken_s, before.ports)]
        oldest = after.taken_s - ERRORS_S
        kept = [one for one in kept[:-1] if one[0] >= oldest] + kept[-1:]
        self._ports = [*kept, (after.taken_s, after.ports)]
        return recent_errors([ports for _, ports in self._ports])

    def _netdevs(
        self, seen: Sequence[Seen], signs: Mapping[str, ServerSigns]
    ) -> dict[str, Optional[str]]:
        """Return by which netdev each server is reached, if one is silent."""
        if all(one.is_answered for one in seen):
            return {}
        netdevs = {address: one.netdev for address, one in signs.items()}
        for one in seen:
            address = one.mount.address
            if address and address not in netdevs:
                route = self._with.reader.route(address)
                netdevs[address] = route.netdev if route else None
        return netdevs


def _chosen(mounts: Iterable[NfsMount], exports: Sequence[Export]) -> list[NfsMount]:
    if not exports:
        return list(mounts)
    return [
        mount
        for mount in mounts
        if any(one.same_as(Export.maybe(mount.source)) for one in exports)
    ]


def _seen(
    mount: NfsMount,
    answer: Answer,
    before: Statistics,
    after: Statistics,
    policy: Policy,
) -> Seen:
    transport = prove(mount).transport
    export = Export.maybe(mount.source)
    match = rule_for(policy, export) if export else None
    port = mount.port if transport == RDMA else None
    now = _statistics_of(after, mount)
    was = _statistics_of(before, mount)
    seconds = after.taken_s - before.taken_s
    own = [
        one
        for one in after.transports or ()
        if one.protocol == transport and one.destination == mount.address
    ]
    waiting = [one.backlog for one in own if one.backlog is not None]
    slots = [one.slots_max for one in own if one.slots_max is not None]
    return Seen(
        mount,
        transport,
        answer,
        port or (match.rule.port if match else Seen.port),
        load_between(was, now, seconds) if now else None,
        backlog=sum(waiting) if waiting else None,
        slots=max(slots) if slots else None,
        connections=len(now.transports) if now else None,
    )


def _statistics_of(
    statistics: Statistics, mount: NfsMount
) -> Optional[MountStatistics]:
    return next(
        (m for m in statistics.mounts if m.mountpoint == mount.mountpoint), None
    )


def _with_others(
    one: Seen,
    seen: Sequence[Seen],
    signs: Mapping[str, ServerSigns],
    netdevs: Mapping[str, Optional[str]],
    errors: Mapping[tuple[str, int], PortErrors],
) -> Seen:
    """Return ``one`` with what the other mounts show."""
    address = one.mount.address
    siblings = [
        other.is_answered
        for other in seen
        if other is not one
        and (other.mount.address, other.transport) == (address, one.transport)
    ]
    netdev = netdevs.get(address or "")
    others = [
        other.is_answered or _is_up(signs.get(other.mount.address or ""))
        for other in seen
        if netdev
        and other.mount.address != address
        and netdevs.get(other.mount.address or "") == netdev
    ]
    its = signs.get(address or "")
    own = [errors[place] for place in (its.devices if its else ()) if place in errors]
    grown: dict[str, int] = {}
    for port in own:
        for name, count in port.counts.items():
            # A mount over TCP sends no packets of RDMA.
            if one.transport == RDMA or name not in SENT_AGAIN:
                grown[name] = grown.get(name, 0) + count
    return dataclasses.replace(
        one,
        signs=its,
        errors=grown,
        error_looks=max((port.times for port in own), default=0),
        others_answer=any(others) if others else None,
        siblings_answer=any(siblings) if siblings else None,
    )


def _is_up(signs: Optional[ServerSigns]) -> bool:
    return signs is not None and signs.tcp.result in (ACCEPTS, REFUSES)


def _shared(
    judged: Sequence[MountHealth], mounts: Sequence[NfsMount]
) -> Iterable[MountHealth]:
    """Yield the same, with the other exports of the server that are not OK either."""
    for health, mount in zip(judged, mounts):
        also = tuple(
            other.export
            for other, its in zip(judged, mounts)
            if OK not in (health.state, other.state)
            and its is not mount
            and its.address == mount.address
        )
        yield dataclasses.replace(health, shared=also)
