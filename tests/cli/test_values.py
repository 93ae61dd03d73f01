# SPDX-License-Identifier: GPL-2.0-or-later
"""Numbers and time spans on the command line."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from ovirt_rdma.cli.parser import number, time_span

_WRONG = argparse.ArgumentTypeError

# systemd.time(7)
UNITS = (
    *("", "ms", "msec", "s", "sec", "second", "seconds", "m", "min", "minute"),
    *("minutes", "h", "hr", "hour", "hours", "d", "day", "days"),
)
parts = st.builds(
    "{}{}{} ".format,
    st.one_of(st.integers(0, 99), st.sampled_from(["0.5", "1.25", "007", "10.0"])),
    st.sampled_from(["", " "]),
    st.sampled_from(UNITS),
)
spans = st.lists(parts, min_size=1, max_size=3).map("".join)


def seconds(text):
    """Return the seconds that we read; None if it is refused."""
    try:
        return time_span(0, 10**9, float)(text)
    except _WRONG:
        return None


def by_systemd(texts):
    """Return the seconds that systemd reads, in their order."""
    shown = subprocess.run(
        ["systemd-analyze", "timespan", "--", *texts],
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(us) / 1e6 for us in re.findall(r"s: ([0-9]+)$", shown.stdout, re.M)]


@pytest.mark.skipif(
    not shutil.which("systemd-analyze"), reason="systemd-analyze is not installed"
)
@settings(max_examples=5, deadline=None, phases=[Phase.generate])
@given(st.lists(spans, min_size=50, max_size=50))
def test_time_spans_are_those_of_systemd(texts):
    for text, expected in zip(texts, by_systemd(texts)):
        assert seconds(text) == pytest.approx(expected), text


@pytest.mark.parametrize(
    ("text", "expected"),
    [("90", 90.0), ("2min", 120.0), ("1h 30min", 5400.0), (" 1min30 ", 90.0)],
)
def test_time_spans(text, expected):
    assert seconds(text) == expected


@pytest.mark.parametrize(
    "text",
    ["", " ", "min", "-5", "+5", "5 x", "1.5.5", "1M", "1e3", "0x10", "5,5", "\u0665",
     "nan", "inf", "9" * 5000, "5" * 400 + "!"],
)  # fmt: skip
def test_what_is_no_time_span(text):
    assert seconds(text) is None


def test_the_limits_are_those_of_the_option():
    read = time_span(10, 86400, int)
    assert [read(text) for text in ("10", "1day", "10.9s")] == [10, 86400, 10]
    for text in ("9.9", "1day 1s"):
        with pytest.raises(_WRONG, match="is not 10 to 86400 seconds, as 90 or 1min"):
            read(text)


@pytest.mark.parametrize(
    "text", ["", "0", "101", "x", "-1", "+1", " 1", "1_0", "9" * 5000]
)
def test_what_is_no_number_in_its_range(text):
    with pytest.raises(_WRONG, match="is not a number from 1 to 100"):
        number(1, 100)(text)
    assert [number(1, 100)(text) for text in ("1", "100", "007")] == [1, 100, 7]
