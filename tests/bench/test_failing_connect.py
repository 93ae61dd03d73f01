# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from bench.failing_connect import (
    DEAD,
    OURS,
    SERVERS,
    WITHOUT_LISTENER,
    Stock,
    judged,
    skipped,
)
from bench.spread import Spread

pytestmark = pytest.mark.selftest


def ours(seconds):
    """Return the measurements if every call took ``seconds``."""
    return {(server, n): Spread((seconds,)) for server in SERVERS for n in OURS}


def test_stock_goes_on_in_a_straight_line_until_the_engine_gives_up():
    stock = Stock(one=126.0, two=252.5)
    assert stock.extrapolated(1) == 126.0
    assert stock.extrapolated(20) == pytest.approx(126.0 + 19 * 126.5)
    assert stock.until_the_engine_ends_it(20) == 180.0
    assert Stock(one=2.0, two=4.0).until_the_engine_ends_it(20) == 40.0
    # The second run ended earlier by chance; that does not make it faster.
    assert Stock(one=121.0, two=110.0).until_the_engine_ends_it(20) == 121.0


@pytest.mark.parametrize(("seconds", "holds"), [(9.9, True), (10.1, False)])
def test_twenty_exports_are_to_fail_18_times_quicker_than_stock(seconds, holds):
    stock = {server: Stock(126.0, 252.0) for server in SERVERS}
    section = judged(ours(seconds), stock)
    assert [verdict.holds for verdict in section.verdicts] == [holds, holds]
    assert "promised: at least 18 times" in section.verdicts[0].sentence
    (table,) = section.tables
    (row,) = (r for r in table.rows if r[:3] == (DEAD.what, "stock", "20"))
    assert row[-1] == "extrapolated: 2520 s, cut by the engine"
    assert row[3] == "180 s"


def test_an_end_before_the_engines_is_not_called_cut():
    stock = {WITHOUT_LISTENER: Stock(1.0, 2.0), DEAD: Stock(1.0, 2.0)}
    (table,) = judged(ours(1.0), stock).tables
    assert [row[-1] for row in table.rows if row[1:3] == ("stock", "20")] == [
        "extrapolated: 20 s",
        "extrapolated: 20 s",
    ]


def test_without_a_rival_no_ratio_is_claimed():
    section = judged(ours(3.0), {})
    assert section.verdicts == ()
    assert "VDSM_SOURCE" in section.left_out
    assert {row[1] for row in section.tables[0].rows} == {"ours"}


def test_the_text_says_which_vdsm_it_was():
    double = "this project's double of VDSM's storage code in an emulated guest"
    assert double in judged(ours(3.0), {}).text
    stock = {server: Stock(126.0, 252.0) for server in SERVERS}
    assert "double" not in judged(ours(3.0), stock).text
    assert "VDSM's storage code in an emulated guest" in judged(ours(3.0), stock).text


def test_without_the_lab_nothing_is_claimed():
    assert skipped().tables == ()
    assert "--without-lab" in skipped().left_out
