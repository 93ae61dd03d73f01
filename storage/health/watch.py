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
from collections.abc import Collection, Mapping
from typing import Callable, Optional, TypeVar

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
# Remarks come and go with the load: each is reported again after so long.
REMARKED_S = 3600.0
# A single late answer may have been a busy moment; so soon it is asked again.
_LOOKS_TO_BE_SLOW = 2
AGAIN_S = 3.0
_FAILURES = 3

_Value = TypeVar("_Value")

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
        # By mount point: the ids of remarks, and when they were reported.
        self._remarked: dict[str, dict[str, float]] = {}
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
        """Report each change of a mount once, and a remark once in REMARKED_S."""
        oldest = self._uptime() - REMARKED_S
        for mount in mounts:
            known = self._remarked.get(mount.mountpoint, {})
            known = {id_: at for id_, at in known.items() if at > oldest}
            for sentence in changes(self._health.get(mount.mountpoint), mount, known):
                self._note(sentence)
            now = {remark.id: self._uptime() for remark in mount.remarks}
            self._remarked[mount.mountpoint] = {**now, **known}
        self._health = {mount.mountpoint: mount for mount in mounts}
        self._late = _of(self._late, self._health)
        self._remarked = _of(self._remarked, self._health)

    def _report(self, sentences: tuple[str, ...]) -> None:
        """Report the sentences that were not reported the last time."""
        for sentence in sentences:
            if sentence not in self._reported:
                self._note(sentence)
        self._reported = sentences


def _of(values: Mapping[str, _Value], kept: Mapping[str, object]) -> dict[str, _Value]:
    return {key: value for key, value in values.items() if key in kept}


def changes(
    before: Optional[MountHealth], now: MountHealth, known: Collection[str] = ()
) -> list[str]:
    """Return sentences about what has changed at a mount. Pure.

    A new mount that is OK is no change; the same state with another cause is one.
    ``known`` are the ids of remarks that were reported lately.
    """
    said = []
    was = before.state if before else OK
    if now.state != was or (before is not None and now.cause != before.cause):
        if now.state == OK:
            lasted = (now.since or 0.0) - (before.since or 0.0 if before else 0.0)
            said.append(f"{now.export} is ok again, after {lasted:.0f} s ({was})")
        else:
            likely = "" if now.certain else ", probably"
            text = f"{now.export} is {now.state} (cause{likely}: {now.cause}): "
            text += now.sentence
            text += f"; shared with {', '.join(now.shared)}" if now.shared else ""
            said.append(f"{text}; fix: {now.fix}" if now.fix else text)
    earlier = {remark.id for remark in before.remarks} if before else set()
    said += [
        f"{now.export}: {remark.sentence}; fix: {remark.fix}"
        for remark in now.remarks
        if remark.id not in earlier and remark.id not in known
    ]
    return said
