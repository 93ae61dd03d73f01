# SPDX-License-Identifier: GPL-2.0-or-later
"""``revert``: what was changed is set back, to the operator's own earlier values."""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from ovirt_rdma.cli.change_words import changes_in_words, held_steps
from ovirt_rdma.cli.host_words import PROGRAM
from ovirt_rdma.cli.run_report import BACK, LEFT, LET_GO, Line, RunReport
from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.cli.this_host import ThisHost, as_root
from ovirt_rdma.host.effects.journal_records import DONE
from ovirt_rdma.host.effects.ledger import Ledger
from ovirt_rdma.host.effects.revert import revert as take_back
from ovirt_rdma.host.effects.run_result import RunResult
from ovirt_rdma.host.problem import UsageProblem
from ovirt_rdma.host.run_lock import one_run


def revert(words: Namespace, screen: Screen) -> int:
    """Set back all, or one step; 1 where something could not be set back."""
    as_root("revert", words)
    host, report = ThisHost(words), RunReport(screen, word=BACK)
    report.reading()
    host.facts()
    with one_run(words.root, by="revert"):
        recovered = host.recover(report, cut_off=words.allow_link_down)
        ledger = host.journal.ledger()
        held = held_steps(ledger)
        only = _known(words.step, held)
        report.expect(held)
        facts = host.facts()
        result = take_back(
            host.effects,
            host.journal,
            facts,
            report,
            only=only,
            allow_link_down=words.allow_link_down,
            by=f"{PROGRAM} revert",
        )
        after = host.journal.ledger()
        if result.run is not None:
            host.finish(report)
        awaited = ledger.awaiting
        if awaited is not None and after.awaiting is None:
            trouble = host.timer(awaited.number).cancel()
            if trouble:
                report.note(trouble)
    steps = list(_steps_back(result, after))
    for step in steps:
        report.add(Line(step.id, step.outcome), "; ".join(step.told))
    for left in result.left:
        told = f"{left.what}: {left.why}" if left.failed else left.why
        report.add(Line(left.step, LEFT), told)
    if screen.for_people:
        _tell(result, only, facts.hostname, screen)
    else:
        screen.document("revert", _document(result, steps, recovered, report))
    return 0 if result.outcome == DONE else 1


@dataclass(frozen=True)
class _Back:
    """What became of a step: ``told`` says it of each of its values."""

    id: str
    outcome: str
    told: tuple[str, ...]


def _steps_back(result: RunResult, after: Ledger) -> Iterator[_Back]:
    left = {one.why for one in result.left}
    for step in result.done:
        acts = [
            one
            for run in after.runs
            for one in reversed(run.acts)
            if one.act.step == step and one.undone_by == result.run
        ]
        values = [
            told
            for one in acts
            if not one.why
            for told in changes_in_words(one, back=True)
        ]
        reasons = [one.why for one in acts if one.why and one.why not in left]
        if values or reasons:
            outcome = BACK if values else LET_GO
            yield _Back(step, outcome, tuple(dict.fromkeys([*values, *reasons])))


def _known(step: Optional[str], held: Sequence[str]) -> Optional[str]:
    if step is None or step in held:
        return step
    if not held:
        raise UsageProblem(f"nothing of {step!r} is held, nor of any other change")
    raise UsageProblem(
        f"nothing of {step!r} is held", f"give one of these: {', '.join(held)}"
    )


def _tell(result: RunResult, only: Optional[str], host: str, screen: Screen) -> None:
    if result.run is None:
        screen.line(f"Nothing to revert on {host}: no change of ours is held.")
        return
    for left in result.left:
        screen.fix(left.fix)
    failed = sum(left.failed for left in result.left)
    theirs = len(result.left) - failed
    changes = count(len(result.done), "change")
    told = f"{changes} set back on {host} (run {result.run})"
    if theirs:
        told += f"; {theirs} left, as someone else has changed it since"
    if failed:
        told += f"; {failed} could not be set back, and {_is(failed)} still held"
    screen.text(f"{told}.")
    if failed or only is not None:
        screen.next(f"{PROGRAM} status")


def _is(number: int) -> str:
    return "is" if number == 1 else "are"


def _document(
    result: RunResult,
    steps: Sequence[_Back],
    recovered: Optional[RunResult],
    report: RunReport,
) -> dict[str, Any]:
    return {
        "run": result.run,
        "outcome": result.outcome,
        "sentence": result.sentence,
        "steps": [asdict(step) for step in steps],
        "left": [asdict(left) for left in result.left],
        "recovered": recovered and recovered.sentence,
        "notes": report.notes,
    }
