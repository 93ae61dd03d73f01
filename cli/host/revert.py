# SPDX-License-Identifier: GPL-2.0-or-later
"""``history`` and ``revert``.

``history``: the runs that changed the host, as the journal has them.

``revert``: what was changed is set back, to the operator's own earlier values.
"""

from __future__ import annotations

from argparse import Namespace
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Optional

from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.runs import (
    BACK,
    LEFT,
    LET_GO,
    Line,
    RunReport,
    ThisHost,
    as_root,
    changes_in_words,
    held_steps,
    values_of,
)
from ovirt_rdma.cli.output import Screen, count, when, when_iso
from ovirt_rdma.host.changes.journal import Journal
from ovirt_rdma.host.changes.kinds.model import DONE, PARTLY, ROLLED_BACK, RunResult
from ovirt_rdma.host.changes.ledger import JournalAct, Ledger, Run
from ovirt_rdma.host.changes.revert import revert as take_back
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.system.lock import one_run

_TONES = {DONE: "good", ROLLED_BACK: "doubtful", PARTLY: "bad"}


def history(words: Namespace, screen: Screen) -> int:
    """Show the runs, the newest first."""
    ledger = Journal(words.root).ledger()
    if screen.for_people:
        _print(ledger, screen, verbose=words.verbose)
    else:
        runs = [_history_document(run) for run in reversed(ledger.runs)]
        screen.document("history", {"runs": runs})
    return 0


def _print(ledger: Ledger, screen: Screen, *, verbose: bool) -> None:
    if not ledger.runs:
        screen.line("Nothing was changed on this host yet.")
        return
    runs = list(reversed(ledger.runs))
    rows = [
        (
            str(run.number),
            when_iso(run.begin.at)[: len("2026-01-02 03:04")],
            _by(run),
            run.outcome or "interrupted",
            str(len({one.act.step for one in run.held})),
            ", ".join(_steps(run, ledger)) or "-",
        )
        for run in runs
    ]
    headings = ("RUN", "WHEN (UTC)", "BY", "OUTCOME", "HELD", "CHANGES")
    screen.table(headings, rows, _TONES, [_remark(run) for run in runs])
    if verbose:
        for run in runs:
            _print_acts(run, screen)
        return
    held = len({one.act.step for one in ledger.held})
    screen.line(f"{count(held, 'change')} held.")
    screen.next(f"{PROGRAM} history -v")


def _by(run: Run) -> str:
    own, by = f"{PROGRAM} ", run.begin.by or run.begin.verb
    return by[len(own) :] if by.startswith(own) else by


def _steps(run: Run, ledger: Ledger) -> list[str]:
    """Return the steps that ``run`` did; of a revert, those that it took back."""
    acts = run.acts or [
        one
        for other in ledger.runs
        for one in other.acts
        if one.undone_by == run.number
    ]
    return list(dict.fromkeys(one.act.step for one in acts))


def _remark(run: Run) -> str:
    if run.awaits_confirmation and run.begin.confirm_by is not None:
        return f"awaits confirmation until {when(run.begin.confirm_by)}"
    return "" if run.outcome == DONE else run.sentence


def _print_acts(run: Run, screen: Screen) -> None:
    if not run.acts:
        return
    screen.line()
    screen.line(f"run {run.number}")
    rows = []
    for one in run.acts:
        for told in changes_in_words(one):
            more = f" ({one.why})" if one.why else ""
            rows.append((f"  {_state(one)}", one.act.step, told + more))
    screen.table(("  STATE", "CHANGE", "VALUE"), rows)


def _state(one: JournalAct) -> str:
    if one.held:
        return "held" if one.found is not None else "not finished"
    if one.why:
        return f"let go in run {one.undone_by}"
    rolled_back = one.undone_by == one.run
    return "rolled back" if rolled_back else f"back in run {one.undone_by}"


def _history_document(run: Run) -> dict[str, Any]:
    return {
        "run": run.number,
        "verb": run.begin.verb,
        "by": run.begin.by,
        "at": run.begin.at,
        "policy": run.begin.policy,
        "outcome": run.outcome,
        "ended": run.ended,
        "sentence": run.sentence,
        "confirm_by": run.begin.confirm_by,
        "confirmed": run.confirmed,
        "awaits_confirmation": run.awaits_confirmation,
        "only": run.begin.only,
        "acts": [_act(one) for one in run.acts],
    }


def _act(one: JournalAct) -> dict[str, Any]:
    return {
        "step": one.act.step,
        "held": one.held,
        "undone_by": one.undone_by,
        "why": one.why,
        "changes": [
            {
                "kind": change.kind,
                "target": change.target,
                "name": change.name,
                "before": before,
                "after": after,
            }
            for change, before, after in values_of(one.act, one.found)
        ],
    }


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
        screen.document("revert", _revert_document(result, steps, recovered, report))
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
        raise UsageProblem(
            "step-not-applied", f"nothing of {step!r} is held, nor of any other change"
        )
    raise UsageProblem(
        "step-not-applied",
        f"nothing of {step!r} is held",
        f"give one of these: {', '.join(held)}",
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


def _revert_document(
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
        "left": [left.document() for left in result.left],
        "recovered": recovered and recovered.sentence,
        "notes": report.notes,
    }
