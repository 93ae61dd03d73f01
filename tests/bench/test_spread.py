# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest

from bench.spread import Spread, Timing, duration, times

pytestmark = pytest.mark.selftest


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (126.04, "126 s"),
        (12.55, "12.6 s"),
        (1.0, "1.00 s"),
        (0.99996, "1.00 s"),
        (0.9994, "999 ms"),
        (0.0123, "12.3 ms"),
        (4.567e-6, "4.57 µs"),
        (9.996e-6, "10.0 µs"),
        (52e-9, "52.0 ns"),
        (0.3e-9, "0.30 ns"),
    ],
)
def test_durations_have_three_digits_and_a_unit(seconds, shown):
    assert duration(seconds) == shown


def test_no_value_is_left_out_of_the_spread():
    spread = Timing(((1.0, 2.0), (3.0, 100.0))).spread
    assert (spread.smallest, spread.median, spread.largest) == (1.0, 2.5, 100.0)


def test_ratios_are_made_within_a_round():
    # The machine was half as fast in the second round, for both.
    ours, rival = Timing(((3.0, 3.0), (6.0, 6.0))), Timing(((1.0, 1.0), (2.0, 2.0)))
    assert ours.ratio(rival).values == (3.0, 3.0)


def test_rounds_that_do_not_belong_together_are_refused():
    with pytest.raises(ValueError, match="shorter"):
        Timing(((1.0,), (2.0,))).ratio(Timing(((1.0,),)))


def test_a_ratio_shows_its_spread_where_it_has_one():
    assert times(Spread((2.0, 2.1, 2.6))) == "2.10 (2.00 to 2.60)"
    assert times(Spread((1.0, 1.0))) == "1.00"
