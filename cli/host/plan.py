# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``plan``: show what would change on a host, why, and how to undo it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import HostVerb, Source, add_facts, add_policy
from ovirt_rdma.cli.host.decision import HostDecision, command, load_decision
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Parser, file_name
from ovirt_rdma.host.changes import plan as plans
from ovirt_rdma.host.changes.plan import Plan, PlannedBy, diff
from ovirt_rdma.host.errors import NOTHING_CHANGED
from ovirt_rdma.host.exit_code import ExitCode
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
        planned = _plan(decided)
        if self.out is not None:
            plans.save(planned, Path(self.out))
        if context.output.for_people:
            _print(decided, self, context.output)
        else:
            # The document is the plan file itself.
            context.output.raw_document(plans.to_json_dict(planned))
        bad = self.exit_code and decided.decision.applicable
        return ExitCode.CHECKS_FAILED if bad else ExitCode.DONE


def _plan(decided: HostDecision) -> Plan:
    steps = decided.decision.steps
    return Plan(
        hostname=decided.facts.hostname,
        kernel_release=decided.facts.kernel_release,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        policy=PlannedBy(decided.source, digest(decided.policy)),
        steps=steps,
    )


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
    output.line(f"{step.id}  {kind}", tone)
    output.text(step.sentence, "  ")
    output.fields(_fields(step), "  ")
    if diffs:
        for line in diff(step.changes):
            output.line(line, _diff_tone(line))
    output.line()


def _fields(step: Step) -> Iterator[tuple[str, str]]:
    if step.refused:
        yield "refused", step.refused
    yield "value", f"{step.before} -> {step.after}"
    yield "why", step.reason
    yield "source", step.source
    if not step.refused:
        yield "undo", step.undo
        for user in step.users:
            yield "used by", user


def _diff_tone(line: str) -> Optional[str]:
    if line.startswith(("--- ", "+++ ")):  # the headings
        return None
    return {"-": "bad", "+": "good"}.get(line[:1])


def _verdict(decided: HostDecision) -> str:
    host, refused = decided.facts.hostname, len(decided.decision.refused)
    if decided.decision.applicable:
        steps = count(len(decided.decision.applicable), "step")
        summary = f"{steps} on {host}: {_by_class(decided.decision.applicable)}"
        more = f"; {refused} refused" if refused else ""
        return f"{summary}{more} (policy: {decided.source})"
    if refused:
        return f"Nothing to change on {host}: {count(refused, 'step')} refused"
    if not decided.loaded:
        return f"Nothing to change on {host}: no policy is loaded"
    if decided.policy.host.is_empty:
        return (
            f"Nothing to change on {host}: the policy has no host part "
            f"({decided.source})"
        )
    bad = [f for f in decided.decision.findings if f.verdict in (WARN, FAIL)]
    if bad:
        findings = count(len(bad), "finding")
        return (
            f"Nothing that a plan can change on {host} (policy: {decided.source}); "
            f"check has {findings}"
        )
    return f"Nothing to change on {host}: it matches the policy ({decided.source})"


def _by_class(steps: Sequence[Step]) -> str:
    meaning = {
        LIVE: "no interruption",
        LINK_DOWN: "the link is down for a moment",
        REBOOT: "takes effect at the next boot",
    }
    return ", ".join(
        f"{number} {effect} ({meaning[effect]})"
        for effect in CLASSES
        for number in (sum(step.effect == effect for step in steps),)
        if number
    )


def _next(decided: HostDecision, args: ShowPlan) -> str:
    if not decided.decision.applicable:
        return command("check", args)
    if args.facts is None and args.policy is None:
        saved = [] if args.out is None else [args.out]
        return command("apply", args, *saved)
    if not args.diff:
        return command("plan", args, "--diff")
    if args.facts is None and args.policy is not None:
        # apply uses the loaded policy only.
        return shlex.join([PROGRAM, "policy", "load", args.policy])
    if args.out is None:
        return command("plan", args, "--out", f"{decided.facts.hostname}-plan.json")
    return ""
