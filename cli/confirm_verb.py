# SPDX-License-Identifier: GPL-2.0-or-later
"""``confirm``: what ``apply --confirm-timeout`` did is kept."""

from __future__ import annotations

from argparse import Namespace
from typing import Any, Optional

from ovirt_rdma.cli.host_words import PROGRAM
from ovirt_rdma.cli.run_report import RunReport
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.cli.this_host import ThisHost, as_root
from ovirt_rdma.cli.times import when_iso
from ovirt_rdma.host.effects.journal_records import APPLY, DONE, Confirmed
from ovirt_rdma.host.effects.ledger import Ledger, Run
from ovirt_rdma.host.effects.notes import iso
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.run_lock import one_run


class TooLate(Problem):
    """The run was taken back before anybody confirmed it."""


def confirm(words: Namespace, screen: Screen) -> int:
    """Keep the run that waits for it; raises TooLate where it was taken back."""
    as_root("confirm", words)
    host, report = ThisHost(words), RunReport(screen)
    with one_run(words.root, by="confirm"):
        # One whose time is over is taken back here, if its timer has not come yet.
        host.recover(report)
        ledger = host.journal.ledger()
        run = ledger.awaiting
        if run is not None:
            host.journal.append(Confirmed(run.number, iso(host.effects.now())))
            trouble = host.timer(run.number).cancel()
            if trouble:
                report.note(trouble)
    if run is None:
        _refuse_late(ledger)
    _tell(run, report, screen)
    return 0


def _refuse_late(ledger: Ledger) -> None:
    # Hooks and the partitions' service have runs of their own since.
    newest = next((r for r in reversed(ledger.runs) if r.begin.verb == APPLY), None)
    if newest is None or newest.begin.confirm_by is None or newest.confirmed:
        return
    if newest.outcome != DONE:
        raise TooLate(
            f"run {newest.number} cannot be confirmed: {newest.sentence} "
            f"({when_iso(newest.ended or '')})",
            f"{PROGRAM} apply does it again",
        )


def _tell(run: Optional[Run], report: RunReport, screen: Screen) -> None:
    if not screen.for_people:
        content: dict[str, Any] = {"confirmed": run and run.number}
        screen.document("confirm", {**content, "notes": report.notes})
    elif run is None:
        screen.line("Nothing to confirm: no run is waiting for it.")
    else:
        screen.line(f"Run {run.number} is kept.")
        screen.next(f"{PROGRAM} status")
