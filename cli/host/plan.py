# SPDX-License-Identifier: GPL-2.0-or-later
"""``plan``: what would change on a host, why, and how to take it back."""

from __future__ import annotations

import shlex
from argparse import Namespace
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Optional

from ovirt_rdma.cli.host.decision import Decided, command, decided
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.output import Screen, count
from ovirt_rdma.host.changes import plan_file
from ovirt_rdma.host.changes.plan_diff import diff
from ovirt_rdma.host.changes.plan_file import Plan, PlannedBy, values_read
from ovirt_rdma.host.policy import json_form
from ovirt_rdma.host.rules.base import (
    CLASSES,
    FAIL,
    LINK_DOWN,
    LIVE,
    REBOOT,
    WARN,
    Step,
)
from ovirt_rdma.host.rules.view import View

_TONES = {LIVE: "good", LINK_DOWN: "doubtful", REBOOT: "doubtful"}
_REFUSED = "refused"

# What the classes mean, where there is room for it.
_MEANING = {
    LIVE: "nobody notices",
    LINK_DOWN: "the link is gone for a moment",
    REBOOT: "in force with the next boot",
}


def plan(words: Namespace, screen: Screen) -> int:
    """Print the plan, and save it with --out; 3 with --exit-code if it is not empty.

    Steps that are refused are shown, and do not count.
    """
    found = decided(words, screen)
    for sentence in found.decision.unread:
        screen.message(f"note: {sentence}")
    made = _plan(found)
    if words.out is not None:
        plan_file.save(made, Path(words.out))
    if screen.for_people:
        _print(found, words, screen)
    else:
        # The document is the plan file itself.
        screen.raw_document(plan_file.to_json_dict(made))
    return 3 if words.exit_code and found.decision.to_do else 0


def _plan(found: Decided) -> Plan:
    steps = found.decision.steps
    return Plan(
        hostname=found.facts.hostname,
        kernel_release=found.facts.kernel_release,
        made_at=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        policy=PlannedBy(found.source, json_form.digest(found.policy)),
        steps=steps,
        values=values_read(View(found.facts, found.policy), steps),
    )


def _print(found: Decided, words: Namespace, screen: Screen) -> None:
    for step in found.decision.to_do:
        _print_step(step, screen, diffs=words.diff)
    if found.decision.refused:
        screen.line("refused, and never done:")
        screen.line()
        for step in found.decision.refused:
            _print_step(step, screen, diffs=words.diff)
    screen.text(f"{_verdict(found)}.")
    if words.out is not None:
        screen.text(f"Saved in {words.out}, for review.")
    if found.decision.to_do:
        screen.text("Nothing was changed.")
    screen.next(_next(found, words))


def _print_step(step: Step, screen: Screen, *, diffs: bool) -> None:
    kind = _REFUSED if step.refused else step.effect
    screen.line(f"{step.id}  {kind}", "bad" if step.refused else _TONES[kind])
    screen.text(step.sentence, "  ")
    screen.fields(_fields(step), "  ")
    if diffs:
        for line in diff(step.changes):
            screen.line(line, _diff_tone(line))
    screen.line()


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
    if line.startswith(("--- ", "+++ ")):  # what it is about
        return None
    return {"-": "bad", "+": "good"}.get(line[:1])


def _verdict(found: Decided) -> str:
    host, refused = found.facts.hostname, len(found.decision.refused)
    if found.decision.to_do:
        changes = count(len(found.decision.to_do), "change")
        told = f"{changes} on {host}: {_by_class(found.decision.to_do)}"
        more = f"; {refused} refused" if refused else ""
        return f"{told}{more} (policy: {found.source})"
    if refused:
        return f"Nothing to change on {host}: {count(refused, 'change')} refused"
    if not found.loaded:
        return f"Nothing to change on {host}: no policy is loaded"
    host_part = found.policy.host
    if not (host_part.interfaces or host_part.modules or host_part.module_options):
        return (
            f"Nothing to change on {host}: the policy says nothing about hosts "
            f"({found.source})"
        )
    odd = [f for f in found.decision.findings if f.verdict in (WARN, FAIL)]
    if odd:
        findings = count(len(odd), "finding")
        return (
            f"Nothing that a plan can change on {host} (policy: {found.source}); check "
            f"has {findings}"
        )
    return f"Nothing to change on {host}: it is as the policy says ({found.source})"


def _by_class(steps: Sequence[Step]) -> str:
    return ", ".join(
        f"{number} {effect} ({_MEANING[effect]})"
        for effect in CLASSES
        for number in (sum(step.effect == effect for step in steps),)
        if number
    )


def _next(found: Decided, words: Namespace) -> str:
    if not found.decision.to_do:
        return command("check", words)
    if words.facts is None and words.policy is None:
        saved = [] if words.out is None else [words.out]
        return command("apply", words, *saved)
    if not words.diff:
        return command("plan", words, "--diff")
    if words.facts is None:
        # What apply does is what the loaded policy asks for.
        return shlex.join([PROGRAM, "policy", "load", words.policy])
    if words.out is None:
        return command("plan", words, "--out", f"{found.facts.hostname}-plan.json")
    return ""
