# SPDX-License-Identifier: GPL-2.0-or-later
"""The host that a verb acts on: its lock, journal and effects, and what every run ends
with.
"""

from __future__ import annotations

import os
from argparse import Namespace
from functools import partial
from typing import Optional

from ovirt_rdma.cli.run_report import RunReport
from ovirt_rdma.host.commands import Runner, run_command
from ovirt_rdma.host.effects.boot_settings import keep_for_boot
from ovirt_rdma.host.effects.confirmation import ConfirmationTimer
from ovirt_rdma.host.effects.host_effects import HostEffects
from ovirt_rdma.host.effects.journal import Journal
from ovirt_rdma.host.effects.journal_records import PARTLY
from ovirt_rdma.host.effects.prepare import FactsBefore
from ovirt_rdma.host.effects.recover import recover
from ovirt_rdma.host.effects.run_result import RunResult
from ovirt_rdma.host.problem import Problem

# What runs the host's tools: None is the real ones on /, and none below another root.
# Tests put their fake host's here.
TOOLS: Optional[Runner] = None
# A tool may take this long where the host is about to be changed: on a busy one, what
# could not be read is a step that is missing, or a change that is not proved.
READ_TIMEOUT_S = 30.0


def door(root: str) -> HostEffects:
    """Return what reads and changes the host below ``root``."""
    return HostEffects(root, TOOLS)


class ThisHost:
    """The host below the root that the words name."""

    def __init__(self, words: Namespace) -> None:
        self.root: str = words.root
        self.run = TOOLS
        if self.run is None and self.root == "/":
            self.run = partial(run_command, timeout_s=READ_TIMEOUT_S)
        self.journal = Journal(self.root)
        self.effects = door(self.root)
        # A verb that needs them calls it before it takes the lock, and again under it.
        self.facts = FactsBefore(self.root, self.run)

    def timer(self, run: int) -> ConfirmationTimer:
        """Return the timer that takes back the run with that number."""
        return ConfirmationTimer(run, self.root, TOOLS)

    def recover(
        self, report: RunReport, *, cut_off: bool = False
    ) -> Optional[RunResult]:
        """Take back what an earlier run left, and say so; None where there is nothing.
        ``cut_off``: also what an interrupted run left where that cuts users off. The
        caller holds the lock.

        Raises Refused where there are such users, and Problem where not all could be
        taken back: no run should build on that.
        """
        facts = None if cut_off else self.facts
        result = recover(self.effects, self.journal, self.effects.now(), report, facts)
        if result is None:
            return None
        self.finish(report)
        if result.outcome == PARTLY:
            told = [f"{left.step}: {left.why}" for left in result.left if left.failed]
            fixes = [left.fix for left in result.left if left.failed and left.fix]
            raise Problem("\n".join([result.sentence, *told]), "; ".join(fixes))
        report.note(result.sentence)
        return result

    def finish(self, report: RunReport) -> None:
        """Do what follows a change of the journal: have set again at boot what nothing
        else keeps. That it fails is said, and is no failure of the run.
        """
        trouble = keep_for_boot(self.root, self.journal)
        if trouble:
            report.note(trouble)


def as_root(verb: str, words: Namespace) -> None:
    """Raise Problem where this process may not change the host."""
    if words.root == "/" and os.geteuid() != 0:
        raise Problem(
            f"{verb} changes this host, which only root may", "run it as root"
        )
