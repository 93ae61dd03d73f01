# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.command_line import run_on_terminal
from support.host import sample_rules

from ovirt_rdma.host.decision.registry import RULES

EXPLAINED = """\
SAMPLE-TSO-01: TSO

what
  Looks at TSO.

why
  It matters. {long}

  A second paragraph.

fix
  Fix it.

sources
  - ip(8)
  - Linux include/rdma/ib_verbs.h
"""
LONG = " ".join(
    ["This sentence is so long that a terminal has to break its lines."] * 3
)


@pytest.mark.parametrize("rule_id", ["SAMPLE-TSO-01", "sample-tso-01"])
def test_a_rule(sampled, rule_id):
    result = sampled(*sample_rules.ALL)("explain", rule_id)
    assert (result.code, result.err) == (0, "")
    assert result.out == EXPLAINED.format(long=LONG)


def test_a_step_s_id_explains_its_rule(sampled):
    on_host = sampled(*sample_rules.ALL)
    assert on_host("explain", sample_rules.TSO.id).out == EXPLAINED.format(long=LONG)


def test_document(sampled):
    document = sampled(*sample_rules.ALL)(
        "explain", "SAMPLE-TSO-01", "-o", "json"
    ).document
    assert document == {
        "schema_version": 1,
        "kind": "rule",
        "id": "SAMPLE-TSO-01",
        "title": "TSO",
        "what": "Looks at TSO.",
        "why": f"It matters. {LONG}\n\nA second paragraph.",
        "fix": "Fix it.",
        "sources": ["ip(8)", "Linux include/rdma/ib_verbs.h"],
    }


def test_list(sampled):
    on_host = sampled(*sample_rules.ALL)
    assert on_host("explain", "--list").out == (
        "ID                TITLE\n"
        "SAMPLE-PORT-01    ports\n"
        "SAMPLE-MODE-01    transport mode\n"
        "SAMPLE-TSO-01     TSO\n"
        "SAMPLE-OPTION-01  module options\n"
    )
    listed = on_host("explain", "--list", "-o", "json").document["rules"]
    assert listed[1] == {"id": "SAMPLE-MODE-01", "title": "transport mode"}


@pytest.mark.parametrize("words", [[], ["--list", "SAMPLE-TSO-01"]])
def test_one_of_both(sampled, words):
    sampled(*sample_rules.ALL)("explain", *words).refused(
        2, "either the id of a rule or --list"
    )


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
