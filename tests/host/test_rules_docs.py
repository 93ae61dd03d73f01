# SPDX-License-Identifier: GPL-2.0-or-later
"""docs/rules.md has every rule, with the text of ``explain``.

WRITE_GOLDEN=1 writes the generated part of it.
"""

import os
import re
from pathlib import Path

from ovirt_rdma.host.decision.registry import RULES
from ovirt_rdma.host.rules.base import Rule

PAGE = Path(__file__).parents[2] / "docs" / "rules.md"
MARK = (
    "<!-- From here on made from host/rules/: see tests/host/test_rules_docs.py. -->\n"
)


def test_the_page_has_all_rules_as_explain_tells_them():
    own, mark, made = PAGE.read_text().partition(MARK)
    assert mark
    wanted = "\n" + "\n\n".join([_index(), *map(_chapter, RULES)]) + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        PAGE.write_text(own + MARK + wanted)
        made = wanted
    assert made == wanted


def test_the_page_names_no_rule_that_is_not_there():
    known = {rule.id for rule in RULES}
    assert (
        set(re.findall(r"\b[A-Z0-9]+(?:-[A-Z0-9]+)*-0\d\b", PAGE.read_text())) <= known
    )


def _index() -> str:
    lines = ["| id | title |", "|---|---|"]
    lines += [f"| [{rule.id}](#{rule.id.lower()}) | {rule.title} |" for rule in RULES]
    return "\n".join(lines)


def _chapter(rule: Rule) -> str:
    parts = [f"## {rule.id}", _text(f"{rule.title[0].upper()}{rule.title[1:]}.")]
    for name, text in (("What", rule.what), ("Why", rule.why), ("Fix", rule.fix)):
        first, *more = re.split(r"\n[ \t]*\n", text)
        parts += [f"**{name}.** {_text(first)}", *map(_text, more)]
    parts.append("\n".join(["Sources:", "", *(f"- {_text(s)}" for s in rule.sources)]))
    return "\n\n".join(parts)


def _text(text: str) -> str:
    """Return a paragraph on one line, with Markdown's characters escaped."""
    return re.sub(r"([<*`|])", r"\\\1", " ".join(text.split()))
