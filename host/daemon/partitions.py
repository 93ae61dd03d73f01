# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep P_Key children equal to the ports' P_Key tables (``partitions: follow``).

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
    refuse_while_open,
)
from ovirt_rdma.host.changes.kinds.netdev import PkeyChild
from ovirt_rdma.host.changes.kinds.registry import HostEffects
from ovirt_rdma.host.changes.run import Decided, HostRun, decide_for
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.facts.infiniband import partition_of
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.policy.store import StoredPolicy
from ovirt_rdma.host.rules.base import Interface, View
from ovirt_rdma.host.rules.ipoib import (
    CHILDREN,
    P_KEY,
    bonds_of,
    planned_children,
    required_children,
    static_addresses,
    table_entry,
)
from ovirt_rdma.host.system.commands import Runner
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.signals import Stop


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
        effects: Optional[HostEffects],
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
            run = ledger.interrupted
            if run and is_own(run) and ledger.awaiting is None:
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
            try:
                refuse_while_open(self.journal.ledger(), may_end=is_own)
            except Refused as refused:
                return Outcome((f"{refused} ({refused.fix})",), waits=True)
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
            try:
                result = self.revert(step, listener=Listener())
            except Refused as refused:
                why = refused.one_line
            else:
                left = [f"{left.what}: {left.why}" for left in result.left]
                is_gone = result.outcome == DONE
                why = "; ".join(left) or (None if is_gone else result.sentence)
        pkey = child.netdev.ipoib.pkey if child.netdev.ipoib else None
        sentence = f"partition {pkey} is no longer in the P_Key table"
        if why:
            self._sentences.append(f"{sentence}; {name} was not removed: {why}")
        else:
            self.listener.note(f"{sentence}; {name} was removed")
