# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the limits of the report."""

from __future__ import annotations

import pytest

pytest.importorskip("pyperf", reason="make selftest has it")

from bench.engine_report import SIZES, Measured, judged
from bench.spread import Spread

pytestmark = pytest.mark.selftest


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
