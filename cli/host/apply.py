# SPDX-License-Identifier: GPL-2.0-or-later
"""``apply`` and ``confirm``.

``apply``: the host is made what the policy in force says, and that is proven.

``confirm``: what ``apply --confirm-timeout`` did is kept.
"""

from __future__ import annotations

from argparse import Namespace
from dataclasses import asdict
from typing import Any, Optional

from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.runs import (
    HELD,
    LEFT,
    REFUSED,
    TAKEN_BACK,
    Line,
    RunReport,
    ThisHost,
    as_root,
)
from ovirt_rdma.cli.output import Screen, count, when, when_iso
from ovirt_rdma.host.changes import plan_file
from ovirt_rdma.host.changes.gate import gate
from ovirt_rdma.host.changes.journal import iso
from ovirt_rdma.host.changes.kinds.model import (
    APPLY,
    DONE,
    PARTLY,
    ROLLED_BACK,
    Confirmed,
    Left,
    RunRequest,
    RunResult,
)
from ovirt_rdma.host.changes.ledger import Ledger, Run
from ovirt_rdma.host.changes.plan_file import Plan
from ovirt_rdma.host.changes.prepare import (
    Prepared,
    decided_by,
    loaded_policy,
    still_planned,
)
from ovirt_rdma.host.changes.run import apply_steps
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.rules.base import REBOOT
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.signals import held_signals

EXIT_CODES = {DONE: 0, ROLLED_BACK: 6, PARTLY: 1}


def apply(words: Namespace, screen: Screen) -> int:
    """Do what the plan says, or what a saved one says if it still holds."""
    as_root("apply", words)
    saved = None if words.planfile is None else plan_file.load(words.planfile)
    host, report = ThisHost(words), RunReport(screen)
    if words.confirm_timeout is not None:
        host.timer(0).check()
    report.reading()
    host.facts()
    with one_run(words.root, by="apply"):
        recovered = host.recover(report, cut_off=words.allow_link_down)
        done = _Apply(words, host, report).run(saved)
    if screen.for_people:
        _tell_applied(done, screen)
    else:
        screen.document("apply", _document(done, recovered, report))
    return EXIT_CODES[done.result.outcome]


class _Done:
    """What was done, and what was not, by which facts and policy."""

    def __init__(
        self,
        found: Prepared,
        left: tuple[Left, ...],
        result: RunResult,
        confirm_by: Optional[int],
        awaiting: Optional[Run],
    ) -> None:
        self.found = found
        self.left = (*left, *result.left)
        self.result = result
        self.confirm_by = confirm_by if result.outcome == DONE and result.run else None
        self.awaiting = awaiting


class _Apply:
    """One apply, under the lock."""

    def __init__(self, words: Namespace, host: ThisHost, report: RunReport) -> None:
        self._words, self._host, self._report = words, host, report
        self._timer_of: Optional[int] = None

    def run(self, saved: Optional[Plan]) -> _Done:
        host, words, report = self._host, self._words, self._report
        policy = loaded_policy(host.root)
        found = decided_by(host.facts(), policy)
        for sentence in found.decision.unread:
            report.note(sentence)
        if saved is not None:
            found.hold_against(saved)
        gated = gate(
            found.decision.steps,
            allow_link_down=words.allow_link_down,
            live_only=words.live_only,
        )
        report.expect(step.id for step in found.decision.steps)
        refused = {step.id for step in found.decision.refused}
        left = tuple(one for one in gated.left if one.step not in refused)
        for step in found.decision.refused if saved is None else ():
            report.add(Line(step.id, REFUSED, step.before, step.after), step.refused)
        for one in left:
            report.add(Line(one.step, LEFT), one.why)
        confirm_by = None
        if words.confirm_timeout is not None:
            confirm_by = int(host.effects.now()) + words.confirm_timeout

        def prove() -> frozenset[str]:
            report.reading("proving it: reading the host again")
            return frozenset(still_planned(host.root, host.run, policy))

        request = RunRequest(
            by=f"{PROGRAM} apply",
            policy=policy.digest,
            facts=found.facts,
            confirm_by=confirm_by,
            begun=self._set_timer,
            prove=prove,
        )
        # A terminal that goes away must not cut off what follows the run either.
        with held_signals():
            try:
                result = apply_steps(
                    host.effects, host.journal, gated.steps, request, report
                )
            except Problem:  # nothing was done; after anything else it is needed
                self._stop_timer()
                raise
            if result.outcome != DONE:
                self._stop_timer()
            host.finish(report)
        return _Done(found, left, result, confirm_by, host.journal.ledger().awaiting)

    def _set_timer(self, run: int) -> None:
        if self._words.confirm_timeout is not None:
            self._host.timer(run).set(self._words.confirm_timeout)
            self._timer_of = run

    def _stop_timer(self) -> None:
        if self._timer_of is not None:
            trouble = self._host.timer(self._timer_of).cancel()
            if trouble:
                self._report.note(trouble)


