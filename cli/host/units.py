# SPDX-License-Identifier: GPL-2.0-or-later
"""``unit``: what our systemd units run. Nobody looks on, so what is said goes to the
journal of the unit, and says what was done only where something was.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from functools import partial
from typing import Optional

from ovirt_rdma.cli.host import runs
from ovirt_rdma.cli.host.runs import RunReport, ThisHost, as_root
from ovirt_rdma.cli.output import Screen
from ovirt_rdma.host.changes.holder import Patience, lock_at_last
from ovirt_rdma.host.changes.kinds.model import PARTLY, RunResult
from ovirt_rdma.host.changes.recover import may_be_taken_back, roll_back_unconfirmed
from ovirt_rdma.host.system.lock import one_run

# At boot nothing else should hold the lock for long.
_RECOVER_WAIT_S = 60.0
# The timer may come while the run that it is to take back is still at work, or hangs.
_PATIENCE = Patience()


def netdev(words: Namespace, screen: Screen) -> int:
    """Set again what nothing else keeps of a netdev; 1 where that failed."""
    from ovirt_rdma.host.changes.boot import restore_netdev

    as_root("unit netdev", words)
    effects = runs.door(words.root)
    return restore_netdev(words.root, runs.TOOLS, words.netdev, screen.message, effects)


def recover(words: Namespace, screen: Screen) -> int:
    """Take back what was interrupted, or not confirmed before the boot; nothing that
    matters is in use that early.
    """
    as_root("unit recover", words)
    host, report = ThisHost(words), RunReport(screen)
    with one_run(words.root, _RECOVER_WAIT_S, by="unit recover"):
        result = host.recover(report, cut_off=True)
        # Also where a run was cut off right before this.
        host.finish(report)
    return _tell(result, report, screen)


def unconfirmed(words: Namespace, screen: Screen) -> int:
    """Take back a run that nobody confirmed, users or not: nobody may be there to ask
    any more. Nothing where somebody did. What holds the lock meanwhile is ended: it may
    hang, or be stopped, and the host be cut off.
    """
    as_root("unit unconfirmed", words)
    host, report = ThisHost(words), RunReport(screen)
    with ExitStack() as stack:
        if not lock_at_last(
            stack,
            words.root,
            "unit unconfirmed",
            is_needed=partial(_is_due, host, words.run),
            say=report.note,
            patience=_PATIENCE,
        ):
            return 0
        result = host.recover(report, cut_off=True)
        if result is None:
            result = roll_back_unconfirmed(
                host.effects, host.journal, words.run, report
            )
            if result is not None:
                host.finish(report)
                report.note(result.sentence)
    return _tell(result, report, screen)


def _is_due(host: ThisHost, run: int) -> bool:
    return may_be_taken_back(host.journal.ledger(), run)


def partitions(words: Namespace, screen: Screen) -> int:
    """Keep P_Key children as the ports' tables have them, until SIGTERM."""
    from ovirt_rdma.host.services.partition_follower import follow_partitions
    from ovirt_rdma.host.system.signals import StopSignal

    as_root("unit partitions", words)
    with StopSignal() as stop:
        follow_partitions(words.root, runs.TOOLS, RunReport(screen), stop)
    return 0


def caps(words: Namespace, screen: Screen) -> int:
    """Write what the hook after_get_caps tells the engine, if that has changed."""
    from ovirt_rdma.host.services.capabilities import write_caps

    as_root("unit caps", words)
    write_caps(words.root)
    return 0


def _tell(result: Optional[RunResult], report: RunReport, screen: Screen) -> int:
    if result is not None:
        for left in result.left:
            what = f"{left.step}: {left.what}: {left.why}"
            screen.message(f"{what}; {left.fix}" if left.fix else what)
    if not screen.for_people:
        content = {"taken_back": result and result.run, "notes": report.notes}
        screen.document("unit", content)
    return 1 if result is not None and result.outcome == PARTLY else 0
