# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``history`` and ``revert``.

``history`` shows the runs that changed the host, from the journal. ``revert`` restores
the values from before these runs.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Optional

from ovirt_rdma.cli.host.arguments import OTHER_RUN, HostVerb, add_link_down, as_root
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.runs import (
    BACK,
    LEFT,
    LET_GO,
    Line,
    RunReport,
    ThisHost,
    describe_changes,
    values_of,
)
from ovirt_rdma.cli.output import Output, count, when, when_iso
from ovirt_rdma.cli.parser import Context, Parser
from ovirt_rdma.host.changes.journal import (
    DONE,
    PARTLY,
    ROLLED_BACK,
    Journal,
    Ledger,
    Run,
    RunResult,
)
from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.system.lock import one_run


class History(HostVerb):
    """Show the runs, the newest first."""

    codes = "0 printed, 1 the journal cannot be read"
    examples = ("", "-v")

    verbose: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="also show each change with the value before and after",
        )

    def run(self, context: Context) -> int:
        ledger = Journal(context.root).ledger()
        if context.output.for_people:
            _print(ledger, context.output, verbose=self.verbose)
        else:
            runs = [_history_document(run) for run in reversed(ledger.runs)]
            context.output.document("history", {"runs": runs})
        return 0


def _print(ledger: Ledger, output: Output, *, verbose: bool) -> None:
    if not ledger.runs:
        output.line("Nothing has been changed on this host yet.")
        return
    runs = list(reversed(ledger.runs))
    rows = [
        (
            str(run.number),
            when_iso(run.at)[: len("2026-01-02 03:04")],
            (run.by or run.verb).removeprefix(f"{PROGRAM} "),
            run.outcome or "interrupted",
            str(len({applied.step for applied in run.applied})),
            ", ".join(_steps(run, ledger)) or "-",
        )
        for run in runs
    ]
    headings = ("RUN", "WHEN (UTC)", "BY", "OUTCOME", "APPLIED", "STEPS")
    tones = {DONE: "good", ROLLED_BACK: "doubtful", PARTLY: "bad"}
    below = [_remark(run) for run in runs]
    output.table(headings, rows, tones, below, minor=("APPLIED", "BY"))
    if verbose:
        for run in runs:
            _print_acts(run, output)
        return
    applied = count(len(ledger.applied_steps), "step")
    output.line(f"{applied} can be reverted.")
    output.next(f"{PROGRAM} history -v")


def _steps(run: Run, ledger: Ledger) -> list[str]:
    """Return the steps that ``run`` applied, or, for a revert, reverted."""
    acts = run.acts or [
        applied
        for other in ledger.runs
        for applied in other.acts
        if applied.undone_by == run.number
    ]
    return list(dict.fromkeys(applied.step for applied in acts))


def _remark(run: Run) -> str:
    if run.awaits_confirmation and run.confirm_by is not None:
        return f"awaits confirmation until {when(run.confirm_by)}"
    return "" if run.outcome == DONE else run.sentence


def _print_acts(run: Run, output: Output) -> None:
    if not run.acts:
        return
    output.line()
    output.line(f"run {run.number}")
    rows = []
    for applied in run.acts:
        for text in describe_changes(applied):
            more = f" ({applied.why})" if applied.why else ""
            rows.append((f"  {_state(applied)}", applied.step, text + more))
    output.table(("  STATE", "STEP", "VALUE"), rows)


def _state(applied: AtomicChange) -> str:
    if applied.is_applied:
        return "applied" if applied.found is not None else "incomplete"
    if applied.why:
        return f"let go in run {applied.undone_by}"
    rolled_back = applied.undone_by == applied.run
    return "rolled back" if rolled_back else f"reverted in run {applied.undone_by}"


def _history_document(run: Run) -> dict[str, Any]:
    content = {
        "run": run.number,
        **vars(run),
        "awaits_confirmation": run.awaits_confirmation,
        "acts": [_act(applied) for applied in run.acts],
    }
    del content["number"]
    return content


