# SPDX-License-Identifier: GPL-2.0-or-later
"""Report for ``status`` which changes are applied, and which others have changed since.

Compares the journal with the host. Reads only, and raises no error for anything that
the journal or the host has.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import Journal, JournalProblem, Ledger
from ovirt_rdma.host.changes.kinds.model import HostBackend
from ovirt_rdma.host.changes.rollback import undo_plan
from ovirt_rdma.host.changes.undo import key_of


@dataclass(frozen=True)
class ChangeStatus:
    """The applied changes and open runs of a host.

    The ids of the steps with applied changes come first. ``since`` is when the oldest
    of them was done (ISO 8601, UTC), and ``policies`` are the digests of the policies
    that they followed. ``interrupted`` is the number of the interrupted run,
    ``awaiting`` of the one that awaits confirmation until ``confirm_by`` (seconds since
    1970 UTC).

    ``kept`` has a sentence for each value that somebody has changed since, so that
    revert would leave it. ``at_boot`` is the number of values that our units set again
    at each boot. ``problem`` says why the journal cannot be read; then the rest is
    empty.
    """

    held: tuple[str, ...] = ()
    since: Optional[str] = None
    policies: tuple[str, ...] = ()
    interrupted: Optional[int] = None
    awaiting: Optional[int] = None
    confirm_by: Optional[int] = None
    kept: tuple[str, ...] = ()
    at_boot: int = 0
    problem: str = ""
    fix: str = ""


def change_status(host: HostBackend, journal: Journal) -> ChangeStatus:
    """Return the state of ``journal``, compared with ``host``."""
    try:
        ledger = journal.ledger()
    except JournalProblem as problem:
        return ChangeStatus(problem=str(problem), fix=problem.fix)
    acts, open_run = ledger.applied, ledger.interrupted
    numbers = {act.run for act in acts}
    runs = [run for run in ledger.runs if run.number in numbers]
    awaiting = ledger.awaiting
    return ChangeStatus(
        held=tuple(dict.fromkeys(entry.act.step for entry in acts)),
        since=runs[0].at if runs else None,
        policies=tuple(dict.fromkeys(run.policy for run in runs)),
        interrupted=open_run.number if open_run else None,
        awaiting=awaiting.number if awaiting else None,
        confirm_by=awaiting.confirm_by if awaiting else None,
        kept=_kept(host, ledger),
        at_boot=len(boot_settings(ledger)),
    )


def _kept(host: HostBackend, ledger: Ledger) -> tuple[str, ...]:
    # In the middle of a run a value may be neither ours nor somebody else's; the next
    # run recovers.
    if not ledger.applied or ledger.interrupted:
        return ()
    scope = {key_of(entry) for entry in ledger.applied}
    plan = undo_plan(host, ledger.applied, scope, ledger.next_run)
    reasons = (undo.why for group in plan.groups for undo in group if undo.why)
    return tuple(dict.fromkeys(reasons))
