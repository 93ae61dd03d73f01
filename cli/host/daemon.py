# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the daemon, for ``ovirt-rdmad.service``, and show its tasks; ``metrics``; and
``unit``: what our systemd units and the scripts of our package do.

Messages of ``unit`` go to the systemd journal of the unit, or to rpm's output, and only
if something was done, or has to be known.
"""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.host.arguments import HostVerb
from ovirt_rdma.cli.host.shown import runs
from ovirt_rdma.cli.host.shown.runs import RunReport, ThisHost, as_root
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Context, Parser, file_name
from ovirt_rdma.host.changes.boot import restore_netdev
from ovirt_rdma.host.changes.journal import PARTLY, RunResult
from ovirt_rdma.host.changes.run import may_be_rolled_back
from ovirt_rdma.host.daemon.loop import (
    BAD,
    FAILED,
    HANGS,
    NOT_RUNNING,
    OK,
    PROBLEM,
    START,
    Daemon,
    DaemonState,
    Task,
    TaskState,
    read_daemon,
    seconds_since_start,
    tell_systemd,
)
from ovirt_rdma.host.daemon.partitions import FollowPartitions
from ovirt_rdma.host.daemon.tasks import BlockLogins, Capabilities, log_in_at_boot
from ovirt_rdma.host.enablement.state import Advice, marker_mode
from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.services.package_scripts import notes_after_install, prepare_erase
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.lock import HolderTimeouts, lock_or_end_holder, one_run
from ovirt_rdma.host.system.signals import StopSignal
from ovirt_rdma.host.system.tree import seconds_after_boot
from ovirt_rdma.storage.benchmark.scratch import end_benchmark
from ovirt_rdma.storage.health.look import HealthWatch
from ovirt_rdma.storage.metrics.exporter import (
    FILE,
    NAMED,
    Export,
    Row,
    read_metrics,
    render,
    write_metrics,
)
from ovirt_rdma.storage.paths.mover import MovePaths
from ovirt_rdma.storage.paths.moving import undo_levers

_TONES = {HANGS: "bad", FAILED: "bad", PROBLEM: "doubtful", OK: "good"}


def tasks(root: str, output: Output) -> list[Task]:
    """Return the tasks for the host below ``root``, in the order of their start."""
    return [
        Export(root),
        Capabilities(root, runs.TOOLS),
        HealthWatch(root),
        FollowPartitions(root, RunReport(output), runs.TOOLS),
        BlockLogins(root),
        MovePaths(root),
    ]


class UnitVerb(HostVerb):
    """A verb that our systemd units, or the scripts of our package, run."""

    codes = "0 done or nothing to do, 1 failed"
    examples = ("",)
    more = "For systemd units and package scripts of ovirt-rdma."


class RunDaemon(UnitVerb):
    """Run the daemon until SIGTERM, or until the host is not enabled any more."""

    def run(self, context: Context) -> int:
        as_root("unit daemon", context.root)
        with StopSignal() as stop:
            output = context.output
            Daemon(context.root, tasks(context.root, output), output.message).run(stop)
        return 0


class DaemonEnded(UnitVerb):
    """Undo what a daemon that was killed left in the way of a server's address."""

    def run(self, context: Context) -> int:
        as_root("unit daemon-ended", context.root)
        left = undo_levers(context.root)
        for sentence in left:
            context.output.message(sentence)
        return 1 if left else 0


class ShowDaemon(HostVerb):
    """Show the tasks of the daemon, problems first."""

    codes = (
        "0 all is well, or the host is not enabled, 3 the daemon is not running,\n"
        "or a task needs attention"
    )
    examples = ("", "-o json")
    more = (
        "The daemon runs while the host is enabled. To run all its tasks now:\n"
        f"systemctl reload {DAEMON_UNIT}."
    )

    def run(self, context: Context) -> int:
        output = context.output
        mode = marker_mode(Path(context.root))
        state = read_daemon(context.root)
        found = state.worst_first if state else []
        bad = [task for task in found if task.state in BAD]
        is_well = state is not None and not bad and not state.policy_problem
        if not output.for_people:
            _document(state, mode is not None, output)
        elif state is not None:
            _print(state, bad, output)
        elif mode is not None:
            output.line(f"{NOT_RUNNING}.")
            output.fix(START)
        else:
            output.line(f"{DAEMON_UNIT} is not wanted: this host is not enabled.")
            output.next("ovirt-rdma-host enable")
        return ExitCode.DONE if is_well or mode is None else ExitCode.CHECKS_FAILED


