# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``unit``: what our systemd units and the scripts of our package do.

Messages go to the systemd journal of the unit, or to rpm's output, and only if
something was done, or has to be known.
"""

from __future__ import annotations

from argparse import Namespace
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Optional

from ovirt_rdma.cli.host import runs
from ovirt_rdma.cli.host.runs import RunReport, ThisHost, as_root
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.host.changes.holder import HolderTimeouts, lock_or_end_holder
from ovirt_rdma.host.changes.kinds.model import PARTLY, RunResult
from ovirt_rdma.host.changes.recover import may_be_rolled_back, roll_back_unconfirmed
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.policy.json_form import digest as policy_digest
from ovirt_rdma.host.system.lock import one_run

if TYPE_CHECKING:
    from ovirt_rdma.host.services.package_scripts import Note

# At boot nothing else should hold the lock for long.
_RECOVER_WAIT_S = 60.0
# The timer may elapse while the run that it rolls back is still running, or hangs.
_PATIENCE = HolderTimeouts()


def netdev(args: Namespace, output: Output) -> int:
    """Set the boot settings of a netdev; return 1 if that failed."""
    from ovirt_rdma.host.changes.boot import restore_netdev

    as_root("unit netdev", args)
    effects = runs.host_effects(args.root)
    return restore_netdev(args.root, runs.TOOLS, args.netdev, output.message, effects)


def recover(args: Namespace, output: Output) -> int:
    """Roll back a run that was interrupted, or not confirmed before the boot.

    Nothing that matters is in use that early.
    """
    as_root("unit recover", args)
    host, report = ThisHost(args), RunReport(output)
    with one_run(args.root, _RECOVER_WAIT_S, by="unit recover"):
        result = host.recover(report, even_in_use=True)
        # Also if a run was interrupted right before its own finish().
        host.finish(report)
    return _print_result(result, report, output)


def unconfirmed(args: Namespace, output: Output) -> int:
    """Roll back a run that was not confirmed, even if a netdev is in use.

    The operator may be cut off. A process that holds the lock is ended, because it may
    hang or be stopped. A confirmed run is left alone.
    """
    as_root("unit unconfirmed", args)
    host, report = ThisHost(args), RunReport(output)
    with ExitStack() as stack:
        if not lock_or_end_holder(
            stack,
            args.root,
            "unit unconfirmed",
            is_needed=partial(_is_due, host, args.run),
            say=report.note,
            patience=_PATIENCE,
        ):
            return 0
        result = host.recover(report, even_in_use=True)
        if result is None:
            result = roll_back_unconfirmed(host.effects, host.journal, args.run, report)
            if result is not None:
                host.finish(report)
                report.note(result.sentence)
    return _print_result(result, report, output)


def _is_due(host: ThisHost, run: int) -> bool:
    return may_be_rolled_back(host.journal.ledger(), run)


def partitions(args: Namespace, output: Output) -> int:
    """Keep P_Key children equal to the P_Key tables of their ports, until SIGTERM."""
    from ovirt_rdma.host.services.partition_follower import follow_partitions
    from ovirt_rdma.host.system.signals import StopSignal

    as_root("unit partitions", args)
    with StopSignal() as stop:
        follow_partitions(args.root, runs.TOOLS, RunReport(output), stop)
    return 0


def caps(args: Namespace, output: Output) -> int:
    """Write the capabilities that the hook after_get_caps reports, if they changed."""
    from ovirt_rdma.host.services.capabilities import write_caps

    as_root("unit caps", args)
    write_caps(args.root)
    return 0


def installed(args: Namespace, output: Output) -> int:
    """Report what keeps the installed package from being used; changes nothing."""
    from ovirt_rdma.host.services.package_scripts import notes_after_install

    return _print_notes(notes_after_install(args.root), output)


def erased(args: Namespace, output: Output) -> int:
    """Disable everything before the package is erased, and report what stays."""
    from ovirt_rdma.host.services.package_scripts import prepare_erase

    as_root("unit erased", args)
    return _print_notes(prepare_erase(args.root), output)


def _print_notes(notes: list[Note], output: Output) -> int:
    for note in notes:
        output.message(f"ovirt-rdma-host: {note.sentence}")
        output.message(f"fix: {note.fix}")
    return 0


def recheck(args: Namespace, output: Output) -> int:
    """Check the host and record the result; after the boot of another kernel, print
    which findings differ.
    """
    from ovirt_rdma.cli.host.decision import load_decision
    from ovirt_rdma.host.services import kernel_change

    as_root("unit recheck", args)
    args.policy = args.facts = None
    made = load_decision(args, output)
    kernel, digest = made.facts.kernel_release, policy_digest(made.policy)
    now = kernel_change.findings_of(kernel, digest, made.decision.findings)
    try:
        earlier = kernel_change.read_record(args.root)
    except Problem as problem:
        output.message(f"{problem}; it is replaced")
        earlier = None
    record = kernel_change.record_after(earlier, now)
    kernel_change.write_record(args.root, record)
    if earlier is not None and earlier.now.kernel != kernel:
        found = kernel_change.differences(record)
        what = f"{count(len(found), 'finding')} changed since kernel"
        output.message(f"kernel {kernel}: {what} {earlier.now.kernel}")
        for difference in found:
            output.message(str(difference))
    return 0


def _print_result(
    result: Optional[RunResult], report: RunReport, output: Output
) -> int:
    if result is not None:
        for left in result.left:
            what = f"{left.step}: {left.what}: {left.why}"
            output.message(f"{what}; {left.fix}" if left.fix else what)
    if not output.for_people:
        content = {"taken_back": result and result.run, "notes": report.notes}
        output.document("unit", content)
    return 1 if result is not None and result.outcome == PARTLY else 0