def _tell_applied(done: _Done, screen: Screen) -> None:
    result = done.result
    if result.outcome != DONE:
        screen.text(f"{result.sentence}.")
        for left in result.left:
            screen.text(f"{left.step} {left.what}: {left.why}".strip())
            screen.fix(left.fix)
        screen.next(f"{PROGRAM} {'status' if result.outcome == PARTLY else 'check'}")
        return
    screen.text(f"{_nothing(done) if result.run is None else _changed(done)}.")
    if done.left:
        screen.fix(f"put the host into maintenance, then: {PROGRAM} apply")
    if done.awaiting is not None and done.awaiting.begin.confirm_by is not None:
        at = when(done.awaiting.begin.confirm_by)
        screen.text(f"Run {done.awaiting.number} is taken back at {at}, unless:")
        screen.next(f"{PROGRAM} confirm")
    else:
        screen.next(f"{PROGRAM} {'check' if result.run is None else 'status'}")


def _changed(done: _Done) -> str:
    result = done.result
    steps = [step for step in done.found.decision.to_do if step.id in result.done]
    reboot = sum(step.effect == REBOOT for step in steps)
    changes = count(len(steps), "change")
    told = f"{changes} made on {done.found.facts.hostname} and proven"
    if reboot:
        some = "" if reboot == len(steps) else f"{reboot} of them "
        told += f", {some}in force with the next boot"
    if done.left:
        told += f"; {len(done.left)} left"
    return f"{told} (run {result.run}, policy: {done.found.policy.source})"


def _nothing(done: _Done) -> str:
    host, found = done.found.facts.hostname, done.found
    if done.left:
        return f"Nothing was changed on {host}: {count(len(done.left), 'change')} left"
    if found.decision.refused:
        refused = count(len(found.decision.refused), "change")
        return f"Nothing to do on {host}: {refused} refused"
    return f"Nothing to do on {host}: no change is planned ({found.policy.source})"


def _document(
    done: _Done, recovered: Optional[RunResult], report: RunReport
) -> dict[str, Any]:
    result = done.result
    held = {left.step for left in result.left if left.failed}
    steps = []
    for line in report.lines:
        outcome = line.outcome
        if outcome == report.word and line.id not in result.done:
            outcome = HELD if line.id in held else TAKEN_BACK
        if outcome not in (LEFT, REFUSED):
            steps.append({**asdict(line), "outcome": outcome})
    return {
        "run": result.run,
        "outcome": result.outcome,
        "sentence": result.sentence,
        "steps": steps,
        "left": [left.document() for left in done.left],
        "refused": [
            {"id": one.id, "why": one.refused} for one in done.found.decision.refused
        ],
        "confirm_by": done.confirm_by,
        "recovered": recovered and recovered.sentence,
        "notes": report.notes,
    }


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
    _tell_confirmed(run, report, screen)
    return 0


def _refuse_late(ledger: Ledger) -> None:
    # Hooks and the partitions' service have runs of their own since.
    newest = next((r for r in reversed(ledger.runs) if r.begin.verb == APPLY), None)
    if newest is None or newest.begin.confirm_by is None or newest.confirmed:
        return
    if newest.outcome != DONE:
        raise TooLate(
            "confirmation-too-late",
            f"run {newest.number} cannot be confirmed: {newest.sentence} "
            f"({when_iso(newest.ended or '')})",
            f"{PROGRAM} apply does it again",
        )


def _tell_confirmed(run: Optional[Run], report: RunReport, screen: Screen) -> None:
    if not screen.for_people:
        content: dict[str, Any] = {"confirmed": run and run.number}
        screen.document("confirm", {**content, "notes": report.notes})
    elif run is None:
        screen.line("Nothing to confirm: no run is waiting for it.")
    else:
        screen.line(f"Run {run.number} is kept.")
        screen.next(f"{PROGRAM} status")
