# SPDX-License-Identifier: GPL-2.0-or-later
"""Watch the mounts: ``ovirt-rdma-health.service``.

Every ``health_interval`` seconds of the policy it looks at all mounts, writes the state
to /run, and reports to the journal what has changed, once. VDSM has no way by which an
add-on could tell the engine of a mount: the engine reads the state through the reports
of hosts (``hosts check``, ``domain verify``).
"""

from __future__ import annotations

import dataclasses
import time
from typing import Callable, Optional

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import Signature, read, signature_of
from ovirt_rdma.host.system.signals import Stop
from ovirt_rdma.storage.health.look import Looker
from ovirt_rdma.storage.health.state import (
    OK,
    SLOW,
    HealthState,
    MountHealth,
    remove_state,
    seconds_after_boot,
    write_state,
)

# How often the policy is looked at while it has no interval.
IDLE_S = 60.0
# A single late answer may have been a busy moment; so soon it is asked again.
_LOOKS_TO_BE_SLOW = 2
AGAIN_S = 3.0
_FAILURES = 3

Note = Callable[[str], None]
"""Receives a sentence for the journal."""


class HealthWatch:
    """The state from one look to the next, of the host below ``root``."""

    def __init__(
        self,
        root: str,
        note: Note,
        looker: Optional[Looker] = None,
        clock: Callable[[], float] = time.time,
        uptime: Callable[[], float] = seconds_after_boot,
    ) -> None:
        self._root, self._note = root, note
        self._looker = looker or Looker(root)
        self._clock, self._uptime = clock, uptime
        self._file: Optional[Signature] = None
        self._policy = Policy()
        self._health: dict[str, MountHealth] = {}
        self._late: dict[str, int] = {}
        self._reported: tuple[str, ...] = ()
        self._failed = 0

    def watch(self, stop: Stop) -> None:
        """Look until ``stop``; then nobody takes the state for the present one."""
        try:
            while not stop.wait(self.look()):
                pass
        finally:
            remove_state(self._root)

    def look(self) -> float:
        """Look at the mounts, if the policy wants it; return the seconds until the next
        time. What fails is reported, and tried again; raises the third unexpected error
        after a look that succeeded.
        """
        begun = self._uptime()
        try:
            self._follow_policy()
            interval = self._policy.nfs.health_interval
            if interval is None:
                remove_state(self._root)
                self._report(())
                return IDLE_S
            look = self._looker.look(self._policy)
            mounts = tuple(self._settled(mount) for mount in look.mounts)
            self._tell(mounts)
            state = HealthState(
                self._clock(), self._uptime(), float(interval), mounts, look.problems
            )
            write_state(self._root, state)
            self._report(look.problems)
        except Problem as problem:
            self._report((problem.one_line,))
            return IDLE_S
        except Exception as error:
            self._failed += 1
            # A new process may do better: one without this one's files and threads.
            if self._failed >= _FAILURES:
                raise
            # Such as no memory: the next look may succeed.
            remove_state(self._root)
            what = " ".join(f"{type(error).__name__}: {error}".split())
            self._report((f"a look at the mounts failed, and is repeated: {what}",))
            return float(self._policy.nfs.health_interval or IDLE_S)
        self._failed = 0
        if any(0 < late < _LOOKS_TO_BE_SLOW for late in self._late.values()):
            return min(AGAIN_S, interval)
        # The looks begin at a fixed rate, whatever they take.
        return max(1.0, interval - (self._uptime() - begun))

    def _follow_policy(self) -> None:
        path = under(self._root, POLICY_JSON)
        signature = signature_of(path)
        if signature is not None and signature == self._file:
            return
        self._file = None
        stored = read(path)
        self._policy = stored.policy if stored else Policy()
        self._file = signature

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

    def _tell(self, mounts: tuple[MountHealth, ...]) -> None:
        """Report each change of a mount once."""
        for mount in mounts:
            change = changed(self._health.get(mount.mountpoint), mount)
            if change:
                self._note(change)
        self._health = {mount.mountpoint: mount for mount in mounts}
        self._late = {at: n for at, n in self._late.items() if at in self._health}

    def _report(self, sentences: tuple[str, ...]) -> None:
        """Report the sentences that were not reported the last time."""
        for sentence in sentences:
            if sentence not in self._reported:
                self._note(sentence)
        self._reported = sentences


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
