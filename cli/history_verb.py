# SPDX-License-Identifier: GPL-2.0-or-later
"""``history``: the runs that changed the host, as the journal has them."""

from __future__ import annotations

from argparse import Namespace
from typing import Any

from ovirt_rdma.cli.change_words import changes_in_words, values_of
from ovirt_rdma.cli.host_words import PROGRAM
from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.cli.times import when, when_iso
from ovirt_rdma.host.effects.journal import Journal
from ovirt_rdma.host.effects.journal_records import DONE, PARTLY, ROLLED_BACK
from ovirt_rdma.host.effects.ledger import JournalAct, Ledger, Run

_TONES = {DONE: "good", ROLLED_BACK: "doubtful", PARTLY: "bad"}


def history(words: Namespace, screen: Screen) -> int:
    """Show the runs, the newest first."""
    ledger = Journal(words.root).ledger()
    if screen.for_people:
        _print(ledger, screen, verbose=words.verbose)
    else:
        runs = [_document(run) for run in reversed(ledger.runs)]
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


def _document(run: Run) -> dict[str, Any]:
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
