# SPDX-License-Identifier: GPL-2.0-or-later
"""Look at all NFS mounts once: statistics, questions to the servers, signs, verdicts.

Nothing waits for a mount: the kernel's statistics are in /proc and /sys, and processes
that can be given up ask the servers.

The watch is a task of the daemon. Every ``health_interval`` seconds of the policy it
looks at all mounts, writes the state to /run, and reports to the journal what has
changed, once. VDSM has no way by which an add-on could tell the engine of a mount: the
engine reads the state through the reports of hosts (``hosts check``, ``domain
verify``).
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
from ovirt_rdma.host.daemon.loop import Note, Result, Task, Turn
from ovirt_rdma.host.export import RDMA, Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import (
    LOSSES,
    MountStatistics,
    PortCounters,
    Statistics,
    growth,
    load_between,
)
from ovirt_rdma.host.paths import PROBES, under
from ovirt_rdma.host.policy.model import Policy, rule_for
from ovirt_rdma.host.system.tree import FileTree, seconds_after_boot
from ovirt_rdma.storage.health.signs import (
    ACCEPTS,
    REFUSES,
    Answer,
    Asked,
    Probes,
    Questions,
    Server,
    ServerSigns,
    signs_of,
)
from ovirt_rdma.storage.health.state import (
    OK,
    SLOW,
    WORST_FIRST,
    HealthState,
    MountHealth,
    remove_state,
    write_state,
)
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


# A single late answer may have been a busy moment; so soon it is asked again.
_LOOKS_TO_BE_SLOW = 2
AGAIN_S = 3.0


class HealthWatch(Task):
    """Looks at the mounts of the host below ``root``; it carries what it knows of them
    from one look to the next.
    """

    name = "health"
    # Hundreds of mounts whose servers are silent are asked in turns of 2 s.
    deadline_s = 120.0
    off = "the policy has no health_interval"
    carried = ("_looker", "_health", "_late")

    def __init__(
        self,
        root: str,
        looker: Optional[Looker] = None,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = seconds_after_boot,
    ) -> None:
        self._root = root
        self._looker = looker or Looker(root)
        self._clock, self._uptime = clock, uptime
        self._health: dict[str, MountHealth] = {}
        self._late: dict[str, int] = {}

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        return policy.nfs.health_interval

    def run(self, turn: Turn) -> Result:
        """Look at the mounts, write the state, and report what has changed."""
        interval = self.interval(turn.policy)
        if interval is None:
            remove_state(self._root)
            return Result(self.off)
        try:
            look = self._looker.look(turn.policy)
        except BaseException:
            # Such as no memory: nobody must take the last look for the present state.
            remove_state(self._root)
            raise
        mounts = tuple(self._settled(mount) for mount in look.mounts)
        self._tell(mounts, turn.note)
        state = HealthState(
            self._clock(), self._uptime(), float(interval), mounts, look.problems
        )
        write_state(self._root, state)
        counted = Counter(mount.state for mount in mounts)
        shown = [f"{counted[word]} {word}" for word in WORST_FIRST if counted[word]]
        late = any(0 < late < _LOOKS_TO_BE_SLOW for late in self._late.values())
        return Result(
            f"mounts: {', '.join(shown) or 'none'}",
            look.problems,
            min(AGAIN_S, interval) if late else None,
        )

    def end(self) -> None:
        """As :meth:`Task.end`."""
        remove_state(self._root)

    def _settled(self, now: MountHealth) -> MountHealth:
        """Return ``now`` with the time since when it is so; SLOW counts when it is seen
        for the second time.
        """
        before = self._health.get(now.mountpoint)
        late = self._late.get(now.mountpoint, 0) + 1 if now.state == SLOW else 0
        self._late[now.mountpoint] = late
        if 0 < late < _LOOKS_TO_BE_SLOW and (before is None or before.state == OK):
            now = dataclasses.replace(
                now,
                state=OK,
                cause=None,
                certain=True,
                reason="",
                sentence=f"late once: {now.sentence}",
                fix="",
            )
        same = before is not None and before.state == now.state
        since = before.since if same and before else self._clock()
        return dataclasses.replace(now, since=since)

    def _tell(self, mounts: tuple[MountHealth, ...], note: Note) -> None:
        """Report each change of a mount once."""
        for mount in mounts:
            change = changed(self._health.get(mount.mountpoint), mount)
            if change:
                note(change)
        self._health = {mount.mountpoint: mount for mount in mounts}
        self._late = {at: n for at, n in self._late.items() if at in self._health}


def changed(before: Optional[MountHealth], now: MountHealth) -> str:
    """Return a sentence about what has changed at a mount, "" if nothing has. Pure.

    A new mount that is OK is no change; the same state with another cause is one.
    """
    was = before.state if before else OK
    if now.state == was and (before is None or now.cause == before.cause):
        return ""
    if now.state == OK:
        lasted = (now.since or 0.0) - (before.since or 0.0 if before else 0.0)
        return f"{now.export} is ok again, after {lasted:.0f} s ({was})"
    likely = "" if now.certain else ", probably"
    text = f"{now.export} is {now.state} (cause{likely}: {now.cause}): {now.sentence}"
    text += f"; shared with {', '.join(now.shared)}" if now.shared else ""
    return f"{text}; fix: {now.fix}" if now.fix else text
