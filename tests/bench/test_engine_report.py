# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that the report is measured as its table shows, on two hosts."""

from __future__ import annotations

import pytest

pytest.importorskip("pyperf", reason="make selftest has it")

from bench.engine_report import SIZES, Measured, judged, write_results
from bench.engine_runs import PAGE, REPORT, memory_of, run_verb, served
from bench.rounds import BenchmarkFailed
from bench.spread import Spread

pytestmark = pytest.mark.selftest


@pytest.fixture(scope="module")
def two_hosts():
    with served(2, 0.0, 8) as engine:
        yield engine


def test_a_page_of_hosts_that_are_well_is_written(two_hosts):
    run = run_verb(two_hosts, REPORT)
    assert run.seconds > 0
    text = (two_hosts.folder / PAGE).read_text("utf-8")
    assert "data8" in text
    assert 20e6 < memory_of(two_hosts, REPORT) < 150e6


def test_results_of_bench_are_drawn(two_hosts):
    write_results(two_hosts)
    run = run_verb(two_hosts, REPORT)
    assert run.cpu_s > 0
    assert (two_hosts.folder / PAGE).read_text("utf-8").count("</article>") == 2


def test_a_host_that_is_not_well_is_told(two_hosts):
    dump = two_hosts.folder / "host02.facts.json"
    text = dump.read_text()
    dump.write_text("{")
    try:
        with pytest.raises(BenchmarkFailed, match=r"`report` failed \(0\)"):
            run_verb(two_hosts, REPORT)
    finally:
        dump.write_text(text)


@pytest.mark.parametrize(
    ("change", "holds"),
    [
        ({}, [True, True, True]),
        ({"seconds": Spread((1.0, 3.0))}, [False, True, True]),
        ({"page": 1_500_000}, [True, False, True]),
        ({"memory": 200_000_000}, [True, True, False]),
    ],
)
def test_the_limits_are_those_of_the_largest(change, holds):
    words = {"seconds": Spread((1.0, 2.9)), "cpu_s": Spread((1.0, 9.0))}
    words |= {"page": 300_000, "memory": 90_000_000}
    small = Measured(SIZES[0], Spread((9.0,)), Spread((8.0,)), 9_000_000, 900_000_000)
    section = judged([small, Measured(SIZES[-1], **{**words, **change})])
    assert [verdict.holds for verdict in section.verdicts] == holds
    assert [row[0] for row in section.tables[0].rows] == ["3", "250"]
    assert [[bar[0] for bar in chart.bars] for chart in section.charts] == [
        [3, 250]
    ] * 2
