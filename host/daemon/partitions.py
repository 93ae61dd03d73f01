# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep P_Key children equal to the ports' P_Key tables (``partitions: follow``): a task
of the daemon.

The tables are polled, because the kernel reports a new P_Key to user space by an
asynchronous event of verbs only. A poll reads a few files in /sys; only if something
differs, the whole host is read and the lock taken.

A child is obsolete if the port is no longer in its partition. It is removed only if our
runs have made it, according to the journal, and nobody uses it.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.journal import (
    DONE,
    PARTITIONS,
    Ledger,
    Listener,
    Run,
    open_run,
)
from ovirt_rdma.host.changes.kinds.netdev import PkeyChild
from ovirt_rdma.host.changes.kinds.registry import HostEffects
from ovirt_rdma.host.changes.run import Decided, HostRun, decide_for
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.daemon.loop import Result, Task, Turn
from ovirt_rdma.host.errors import Problem, Refused
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.paths import DAEMON_UNIT, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import StoredPolicy
from ovirt_rdma.host.rules.base import Interface, View
from ovirt_rdma.host.rules.ipoib import P_KEY, bonds_of, static_addresses
from ovirt_rdma.host.rules.ipoib_children import (
    CHILDREN,
    planned_children,
    required_children,
    table_entry,
)
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.files import FOLLOW_PARTITIONS
from ovirt_rdma.host.system.lock import LockHeld, one_run
from ovirt_rdma.host.system.signals import Stop

# A failed attempt is repeated after 1, 2, 4, ... polls, but at least this often.
_SELDOM_S = 600


@dataclass(frozen=True)
class Difference:
    """The names of children that must be made (``missing``), and of those whose
    partition is no longer in the table of an ACTIVE port (``gone``).
    """

    missing: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()


def difference(view: View) -> Difference:
    """Return how the children of netdevs that follow the P_Key table differ from it.
    Pure.

    Nothing is removed because of a table that could not be read, or of a port that is
    not ACTIVE. The caller has to check the problems of the facts for entries that could
    not be read.
    """
    following = {netdev.name for netdev in view.ipoib if netdev.follows}
    return Difference(
        tuple(c.name for c in planned_children(view) if c.parent in following),
        tuple(
            child.name
            for child in view.ipoib
            if child.parent in following and _has_left(child)
        ),
    )


def _has_left(child: Interface) -> bool:
    own = partition_of(child.netdev.ipoib.pkey if child.netdev.ipoib else None)
    port = child.port
    return (
        own is not None
        and port.is_active
        and bool(port.pkeys)
        and table_entry(port, own) is None
    )


def in_use_because(view: View, child: Interface) -> Optional[str]:
    """Return, as a clause, who uses ``child`` or has set it up for use; None if nobody
    has. ``view`` is of all facts. Pure.
    """
    if child.users:
        return f"it is in use by {child.users[0]}"
    if child.network is not None:
        return f"it is in the logical network {child.network.name!r}"
    for bond in bonds_of(view, child):
        return f"it is a member of {bond}"
    if child.netdev.uppers:
        return f"{child.netdev.uppers[0]} is built on it"
    addresses = static_addresses(child.netdev)
    return f"it has the address {addresses[0]}" if addresses else None


def made_by(ledger: Ledger, child: Interface) -> Optional[str]:
    """Return the id of the step that made ``child``, if it is still applied; None if no
    run of ours made it, or it made another child of that name. Pure.
    """
    own = partition_of(child.netdev.ipoib.pkey if child.netdev.ipoib else None)
    step = f"{CHILDREN.id}/{child.name}"
    for entry in ledger.applied:
        if entry.step != step:
            continue
        for change in entry.changes:
            makes = change.name == P_KEY or PkeyChild.is_for(change)
            if makes and partition_of(change.after) == own:
                return step
    return None


def is_own(run: Run) -> bool:
    """Whether ``run`` is of the daemon: it concerns nothing but new children. Pure."""
    return run.by == DAEMON_UNIT


@dataclass(frozen=True)
class Outcome:
    """The result: ``sentences`` say what is wrong or was left. ``waits``: a run of
    somebody else is open, so nothing was checked.
    """

    sentences: tuple[str, ...] = ()
    waits: bool = False