def _act(applied: AtomicChange) -> dict[str, Any]:
    return {
        "step": applied.step,
        "held": applied.is_applied,
        "undone_by": applied.undone_by,
        "why": applied.why,
        "changes": [
            {
                "kind": change.kind,
                "target": change.target,
                "name": change.name,
                "before": change.before,
                "after": after,
            }
            for change, after in values_of(applied)
        ],
    }


class Revert(HostVerb):
    """Revert all steps, or one; return 1 if something could not be reverted."""

    codes = (
        "0 reverted, or left because someone else changed it since,\n"
        "1 something could not be reverted,\n"
        f"4 refused as unsafe, {OTHER_RUN}"
    )
    examples = ("", "IPOIB-MODE-01/ib0")
    more = (
        "Restores the earlier values. A value that someone else has changed\n"
        "since is left unchanged, and this is reported."
    )

    step: Optional[str]
    allow_link_down: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "step",
            metavar="STEP",
            nargs="?",
            help="only this step; 'history -v' shows the ids",
        )
        add_link_down(parser)

    def run(self, context: Context) -> int:
        output = context.output
        as_root("revert", context.root)
        report = RunReport(output, word=BACK)
        host = ThisHost(context.root, "revert", report)
        report.reading()
        hostname = host.facts().hostname
        with one_run(context.root, by="revert"):
            recovered = host.recover(even_in_use=self.allow_link_down)
            ledger = host.journal.ledger()
            report.expect(ledger.applied_steps)
            result = host.revert(self.step, allow_link_down=self.allow_link_down)
            after = host.journal.ledger()
            awaited = ledger.awaiting
            if awaited is not None and after.awaiting is None:
                problem = host.timer(awaited.number).cancel()
                if problem:
                    report.note(problem)
        steps = list(_reverted_steps(result, after))
        for step in steps:
            report.add(Line(step["id"], step["outcome"]), "; ".join(step["told"]))
        for left in result.left:
            text = f"{left.what}: {left.why}" if left.failed else left.why
            report.add(Line(left.step, LEFT), text)
        if output.for_people:
            back = sum(step["outcome"] == BACK for step in steps)
            _print_result(result, back, self.step, hostname, output)
        else:
            before = recovered and recovered.sentence
            content = {"steps": steps, "recovered": before}
            output.document("revert", {**report.document(result), **content})
        return 0 if result.outcome == DONE else 1


def _reverted_steps(result: RunResult, after: Ledger) -> Iterator[dict[str, Any]]:
    """Yield the outcome of each step, with one text per value."""
    left_reasons = {left.why for left in result.left}
    for step in result.done:
        acts = [
            applied
            for run in after.runs
            for applied in reversed(run.acts)
            if applied.step == step and applied.undone_by == result.run
        ]
        values = [
            text
            for applied in acts
            if not applied.why
            for text in describe_changes(applied, back=True)
        ]
        reasons = [act.why for act in acts if act.why and act.why not in left_reasons]
        if values or reasons:
            outcome = BACK if values else LET_GO
            told = list(dict.fromkeys([*values, *reasons]))
            yield {"id": step, "outcome": outcome, "told": told}


def _print_result(
    result: RunResult, back: int, only: Optional[str], host: str, output: Output
) -> None:
    """Print the summary, of ``back`` steps that were reverted."""
    if result.run is None:
        output.line(f"Nothing to revert on {host}.")
        return
    for left in result.left:
        output.fix(left.fix)
    failed = sum(left.failed for left in result.left)
    theirs = len(result.left) - failed
    summary = f"{count(back, 'step')} reverted on {host} (run {result.run})"
    if theirs:
        summary += f"; {theirs} left, because someone else has changed it since"
    if failed:
        verb = "is" if failed == 1 else "are"
        summary += f"; {failed} could not be reverted, and {verb} still applied"
    output.text(f"{summary}.")
    if failed or only is not None:
        output.next(f"{PROGRAM} status")
