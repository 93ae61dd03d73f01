# SPDX-License-Identifier: GPL-2.0-or-later
"""Log in to the block storage of the policy before vdsmd starts, and rescan it.

``ovirt-rdma-block.service`` runs it. vdsmd waits until all targets are logged in, and
BOOT_S seconds at most. What is not logged in then is tried again, less and less often;
a session that was there once is the kernel's or iscsid's to keep. The process ends when
there is nothing left to do.
"""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Iterable, Sequence
from typing import Callable, Optional

from ovirt_rdma.host.block.logins import Target, differences
from ovirt_rdma.host.block.sessions import BlockSessions
from ovirt_rdma.host.changes.kinds.model import LastReport, Listener
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.policy.block import BlockPolicy
from ovirt_rdma.host.policy.store import FollowedPolicy
from ovirt_rdma.host.system.lock import LockHeld, one_run
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.signals import Stop

BOOT_S = 60.0
BY = "ovirt-rdma-block.service"
# At boot a port becomes ACTIVE, and gets its address, within seconds.
_BOOT_RETRY_S = 2.0
_FIRST_RETRY_S, _SELDOM_S = 30.0, 600.0
_POLICY_S = 60.0
# The field of /proc/PID/stat, after the name in parentheses.
_STARTED = 19


def tell_systemd(state: str) -> None:
    """Send ``state`` to systemd; nothing without it. sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return
    if address.startswith("@"):
        address = "\0" + address[1:]
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.sendto(state.encode("ascii"), address)


def seconds_since_start() -> float:
    """Return the age of this process: systemd counts from there. proc(5), stat."""
    fields = read_file("/proc/self/stat").rpartition(b")")[2].split()
    started = int(fields[_STARTED]) / os.sysconf("SC_CLK_TCK")
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started


class BlockKeeper:
    """The state from one attempt to the next, of the host below ``root``.

    ``listener`` receives what was done and, once, what could not be done. ``ready`` is
    called once: when all targets are logged in, or at the deadline, which is BOOT_S
    seconds after a start ``age_s`` seconds ago.
    """

    def __init__(
        self,
        root: str,
        listener: Listener,
        ready: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
        age_s: float = 0.0,
    ) -> None:
        self._root, self._listener, self._clock = root, listener, clock
        self._ready: Optional[Callable[[], None]] = ready
        self._once = threading.Lock()
        self._boot_s = max(0.0, BOOT_S - age_s)
        self._deadline = clock() + self._boot_s
        self._policy = FollowedPolicy(root)
        self._block = BlockPolicy()
        self._pending: list[Target] = []
        self._retry_s = _FIRST_RETRY_S
        self._next_try = self._next_scan = clock()
        self._last = LastReport(listener)

    def keep(self, stop: Stop) -> None:
        """Log in and rescan until ``stop``, or until nothing is left to do."""
        timer = threading.Timer(self._boot_s, self.be_ready)
        timer.daemon = True
        timer.start()
        try:
            while True:
                seconds = self.look()
                if seconds is None or stop.wait(seconds):
                    break
        finally:
            timer.cancel()
            self.be_ready()

    def be_ready(self) -> None:
        """Let vdsmd start."""
        with self._once:
            ready, self._ready = self._ready, None
        if ready is not None:
            ready()

    def look(self) -> Optional[float]:
        """Do what is due; return the seconds until the next time, or None if nothing is
        left to do. Raises no error for anything that the host has.
        """
        try:
            self._follow_policy()
            now = self._clock()
            if self._pending and now >= self._next_try:
                self._log_in()
            if self._block.rescan_interval and now >= self._next_scan:
                self._rescan(self._block.rescan_interval)
        except LockHeld:
            return _BOOT_RETRY_S  # the next time is soon enough
        except Problem as problem:
            self._last.report([problem.one_line])
            if self._policy.stored is None:  # no policy, or an invalid one
                return None
        if not self._pending:
            self.be_ready()
            if not self._block.rescan_interval:
                return None
        return self._seconds()

    def _seconds(self) -> float:
        due = [self._next_try] if self._pending else []
        due += [self._next_scan] if self._block.rescan_interval else []
        return max(0.0, min(min(due) - self._clock(), _POLICY_S))

    def _follow_policy(self) -> None:
        if not self._policy.follow():
            return
        stored = self._policy.stored
        self._block = stored.policy.block if stored else BlockPolicy()
        self._pending = [*self._block.srp, *self._block.iser]
        self._retry_s, self._next_try = _FIRST_RETRY_S, self._clock()
        self._next_scan = self._clock() + (self._block.rescan_interval or 0)

    def _log_in(self) -> None:
        with one_run(self._root, by=BY):
            sessions = BlockSessions(self._root)
            logins = sessions.log_in(self._block, self._pending, BOOT_S)
        made = [f"{one.title}: logged in" for one in logins if one.made]
        failed = [
            (one.target, f"{one.title}: {one.problem}") for one in logins if one.problem
        ]
        targets = [target for target, _ in failed]
        self._pending = [one for one in self._pending if one in targets]
        for sentence in (*made, *(note for one in logins for note in one.notes)):
            self._listener.note(sentence)
        self._wait(self._pending, [sentence for _, sentence in failed])

    def _wait(self, pending: Sequence[Target], sentences: Iterable[str]) -> None:
        """Plan the next attempt; report what is missing once vdsmd does not wait."""
        now = self._clock()
        if pending and now + _BOOT_RETRY_S < self._deadline:
            self._next_try = now + _BOOT_RETRY_S
            return
        self.be_ready()
        self._last.report(sentences)
        self._next_try = now + self._retry_s
        self._retry_s = min(2 * self._retry_s, _SELDOM_S)

    def _rescan(self, interval: int) -> None:
        with one_run(self._root, by=BY):
            sessions = BlockSessions(self._root)
            before = sessions.facts()
            failed = sessions.rescan(before.sessions)
            after = sessions.facts()
        self._next_scan = self._clock() + interval
        for sentence in differences(before, after):
            self._listener.note(sentence)
        if failed:
            self._last.report(failed)