class ChildrenRun(HostRun):
    """Makes and removes children of the host below ``root`` as ``policy`` requires.
    ``run`` runs tools that read the host, ``effects`` makes the changes. ``listener``
    receives the progress, and ``stop`` ends the run between two children. For one use.
    """

    def __init__(
        self,
        root: Union[str, Path],
        run: Optional[Runner],
        effects: HostEffects,
        policy: StoredPolicy,
        *,
        listener: Listener,
        stop: Stop,
    ) -> None:
        super().__init__(root, DAEMON_UNIT, listener, run, effects)
        self._policy = policy
        self._stop = stop
        self._sentences: list[str] = []

    def recover_own(self) -> None:
        """Roll back a run of a follower that was killed. An open run of somebody else
        is left unchanged. Raises as :meth:`bring`.
        """
        with one_run(self.root, by=DAEMON_UNIT):
            ledger = self.journal.ledger()
            if ledger.interrupted and not open_run(ledger, is_own):
                self.recover()

    def bring(self, seen: Difference) -> Outcome:
        """Make and remove the children in ``seen`` that are still missing or obsolete
        once the whole host has been read: all new ones in one run, and if that fails
        each in its own.

        Raises LockHeld, and Problem where the journal or the lock cannot be used, or a
        run of ours that was killed cannot be rolled back.
        """
        self.facts()  # before the lock is taken: they are certainly needed
        with one_run(self.root, by=DAEMON_UNIT):
            waits = open_run(self.journal.ledger(), is_own)
            if waits:
                return Outcome((waits,), waits=True)
            self.recover()
            prepared = decide_for(self.facts(), self._policy)
            view = View(prepared.facts, self._policy.policy)
            now = difference(view)
            for child in required_children(view):
                if child.name in seen.missing and child.refused:
                    fix = f" (fix: {child.fix})" if child.fix else ""
                    why = f"{child.name} was not made: {child.refused}{fix}"
                    self._sentences.append(why)
            if len(now.missing) < 2 or self._one_run(prepared, now.missing):
                for name in now.missing:
                    why = "" if self._stop.wait(0) else self._one_run(prepared, [name])
                    if why:
                        self._sentences.append(f"{name} could not be made: {why}")
            for name in seen.gone:
                if name in now.gone and not self._stop.wait(0):
                    self._remove(view, name)
        return Outcome(tuple(self._sentences))

    def _one_run(self, prepared: Decided, names: Collection[str]) -> str:
        """Make children in one run; return why they could not be made, or ""."""
        plan = prepared.decision.applicable
        steps = [one for one in plan if one.subject in names and not one.refused]
        # Reported when all of it was verified: what fails is tried again, one by one.
        try:
            result = self.apply(
                steps,
                prepared.facts,
                verb=PARTITIONS,
                policy=self._policy.digest,
                verify=lambda: self.still_planned(self._policy),
                listener=Listener(),
            )
        except Refused as refused:
            return refused.one_line
        if result.outcome != DONE:
            return result.sentence
        for step in steps:
            self.listener.done(step.id, step.before, step.after)
        return ""

    def _remove(self, view: View, name: str) -> None:
        """Remove a child whose partition is gone, if it is ours and not in use."""
        child = next(netdev for netdev in view.ipoib if netdev.name == name)
        why = in_use_because(view, child)
        step = made_by(self.journal.ledger(), child)
        if step is None:
            why = "it was not made by ovirt-rdma"
        if step and not why:
            why = self._revert(step)
        pkey = child.netdev.ipoib.pkey if child.netdev.ipoib else None
        sentence = f"partition {pkey} is no longer in the P_Key table"
        if why:
            self._sentences.append(f"{sentence}; {name} was not removed: {why}")
        else:
            self.listener.note(f"{sentence}; {name} was removed")

    def _revert(self, step: str) -> str:
        """Revert the step that made a child, with later changes to it; return why that
        was not possible, or "".
        """
        try:
            result = self.revert(step, listener=Listener())
        except Refused as refused:
            return refused.one_line
        left = [f"{left.what}: {left.why}" for left in result.left]
        return "; ".join(left) if left or result.outcome == DONE else result.sentence


class FollowPartitions(Task):
    """Keeps the children of the host below ``root`` equal to its P_Key tables. ``run``
    runs tools; None: they are run on this machine, and not at all below any other root.
    ``listener`` receives what was done. ``host`` makes the changes; None: the ordinary
    backend for ``root``.
    """

    name = "partitions"
    changes_host = True
    deadline_s = 600.0
    off = "the policy has no partitions: follow"
    carried = ("_recovered", "_gone", "_tried", "_tries", "_polls_to_skip", "_problems")

    def __init__(
        self,
        root: str,
        listener: Listener,
        run: Optional[Runner] = None,
        host: Optional[HostEffects] = None,
    ) -> None:
        super().__init__(root, run)
        self._effects = host or HostEffects(root, run)
        self._listener = listener
        self._recovered = False
        self._gone: frozenset[str] = frozenset()
        self._tried = Difference()
        self._tries = 0
        self._polls_to_skip = 0
        self._problems: tuple[str, ...] = ()

    def interval(self, policy: Policy) -> Optional[float]:
        """As :meth:`Task.interval`."""
        host = policy.host
        return host.partitions_interval if host.follows_partitions else None

    def run(self, turn: Turn) -> Result:
        """Poll once, and make the changes that are needed. Raises LockHeld."""
        if turn.stored is None or not turn.policy.host.follows_partitions:
            return Result(self.off)
        allowed = under(self.root, FOLLOW_PARTITIONS)
        if allowed.is_symlink() or not allowed.is_file():
            self._tried, self._problems = Difference(), ()
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
        run = ChildrenRun(
            self.root,
            self.tools,
            self._effects,
            stored,
            listener=self._listener,
            stop=turn.stop,
        )
        if not self._recovered:
            run.recover_own()
            self._recovered = True
        facts = HostReader(self.root, self.tools).partitions()
        seen = difference(View(facts, stored.policy))
        # While the subnet manager writes the table again, a P_Key may be missing for a
        # moment.
        gone, self._gone = self._gone.intersection(seen.gone), frozenset(seen.gone)
        if facts.problems:  # an entry of the table may be one that could not be read
            gone = self._gone = frozenset()
        wanted = Difference(seen.missing, tuple(n for n in seen.gone if n in gone))
        if wanted == Difference():
            self._tried, self._tries, self._problems = wanted, 0, ()
            return
        if wanted != self._tried:
            self._tried, self._tries, self._polls_to_skip = wanted, 0, 0
        if self._polls_to_skip:
            self._polls_to_skip -= 1
            return
        # If the next poll finds the same difference, the attempt failed.
        most = _SELDOM_S // stored.policy.host.partitions_interval
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
