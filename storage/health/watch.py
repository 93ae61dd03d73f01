# SPDX-License-Identifier: GPL-2.0-or-later
"""Watch the mounts: a task of the daemon.

Every ``health_interval`` seconds of the policy it looks at all mounts, writes the state
to /run, and reports to the journal what has changed, once. VDSM has no way by which an
add-on could tell the engine of a mount: the engine reads the state through the reports
of hosts (``hosts check``, ``domain verify``).
"""

from __future__ import annotations

import dataclasses
import time
from collections import Counter
from typing import Callable, Optional

from ovirt_rdma.host.daemon.loop import Note, Result, Task, Turn
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.system.tree import seconds_after_boot
from ovirt_rdma.storage.health.look import Looker
from ovirt_rdma.storage.health.state import (
    OK,
    SLOW,
    WORST_FIRST,
    HealthState,
    MountHealth,
    remove_state,
    write_state,
)

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
