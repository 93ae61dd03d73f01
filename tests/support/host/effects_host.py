# SPDX-License-Identifier: GPL-2.0-or-later
"""Apply plans to a host in memory, with a journal in memory; both can be killed at any
point.
"""

from __future__ import annotations

from ovirt_rdma.host.changes.journal import (
    Journal,
    JournalProblem,
    Ledger,
)
from ovirt_rdma.host.changes.run import HostRun
from support.host.memory_host import Points


class MemoryJournal(Journal):
    """A journal whose content is ``data``. From the write number ``full_at`` on the
    disk is full; with ``full_once`` only at that one.
    """

    def __init__(self):
        super().__init__("/nowhere")
        self.data = Ledger()
        self.points = Points()
        self.full_at = None
        self.full_once = False
        self.writes = 0

    def ledger(self):
        return self.data

    def write(self, ledger):
        self.points.point()
        self.writes += 1
        if self.full_at is not None and self.writes >= self.full_at:
            if self.full_once:
                self.full_at = None
            raise JournalProblem("journal-not-written", "No space left on device")
        self.data = ledger
        self.points.point()


class Told:
    """A listener that stores what it receives."""

    def __init__(self):
        self.lines = []

    def doing(self, step_id, sentence):
        self.lines.append(f"doing {step_id}")

    def done(self, step_id, before, after):
        self.lines.append(f"done {step_id}")

    def note(self, sentence):
        self.lines.append(sentence)


def this_run(host, journal, told=None, facts=None):
    """Return a run on ``host``, any that has the methods of HostEffects."""
    run = HostRun("/nowhere", "apply", told or Told(), effects=host)
    run.journal, run.facts = journal, facts if callable(facts) else lambda: facts
    return run


def apply_steps(host, journal, steps, told, facts, **parts):
    return this_run(host, journal, told).apply(steps, facts, **parts)


def revert(host, journal, facts, told, **parts):
    return this_run(host, journal, told, facts).revert(**parts)


def recover(host, journal, now, told, facts=None):
    """Do what the next run does first, at the time ``now``. Without ``facts``, users of
    netdevs do not count.
    """
    clock, host.now = host.now, lambda: now
    try:
        run = this_run(host, journal, told, facts)
        return run.recover(even_in_use=facts is None)
    finally:
        host.now = clock


def roll_back_unconfirmed(host, journal, number, told):
    return this_run(host, journal, told).recover(even_in_use=True, unconfirmed=number)


def applied(host, journal, steps, told=None, **parts):
    """Apply ``steps``, except those that the rules refuse."""
    steps = [step for step in steps if not step.refused]
    return apply_steps(host, journal, steps, told or Told(), host.facts, **parts)