def _print(state: DaemonState, bad: list[TaskState], output: Output) -> None:
    now, rows = seconds_after_boot(), []
    for task in state.worst_first:
        age = due = "-"
        if task.began_s is not None:
            age = f"{now - task.began_s:.0f} s"
            age = f"running for {age}" if task.took_s is None else f"{age} ago"
        if task.due_s is not None:
            due = f"in {max(0.0, task.due_s - now):.0f} s"
        result = "; ".join(task.problems) or task.sentence or "-"
        rows.append((task.name, task.state, age, due, result))
    output.table(("TASK", "STATE", "LAST RUN", "NEXT", "RESULT"), rows, _TONES)
    if state.policy_problem:
        output.text(f"{state.policy_problem}.")
        output.fix("ovirt-rdma-host policy load")
    if bad:
        verb = "needs" if len(bad) == 1 else "need"
        output.line(f"{count(len(bad), 'task')} {verb} attention.")
        output.fix(f"journalctl -b -u {DAEMON_UNIT}")
    else:
        output.line(f"{DAEMON_UNIT} (process {state.pid}) is running.")


def _document(state: Optional[DaemonState], is_wanted: bool, output: Output) -> None:
    now = seconds_after_boot()
    shown = []
    for task in state.worst_first if state else ():
        values = plain(task)
        began, due = values.pop("began_s"), values.pop("due_s")
        values["ago_s"] = None if began is None else round(now - began, 1)
        values["next_s"] = None if due is None else round(max(0.0, due - now), 1)
        shown.append(values)
    output.document(
        "daemon",
        {
            "running": state is not None,
            "wanted": is_wanted,
            "process": state and state.pid,
            "policy": state and state.policy,
            "policy_problem": state.policy_problem if state else "",
            "tasks": shown,
        },
    )


# At boot nothing else should hold the lock for long.
_RECOVER_WAIT_S = 60.0
# The timer may elapse while the run that it rolls back is still running, or hangs.
_PATIENCE: Optional[HolderTimeouts] = None


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
                patience=_PATIENCE or HolderTimeouts(),
            ):
                return 0
            result = host.recover(even_in_use=True)
            if result is None:
                result = host.roll_back_unconfirmed(self.number)
                if result is not None:
                    report.note(result.sentence)
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
    return 1 if result is not None and result.outcome == PARTLY else 0


class ShowMetrics(HostVerb):
    """Print the metrics, or write them into a folder."""

    codes = "0 printed or written, also if parts are missing, 1 not written"
    examples = ("", "--write /var/lib/node_exporter/textfile_collector")
    more = (
        "They are in the text format of Prometheus. With metrics_folder in the\n"
        "policy, the daemon writes them every 15 seconds."
    )

    write: Optional[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--write",
            metavar="FOLDER",
            type=file_name,
            help="write ovirt_rdma.prom into this folder, as a whole",
        )

    def run(self, context: Context) -> int:
        output = context.output
        metrics = read_metrics(context.root)
        text = render(metrics.rows)
        written = None
        if self.write is not None:
            write_metrics(self.write, text)
            written = f"{self.write}/{FILE}"
        if not output.for_people:
            rows = [_row(row) for row in metrics.rows]
            content = {"written": written, "rows": rows, "problems": metrics.problems}
            output.document("metrics", content)
            return 0
        for problem in metrics.problems:
            output.message(f"note: {problem}")
        for line in [f"{written} is written"] if written else text.splitlines():
            output.line(line)
        return 0


def _row(row: Row) -> dict[str, Any]:
    """Return the metrics of one subject as JSON; all of them have the same labels."""
    found = [(NAMED[name], value) for name, value in row.values.items()]
    labels = dict(zip(found[0][0].labels, row.labels)) if found else {}
    return {"labels": labels, "values": {one.name: value for one, value in found}}
