# SPDX-License-Identifier: GPL-2.0-or-later
"""Each rule has its page, which ``explain`` shows, and docs/rules.md lists all.

WRITE_GOLDEN=1 writes that list.
"""

import os
import re
from pathlib import Path

import pytest

from ovirt_rdma.cli.host.check import read_page, rule_of
from ovirt_rdma.host.rules import registry

RULES = (*registry.RULES, *registry.SERVER_RULES)

INDEX = Path(__file__).parents[2] / "docs" / "rules.md"
MARK = "\n## All rules\n\n"
PAGES = INDEX.parent / "rules"


def test_the_index_has_all_rules_in_their_order():
    text, mark, listed = INDEX.read_text().partition(MARK)
    assert mark
    lines = ["| id | title |", "|---|---|"]
    for rule in RULES:
        lines.append(
            f"| [{rule.id}](rules/{rule.id}.md) | {read_page(rule.id).title} |"
        )
    wanted = "\n".join(lines) + "\n"
    if os.environ.get("WRITE_GOLDEN"):
        INDEX.write_text(text + MARK + wanted)
        listed = wanted
    assert listed == wanted
    assert {page.stem for page in PAGES.iterdir()} == {rule.id for rule in RULES}


def test_the_pages_name_no_rule_that_is_not_there():
    known = {rule.id for rule in RULES}
    for page in (INDEX, *PAGES.iterdir()):
        named = re.findall(r"\b[A-Z0-9]+(?:-[A-Z0-9]+)*-0\d\b", page.read_text())
        assert set(named) <= known, page.name


@pytest.mark.parametrize("rule", RULES, ids=[rule.id for rule in RULES])
def test_each_page_has_whole_sentences(rule):
    page = read_page(rule.id)
    assert re.fullmatch(r"[A-Z0-9]+(-[A-Z0-9]+)?-\d\d", rule.id)
    assert page.title and not page.title.endswith(".")
    for paragraphs in (page.what, page.why, page.fix):
        assert paragraphs
        for text in paragraphs:
            assert text.endswith(".")
            assert text == " ".join(text.split())
    assert page.sources
    assert not any(source.endswith(".") for source in page.sources)
    assert rule_of(rule.id.lower()) is rule
