# SPDX-License-Identifier: GPL-2.0-or-later
"""Making the P_Key children that a host lacks, and removing those of ours that nobody
uses and whose partition is gone: what one look of the follower comes to.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.commands import Runner
from ovirt_rdma.host.effects.boot_settings import keep_for_boot
from ovirt_rdma.host.effects.children_held import made_by, open_run
from ovirt_rdma.host.effects.host_effects import HostEffects
from ovirt_rdma.host.effects.journal import Journal
from ovirt_rdma.host.effects.journal_records import DONE, PARTITIONS, PARTLY
from ovirt_rdma.host.effects.prepare import (
    FactsBefore,
    Prepared,
    decided_by,
    still_planned,
)
from ovirt_rdma.host.effects.recover import recover
from ovirt_rdma.host.effects.revert import revert
from ovirt_rdma.host.effects.run import apply_steps
from ovirt_rdma.host.effects.run_result import Listener, Refused, RunRequest
from ovirt_rdma.host.effects.stop_signal import Stop
from ovirt_rdma.host.partitions import Difference, difference, steps_of, who_uses
from ovirt_rdma.host.paths import PARTITIONS_UNIT
from ovirt_rdma.host.policy_store import StoredPolicy
from ovirt_rdma.host.rules.ipoib_children import wanted_children
from ovirt_rdma.host.rules.view import View
from ovirt_rdma.host.run_lock import one_run


@dataclass(frozen=True)
class Outcome:
    """What came of it: ``sentences`` are what is not as it should be, or was left.

    ``failed`` names the children that could not be made. ``waits``: a run of somebody
    else is open, so nothing was looked at.
    """

    sentences: tuple[str, ...] = ()
    failed: frozenset[str] = frozenset()
    waits: bool = False


class ChildrenRun:
    """Brings the children of the host below ``root`` to what ``policy`` wants. It is
    read with tools run through ``run``, and changed through ``host``. ``listener`` is
    told what was done, and ``stop`` ends it between two children. For one use.
    """

    def __init__(
        self,
        root: Union[str, Path],
        run: Optional[Runner],
        host: HostEffects,
        policy: StoredPolicy,
        *,
        listener: Listener,
        stop: Stop,
    ) -> None:
        self._root, self._run = root, run
        self._policy = policy
        self._listener = listener
        self._stop = stop
        self._host = host
        self._journal = Journal(root)
        # Read before the lock is taken, where it is known that they are needed.
        self._facts = FactsBefore(root, run)
        self._sentences: list[str] = []

    def recover_own(self) -> str:
        """Take back what a follower that was killed left; return why not all of it
        could be, or nothing. An open run of somebody else is left alone.

        Raises as :meth:`bring`.
        """
        with one_run(self._root, by=PARTITIONS_UNIT):
            ledger = self._journal.ledger()
            ours = ledger.interrupted and not open_run(ledger)
            return self._recover() if ours else ""

    def bring(self, seen: Difference, alone: Collection[str] = ()) -> Outcome:
        """Make and remove what ``seen`` names, as far as that is still so once all of
        the host has been read. New children are made in one run together, but for
        those in ``alone``, which have failed before: each in its own.

        Raises LockHeld, and Problem for a journal or a lock that cannot be used.
        """
        self._facts()
        with one_run(self._root, by=PARTITIONS_UNIT):
            ledger = self._journal.ledger()
            waits = open_run(ledger)
            if waits:
                return Outcome((waits,), waits=True)
            if ledger.interrupted:  # one of this follower's own
                why = self._recover()
                if why:
                    return Outcome((why,))
            prepared = decided_by(self._facts(), self._policy)
            view = View(prepared.facts, self._policy.policy)
            now = difference(view)
            self._sentences = list(_not_made(view, seen.missing))
            failed = self._make(prepared, now.missing, alone)
            for name in seen.gone:
                if name in now.gone and not self._stop.wait(0):
                    self._remove(view, name)
            self._keep_for_boot()
        return Outcome(tuple(self._sentences), frozenset(failed))

    def _recover(self) -> str:
        """Take back what an interrupted run did; return why not all of it could be.
        Raises Refused where a child is used by now.
        """
        now = self._host.now()
        result = recover(self._host, self._journal, now, self._listener, self._facts)
        self._keep_for_boot()
        if result is None or result.outcome == PARTLY:
            return result.sentence if result else "a run is open"
        self._listener.note(result.sentence)
        return ""

    def _keep_for_boot(self) -> None:
        """Let children that no profile keeps be made again at the next boot."""
        trouble = keep_for_boot(self._root, self._journal)
        if trouble:
            self._sentences.append(trouble)

    def _make(
        self, prepared: Prepared, names: Collection[str], alone: Collection[str]
    ) -> set[str]:
        """Make the children ``names``; return those that could not be."""
        together = [name for name in names if name not in alone]
        apart = [name for name in names if name in alone]
        if len(together) < 2 or self._one_run(prepared, together):
            apart = [*together, *apart]
        failed = set()
        for name in apart:
            if self._stop.wait(0):
                break
            why = self._one_run(prepared, [name])
            if why:
                failed.add(name)
                self._sentences.append(f"{name} could not be made: {why}")
        return failed

    def _one_run(self, prepared: Prepared, names: Collection[str]) -> str:
        """Make children in one run; return why they could not be, or nothing."""
        request = RunRequest(
            PARTITIONS,
            PARTITIONS_UNIT,
            self._policy.digest,
            prepared.facts,
            prove=lambda: still_planned(self._root, self._run, self._policy),
        )
        steps = steps_of(prepared.decision.to_do, names)
        kept = _Kept()
        try:
            result = apply_steps(self._host, self._journal, steps, request, kept)
        except Refused as refused:
            return refused.one_line
        if result.outcome != DONE:
            return result.sentence
        kept.tell(self._listener)
        return ""

    def _remove(self, view: View, name: str) -> None:
        """Remove a child whose partition is gone, if it is ours and of no use."""
        child = next(one for one in view.ipoib if one.name == name)
        why = who_uses(view, child)
        step = made_by(self._journal.ledger(), child)
        if step is None:
            why = "no run of ours made it"
        if step and not why:
            why = self._revert(view, step)
        pkey = child.netdev.ipoib.pkey if child.netdev.ipoib else None
        sentence = f"partition {pkey} has left the P_Key table, and {name}"
        if why:
            self._sentences.append(f"{sentence} is left: {why}")
        else:
            self._listener.note(f"{sentence} was removed")

    def _revert(self, view: View, step: str) -> str:
        """Take back the step that made a child, and what was set in it since; return
        why that could not be, or nothing.
        """
        try:
            result = revert(
                self._host,
                self._journal,
                view.facts,
                _Kept(),
                only=step,
                by=PARTITIONS_UNIT,
            )
        except Refused as refused:
            return refused.one_line
        left = [f"{one.what}: {one.why}" for one in result.left]
        return "; ".join(left) if left or result.outcome == DONE else result.sentence


class _Kept:
    """A run's listener that tells what was done only once all of it is proved."""

    def __init__(self) -> None:
        self._done: list[tuple[str, str, str]] = []
        self._notes: list[str] = []

    def doing(self, step_id: str, sentence: str) -> None:
        """Say nothing."""

    def done(self, step_id: str, before: str, after: str) -> None:
        """Keep it."""
        self._done.append((step_id, before, after))

    def note(self, sentence: str) -> None:
        """Keep it."""
        self._notes.append(sentence)

    def tell(self, listener: Listener) -> None:
        """Tell all of it."""
        for one in self._done:
            listener.done(*one)
        for sentence in self._notes:
            listener.note(sentence)


def _not_made(view: View, names: Collection[str]) -> Iterator[str]:
    """Say of the children ``names`` why the plan does not make them."""
    for child in wanted_children(view):
        if child.name in names and child.refused:
            fix = f" ({child.fix})" if child.fix else ""
            yield f"{child.name} is not made: {child.refused}{fix}"
