# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep P_Key children equal to the ports' P_Key tables (``partitions: follow``).

``ovirt-rdma-partitions.service`` runs it. The tables are polled, because the kernel
reports a new P_Key to user space by an asynchronous event of verbs only. A poll reads a
few files in /sys; only if something differs, the whole host is read and the lock taken.
"""

from __future__ import annotations

from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import LastReport, Listener
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.policy.model import PARTITIONS_INTERVAL_S
from ovirt_rdma.host.policy.store import FollowedPolicy, StoredPolicy
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.services.partition_children import (
    ChildrenRun,
    Difference,
    difference,
)
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.signals import Stop

# A failed attempt is repeated after 1, 2, 4, ... polls, but at least this often.
_SELDOM_S = 600
_MOST_DOUBLINGS = 10


def follow_partitions(
    root: Union[str, Path],
    run: Optional[Runner],
    listener: Listener,
    stop: Stop,
    host: Optional[HostEffects] = None,
) -> None:
    """Keep the children of the host below ``root`` equal to its P_Key tables until
    ``stop``. ``run`` runs tools; None: they are run on this machine, and not at all
    below any other root. ``listener`` receives what was done and, once, what could not
    be done. ``host`` makes the changes; None: the ordinary backend for ``root``.
    """
    follower = Follower(root, run, listener, stop, host)
    while not stop.wait(follower.look()):
        pass


class Follower:
    """The follower's state from one poll to the next."""

    def __init__(
        self,
        root: Union[str, Path],
        run: Optional[Runner],
        listener: Listener,
        stop: Stop,
        host: Optional[HostEffects] = None,
    ) -> None:
        self._root, self._run = root, run
        self._host = host or HostEffects(root, run)
        self._listener = listener
        self._stop = stop
        self._recovered = False
        self._policy = FollowedPolicy(root)
        self._gone: frozenset[str] = frozenset()
        self._tried = Difference()
        self._tries = 0
        self._polls_to_skip = 0
        self._failed: frozenset[str] = frozenset()
        self._last = LastReport(listener)

    def look(self) -> float:
        """Poll once, and make the changes that are needed; return the seconds until the
        next poll. Raises no error for anything that the host has.
        """
        try:
            self._policy.follow()
            stored = self._policy.stored
            if stored and stored.policy.host.follows_partitions:
                self._look(stored)
            else:
                self._last.report(
                    ["the policy in force follows no partitions; nothing is done"]
                )
        except LockHeld:
            pass  # the next poll is soon enough
        except Problem as problem:
            self._last.report([problem.one_line])
        if self._policy.stored is None:
            return PARTITIONS_INTERVAL_S
        return self._policy.stored.policy.host.partitions_interval

    def _look(self, policy: StoredPolicy) -> None:
        run = ChildrenRun(
            self._root,
            self._run,
            self._host,
            policy,
            listener=self._listener,
            stop=self._stop,
        )
        if not self._recovered:
            why = run.recover_own()
            if why:
                self._last.report([why])
                return
            self._recovered = True
        facts = HostReader(self._root, self._run).partitions()
        seen = difference(View(facts, policy.policy))
        # While the subnet manager writes the table again, a P_Key may be missing for a
        # moment.
        gone, self._gone = self._gone.intersection(seen.gone), frozenset(seen.gone)
        if facts.problems:  # an entry of the table may be one that could not be read
            gone = self._gone = frozenset()
        wanted = Difference(seen.missing, tuple(n for n in seen.gone if n in gone))
        if wanted == Difference():
            self._tried, self._tries, self._failed = wanted, 0, frozenset()
            self._last.report(())
            return
        if wanted != self._tried:
            self._tried, self._tries, self._polls_to_skip = wanted, 0, 0
        if self._polls_to_skip:
            self._polls_to_skip -= 1
            return
        self._try(run, wanted, _SELDOM_S // policy.policy.host.partitions_interval)

    def _try(self, run: ChildrenRun, wanted: Difference, most: int) -> None:
        """Make the changes in ``wanted``; if that fails again and again, skip more and
        more polls, up to ``most``.
        """
        try:
            outcome = run.bring(wanted, self._failed)
        except LockHeld:
            raise
        except Problem:
            self._count_attempt(most)
            raise
        if not outcome.waits:
            self._count_attempt(most)
            self._failed = outcome.failed
        self._last.report(outcome.sentences)

    def _count_attempt(self, most: int) -> None:
        """Count an attempt; if the next poll finds the same difference, it failed."""
        self._polls_to_skip = min(2**self._tries - 1, most)
        self._tries = min(self._tries + 1, _MOST_DOUBLINGS)
