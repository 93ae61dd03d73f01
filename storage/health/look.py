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
from typing import Callable, Optional

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.collect.statistics import read_statistics
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.export import RDMA, Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.host.facts.statistics import (
    LOSSES,
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
    Probes,
    ServerSigns,
    signs_of,
)
from ovirt_rdma.storage.health.state import (
    OK,
    SLOW,
    STATES,
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


def recent_errors(
    samples: Sequence[Iterable[PortCounters]],
) -> dict[tuple[str, int], tuple[Counter[str], int]]:
    """Return by how much each of LOSSES grew on a port over ``samples``, the oldest
    first, and in how many one of WAITED did; by device and port number. Pure.
    """
    found: dict[tuple[str, int], tuple[Counter[str], int]] = {}
    for before, after in zip(samples, samples[1:]):
        earlier = {one[:2]: one for one in before}
        for port in after:
            was = earlier.get(port[:2])
            grown = {n: growth(was.get(n), port.get(n)) for n in LOSSES} if was else {}
            more = Counter({name: count for name, count in grown.items() if count})
            if more:
                counts, times = found.get(port[:2], (Counter(), 0))
                times += not WAITED.isdisjoint(more)
                found[port[:2]] = counts + more, times
    return found


class Looker:
    """Looks at the mounts of the host below ``root``, again and again.

    Between the looks it keeps the last statistics, the counters of ports of the last
    ERRORS_S seconds, and when each mount last answered. Tests replace what it uses.
    """

    def __init__(
        self,
        root: str = "/",
        reader: Optional[HostReader] = None,
        probes: Optional[Probes] = None,
        *,
        read: Callable[[FileTree], Statistics] = _read,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._tree, self._reader = FileTree(root), reader or HostReader(root)
        self._probes = probes or Probes(folder=str(under(root, PROBES)))
        self._read, self._sleep, self._clock = read, sleep, clock
        self._before: Optional[Statistics] = None
        self._ports: list[tuple[float, tuple[PortCounters, ...]]] = []
        self._answered: dict[str, float] = {}

    def look(
        self, policy: Policy, export: Optional[Export] = None, *, read: bool = False
    ) -> HealthState:
        """Look at the mounts of ``export``, or at all if it is None.

        ``read``: also read 4 KiB of each storage domain, which costs some calls more.
        """
        problems: list[str] = []
        before = self._before or self._read(self._tree)
        begun = self._clock()
        mounts = [
            mount
            for mount in self._reader.nfs_mounts(problems)
            if export is None or export.same_as(Export.maybe(mount.source))
        ]
        answers = self._probes.ask([mount.mountpoint for mount in mounts], read=read)
        now = self._clock()
        if self._before is None and mounts:
            self._sleep(max(0.0, BETWEEN_S - (now - begun)))
        after = self._before = self._read(self._tree)
        # A mount that was made again, or is gone, was not what was asked.
        present = {(m.mountpoint, m.source) for m in self._reader.nfs_mounts(problems)}
        mounts = [m for m in mounts if (m.mountpoint, m.source) in present]
        last, self._answered = self._answered, {}
        seen = []
        for mount in mounts:
            place = mount.mountpoint
            answer = answers[place]
            is_late = answer.late or answer.problem
            self._answered[place] = last.get(place, now) if is_late else now
            silent_s = now - self._answered[place]
            seen.append(_seen(mount, answer, before, after, policy, silent_s=silent_s))
        judged = tuple(judge(one) for one in self._with_signs(seen, before, after))
        problems = list(dict.fromkeys([*problems, *after.problems]))
        taken_s = seconds_after_boot()
        return HealthState(time.time(), taken_s, 0.0, judged, tuple(problems))

    def _with_signs(
        self, seen: Sequence[Seen], before: Statistics, after: Statistics
    ) -> list[Seen]:
        """Return the same with the signs of servers that are in trouble."""
        samples = self._ports or [(before.taken_s, before.ports)]
        oldest = after.taken_s - ERRORS_S
        samples = [one for one in samples[:-1] if one[0] >= oldest] + samples[-1:]
        self._ports = [*samples, (after.taken_s, after.ports)]
        errors = recent_errors([ports for _, ports in self._ports])
        # The last one of a server counts: best a silent one, over RDMA.
        bad = [one for one in seen if one.mount.address and needs_signs(one)]
        bad.sort(key=lambda one: (not one.is_answered, one.transport == RDMA))
        asked = {}
        for one in bad:
            over_rdma = one.transport == RDMA and not one.is_answered
            ports = one.tcp_port, one.port if over_rdma else None
            asked[one.mount.address or ""] = ports
        signs = signs_of(asked, self._reader)
        netdevs: dict[str, Optional[str]] = {}
        if not all(one.is_answered for one in seen):
            for address in {one.mount.address or "" for one in seen} - {""}:
                route = self._reader.route(address)
                netdevs[address] = route.netdev if route else None
        return [_with_others(one, seen, signs, netdevs, errors) for one in seen]


def _seen(
    mount: NfsMount,
    answer: Answer,
    before: Statistics,
    after: Statistics,
    policy: Policy,
    *,
    silent_s: float,
) -> Seen:
    transport = prove(mount).transport
    export = Export.maybe(mount.source)
    match = rule_for(policy, export) if export else None
    port = mount.port if transport == RDMA else None
    was, now = (
        next((m for m in one.mounts if m.mountpoint == mount.mountpoint), None)
        for one in (before, after)
    )
    seconds = after.taken_s - before.taken_s
    waiting = [
        one.counters.get("backlog_q_len", 0)
        for one in after.transports or ()
        if one.protocol == transport and one.destination == mount.address
    ]
    return Seen(
        mount,
        transport,
        answer,
        port or (match.rule.port if match else Seen.port),
        load_between(was, now, seconds) if now else None,
        silent_s,
        backlog=sum(waiting),
    )


def _with_others(
    one: Seen,
    seen: Sequence[Seen],
    signs: Mapping[str, ServerSigns],
    netdevs: Mapping[str, Optional[str]],
    errors: Mapping[tuple[str, int], tuple[Counter[str], int]],
) -> Seen:
    """Return ``one`` with what the other mounts show."""
    address = one.mount.address or ""
    siblings = [
        other.is_answered
        for other in seen
        if other is not one
        and (other.mount.address, other.transport) == (address, one.transport)
    ]
    netdev = netdevs.get(address)
    others = [
        other.is_answered or _is_up(signs.get(other.mount.address or ""))
        for other in seen
        if netdev
        and other.mount.address != address
        and netdevs.get(other.mount.address or "") == netdev
    ]
    own = signs.get(address)
    ports = [errors[place] for place in (own.devices if own else ()) if place in errors]
    grown: Counter[str] = sum((counts for counts, _ in ports), Counter())
    return dataclasses.replace(
        one,
        signs=own,
        # A mount over TCP sends no packets of RDMA.
        errors={
            name: count
            for name, count in grown.items()
            if one.transport == RDMA or name not in SENT_AGAIN
        },
        error_looks=max((times for _, times in ports), default=0),
        others_answer=any(others) if others else None,
        siblings_answer=any(siblings) if siblings else None,
    )


def _is_up(signs: Optional[ServerSigns]) -> bool:
    return signs is not None and signs.tcp.result in (ACCEPTS, REFUSES)


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

    def __init__(self, root: str, looker: Optional[Looker] = None) -> None:
        self._root = root
        self._looker = looker or Looker(root)
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
            state = self._looker.look(turn.policy)
        except BaseException:
            # Such as no memory: nobody must take the last look for the present state.
            remove_state(self._root)
            raise
        mounts = tuple(self._settled(one, state.taken_at) for one in state.mounts)
        for mount in mounts:
            change = changed(self._health.get(mount.mountpoint), mount)
            if change:
                turn.note(change)
        self._health = {mount.mountpoint: mount for mount in mounts}
        self._late = {at: n for at, n in self._late.items() if at in self._health}
        state = dataclasses.replace(state, mounts=mounts, interval_s=float(interval))
        write_state(self._root, state)
        counted = Counter(mount.state for mount in mounts)
        shown = [f"{counted[word]} {word}" for word in STATES if counted[word]]
        late = any(0 < late < _LOOKS_TO_BE_SLOW for late in self._late.values())
        return Result(
            f"mounts: {', '.join(shown) or 'none'}",
            state.problems,
            min(AGAIN_S, interval) if late else None,
        )

    def end(self) -> None:
        """As :meth:`Task.end`."""
        remove_state(self._root)

    def _settled(self, now: MountHealth, at: float) -> MountHealth:
        """Return ``now`` with the time since when it is so; SLOW counts when it is seen
        for the second time.
        """
        before = self._health.get(now.mountpoint)
        late = self._late.get(now.mountpoint, 0) + 1 if now.state == SLOW else 0
        self._late[now.mountpoint] = late
        if 0 < late < _LOOKS_TO_BE_SLOW and (before is None or before.state == OK):
            once = f"late once: {now.sentence}"
            now = dataclasses.replace(now, state=OK, sentence=once, fix="")
            now = dataclasses.replace(now, cause=None, certain=True, reason="")
        same = before is not None and before.state == now.state
        since = before.since if same and before else at
        return dataclasses.replace(now, since=since)


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
    return f"{text}; fix: {now.fix}" if now.fix else text
