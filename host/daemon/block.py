# SPDX-License-Identifier: GPL-2.0-or-later
"""Log in to the block storage of the policy: before vdsmd starts, and later.

``ovirt-rdma-block.service`` makes the logins at boot: vdsmd waits until all targets are
logged in, and BOOT_S seconds at most. What is not logged in then is tried again by a
task of the daemon, less and less often; a session that was there once is the kernel's
or iscsid's to keep. The task also looks for new LUNs and sizes.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from typing import Callable, Optional

from ovirt_rdma.host.block.logins import Target, differences
from ovirt_rdma.host.block.sessions import BlockSessions
from ovirt_rdma.host.daemon.loop import Note, Result, Task, Turn
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import DAEMON_UNIT, POLICY_JSON, under
from ovirt_rdma.host.policy.block import BlockPolicy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import read
from ovirt_rdma.host.system.lock import LockHeld, one_run
from ovirt_rdma.host.system.signals import Stop
from ovirt_rdma.host.system.tree import seconds_after_boot

BOOT_S = 60.0
BOOT_UNIT = "ovirt-rdma-block.service"
# At boot a port becomes ACTIVE, and gets its address, within seconds.
_BOOT_RETRY_S = 2.0
_FIRST_RETRY_S, _SELDOM_S = 30.0, 600.0


def log_in_at_boot(
    root: str,
    note: Note,
    ready: Callable[[], None],
    stop: Stop,
    *,
    clock: Callable[[], float] = time.monotonic,
    age_s: float = 0.0,
) -> None:
    """Log in to all targets of the host below ``root``, until ``stop`` or the deadline,
    which is BOOT_S seconds after a start ``age_s`` seconds ago.

    ``ready`` lets vdsmd start; it is called once, at the deadline also while a login
    still waits. ``note`` receives what was done and, at the end, what could not be.
    """
    once = threading.Lock()
    called: list[bool] = []

    def be_ready() -> None:
        with once:
            if not called:
                called.append(True)
                ready()

    boot_s = max(0.0, BOOT_S - age_s)
    deadline = clock() + boot_s
    timer = threading.Timer(boot_s, be_ready)
    timer.daemon = True
    timer.start()
    problems: list[str] = []
    try:
        stored = read(under(root, POLICY_JSON))
        block = stored.policy.block if stored else BlockPolicy()
        pending = _targets(block)
        while pending:
            try:
                pending, problems = _log_in(root, BOOT_UNIT, block, pending, note)
            except LockHeld as held:  # the next time is soon enough
                problems = [held.one_line]
            if not pending or clock() + _BOOT_RETRY_S >= deadline:
                break
            if stop.wait(_BOOT_RETRY_S):
                break
    except Problem as problem:
        problems = [problem.one_line]
    finally:
        timer.cancel()
        be_ready()
    for sentence in problems:
        note(sentence)


def _targets(block: BlockPolicy) -> list[Target]:
    return [*block.srp, *block.iser]


def _log_in(
    root: str, by: str, block: BlockPolicy, pending: Sequence[Target], note: Note
) -> tuple[list[Target], list[str]]:
    """Try ``pending`` targets of ``block``; return those that have no session, and why.

    Raises LockHeld, and Problem.
    """
    with one_run(root, by=by):
        logins = BlockSessions(root).log_in(block, pending, BOOT_S)
    for one in logins:
        if one.made:
            note(f"{one.title}: logged in")
        for sentence in one.notes:
            note(sentence)
    failed = [
        (one.target, f"{one.title}: {one.problem}") for one in logins if one.problem
    ]
    targets = [target for target, _ in failed]
    return [one for one in pending if one in targets], [why for _, why in failed]


class BlockLogins(Task):
    """Repeats logins that failed, and rescans, on the host below ``root``."""

    name = "block"
    changes_host = True
    # Behind the unit of the boot.
    first_s = BOOT_S + _FIRST_RETRY_S
    deadline_s = 300.0
    off = "the policy has no targets"
    carried = (
        "_block",
        "_pending",
        "_problems",
        "_retry_s",
        "_next_try",
        "_next_scan",
    )

    def __init__(
        self, root: str, clock: Callable[[], float] = seconds_after_boot
    ) -> None:
        super().__init__(root)
        self._clock = clock
        self._block: Optional[BlockPolicy] = None
        self._pending: list[Target] = []
        self._problems: list[str] = []
        self._retry_s = _FIRST_RETRY_S
        self._next_try = self._next_scan = math.inf

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        block = policy.block
        return _FIRST_RETRY_S if _targets(block) or block.rescan_interval else None

    def run(self, turn: Turn) -> Result:
        """Do what is due. Raises LockHeld, and Problem."""
        block, now = turn.policy.block, self._clock()
        if block != self._block:
            self._block, self._pending = block, _targets(block)
            self._problems, self._retry_s = [], _FIRST_RETRY_S
            self._next_try = now
            self._next_scan = now + (block.rescan_interval or math.inf)
        if self._pending and now >= self._next_try:
            self._pending, self._problems = _log_in(
                self.root, DAEMON_UNIT, block, self._pending, turn.note
            )
            self._next_try = self._clock() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _SELDOM_S)
        failed: list[str] = []
        if block.rescan_interval and now >= self._next_scan:
            failed = self._rescan(block.rescan_interval, turn.note)
        tries = self._next_try if self._pending else math.inf
        problems = (*self._problems, *failed)
        missing = f"{len(self._pending)} of {len(_targets(block))} are not logged in"
        return Result(
            f"targets: {missing if self._pending else 'all are logged in'}",
            problems,
            max(0.0, min(tries, self._next_scan) - self._clock()),
        )

    def _rescan(self, interval: int, note: Note) -> list[str]:
        with one_run(self.root, by=DAEMON_UNIT):
            sessions = BlockSessions(self.root)
            before = sessions.facts()
            failed = sessions.rescan(before.sessions)
            after = sessions.facts()
        self._next_scan = self._clock() + interval
        for sentence in differences(before, after):
            note(sentence)
        return [str(sentence) for sentence in failed]
