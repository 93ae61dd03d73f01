# SPDX-License-Identifier: GPL-2.0-or-later
"""Findings for one screen: what is alike is put on one line. Pure.

A host with 32 ports gives 32 findings of one rule, and one without any gives two dozen
rules nothing to look at.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import replace

from ovirt_rdma.cli.screen import count
from ovirt_rdma.host.rules.absence import HOST
from ovirt_rdma.host.rules.rule import PASS, SKIP, Finding

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
