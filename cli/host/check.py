# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``check``: print the findings of all rules, with fixes.

Equal findings share one line: a host with 32 ports has 32 findings of one rule, and on
a host without ports two dozen rules have nothing to check.
"""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.host.arguments import HostVerb, Source, add_facts, add_policy
from ovirt_rdma.cli.host.decision import HostDecision, command, load_decision, rule_of
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.output import Output, count
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.cli.verdict import AllowNone, add_allow_none, verdict_code
from ovirt_rdma.host.rules.base import FAIL, HOST, PASS, SKIP, VERDICTS, WARN, Finding

Key = Callable[[Finding], Optional[Hashable]]
Line = Callable[[Sequence[Finding]], Finding]

# Up to this many equal findings stay on separate lines.
APART = 3
# Up to this many subjects of a shared line are named.
NAMED = 8


def group_findings(findings: Sequence[Finding]) -> list[Finding]:
    """Return ``findings`` in their order, with equal ones merged into one.

    Equal are: rules that have nothing to check on this host, which come last; rules
    that were skipped for the same reason; findings that differ only in the subject, bad
    ones too; and all other subjects that passed one rule. Pure.
    """
    left = dict(enumerate(findings))
    lines: dict[int, Finding] = {}
    idle = [number for number, finding in left.items() if _is_idle(finding)]
    if len(idle) > 1:
        lines[len(findings)] = _idle([left.pop(number) for number in idle])
    for key, apart, line in _GROUPINGS:
        groups: dict[Hashable, list[int]] = {}
        for number, finding in left.items():
            similar = key(finding)
            if similar is not None:
                groups.setdefault(similar, []).append(number)
        for numbers in groups.values():
            if len(numbers) > apart:
                lines[numbers[0]] = line([left.pop(number) for number in numbers])
    lines.update(left)
    return [lines[number] for number in sorted(lines)]


def _is_idle(finding: Finding) -> bool:
    return finding.verdict == SKIP and finding.subject == HOST and not finding.fix


def _idle(group: Sequence[Finding]) -> Finding:
    rules = {finding.rule for finding in group}
    verb = "does" if len(rules) == 1 else "do"
    sentence = f"{verb} not apply to this host or could not be evaluated; run with -v"
    return replace(group[0], rule=count(len(rules), "rule"), sentence=sentence)


def _skipped_for(finding: Finding) -> Optional[Hashable]:
    return finding.sentence if finding.verdict == SKIP else None


def _but_for_subject(finding: Finding) -> Optional[Hashable]:
    texts = (finding.sentence, finding.fix)
    rest = tuple(text.replace(finding.subject, "\0") for text in texts)
    return (finding.rule, finding.verdict, *rest)


def _needs_nothing(finding: Finding) -> Optional[Hashable]:
    if finding.verdict not in (PASS, SKIP):
        return None
    return (finding.rule, finding.verdict)


def _rules(group: Sequence[Finding]) -> Finding:
    rules = list(dict.fromkeys(finding.rule for finding in group))
    if len(rules) == 1:
        return _subjects(group)
    subjects = {finding.subject for finding in group}
    return replace(
        group[0],
        rule=count(len(rules), "rule"),
        subject=subjects.pop() if len(subjects) == 1 else _alike(group),
        sentence=f"{group[0].sentence}: {', '.join(rules)}",
    )


def _same(group: Sequence[Finding]) -> Finding:
    first, *others = group
    return replace(
        first,
        subject=_alike(group),
        sentence=f"{first.sentence}; the same for {_names(others)}",
    )


def _subjects(group: Sequence[Finding]) -> Finding:
    return replace(
        group[0], subject=_alike(group), sentence=f"{_names(group)}; run with -v"
    )


def _alike(group: Sequence[Finding]) -> str:
    return f"{len(group)} alike"


def _names(group: Sequence[Finding]) -> str:
    names = ", ".join(finding.subject for finding in group[:NAMED])
    more = len(group) - NAMED
    return f"{names} and {more} more" if more > 0 else names


_GROUPINGS: tuple[tuple[Key, int, Line], ...] = (
    (_skipped_for, 1, _rules),
    (_but_for_subject, APART, _same),
    (_needs_nothing, APART, _subjects),
)


# Enough for the id of a rule, and for subjects that do not have two names.
_WIDEST = 16


class Check(HostVerb, Source, AllowNone):
    """Print the findings of all rules; return 3 if one is FAIL, or nothing is there."""

    codes = "0 no check failed, 3 a check failed, or there is no RDMA device"
    examples = ("", "--skip ROCE-PFC-01 -v", "--facts hv1.json --policy new.yaml")
    more = (
        "Changes nothing. PASS is correct, WARN may be wrong or will be, FAIL\n"
        "is wrong, SKIP does not apply here or is unknown. Equal findings share\n"
        "one line, and so do rules that have nothing to do on this host."
    )

    skip: list[str]
    verbose: bool

    @classmethod
    def add_arguments(cls, parser: Parser) -> None:
        parser.add_argument(
            "--skip",
            metavar="ID",
            action="append",
            default=[],
            help="leave out a rule; may be given several times; ids: explain --list",
        )
        add_policy(parser)
        parser.add_argument(
            "-v",
            "--verbose",
            action="store_true",
            help="show every finding on its own line",
        )
        add_allow_none(parser, "RDMA device")
        add_facts(parser)

    def run(self, context: Context) -> int:
        output = context.output
        skipped = sorted({rule_of(text).id for text in self.skip})
        decided = load_decision(self, context, skipped)
        findings = _with_steps(decided)
        verdict, then = _verdict(decided, skipped), _next(decided, self)
        if output.for_people:
            _print(findings, output, verbose=self.verbose)
            output.text(verdict)
            output.next(then)
        else:
            output.document(
                "check",
                {
                    "hostname": decided.facts.hostname,
                    "policy": decided.source,
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


def _print(findings: Sequence[Finding], output: Output, *, verbose: bool) -> None:
    shown = findings if verbose else group_findings(findings)
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


def _verdict(decided: HostDecision, skipped: Sequence[str]) -> str:
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
