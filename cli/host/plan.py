# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``plan``, ``apply`` and ``confirm``.

``plan`` shows what would change on a host, why, and how to undo it. ``apply`` applies
the loaded policy to the host and verifies the result. ``confirm`` keeps the changes of
``apply --confirm-timeout``.
"""

from __future__ import annotations

import shlex
from collections.abc import Collection, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.cli.host.arguments import (
    OTHER_RUN,
    HostVerb,
    Source,
    add_facts,
    add_link_down,
    add_policy,
    as_root,
)
from ovirt_rdma.cli.host.check import HostDecision, command, load_decision
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.host.runs import (
    APPLIED,
    LEFT,
    REFUSED,
    ROLLED_BACK_STEP,
    Line,
    RunReport,
    ThisHost,
)
from ovirt_rdma.cli.output import Output, count, when, when_iso
from ovirt_rdma.cli.parser import Context, Parser, file_name, time_span
from ovirt_rdma.host.changes import plan as plans
from ovirt_rdma.host.changes.journal import (
    APPLY,
    DONE,
    PARTLY,
    ROLLED_BACK,
    Ledger,
    Left,
    Run,
    RunResult,
    iso,
)
from ovirt_rdma.host.changes.plan import SavedPlan, diff, gate
from ovirt_rdma.host.changes.run import (
    ConfirmationTimer,
    Decided,
    decide_for,
    loaded_policy,
)
from ovirt_rdma.host.errors import NOTHING_CHANGED, ExitCode, Problem
from ovirt_rdma.host.policy.model import digest
from ovirt_rdma.host.rules.base import (
    CLASSES,
    FAIL,
    LINK_DOWN,
    LIVE,
    REBOOT,
    WARN,
    Step,
)
from ovirt_rdma.host.system.lock import one_run
from ovirt_rdma.host.system.signals import delayed_signals

_REFUSED = "refused"


class ShowPlan(HostVerb, Source):
    """Print the plan, and save it with --out; return 3 with --exit-code if it is
    not empty.

    Refused steps are shown, but do not count.
    """

    codes = "0 shown; with --exit-code 3 if something would change"
    examples = ("", "--diff", "--out plan.json", "--policy new.yaml --exit-code")
    more = (
        "Changes nothing. Each step has an id, a reason, a way to undo it and a\n"
        "class: live (no interruption, now or at the engine's next change to\n"
        "the networks), link-down (the link is down for a moment) or reboot\n"
        "(takes effect at the next boot)."
    )

    diff: bool
    out: Optional[str]
    exit_code: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--diff", action="store_true", help="also show the changes, line by line"
        )
        parser.add_argument(
            "--out",
            metavar="FILE",
            type=file_name,
            help="also save the plan as JSON, for review",
        )
        add_policy(parser)
        parser.add_argument(
            "--exit-code",
            action="store_true",
            help="exit with 3 if something would change",
        )
        add_facts(parser)

    def run(self, context: Context) -> int:
        decided = load_decision(self, context)
        for sentence in decided.decision.unread:
            context.output.message(f"note: {sentence}")
        planned = plans.plan_document(
            decided.facts,
            decided.source,
            digest(decided.policy),
            decided.decision.steps,
        )
        if self.out is not None:
            plans.save(planned, Path(self.out))
        if context.output.for_people:
            _print(decided, self, context.output)
        else:
            # The document is the plan file itself.
            context.output.raw_document(planned)
        bad = self.exit_code and decided.decision.applicable
        return ExitCode.CHECKS_FAILED if bad else ExitCode.DONE


def _print(decided: HostDecision, args: ShowPlan, output: Output) -> None:
    for step in decided.decision.applicable:
        _print_step(step, output, diffs=args.diff)
    if decided.decision.refused:
        output.line("refused, and never applied:")
        output.line()
        for step in decided.decision.refused:
            _print_step(step, output, diffs=args.diff)
    output.text(f"{_verdict(decided)}.")
    if args.out is not None:
        output.text(f"Saved in {args.out}, for review.")
    if decided.decision.applicable:
        output.text(NOTHING_CHANGED)
    output.next(_next(decided, args))


def _print_step(step: Step, output: Output, *, diffs: bool) -> None:
    kind = _REFUSED if step.refused else step.effect
    tone = "bad" if step.refused else "good" if kind == LIVE else "doubtful"
    fields = [("refused", step.refused)] if step.refused else []
    fields += [
        ("value", f"{step.before} -> {step.after}"),
        ("why", step.reason),
    ]
    if not step.refused:
        fields += [("undo", step.undo), *(("used by", user) for user in step.users)]
    output.line(f"{step.id}  {kind}", tone)
    output.text(step.sentence, "  ")
    output.fields(fields, "  ")
    for line in diff(step.changes) if diffs else ():
        heading = line.startswith(("--- ", "+++ "))
        output.line(line, None if heading else _TONES.get(line[:1]))
    output.line()


_TONES = {"-": "bad", "+": "good"}


def _verdict(decided: HostDecision) -> str:
    decision, host = decided.decision, decided.facts.hostname
    applicable, refused = decision.applicable, len(decision.refused)
    bad = [f for f in decision.findings if f.verdict in (WARN, FAIL)]
    if applicable:
        summary = f"{count(len(applicable), 'step')} on {host}: {_by_class(applicable)}"
        more = f"; {refused} refused" if refused else ""
        return f"{summary}{more} (policy: {decided.source})"
    if bad and not refused and decided.loaded and not decided.policy.host.is_empty:
        return (
            f"Nothing that a plan can change on {host} (policy: {decided.source}); "
            f"check has {count(len(bad), 'finding')}"
        )
    why = f"it matches the policy ({decided.source})"
    if refused:
        why = f"{count(refused, 'step')} refused"
    elif not decided.loaded:
        why = "no policy is loaded"
    elif decided.policy.host.is_empty:
        why = f"the policy has no host part ({decided.source})"
    return f"Nothing to change on {host}: {why}"


def _by_class(steps: Sequence[Step]) -> str:
    meaning = {
        LIVE: "no interruption",
        LINK_DOWN: "the link is down for a moment",
        REBOOT: "takes effect at the next boot",
    }
    effects = [step.effect for step in steps]
    return ", ".join(
        f"{effects.count(effect)} {effect} ({meaning[effect]})"
        for effect in CLASSES
        if effect in effects
    )


def _next(decided: HostDecision, args: ShowPlan) -> str:
    if not decided.decision.applicable:
        return command("check", args)
    if args.facts is not None:
        return ""
    if args.policy is not None:  # apply uses the loaded policy only
        return shlex.join([PROGRAM, "policy", "load", args.policy])
    return command("apply", args, *filter(None, [args.out]))


# In less than ten seconds nobody can verify and type; nobody waits for a day.
SHORTEST_S = 10
LONGEST_S = 86400


class Apply(HostVerb):
    """Apply the plan, or a saved plan that is not outdated."""

    codes = (
        "0 done or nothing to do,\n"
        "1 failed, and not all could be rolled back, 4 refused as unsafe,\n"
        f"6 failed, and everything was rolled back, {OTHER_RUN}"
    )
    examples = ("", "hv1-plan.json", "--confirm-timeout 120", "--live-only")
    more = (
        "Applies what plan shows for the loaded policy. Each value is recorded\n"
        "before it is changed and verified afterwards. If a value is not\n"
        "accepted, the whole run is rolled back. Changes stay over a reboot;\n"
        "revert undoes them. A change that interrupts a netdev in use is\n"
        "refused."
    )

    planfile: Optional[str]
    confirm_timeout: Optional[int]
    allow_link_down: bool
    live_only: bool
    dry_run: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "planfile",
            metavar="PLANFILE",
            nargs="?",
            type=file_name,
            help="apply a plan saved by 'plan --out'; refused if the host has changed "
            "since",
        )
        parser.add_argument(
            "--confirm-timeout",
            metavar="TIME",
            type=time_span(SHORTEST_S, LONGEST_S, int),
            help="roll back the whole run unless 'confirm' is run within this time, "
            "10 s to a day, as 120 or 5min, counted from before the first change",
        )
        add_link_down(parser)
        parser.add_argument(
            "--live-only",
            action="store_true",
            help="apply live steps, and steps that take effect at the next boot",
        )
        parser.add_argument(
            "--dry-run",
            action="store_true",
            help="change nothing, and show what plan shows",
        )

    def run(self, context: Context) -> int:
        root, output = context.root, context.output
        if self.dry_run:
            return ShowPlan(diff=False, out=None, exit_code=False).run(context)
        as_root("apply", root)
        saved = None if self.planfile is None else plans.load(self.planfile)
        report = RunReport(output)
        host = ThisHost(root, "apply", report)
        if self.confirm_timeout is not None:
            host.timer(0).check()
        report.reading()
        host.facts()
        with one_run(root, by="apply"):
            recovered = host.recover(even_in_use=self.allow_link_down)
            done = self._apply(host, report, saved)
        if output.for_people:
            _print_applied(done, output)
        else:
            output.document("apply", _document(done, recovered, report))
        return {
            DONE: ExitCode.DONE,
            ROLLED_BACK: ExitCode.ROLLED_BACK,
            PARTLY: ExitCode.FAILED,
        }[done.result.outcome]

    def _apply(
        self, host: ThisHost, report: RunReport, saved: Optional[SavedPlan]
    ) -> _Done:
        policy = loaded_policy(host.root)
        prepared = decide_for(host.facts(), policy)
        for sentence in prepared.decision.unread:
            report.note(sentence)
        if saved is not None:
            prepared.hold_against(saved)
        gated = gate(
            prepared.decision.steps,
            allow_link_down=self.allow_link_down,
            live_only=self.live_only,
        )
        report.expect(step.id for step in prepared.decision.steps)
        refused = {step.id for step in prepared.decision.refused}
        left = tuple(one for one in gated.left if one.step not in refused)
        for step in prepared.decision.refused if saved is None else ():
            report.add(Line(step.id, REFUSED, step.before, step.after), step.refused)
        for one in left:
            report.add(Line(one.step, LEFT), one.why)
        timeout, timers = self.confirm_timeout, list[ConfirmationTimer]()

        def set_timer(run: int) -> None:
            if timeout is not None:
                host.timer(run).set(timeout)
                timers.append(host.timer(run))

        def stop_timer() -> None:
            for problem in filter(None, (timer.cancel() for timer in timers)):
                report.note(problem)

        def prove() -> Collection[str]:
            report.reading("verifying: reading the host again")
            return host.still_planned(policy)

        # A terminal that is lost must not interrupt what follows the run either.
        with delayed_signals():
            try:
                result = host.apply(
                    gated.steps,
                    prepared.facts,
                    policy=policy.digest,
                    confirm_by=timeout and int(host.effects.now()) + timeout,
                    on_begin=set_timer,
                    verify=prove,
                )
            except Problem:  # nothing was done; after other errors the timer is needed
                stop_timer()
                raise
            if result.outcome != DONE:
                stop_timer()
        awaiting = host.journal.ledger().awaiting
        return _Done(prepared, (*left, *result.left), result, awaiting)


@dataclass(frozen=True)
class _Done:
    """The result of a run: applied and left steps, with the facts and policy used."""

    prepared: Decided
    left: tuple[Left, ...]
    result: RunResult
    awaiting: Optional[Run]


def _print_applied(done: _Done, output: Output) -> None:
    result = done.result
    if result.outcome != DONE:
        output.text(f"{result.sentence}.")
        for left in result.left:
            output.text(f"{left.step} {left.what}: {left.why}".strip())
            output.fix(left.fix)
        output.next(f"{PROGRAM} {'status' if result.outcome == PARTLY else 'check'}")
        return
    output.text(f"{_nothing(done) if result.run is None else _changed(done)}.")
    if done.left:
        output.fix(f"put the host into maintenance, then: {PROGRAM} apply")
    if done.awaiting is not None and done.awaiting.confirm_by is not None:
        at = when(done.awaiting.confirm_by)
        output.text(
            f"Run {done.awaiting.number} is rolled back at {at} unless you confirm it."
        )
        output.next(f"{PROGRAM} confirm")
    else:
        output.next(f"{PROGRAM} {'check' if result.run is None else 'status'}")


def _changed(done: _Done) -> str:
    result, prepared = done.result, done.prepared
    steps = [step for step in prepared.decision.applicable if step.id in result.done]
    reboot = sum(step.effect == REBOOT for step in steps)
    applied = count(len(steps), "step")
    summary = f"{applied} applied on {prepared.facts.hostname} and verified"
    if reboot:
        some = "effective" if reboot == len(steps) else f"{reboot} of them effective"
        summary += f", {some} at the next boot"
    if done.left:
        summary += f"; {len(done.left)} left"
    return f"{summary} (run {result.run}, policy: {prepared.policy.source})"


def _nothing(done: _Done) -> str:
    host, refused = done.prepared.facts.hostname, len(done.prepared.decision.refused)
    if done.left:
        return f"Nothing was changed on {host}: {count(len(done.left), 'step')} left"
    why = f"no change is planned ({done.prepared.policy.source})"
    if refused:
        why = f"{count(refused, 'step')} refused"
    return f"Nothing to do on {host}: {why}"


def _document(
    done: _Done, recovered: Optional[RunResult], report: RunReport
) -> dict[str, Any]:
    result = done.result
    applied = {left.step for left in result.left if left.failed}
    steps = []
    for line in report.lines:
        outcome = line.outcome
        if outcome == report.word and line.id not in result.done:
            outcome = APPLIED if line.id in applied else ROLLED_BACK_STEP
        if outcome not in (LEFT, REFUSED):
            steps.append({**asdict(line), "outcome": outcome})
    refused, run = done.prepared.decision.refused, done.awaiting
    return {
        **report.document(result),
        "steps": steps,
        "left": [left.document() for left in done.left],
        "refused": [{"id": step.id, "why": step.refused} for step in refused],
        "confirm_by": run.confirm_by if run and run.number == result.run else None,
        "recovered": recovered and recovered.sentence,
    }


class Confirm(HostVerb):
    """Keep the run that awaits confirmation; fail if it was rolled back."""

    codes = f"0 confirmed, or nothing to confirm,\n1 too late, {OTHER_RUN}"
    examples = ("",)
    more = "Without it the run is rolled back after the timeout."

    def run(self, context: Context) -> int:
        as_root("confirm", context.root)
        report = RunReport(context.output)
        host = ThisHost(context.root, "confirm", report)
        with one_run(context.root, by="confirm"):
            # This rolls back a run after its deadline, if its timer has not done so
            # yet.
            host.recover()
            ledger = host.journal.ledger()
            run = ledger.awaiting
            if run is not None:
                now = iso(host.effects.now())
                host.journal.write(ledger.with_run(replace(run, confirmed=now)))
                problem = host.timer(run.number).cancel()
                if problem:
                    report.note(problem)
        if run is None:
            _refuse_late(ledger)
        _print_confirmed(run, report, context.output)
        return 0


def _refuse_late(ledger: Ledger) -> None:
    # The newest run may be one of a hook or of the P_Key follower.
    newest = next((r for r in reversed(ledger.runs) if r.verb == APPLY), None)
    if newest and newest.confirm_by and not newest.confirmed and newest.outcome != DONE:
        raise Problem(
            "confirmation-too-late",
            f"run {newest.number} cannot be confirmed: {newest.sentence} "
            f"({when_iso(newest.ended or '')})",
            f"apply it again: {PROGRAM} apply",
        )


def _print_confirmed(run: Optional[Run], report: RunReport, output: Output) -> None:
    if not output.for_people:
        content: dict[str, Any] = {"confirmed": run and run.number}
        output.document("confirm", {**content, "notes": report.notes})
    elif run is None:
        output.line("Nothing to confirm: no run is awaiting confirmation.")
    else:
        output.line(f"Run {run.number} is confirmed.")
        output.next(f"{PROGRAM} status")
