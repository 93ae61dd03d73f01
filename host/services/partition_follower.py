# SPDX-License-Identifier: GPL-2.0-or-later
"""``partitions: follow``: P_Key children are kept equal to the ports' P_Key tables.
What ``ovirt-rdma-partitions.service`` runs.

The kernel tells user space of a new P_Key by an asynchronous event of verbs only, so
the tables are looked at. A look reads a few files in /sys; the whole host is read, and
the lock taken, only where something differs.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.kinds.host import HostEffects
from ovirt_rdma.host.changes.kinds.model import Listener
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import PARTITIONS_INTERVAL_S
from ovirt_rdma.host.policy.store import Signature, StoredPolicy, read, signature_of
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.services.partition_children import (
    ChildrenRun,
    Difference,
    difference,
)
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.signals import Stop

# What cannot be done is tried again after one look, two, four; at least this often.
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
    ``stop``. Tools go through ``run``; None: on this machine for real, and below any
    other root not at all. ``listener`` is told what was done and, once, what could not
    be. ``host`` is the door to the same host, if it is not to be the ordinary one.
    """
    follower = Follower(root, run, listener, stop, host)
    while not stop.wait(follower.look()):
        pass


class Follower:
    """What one look leaves for the next."""

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
        self._policy: Optional[StoredPolicy] = None
        self._policy_file: Optional[Signature] = None
        self._gone: frozenset[str] = frozenset()
        self._tried = Difference()
        self._tries = 0
        self._looks_left = 0
        self._failed: frozenset[str] = frozenset()
        self._said: frozenset[str] = frozenset()

    def look(self) -> float:
        """Look once, and do what is to be done; return the seconds until the next
        look. Raises nothing for what a host has.
        """
        try:
            self._follow_policy()
            if self._policy and self._policy.policy.host.follows_partitions:
                self._look(self._policy)
            else:
                self._say(
                    ["the policy in force follows no partitions: nothing is done"]
                )
        except LockHeld:
            pass  # the next look is soon enough
        except Problem as problem:
            self._say([problem.one_line])
        if self._policy is None:
            return PARTITIONS_INTERVAL_S
        return self._policy.policy.host.partitions_interval

    def _follow_policy(self) -> None:
        """Read the policy again if its file has changed. Raises StoredPolicyProblem;
        there is no policy then.
        """
        path = under(self._root, POLICY_JSON)
        signature = signature_of(path)
        if signature is not None and signature == self._policy_file:
            return
        self._policy, self._policy_file = None, None
        self._policy = read(path)
        self._policy_file = signature

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
                self._say([why])
                return
            self._recovered = True
        facts = HostReader(self._root, self._run).partitions()
        seen = difference(View(facts, policy.policy))
        # A table that the subnet manager is about to write anew may lack a P_Key for a
        # moment.
        gone, self._gone = self._gone.intersection(seen.gone), frozenset(seen.gone)
        if facts.problems:  # an entry of the table may be among what could not be read
            gone = self._gone = frozenset()
        wanted = Difference(seen.missing, tuple(n for n in seen.gone if n in gone))
        if wanted == Difference():
            self._tried, self._tries, self._failed = wanted, 0, frozenset()
            self._said = frozenset()
            return
        if wanted != self._tried:
            self._tried, self._tries, self._looks_left = wanted, 0, 0
        if self._looks_left:
            self._looks_left -= 1
            return
        self._try(run, wanted, _SELDOM_S // policy.policy.host.partitions_interval)

    def _try(self, run: ChildrenRun, wanted: Difference, most: int) -> None:
        """Do what ``wanted`` says; if that is in vain, leave out more and more looks,
        ``most`` in the end.
        """
        try:
            outcome = run.bring(wanted, self._failed)
        except LockHeld:
            raise
        except Problem:
            self._failed_again(most)
            raise
        if not outcome.waits:
            self._failed_again(most)
            self._failed = outcome.failed
        self._say(outcome.sentences)

    def _failed_again(self, most: int) -> None:
        """Count a try; if the next look finds the same to do, it was in vain."""
        self._looks_left = min(2**self._tries - 1, most)
        self._tries = min(self._tries + 1, _MOST_DOUBLINGS)

    def _say(self, sentences: Iterable[str]) -> None:
        """Say what was not said the last time."""
        now = tuple(sentences)
        for sentence in now:
            if sentence not in self._said:
                self._listener.note(sentence)
        self._said = frozenset(now)
