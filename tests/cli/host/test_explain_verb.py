# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.command_line import run_on_terminal
from support.host import sample_rules

from ovirt_rdma.cli.host import check
from ovirt_rdma.host.rules.registry import RULES, SERVER_RULES

LONG = " ".join(
    ["This sentence is so long that a terminal has to break its lines."] * 3
)
PAGE = f"""\
<!-- SPDX-License-Identifier: GPL-2.0-or-later -->
# SAMPLE-TSO-01: TSO

## What

Looks at \\`TSO\\`.

## Why

It matters. {LONG}

A second paragraph.

## Fix

Fix it.

## Sources

- ip(8)
- Linux - include/rdma/ib_verbs.h
"""
EXPLAINED = f"""\
SAMPLE-TSO-01: TSO

what
  Looks at `TSO`.

why
  It matters. {LONG}

  A second paragraph.

fix
  Fix it.

sources
  - ip(8)
  - Linux - include/rdma/ib_verbs.h
"""


@pytest.fixture
def on_host(sampled, tmp_path, monkeypatch):
    """A host with the sample rules, of which one has a page."""
    monkeypatch.setattr(check, "FOLDERS", (tmp_path / "none", tmp_path))
    (tmp_path / "SAMPLE-TSO-01.md").write_text(PAGE)
    return sampled(*sample_rules.ALL)


@pytest.mark.parametrize(
    "rule_id", ["SAMPLE-TSO-01", "sample-tso-01", sample_rules.TSO.id]
)
def test_a_rule_and_a_step_of_it(on_host, rule_id):
    result = on_host("explain", rule_id)
    assert (result.code, result.err) == (0, "")
    assert result.out == EXPLAINED


def test_document(on_host):
    assert on_host("explain", "SAMPLE-TSO-01", "-o", "json").document == {
        "schema_version": 1,
        "kind": "rule",
        "id": "SAMPLE-TSO-01",
        "title": "TSO",
        "what": "Looks at `TSO`.",
        "why": f"It matters. {LONG}\n\nA second paragraph.",
        "fix": "Fix it.",
        "sources": ["ip(8)", "Linux - include/rdma/ib_verbs.h"],
    }


@pytest.mark.parametrize("text", [None, "no page\n", PAGE + "\n## More\n", b"\xff"])
def test_a_page_that_is_missing_or_odd(on_host, tmp_path, text):
    path = tmp_path / "SAMPLE-TSO-01.md"
    path.unlink()
    if text is not None:
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
    on_host("explain", "SAMPLE-TSO-01").refused(
        1, f"the text of SAMPLE-TSO-01, {path}, cannot be read", "fix: install"
    )


def test_list(call):
    lines = call("explain", "--list").out.splitlines()
    assert lines[0].split() == ["ID", "TITLE"]
    assert [line.split()[0] for line in lines[1:]] == [
        rule.id for rule in (*RULES, *SERVER_RULES)
    ]
    assert "IPOIB-MODE-01       IPoIB transport mode" in lines
    listed = call("explain", "--list", "-o", "json").document["rules"]
    assert {"id": "IPOIB-MODE-01", "title": "IPoIB transport mode"} in listed
    assert len(listed) == len(RULES) + len(SERVER_RULES)


@pytest.mark.parametrize(
    ("rule_id", "hint"),
    [
        ("SAMPLE-MODE-1", "did you mean SAMPLE-MODE-01"),
        ("Q", "fix: list all ids: ovirt-rdma-host explain --list"),
        ("", "there is no rule ''"),
    ],
)
def test_a_rule_that_is_not_there(sampled, rule_id, hint):
    sampled(*sample_rules.ALL)("explain", rule_id).refused(2, "there is no rule", hint)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.id)
def test_every_rule_is_explained(call, rule):
    shown = call("explain", rule.id)
    assert (shown.code, shown.err) == (0, "")
    for title in ("what", "why", "fix", "sources"):
        _, _, text = shown.out.partition(f"\n{title}\n  ")
        assert text[:1].strip(), title


def test_a_terminal_folds_the_text_and_breaks_no_line():
    for rule in RULES[:1]:
        shown = run_on_terminal("explain", rule.id)
        assert max(map(len, shown.splitlines())) <= 80
        assert shown.split() == run_on_terminal("explain", rule.id, columns=400).split()
