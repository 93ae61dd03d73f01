# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ovirt_rdma.cli.host.check import condensed, worst_first
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
        (many(FAIL, "* is down", "XYZ"), ["X is down", "Y is down", "Z is down"]),
        (
            many(FAIL, "* is down", "WXYZ", "plug *"),
            ["W is down; the same for X, Y, Z"],
        ),
        (
            many(WARN, "* is slow", "ABCDEFGHIJKL"),
            ["A is slow; the same for B, C, D, E, F, G, H, I and 3 more"],
        ),
        (mtu(WARN, "WXYZ"), ["MTU 0", "MTU 1", "MTU 2", "MTU 3"]),
        (mtu(FAIL, "WXYZ"), ["MTU 0", "MTU 1", "MTU 2", "MTU 3"]),
        # Separate from findings that differ, in their order.
        (
            [
                *many(WARN, "* is slow", "AB"),
                *many(FAIL, "* is down", "X"),
                *many(WARN, "* is slow", "CD"),
            ],
            ["X is down", "A is slow; the same for B, C, D"],
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
            [*many(WARN, "* is up", "AB"), *many(WARN, "* is up", "CD", rule="Q")],
            ["A is up", "B is up", "C is up", "D is up"],
        ),
        # All that passed, and all that was skipped, at the end.
        (
            [
                *many(PASS, "* is up", "A"),
                *many(SKIP, "no RoCE", "h", rule="Q"),
                *many(PASS, "* is good", "B", rule="Q"),
                *many(WARN, "* is slow", "C"),
                *many(SKIP, "unknown", "D", rule="Q"),
                *mtu(PASS, "WXYZ"),
            ],
            [
                "C is slow",
                "6 checks; see --all",
                "2 checks: not for this host, or something is unknown; see --all",
            ],
        ),
    ],
)
def test_lines(findings, lines):
    assert [finding.sentence for finding in condensed(findings)] == lines


def test_cells():
    (line,) = condensed(many(FAIL, "* is down", "WXYZ", "plug *"))
    assert (line.rule, line.subject, line.fix) == ("R", "4 alike", "plug W")
    (line,) = condensed([*many(PASS, "", "AB"), *many(PASS, "", "A", rule="Q")])
    assert (line.rule, line.subject, line.verdict) == ("2 rules", "host", PASS)


cells = st.sampled_from(["a", "b", "a b"])
some = st.lists(
    st.builds(Finding, cells, cells, st.sampled_from(VERDICTS), cells, cells),
    max_size=12,
)


@given(some)
def test_no_verdict_of_a_rule_gets_lost_and_the_worst_is_first(findings):
    lines = condensed(findings)
    verdicts = [line.verdict for line in lines]
    assert set(verdicts) == {one.verdict for one in findings}
    assert verdicts == sorted(verdicts, key=[FAIL, WARN, PASS, SKIP].index)
    named = {(one.rule, one.verdict) for one in lines}
    for one in findings:
        assert (one.rule, one.verdict) in named or one.verdict in (PASS, SKIP)
    for verdict in (PASS, SKIP):
        number = sum(one.verdict == verdict for one in findings)
        (*_, line) = [*(one for one in lines if one.verdict == verdict), None]
        assert line is None or line.sentence.split()[0] == str(number)


@given(some)
def test_all_findings_are_there_the_worst_first(findings):
    shown = worst_first(findings)
    assert sorted(shown, key=repr) == sorted(findings, key=repr)
    for verdict in VERDICTS:
        same = [one for one in findings if one.verdict == verdict]
        assert [one for one in shown if one.verdict == verdict] == same
    first = {one.verdict: at for at, one in reversed([*enumerate(shown)])}
    assert [*sorted(first, key=first.get)] == [v for v in VERDICTS if v in first]
