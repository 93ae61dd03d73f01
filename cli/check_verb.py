# SPDX-License-Identifier: GPL-2.0-or-later
"""``check``: what is right and wrong on a host, and what fixes it."""

from __future__ import annotations

import dataclasses
import shlex
from argparse import Namespace
from collections.abc import Iterable, Sequence

from ovirt_rdma.cli.decided import Decided, command, decided, rule_of
from ovirt_rdma.cli.gathered import gathered
from ovirt_rdma.cli.host_words import PROGRAM
from ovirt_rdma.cli.screen import Screen, count
from ovirt_rdma.host.rules.rule import FAIL, PASS, SKIP, VERDICTS, WARN, Finding

_TONES = {PASS: "good", WARN: "doubtful", FAIL: "bad"}

# Room for a rule's id, and for all but the subjects that have two names.
_WIDEST = 16


def check(words: Namespace, screen: Screen) -> int:
    """Print what every rule found; 0, or 3 where a finding is FAIL."""
    skipped = sorted({rule_of(one).id for one in words.skip})
    found = decided(words, screen, skipped)
    findings = _with_steps(found)
    verdict, then = _verdict(found, skipped), _next(found, words)
    if screen.for_people:
        _print(findings, screen, verbose=words.verbose)
        screen.text(verdict)
        screen.next(then)
    else:
        screen.document(
            "check",
            {
                "hostname": found.facts.hostname,
                "policy": found.source,
                "skipped": skipped,
                "counts": _counts(findings),
                "failed": found.decision.failed,
                "verdict": verdict,
                "next": then,
                "findings": [dataclasses.asdict(finding) for finding in findings],
            },
        )
    return 3 if found.decision.failed else 0


def _with_steps(found: Decided) -> list[Finding]:
    """Return the findings; one that has no hint, and a step of the plan, points to it,
    or says why it is refused.
    """
    hints = {
        (step.rule, step.subject): f"none by the plan: {step.refused}"
        if step.refused
        else f"{PROGRAM} plan"
        for step in found.decision.steps
    }
    return [
        dataclasses.replace(one, fix=hints.get((one.rule, one.subject), ""))
        if one.verdict in (WARN, FAIL) and not one.fix
        else one
        for one in found.decision.findings
    ]


def _print(findings: Sequence[Finding], screen: Screen, *, verbose: bool) -> None:
    shown = findings if verbose else gathered(findings)
    if not shown:
        return
    screen.table(
        ("RESULT", "RULE", "SUBJECT", "FOUND"),
        [(f.verdict, f.rule, f.subject, f.sentence) for f in shown],
        _TONES,
        [_fix_below(one, after) for one, after in zip(shown, [*shown[1:], None])],
        _WIDEST,
    )
    screen.line()


def _fix_below(finding: Finding, after: object) -> str:
    """Return the hint, unless the next line is about the same and has it too."""
    if not finding.fix or finding.verdict not in (WARN, FAIL):
        return ""
    if isinstance(after, Finding) and (finding.rule, finding.verdict, finding.fix) == (
        after.rule,
        after.verdict,
        after.fix,
    ):
        return ""
    return f"fix: {finding.fix}"


def _verdict(found: Decided, skipped: Sequence[str]) -> str:
    counts = _counts(found.decision.findings)
    host = found.facts.hostname
    tried = sum(counts.values()) - counts[SKIP]
    checks = count(tried, "check")
    if counts[FAIL]:
        told = f"{counts[FAIL]} of {checks} failed on {host}"
    elif not tried:
        told = f"There is nothing to check on {host}"
    elif not found.facts.rdma_devices:
        told = f"{host} has no RDMA device: none of {checks} failed"
    elif counts[WARN] or found.decision.to_do:
        told = f"None of {checks} failed on {host}"
    else:
        told = f"All is well on {host}: {checks} passed"
    parts = [told]
    if counts[WARN]:
        parts.append(count(counts[WARN], "warning"))
    if counts[SKIP]:
        parts.append(f"{counts[SKIP]} skipped")
    if skipped:
        parts.append(f"left out: {' '.join(skipped)}")
    return f"{', '.join(parts)}."


def _next(found: Decided, words: Namespace) -> str:
    """Return the command that gets the admin on, or nothing where all is done."""
    if found.decision.to_do:
        return command("plan", words)
    for verdict in (FAIL, WARN):
        for finding in found.decision.findings:
            if finding.verdict == verdict:
                return f"{PROGRAM} explain {finding.rule}"
    if words.facts is not None:
        return ""
    if words.policy is not None:
        return f"{PROGRAM} policy load {shlex.quote(words.policy)}"
    if found.policy.nfs.rules:
        return f"{PROGRAM} nfs list"
    has_rdma = bool(found.facts.rdma_devices)
    return f"{PROGRAM} policy load" if has_rdma and not found.loaded else ""


def _counts(findings: Iterable[Finding]) -> dict[str, int]:
    found = dict.fromkeys(VERDICTS, 0)
    for finding in findings:
        found[finding.verdict] += 1
    return found
