# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the daemon, for ``ovirt-rdmad.service``, and show its tasks; ``metrics``."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.host.arguments import HostVerb, UnitVerb, as_root
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Context, Parser, file_name
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
)
from ovirt_rdma.host.daemon.tasks import BlockLogins, Capabilities, FollowPartitions
from ovirt_rdma.host.errors import ExitCode
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.services.enablement import marker_mode
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.signals import StopSignal
from ovirt_rdma.host.system.tree import seconds_after_boot
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


def tasks(root: str) -> list[Task]:
    """Return the tasks for the host below ``root``, in the order of their start."""
    return [
        Export(root),
        Capabilities(root),
        HealthWatch(root),
        FollowPartitions(root),
        BlockLogins(root),
        MovePaths(root),
    ]


class RunDaemon(UnitVerb):
    """Run the daemon until SIGTERM, or until the host is not enabled any more."""

    def run(self, context: Context) -> int:
        as_root("unit daemon", context.root)
        with StopSignal() as stop:
            output = context.output
            Daemon(context.root, tasks(context.root), output.message).run(stop)
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
