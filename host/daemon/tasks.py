# SPDX-License-Identifier: GPL-2.0-or-later
"""Tasks of the daemon: logins to block storage, the capabilities of this host, and
children of partitions.

``ovirt-rdma-block.service`` makes the logins at boot: vdsmd waits until all targets are
logged in, and BOOT_S seconds at most. What is not logged in then is tried again by a
task of the daemon, less and less often. So is a session that the kernel has given up
(dev_loss_tmo of SRP); as long as it is there, the kernel or iscsid connects it again.
The task also looks for new LUNs and sizes.

The hook after_get_caps adds the capabilities to those of VDSM. They depend on how the
host is configured, never on the state of a link: the engine uses what it reads until it
reads the capabilities again.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Callable, Optional

from ovirt_rdma.host.block.logins import Login, Target, differences
from ovirt_rdma.host.block.sessions import BlockSessions
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.loop import Note, Result, Task, Turn
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import CAPS_JSON, DAEMON_UNIT, POLICY_JSON, under
from ovirt_rdma.host.policy.block import BlockPolicy
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import StoredPolicy, in_force, read
from ovirt_rdma.host.services.enablement import MODE_VDSMD, is_enabled, marker_mode
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.files import (
    FOLLOW_PARTITIONS,
    PUBLIC_MODE,
    not_written,
    write_public,
)
from ovirt_rdma.host.system.json_codec import Envelope
from ovirt_rdma.host.system.lock import LockHeld, one_run
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.signals import Stop
from ovirt_rdma.host.system.tree import seconds_after_boot

if TYPE_CHECKING:
    from ovirt_rdma.host.changes.kinds.registry import HostEffects
    from ovirt_rdma.host.daemon.partitions import Difference

BOOT_S = 60.0
BOOT_UNIT = "ovirt-rdma-block.service"
# At boot a port becomes ACTIVE, and gets its address, within seconds.
_BOOT_RETRY_S = 2.0
_FIRST_RETRY_S, _SELDOM_S = 30.0, 600.0
# How often the daemon looks for sessions that are gone.
_LOOK_S = 60.0


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
    is_late = threading.Event()

    def let_go() -> None:
        is_late.set()
        ready()

    boot_s = max(0.0, BOOT_S - age_s)
    deadline = clock() + boot_s
    timer = threading.Timer(boot_s, let_go)
    timer.daemon = True
    timer.start()
    problems: list[str] = []
    try:
        stored = read(under(root, POLICY_JSON))
        block = stored.policy.block if stored else BlockPolicy()
        pending = block.targets
        while pending:
            try:
                with one_run(root, by=BOOT_UNIT):
                    failed = _log_in(root, block, pending, note)
                pending = [one.target for one in failed]
                problems = [_why(one) for one in failed]
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
        timer.join()
        if not is_late.is_set():
            ready()
    for sentence in problems:
        note(sentence)


def _log_in(
    root: str, block: BlockPolicy, targets: Sequence[Target], note: Note
) -> list[Login]:
    """Log in to ``targets`` of ``block``, under the lock of the host; return the logins
    that failed. Raises Problem.
    """
    logins = BlockSessions(root).log_in(block, targets, BOOT_S)
    for one in logins:
        if one.made:
            note(f"{one.title}: logged in")
        for sentence in one.notes:
            note(sentence)
    return [one for one in logins if one.problem]


def _why(login: Login) -> str:
    return f"{login.title}: {login.problem}"


class BlockLogins(Task):
    """Logs in to targets that have no session, and rescans, on the host below
    ``root``.
    """

    name = "block"
    changes_host = True
    # Behind the unit of the boot.
    first_s = BOOT_S + _FIRST_RETRY_S
    deadline_s = 300.0
    off = "the policy has no targets"
    carried = (
        *("_block", "_pending", "_ready", "_failed", "_not_scanned"),
        *("_retry_s", "_next_try", "_next_scan"),
    )

    def __init__(
        self, root: str, clock: Callable[[], float] = seconds_after_boot
    ) -> None:
        super().__init__(root)
        self._clock = clock
        self._block: Optional[BlockPolicy] = None
        self._pending: list[Target] = []
        # Nothing is known to be in the way of a login to these.
        self._ready: set[Target] = set()
        self._failed: list[Login] = []
        self._not_scanned: list[str] = []
        self._retry_s = _FIRST_RETRY_S
        self._next_try = self._next_scan = math.inf

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        block = policy.block
        return _FIRST_RETRY_S if block.targets or block.rescan_interval else None

    def run(self, turn: Turn) -> Result:
        """Do what is due. Raises LockHeld, and Problem."""
        block, now = turn.policy.block, self._clock()
        sessions = BlockSessions(self.root)
        logins = sessions.logins(block, sessions.facts())
        gone = {one.target for one in logins if one.session is None}
        missing = [one for one in block.targets if one in gone]
        if block != self._block:  # all of them, for their timeouts
            missing, self._pending = block.targets, []
            self._failed, self._not_scanned = [], []
            self._next_scan = now + (block.rescan_interval or math.inf)
        out = sessions.logged_out(block)
        missing = [one for one in missing if one.name not in out]
        ready = {one.target for one in logins if not (one.session or one.problem)}
        new = ready - self._ready
        if any(one in new or one not in self._pending for one in missing):
            self._next_try, self._retry_s = now, _FIRST_RETRY_S
        self._ready = ready
        if missing and now >= self._next_try:
            with one_run(self.root, by=DAEMON_UNIT):
                # A logout may have been faster.
                out = sessions.logged_out(block)
                missing = [one for one in missing if one.name not in out]
                self._failed = _log_in(self.root, block, missing, turn.note)
            failed = {one.target for one in self._failed}
            missing = [one for one in missing if one in failed]
            self._next_try = self._clock() + self._retry_s
            self._retry_s = min(2 * self._retry_s, _SELDOM_S)
        self._block, self._pending = block, missing
        if block.rescan_interval and now >= self._next_scan:
            with one_run(self.root, by=DAEMON_UNIT):
                before = sessions.facts()
                self._not_scanned = [
                    str(one) for one in sessions.rescan(before.sessions)
                ]
                after = sessions.facts()
            wait = block.rescan_interval
            if self._not_scanned:
                wait = min(wait, int(_SELDOM_S))
            self._next_scan = self._clock() + wait
            for sentence in differences(before, after):
                turn.note(sentence)
        out &= {one.name for one in gone}
        said, number = "all are logged in", len(missing) + len(out)
        if number:
            said = f"{number} of {len(block.targets)} are not logged in"
        if out:
            said += f" (block logout: {', '.join(sorted(out))})"
        tries = self._next_try if missing else math.inf
        looks = self._clock() + (_LOOK_S if block.targets else math.inf)
        return Result(
            f"targets: {said}",
            (
                *(_why(one) for one in self._failed if one.target in missing),
                *self._not_scanned,
            ),
            max(0.0, min(tries, looks, self._next_scan) - self._clock()),
        )


# The hook after_get_caps, which imports nothing of ours, reads version 1.
CAPS = Envelope("capabilities")
FEATURE = "NFS_RDMA"


def text_of_caps() -> str:
    """Return the text of the file if the host supports NFS over RDMA. Pure."""
    return CAPS.text({"additionalFeatures": [FEATURE]}, indent=None)


class Capabilities(Task):
    """Keeps the file as the host is configured."""

    name = "capabilities"
    every_s = 60.0

    def run(self, turn: Turn) -> Result:
        """Write the file if the host is enabled, and a valid policy is loaded; else
        remove it. Raises Problem where that is not possible.
        """
        enabled = marker_mode(Path(self.root)) == MODE_VDSMD
        has = enabled and in_force(under(self.root, POLICY_JSON)).stored is not None
        _keep(under(self.root, CAPS_JSON), text_of_caps() if has else None)
        if has:
            return Result(f"the engine gets {FEATURE}")
        return Result("the engine gets nothing: mode vdsmd and a policy are needed")

    def end(self) -> None:
        """As :meth:`Task.end`."""
        if not is_enabled(self.root):
            _keep(under(self.root, CAPS_JSON), None)


def _keep(path: Path, text: Optional[str]) -> None:
    """Give the file ``path`` this text, or remove it, unless it is so. Raises
    Problem.
    """
    is_so = False
    try:
        if text is None:
            path.unlink(missing_ok=True)
        elif path.is_file() and path.stat().st_mode & 0o777 == PUBLIC_MODE:
            is_so = read_file(path) == text.encode()
    except OSError as error:
        raise not_written(error, path) from error
    if text is not None and not is_so:
        write_public(path, text)


# A failed attempt is repeated after 1, 2, 4, ... polls, but at least this often.
_SELDOM_POLLS_S = 600


class FollowPartitions(Task):
    """Keeps the children of the host below ``root`` equal to its P_Key tables.

    The tables are polled, because the kernel reports a new P_Key to user space by an
    asynchronous event of verbs only. A poll reads a few files in /sys; only if
    something differs, the whole host is read and the lock taken.
    """

    name = "partitions"
    changes_host = True
    deadline_s = 600.0
    off = "the policy has no partitions: follow"
    carried = ("_recovered", "_gone", "_tried", "_tries", "_polls_to_skip", "_problems")

    def __init__(
        self,
        root: str,
        tools: Optional[Runner] = None,
        effects: Optional[HostEffects] = None,
    ) -> None:
        super().__init__(root, tools)
        self._effects = effects
        self._recovered = False
        self._gone: frozenset[str] = frozenset()
        self._tried: Optional[Difference] = None
        self._tries = 0
        self._polls_to_skip = 0
        self._problems: tuple[str, ...] = ()

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        host = policy.host
        return host.partitions_interval if host.follows_partitions else None

    def prepare(self) -> None:
        """As :meth:`Task.prepare`."""
        from ovirt_rdma.host.daemon import partitions  # noqa: F401, PLC0415

    def run(self, turn: Turn) -> Result:
        """Poll once, and make the changes that are needed. Raises LockHeld."""
        if turn.stored is None or not turn.policy.host.follows_partitions:
            return Result(self.off)
        allowed = under(self.root, FOLLOW_PARTITIONS)
        if allowed.is_symlink() or not allowed.is_file():
            self._tried, self._problems = None, ()
            return Result("it is not turned on: IPOIB-PKEY-02 is not applied")
        try:
            self._poll(turn, turn.stored)
        except LockHeld:
            raise
        except Problem as problem:
            self._problems = (problem.one_line,)
        if self._problems:
            return Result("; ".join(self._problems), self._problems)
        return Result("the children are as the P_Key tables")

    def _poll(self, turn: Turn, stored: StoredPolicy) -> None:
        # Not at the top: rules and changes are 4 MB that most hosts do not need.
        from ovirt_rdma.host.changes.journal import Listener  # noqa: PLC0415
        from ovirt_rdma.host.daemon import partitions  # noqa: PLC0415
        from ovirt_rdma.host.rules.base import View  # noqa: PLC0415

        run = partitions.ChildrenRun(
            self.root,
            self.tools,
            self._effects,
            stored,
            listener=Listener(turn.note),
            stop=turn.stop,
        )
        if not self._recovered:
            run.recover_own()
            self._recovered = True
        facts = HostReader(self.root, self.tools).partitions()
        seen = partitions.difference(View(facts, stored.policy))
        # While the subnet manager writes the table again, a P_Key may be missing for a
        # moment.
        gone, self._gone = self._gone.intersection(seen.gone), frozenset(seen.gone)
        if facts.problems:  # an entry of the table may be one that could not be read
            gone = self._gone = frozenset()
        wanted = replace(seen, gone=tuple(n for n in seen.gone if n in gone))
        if not wanted.missing and not wanted.gone:
            self._tried, self._tries, self._problems = None, 0, ()
            return
        if wanted != self._tried:
            self._tried, self._tries, self._polls_to_skip = wanted, 0, 0
        if self._polls_to_skip:
            self._polls_to_skip -= 1
            return
        # If the next poll finds the same difference, the attempt failed.
        most = _SELDOM_POLLS_S // stored.policy.host.partitions_interval
        skipped = min(2 ** min(self._tries, 10) - 1, most)
        try:
            outcome = run.bring(wanted)
        except LockHeld:
            raise
        except Problem:
            self._polls_to_skip, self._tries = skipped, self._tries + 1
            raise
        if not outcome.waits:
            self._polls_to_skip, self._tries = skipped, self._tries + 1
        self._problems = outcome.sentences
