# SPDX-License-Identifier: GPL-2.0-or-later
"""Do what our systemd units and the scripts of our package do: ``unit``.

Messages go to the systemd journal of the unit, or to rpm's output, and only if
something was done, or has to be known.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Optional

from ovirt_rdma.cli.host import runs
from ovirt_rdma.cli.host.arguments import OTHER_RUN, UnitVerb, as_root
from ovirt_rdma.cli.host.runs import RunReport, ThisHost
from ovirt_rdma.cli.output import Output
from ovirt_rdma.cli.parser import Context, Parser
from ovirt_rdma.host.changes.boot import restore_netdev
from ovirt_rdma.host.changes.journal import RunResult
from ovirt_rdma.host.changes.run import may_be_rolled_back
from ovirt_rdma.host.daemon.loop import seconds_since_start, tell_systemd
from ovirt_rdma.host.daemon.tasks import log_in_at_boot
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.services.enablement import Advice
from ovirt_rdma.host.services.package_scripts import notes_after_install, prepare_erase
from ovirt_rdma.host.system.lock import HolderTimeouts, lock_or_end_holder, one_run
from ovirt_rdma.host.system.signals import StopSignal
from ovirt_rdma.storage.benchmark.scratch import end_benchmark

# At boot nothing else should hold the lock for long.
_RECOVER_WAIT_S = 60.0
# The timer may elapse while the run that it rolls back is still running, or hangs.
_PATIENCE = HolderTimeouts()


class SetNetdev(UnitVerb):
    """Set the boot settings of a netdev or RDMA device; return 1 if that failed."""

    examples = ("ib0",)

    netdev: str

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "netdev", metavar="NAME", help="a netdev, or an RDMA device"
        )

    def run(self, context: Context) -> int:
        as_root("unit netdev", context.root)
        effects = runs.host_effects(context.root)
        return restore_netdev(
            context.root, runs.TOOLS, self.netdev, context.output.message, effects
        )


class Recover(UnitVerb):
    """Roll back a run that was interrupted, or not confirmed before the boot.

    Nothing that matters is in use that early.
    """

    codes = f"{UnitVerb.codes}, {OTHER_RUN}"

    def run(self, context: Context) -> int:
        as_root("unit recover", context.root)
        report = RunReport(context.output)
        host = ThisHost(context.root, "unit recover", report)
        with one_run(context.root, _RECOVER_WAIT_S, by="unit recover"):
            result = host.recover(even_in_use=True)
        return _print_result(result, report, context.output)


class RollBackUnconfirmed(UnitVerb):
    """Roll back a run that was not confirmed, even if a netdev is in use.

    The operator may be cut off. A process that holds the lock is ended, because it
    may hang or be stopped. A confirmed run is left alone.
    """

    codes = f"{UnitVerb.codes}, {OTHER_RUN}"
    examples = ("7",)

    number: int

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument("number", metavar="RUN", type=int, help="a run's number")

    def run(self, context: Context) -> int:
        as_root("unit unconfirmed", context.root)
        report = RunReport(context.output)
        host = ThisHost(context.root, "unit unconfirmed", report)
        with ExitStack() as stack:
            if not lock_or_end_holder(
                stack,
                context.root,
                "unit unconfirmed",
                is_needed=lambda: may_be_rolled_back(
                    host.journal.ledger(), self.number
                ),
                say=report.note,
                patience=_PATIENCE,
            ):
                return 0
            result = host.recover(even_in_use=True, unconfirmed=self.number)
        return _print_result(result, report, context.output)


class LogInToBlock(UnitVerb):
    """Log in to the block storage of the policy before vdsmd starts."""

    def run(self, context: Context) -> int:
        as_root("unit block", context.root)
        with StopSignal() as stop:
            log_in_at_boot(
                context.root,
                context.output.message,
                lambda: tell_systemd("READY=1"),
                stop,
                age_s=seconds_since_start(),
            )
        return 0


class ReportInstalled(UnitVerb):
    """Report what keeps the installed package from being used; changes nothing."""

    def run(self, context: Context) -> int:
        return _print_notes(notes_after_install(context.root), context.output)


class PrepareErase(UnitVerb):
    """Disable everything before the package is erased, and report what stays."""

    codes = f"{UnitVerb.codes}, 4 a file is not ours,\n{OTHER_RUN}"

    def run(self, context: Context) -> int:
        as_root("unit erased", context.root)
        notes = []
        try:
            end_benchmark(context.root, say=context.output.message)
        except Problem as problem:
            notes.append(Advice(problem.one_line, problem.fix))
        notes += prepare_erase(context.root)
        return _print_notes(notes, context.output)


def _print_notes(notes: list[Advice], output: Output) -> int:
    for note in notes:
        output.message(f"ovirt-rdma-host: {note.sentence}")
        output.message(f"fix: {note.fix}")
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
    return 0
