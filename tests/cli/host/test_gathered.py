# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.cli.host.check import group_findings
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, VERDICTS, WARN, Finding


def many(verdict: str, sentence: str, subjects: str, fix: str = "", rule: str = "R"):
    """Return one finding per letter of ``subjects``, which replaces ``*`` in texts."""
    return [
        Finding(rule, s, verdict, sentence.replace("*", s), fix.replace("*", s))
        for s in subjects
    ]


def mtu(verdict: str, subjects: str):
    """Return findings whose sentences differ in more than the subject."""
    return [Finding("R", s, verdict, f"MTU {i}") for i, s in enumerate(subjects)]


@pytest.mark.parametrize(
    ("findings", "lines"),
    [
        ([], []),
        (many(PASS, "* is up", "XYZ"), ["X is up", "Y is up", "Z is up"]),
        (many(PASS, "* is up", "WXYZ"), ["W is up; the same for X, Y, Z"]),
        (
            many(FAIL, "* is down", "WXYZ", "plug *"),
            ["W is down; the same for X, Y, Z"],
        ),
        (
            many(WARN, "* is slow", "ABCDEFGHIJKL"),
            ["A is slow; the same for B, C, D, E, F, G, H, I and 3 more"],
        ),
        (mtu(PASS, "WXYZ"), ["W, X, Y, Z; run with -v"]),
        (mtu(SKIP, "WXYZ"), ["W, X, Y, Z; run with -v"]),
        (mtu(WARN, "WXYZ"), ["MTU 0", "MTU 1", "MTU 2", "MTU 3"]),
        (mtu(FAIL, "WXYZ"), ["MTU 0", "MTU 1", "MTU 2", "MTU 3"]),
        # Separate from findings that differ, in their order.
        (
            [
                *many(PASS, "* is up", "AB"),
                *many(FAIL, "* is down", "X"),
                *many(PASS, "* is up", "CD"),
            ],
            ["A is up; the same for B, C, D", "X is down"],
        ),
        (
            [*many(FAIL, "* is down", "AB"), *many(WARN, "* is down", "CD")],
            ["A is down", "B is down", "C is down", "D is down"],
        ),
        (
            [*many(FAIL, "bad", "AB", "this"), *many(FAIL, "bad", "CD", "that")],
            ["bad", "bad", "bad", "bad"],
        ),
        (
            [*many(PASS, "* is up", "AB"), *many(PASS, "* is up", "CD", rule="Q")],
            ["A is up", "B is up", "C is up", "D is up"],
        ),
        # Rules that were skipped for the same reason.
        (
            [
                *many(SKIP, "no RoCE", "h", rule="A"),
                *many(SKIP, "no policy", "h", rule="B"),
                *many(SKIP, "no RoCE", "h", rule="C"),
            ],
            ["no RoCE: A, C", "no policy"],
        ),
        (
            [
                *many(WARN, "no RoCE", "h", rule="A"),
                *many(WARN, "no RoCE", "h", rule="C"),
            ],
            ["no RoCE", "no RoCE"],
        ),
    ],
)
def test_lines(findings, lines):
    assert [finding.sentence for finding in group_findings(findings)] == lines


def test_rules_that_a_host_gives_nothing_to_do_are_one_line_at_the_end():
    idle = [Finding(rule, "host", SKIP, f"no {rule}") for rule in "ABC"]
    with_fix = Finding("D", "host", SKIP, "not known", "look here")
    ports = many(SKIP, "* is not needed", "XY", rule="E")
    good = many(PASS, "* is up", "Z")
    lines = group_findings([*idle[:2], with_fix, *ports, idle[2], *good])
    assert lines[:-1] == [with_fix, *ports, *good]
    last = lines[-1]
    assert (last.rule, last.subject, last.verdict) == ("3 rules", "host", SKIP)
    assert "run with -v" in last.sentence
    assert group_findings(idle[:1]) == idle[:1]


def test_cells():
    (line,) = group_findings(many(FAIL, "* is down", "WXYZ", "plug *"))
    assert (line.rule, line.subject, line.fix) == ("R", "4 alike", "plug W")
    skipped = [Finding(rule, "h", SKIP, "no RoCE") for rule in "AB"]
    (line,) = group_findings(skipped)
    assert (line.rule, line.subject) == ("2 rules", "h")
    skipped = [Finding("A", "h", SKIP, "no RoCE"), Finding("B", "x", SKIP, "no RoCE")]
    (line,) = group_findings(skipped)
    assert line.subject == "2 alike"


cells = st.sampled_from(["a", "b", "a b"])
some = st.lists(
    st.builds(Finding, cells, cells, st.sampled_from(VERDICTS), cells, cells),
    max_size=12,
)


@given(some)
def test_no_verdict_of_a_rule_gets_lost(findings):
    lines = group_findings(findings)
    assert {line.verdict for line in lines} == {one.verdict for one in findings}
    told = {(one.rule, one.verdict) for one in lines}
    for one in findings:
        assert (one.rule, one.verdict) in told or one.verdict == SKIP
