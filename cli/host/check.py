# SPDX-License-Identifier: GPL-2.0-or-later
"""``check`` and ``explain``.

Findings for one screen: what is alike is put on one line. Pure.

A host with 32 ports gives 32 findings of one rule, and one without any gives two dozen
rules nothing to look at.

``explain``: what a rule looks at, why, what to do, and where that is from.

``check``: what is right and wrong on a host, and what fixes it.
"""

from __future__ import annotations

import dataclasses
import re
import shlex
from argparse import Namespace
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import replace

from ovirt_rdma.cli.host.decision import Decided, command, decided, rule_of
from ovirt_rdma.cli.host.main import PROGRAM
from ovirt_rdma.cli.output import Screen, count
from ovirt_rdma.host.decision import registry
from ovirt_rdma.host.errors import UsageProblem
from ovirt_rdma.host.rules.base import (
    FAIL,
    HOST,
    PASS,
    SKIP,
    VERDICTS,
    WARN,
    Finding,
    Rule,
)

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Optional

    Key = Callable[[Finding], Optional[Hashable]]
    Line = Callable[[Sequence[Finding]], Finding]

# So many that are alike stay apart; and so many are named where more are not.
APART = 3
NAMED = 8


def gathered(findings: Sequence[Finding]) -> list[Finding]:
    """Return ``findings`` in their order, several of which may have become one.

    Alike are rules that the whole host gives nothing to do, which come last; rules that
    were skipped for one reason; findings whose sentences differ in the subject only,
    bad ones too; and whatever else passed by one rule.
    """
    left = dict(enumerate(findings))
    lines: dict[int, Finding] = {}
    idle = [number for number, finding in left.items() if _is_idle(finding)]
    if len(idle) > 1:
        lines[len(findings)] = _idle([left.pop(number) for number in idle])
    for key, apart, line in _WAYS:
        groups: dict[Hashable, list[int]] = {}
        for number, finding in left.items():
            found = key(finding)
            if found is not None:
                groups.setdefault(found, []).append(number)
        for numbers in groups.values():
            if len(numbers) > apart:
                lines[numbers[0]] = line([left.pop(number) for number in numbers])
    lines.update(left)
    return [lines[number] for number in sorted(lines)]


def _is_idle(finding: Finding) -> bool:
    return finding.verdict == SKIP and finding.subject == HOST and not finding.fix


def _idle(group: Sequence[Finding]) -> Finding:
    rules = {finding.rule for finding in group}
    sentence = "not for this host, or not to be told on it; see -v"
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
        sentence=f"{first.sentence}; so it is with {_names(others)}",
    )


def _subjects(group: Sequence[Finding]) -> Finding:
    return replace(group[0], subject=_alike(group), sentence=f"{_names(group)}; see -v")


def _alike(group: Sequence[Finding]) -> str:
    return f"{len(group)} alike"


def _names(group: Sequence[Finding]) -> str:
    names = ", ".join(finding.subject for finding in group[:NAMED])
    more = len(group) - NAMED
    return f"{names} and {more} more" if more > 0 else names


_WAYS: tuple[tuple[Key, int, Line], ...] = (
    (_skipped_for, 1, _rules),
    (_but_for_subject, APART, _same),
    (_needs_nothing, APART, _subjects),
)


_INDENT = "  "


def explain(words: Namespace, screen: Screen) -> int:
    """Explain one rule, or list all."""
    if (words.id is None) != words.list:
        raise UsageProblem(
            "options-exclude-each-other",
            "say which rule, or --list, and not both",
            f"{PROGRAM} explain --list shows the ids",
        )
    if words.list:
        _list(screen)
        return 0
    rule = rule_of(words.id)
    if not screen.for_people:
        screen.document("rule", _document(rule))
        return 0
    screen.text(f"{rule.id}: {rule.title}")
    for title, text in (("what", rule.what), ("why", rule.why), ("fix", rule.fix)):
        screen.line()
        screen.line(title)
        for number, paragraph in enumerate(_paragraphs(text)):
            if number:
                screen.line()
            screen.text(paragraph, _INDENT)
    screen.line()
    screen.line("sources")
    for source in rule.sources:
        screen.text(" ".join(source.split()), _INDENT, "- ")
    return 0


def _list(screen: Screen) -> None:
    if not screen.for_people:
        listed = [{"id": rule.id, "title": rule.title} for rule in registry.RULES]
        screen.document("rules", {"rules": listed})
        return
    screen.table(("ID", "TITLE"), [(rule.id, rule.title) for rule in registry.RULES])


def _document(rule: Rule) -> dict[str, object]:
    return {
        "id": rule.id,
        "title": rule.title,
        "what": "\n\n".join(_paragraphs(rule.what)),
        "why": "\n\n".join(_paragraphs(rule.why)),
        "fix": "\n\n".join(_paragraphs(rule.fix)),
        "sources": [" ".join(source.split()) for source in rule.sources],
    }


def _paragraphs(text: str) -> list[str]:
    """Return the paragraphs of a text, which empty lines part, each on one line."""
    parts = re.split(r"\n[ \t]*\n", text)
    return [" ".join(part.split()) for part in parts if part.strip()]


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
