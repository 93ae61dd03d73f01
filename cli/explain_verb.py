# SPDX-License-Identifier: GPL-2.0-or-later
"""``explain``: what a rule looks at, why, what to do, and where that is from."""

from __future__ import annotations

import re
from argparse import Namespace

from ovirt_rdma.cli.decided import rule_of
from ovirt_rdma.cli.host_words import PROGRAM
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.host.problem import UsageProblem
from ovirt_rdma.host.rules import table
from ovirt_rdma.host.rules.rule import Rule

_INDENT = "  "


def explain(words: Namespace, screen: Screen) -> int:
    """Explain one rule, or list all."""
    if (words.id is None) != words.list:
        raise UsageProblem(
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
        listed = [{"id": rule.id, "title": rule.title} for rule in table.RULES]
        screen.document("rules", {"rules": listed})
        return
    screen.table(("ID", "TITLE"), [(rule.id, rule.title) for rule in table.RULES])


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
