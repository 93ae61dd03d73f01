# SPDX-License-Identifier: GPL-2.0-or-later
"""Which changes are applied, as ``status`` shows them.

What is held of all that was changed, and whether it is still so. Data.

What is held of all that was changed, held against what the host says now: for
``status``. Reads only, and raises nothing for what the journal or the host has.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Optional, Union

from ovirt_rdma.host.changes.boot import BootSetting, boot_settings, read_boot_settings
from ovirt_rdma.host.changes.journal import Journal, JournalProblem
from ovirt_rdma.host.changes.kinds.model import Door
from ovirt_rdma.host.changes.ledger import Ledger
from ovirt_rdma.host.changes.rollback import undo_plan
from ovirt_rdma.host.changes.undo import key_of
from ovirt_rdma.host.errors import Problem


@dataclass(frozen=True)
class ChangeStatus:
    """``held`` are the ids of the steps of which something is held, ``since`` is when
    the oldest of them was done (ISO 8601, UTC) and ``policies`` the digests that they
    followed. ``interrupted`` is the run that was, ``awaiting`` the one that waits to be
    confirmed, until ``confirm_by`` (seconds since 1970 UTC).

    ``kept`` says, a sentence each, which values somebody changed since, so that revert
    would leave them. ``at_boot`` is the number of changes that our units set again at
    each boot, ``not_at_boot`` of those that they do not know of, though they should
    (the disk was full). ``problem`` says why the journal cannot be read; then the rest
    is empty.
    """

    held: tuple[str, ...] = ()
    since: Optional[str] = None
    policies: tuple[str, ...] = ()
    interrupted: Optional[int] = None
    awaiting: Optional[int] = None
    confirm_by: Optional[int] = None
    kept: tuple[str, ...] = ()
    at_boot: int = 0
    not_at_boot: int = 0
    problem: str = ""
    fix: str = ""


def change_status(host: Door, journal: Journal, root: Union[str, Path]) -> ChangeStatus:
    """Return what ``journal`` has, held against what ``host``, below ``root``, says
    now.
    """
    try:
        ledger = journal.ledger()
    except JournalProblem as problem:
        return ChangeStatus(problem=str(problem), fix=problem.fix)
    acts, open_run = ledger.held, ledger.interrupted
    numbers = {one.run for one in acts}
    runs = [run for run in ledger.runs if run.number in numbers]
    awaiting = ledger.awaiting
    # The file is written when a run has ended.
    wanted = () if open_run else boot_settings(one.act for one in acts)
    at_boot = len(set(wanted).intersection(_at_boot(root)))
    return ChangeStatus(
        held=tuple(dict.fromkeys(one.act.step for one in acts)),
        since=runs[0].begin.at if runs else None,
        policies=tuple(dict.fromkeys(run.begin.policy for run in runs)),
        interrupted=open_run.number if open_run else None,
        awaiting=awaiting.number if awaiting else None,
        confirm_by=awaiting.begin.confirm_by if awaiting else None,
        kept=_kept(host, ledger),
        at_boot=at_boot,
        not_at_boot=len(wanted) - at_boot,
    )


def _at_boot(root: Union[str, Path]) -> tuple[BootSetting, ...]:
    try:
        return read_boot_settings(root)
    except Problem:  # the units do nothing then
        return ()


def _kept(host: Door, ledger: Ledger) -> tuple[str, ...]:
    # In the middle of a run values are of neither side; the next run cleans that up.
    if not ledger.held or ledger.interrupted:
        return ()
    scope = {key_of(one) for one in ledger.held}
    plan = undo_plan(host, ledger.held, scope, ledger.next_run)
    found = [one.why for group in plan.groups for one in group if one.why]
    found += [one.why for one in plan.released if one.foreign]
    return tuple(dict.fromkeys(found))
