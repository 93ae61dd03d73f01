# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the daemon, for ``ovirt-rdmad.service``, and show its tasks."""

from __future__ import annotations

from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import HostVerb, refuse_facts
from ovirt_rdma.cli.host.shown import runs
from ovirt_rdma.cli.host.shown.runs import RunReport, as_root
from ovirt_rdma.cli.host.units import UnitVerb
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.daemon.block import BlockLogins
from ovirt_rdma.host.daemon.capabilities import Capabilities
from ovirt_rdma.host.daemon.kernel_change import Recheck
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
from ovirt_rdma.host.daemon.partitions import FollowPartitions
from ovirt_rdma.host.enablement.state import marker_mode
from ovirt_rdma.host.exit_code import ExitCode
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.system.json_codec import plain
from ovirt_rdma.host.system.signals import StopSignal
from ovirt_rdma.host.system.tree import seconds_after_boot
from ovirt_rdma.storage.health.watch import HealthWatch
from ovirt_rdma.storage.metrics.exporter import Export

_TONES = {
    HANGS: "bad",
    FAILED: "bad",
    PROBLEM: "doubtful",
    OK: "good",
}


def tasks(root: str, output: Output) -> list[Task]:
    """Return the tasks for the host below ``root``, in the order of their start."""
    return [
        Export(root),
        Capabilities(root, runs.TOOLS),
        HealthWatch(root),
        FollowPartitions(root, RunReport(output), runs.TOOLS),
        BlockLogins(root),
        Recheck(root, runs.TOOLS),
    ]


class RunDaemon(UnitVerb):
    """Run the daemon until SIGTERM, or until the host is not enabled any more."""

    def run(self, context: Context) -> int:
        as_root("unit daemon", context.root)
        with StopSignal() as stop:
            output = context.output
            Daemon(context.root, tasks(context.root, output), output.message).run(stop)
        return 0


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

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        refuse_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        mode = marker_mode(Path(context.root))
        state = read_daemon(context.root)
        found = state.worst_first if state else []
        bad = [task for task in found if task.state in BAD]
        is_well = state is not None and not bad and not state.policy_problem
        if not output.for_people:
            _document(state, mode is not None, output)
        elif state is None:
            _print_absent(mode is not None, output)
        else:
            _print(state, bad, output)
        return ExitCode.DONE if is_well or mode is None else ExitCode.CHECKS_FAILED


def _print_absent(is_wanted: bool, output: Output) -> None:
    if is_wanted:
        output.line(f"{NOT_RUNNING}.")
        output.fix(START)
    else:
        output.line(f"{DAEMON_UNIT} is not wanted: this host is not enabled.")
        output.next("ovirt-rdma-host enable")


def _print(state: DaemonState, bad: list[TaskState], output: Output) -> None:
    now = seconds_after_boot()
    output.table(
        ("TASK", "STATE", "LAST RUN", "NEXT", "RESULT"),
        [
            (
                task.name,
                task.state,
                _age(task, now),
                _due(task, now),
                "; ".join(task.problems) or task.sentence or "-",
            )
            for task in state.worst_first
        ],
        _TONES,
    )
    if state.policy_problem:
        output.text(f"{state.policy_problem}.")
        output.fix("ovirt-rdma-host policy load")
    if bad:
        verb = "needs" if len(bad) == 1 else "need"
        output.line(f"{count(len(bad), 'task')} {verb} attention.")
        output.fix(f"journalctl -b -u {DAEMON_UNIT}")
    else:
        output.line(f"{DAEMON_UNIT} (process {state.pid}) is running.")


def _age(task: TaskState, now: float) -> str:
    if task.began_s is None:
        return "-"
    if task.took_s is None:
        return f"running for {now - task.began_s:.0f} s"
    return f"{now - task.began_s:.0f} s ago"


def _due(task: TaskState, now: float) -> str:
    if task.due_s is None:
        return "-"
    return f"in {max(0.0, task.due_s - now):.0f} s"


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
