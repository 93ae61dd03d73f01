# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``check``: print the findings of all rules, the worst first, with fixes."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import replace

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import HostVerb, Source, add_facts, add_policy
from ovirt_rdma.cli.host.decision import HostDecision, command, load_decision, rule_of
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.cli.verdict import AllowNone, add_allow_none, verdict_code
from ovirt_rdma.host.rules import registry
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, VERDICTS, WARN, Finding

# Up to this many equal findings stay on separate lines.
APART = 3
# Up to this many subjects of a shared line are named.
NAMED = 8
_FOLDED = {
    PASS: "",
    SKIP: ": not for this host, or something is unknown",
}


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Return ``findings`` by verdict, those of one verdict in their order."""
    return sorted(findings, key=lambda finding: VERDICTS.index(finding.verdict))


def condensed(findings: Sequence[Finding]) -> list[Finding]:
    """Return what is wrong, the worst first, and a line for all that passed and one for
    all that was skipped. Pure.

    Findings that differ only in the subject share a line: a host with 32 ports may have
    32 of one rule.
    """
    groups: dict[Hashable, list[Finding]] = {}
    for finding in worst_first(findings):
        groups.setdefault(_but_for_subject(finding), []).append(finding)
    lines = []
    for group in groups.values():
        if group[0].verdict in _FOLDED:
            lines.append(_folded(group))
        elif len(group) > APART:
            lines.append(_same(group))
        else:
            lines += group
    return lines


def _but_for_subject(finding: Finding) -> Hashable:
    if finding.verdict in _FOLDED:
        return finding.verdict
    texts = (finding.sentence, finding.fix)
    rest = tuple(text.replace(finding.subject, "\0") for text in texts)
    return (finding.rule, finding.verdict, *rest)


def _same(group: Sequence[Finding]) -> Finding:
    first, *others = group
    names = ", ".join(finding.subject for finding in others[:NAMED])
    more = f" and {len(others) - NAMED} more" if len(others) > NAMED else ""
    return replace(
        first,
        subject=f"{len(group)} alike",
        sentence=f"{first.sentence}; the same for {names}{more}",
    )


def _folded(group: Sequence[Finding]) -> Finding:
    rules = len({finding.rule for finding in group})
    sentence = f"{count(len(group), 'check')}{_FOLDED[group[0].verdict]}; see --all"
    return Finding(count(rules, "rule"), HOST, group[0].verdict, sentence)


# Enough for the id of a rule, and for subjects that do not have two names.
_WIDEST = 16


class Check(HostVerb, Source, AllowNone):
    """Print the findings of all rules; return 3 if one is FAIL, or nothing is there."""

    codes = "0 no check failed, 3 a check failed, or there is no RDMA device"
    examples = (
        "",
        "--all",
        "--only IPOIB-MTU-01 --only IPOIB-MODE-01",
        "--skip ROCE-PFC-01",
        "--facts hv1.json --policy new.yaml",
    )
    more = (
        "Changes nothing. FAIL is wrong, WARN may be wrong or will be, PASS is\n"
        "correct, SKIP does not apply here or is unknown. What is wrong comes first;\n"
        "equal findings share one line, and so does all that passed or was skipped."
    )

    all: bool
    only: list[str]
    skip: list[str]

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--all",
            action="store_true",
            help="show every finding on its own line, also what passed or was skipped",
        )
        for name, text in (
            ("--only", "use this rule, and show all its findings"),
            ("--skip", "leave out a rule"),
        ):
            parser.add_argument(
                name,
                metavar="ID",
                action="append",
                default=[],
                help=f"{text}; may be given several times; ids: explain --list",
            )
        add_policy(parser)
        add_allow_none(parser, "RDMA device")
        add_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        only, skipped = (
            sorted({rule_of(text).id for text in texts})
            for texts in (self.only, self.skip)
        )
        others = (rule.id for rule in registry.RULES if only and rule.id not in only)
        decided = load_decision(self, context, (*skipped, *others))
        findings = _with_steps(decided)
        verdict, then = _verdict(decided, only, skipped), _next(decided, self)
        if output.for_people:
            show = worst_first if self.all or only else condensed
            _print(show(findings), output)
            output.text(verdict)
            output.next(then)
        else:
            output.document(
                "check",
                {
                    "hostname": decided.facts.hostname,
                    "policy": decided.source,
                    "only": only,
                    "skipped": skipped,
                    "counts": _counts(findings),
                    "failed": decided.decision.failed,
                    "verdict": verdict,
                    "next": then,
                    "findings": [dataclasses.asdict(finding) for finding in findings],
                },
            )
        return verdict_code(
            self,
            looked_at=bool(decided.facts.rdma_devices),
            failed=decided.decision.failed,
        )


def _with_steps(decided: HostDecision) -> list[Finding]:
    """Return the findings; those without a fix point to their step of the plan.

    If that step is refused, the fix says why.
    """
    hints = {
        (step.rule, step.subject): f"no fix by a plan: {step.refused}"
        if step.refused
        else f"{PROGRAM} plan"
        for step in decided.decision.steps
    }
    return [
        dataclasses.replace(finding, fix=hints.get((finding.rule, finding.subject), ""))
        if finding.verdict in (WARN, FAIL) and not finding.fix
        else finding
        for finding in decided.decision.findings
    ]


def _print(shown: Sequence[Finding], output: Output) -> None:
    if not shown:
        return
    output.table(
        ("RESULT", "RULE", "SUBJECT", "FOUND"),
        [(f.verdict, f.rule, f.subject, f.sentence) for f in shown],
        {PASS: "good", WARN: "doubtful", FAIL: "bad"},
        [
            _fix_below(finding, after)
            for finding, after in zip(shown, [*shown[1:], None])
        ],
        _WIDEST,
    )
    output.line()


def _fix_below(finding: Finding, after: object) -> str:
    """Return the fix, unless the next line is of the same rule and has it too."""
    if not finding.fix or finding.verdict not in (WARN, FAIL):
        return ""
    if isinstance(after, Finding) and (finding.rule, finding.verdict, finding.fix) == (
        after.rule,
        after.verdict,
        after.fix,
    ):
        return ""
    return f"fix: {finding.fix}"


def _verdict(decided: HostDecision, only: Sequence[str], skipped: Sequence[str]) -> str:
    counts = _counts(decided.decision.findings)
    host = decided.facts.hostname
    tried = sum(counts.values()) - counts[SKIP]
    checks = count(tried, "check")
    if counts[FAIL]:
        summary = f"{counts[FAIL]} of {checks} failed on {host}"
    elif not tried:
        summary = f"There is nothing to check on {host}"
    elif not decided.facts.rdma_devices:
        summary = f"{host} has no RDMA device to check; none of {checks} failed"
    elif counts[WARN] or decided.decision.applicable:
        summary = f"None of {checks} failed on {host}"
    else:
        summary = f"{checks} passed on {host}"
    parts = [summary]
    if counts[WARN]:
        parts.append(count(counts[WARN], "warning"))
    if counts[SKIP]:
        parts.append(f"{counts[SKIP]} skipped")
    if only:
        parts.append(f"only {' '.join(only)}")
    if skipped:
        parts.append(f"left out: {' '.join(skipped)}")
    return f"{', '.join(parts)}."


def _next(decided: HostDecision, source: Source) -> str:
    """Return the command to run next, or nothing if there is none."""
    if decided.decision.applicable:
        return command("plan", source)
    for verdict in (FAIL, WARN):
        for finding in decided.decision.findings:
            if finding.verdict == verdict:
                return f"{PROGRAM} explain {finding.rule}"
    if source.facts is not None:
        return ""
    if decided.new and source.policy is not None:
        return f"{PROGRAM} policy load {shlex.quote(source.policy)}"
    if decided.policy.nfs.rules:
        return f"{PROGRAM} nfs list"
    has_rdma = bool(decided.facts.rdma_devices)
    return f"{PROGRAM} policy load" if has_rdma and not decided.loaded else ""


def _counts(findings: Iterable[Finding]) -> dict[str, int]:
    found = dict.fromkeys(VERDICTS, 0)
    for finding in findings:
        found[finding.verdict] += 1
    return found
