# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from bench.report import (
    Chart,
    Section,
    Table,
    Verdict,
    broken_limits,
    chart_lines,
    document,
    markdown,
    table_lines,
)

pytestmark = pytest.mark.selftest

TABLE = Table(("who", "median"), (("ours", "3.40 s"), ("stock VDSM", "126 s")))


def test_tables_align_as_plain_text():
    assert list(table_lines(TABLE)) == [
        "| who        | median |",
        "| ---------- | -----: |",
        "| ours       | 3.40 s |",
        "| stock VDSM |  126 s |",
    ]


CHART = Chart.of_seconds("hosts", {3: 0.5, 50: 1.0, 250: 2.0})


def test_bars_are_as_long_as_values():
    assert list(chart_lines(CHART)) == [
        "hosts   median time",
        f"    3 | {'#' * 15} 500 ms",
        f"   50 | {'#' * 30} 1.00 s",
        f"  250 | {'#' * 60} 2.00 s",
    ]


def test_a_value_of_nothing_has_a_bar_too():
    assert list(chart_lines(Chart("n", "x", ((1, 0.0, "0"),))))[1] == "1 | # 0"


def test_charts_are_in_the_section():
    said = markdown(Section("Rivals", "How.", (TABLE,), charts=(CHART,)))
    assert "\n\n```text\nhosts   median time\n" in said
    assert said.endswith(" 2.00 s\n```\n")


def test_the_layout_depends_on_what_was_found_only():
    facts = [("CPU", "some"), ("VDSM", "v4.50.5.1")]
    section = Section("Rivals", "How\n    it was.", (TABLE,))
    text = document(facts, [section])
    assert text == document(facts, [section])
    assert text.startswith("<!-- SPDX-License-Identifier: GPL-2.0-or-later -->\n")
    assert "| VDSM | v4.50.5.1 |\n\n## Rivals\n\nHow it was.\n\n| who " in text
    assert text.endswith("126 s |\n")


def test_a_section_says_what_was_left_out():
    said = markdown(Section("Rivals", "How.", left_out="the rival."))
    assert said == "## Rivals\n\nHow.\n\n**Left out:** the rival.\n"


def test_verdicts_say_whether_they_hold():
    verdicts = (Verdict(True, "fast."), Verdict(False, "slow."))
    said = markdown(Section("Rivals", "How.", (TABLE,), verdicts, left_out="one."))
    for line in ("Limit holds:** fast.", "Limit broken:** slow.", "Left out:** one."):
        assert f"\n**{line}\n" in said


def test_broken_limits_are_found_in_all_sections():
    good = Section("A", "", verdicts=(Verdict(True, "fast."),))
    bad = Section("B", "", verdicts=(Verdict(False, "slow."),))
    assert broken_limits([good]) == []
    assert broken_limits([good, bad, good]) == ["slow."]
