# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers and time spans on the command line."""

from __future__ import annotations

import argparse

import pytest

from ovirt_rdma.cli.parser import number, time_span

_WRONG = argparse.ArgumentTypeError


def seconds(text):
    """Return the seconds that we read; None if it is refused."""
    try:
        return time_span(0, 10**9, float)(text)
    except _WRONG:
        return None


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90.0), ("90s", 90.0), ("2min", 120.0), ("1.5h", 5400.0), ("0.1", 0.1)],
)
def test_time_spans(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", "min", "-5", "+5", "5 x", "1.5.5", "1M", "1e3", "0x10", "5,5", "\u0665",
     "nan", "inf", "1h 30min", "9" * 5000, "5" * 400 + "!"],
)  # fmt: skip
def test_what_is_no_time_span(text):
    assert seconds(text) is None


def test_the_limits_are_those_of_the_option():
    read = time_span(10, 86400, int)
    assert [read(text) for text in ("10", "24h", "10.9s")] == [10, 86400, 10]
    for text in ("9.9", "24.1h"):
        with pytest.raises(_WRONG, match="is not 10 to 86400 seconds, as 90 or 2min"):
            read(text)


@pytest.mark.parametrize(
    "text", ["", "0", "101", "x", "-1", "+1", " 1", "1_0", "9" * 5000]
)
def test_what_is_no_number_in_its_range(text):
    with pytest.raises(_WRONG, match="is not a number from 1 to 100"):
        number(1, 100)(text)
    assert [number(1, 100)(text) for text in ("1", "100", "007")] == [1, 100, 7]
