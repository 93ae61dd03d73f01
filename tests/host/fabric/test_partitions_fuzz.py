# SPDX-License-Identifier: GPL-2.0-or-later
"""Any bytes as partitions.conf: definitions that can be written again, or mistakes."""

from __future__ import annotations

import contextlib

from hypothesis import given
from hypothesis import strategies as st
from support.host.partitions import SWALLOWED, VALID

from ovirt_rdma.host.fabric.partitions_conf import PartitionsProblem, parse, render

_TEXTS = [text for _, text in SWALLOWED] + VALID
# What the grammar knows, and what it does not.
PIECES = st.sampled_from(
    [
        *("a", "Default", "=", "0x1", "0x7fff", "0x8001", ",", ":", ";", "\n", "\t"),
        *("ipoib", "indx0", "mtu=5", "rate=7", "sl=1", "scope=2", "defmember=full"),
        *("ALL", "SELF", "=full", "=limited", "0x100001", "mgid=ff12::1", "#", " "),
        *("mgid=ff12:401b::1", "Q_Key=0xb1b", "TClass=1", "FlowLabel=0", "\0", "\r"),
    ]
)
MADE = st.lists(PIECES, max_size=30).map("".join)


@st.composite
def damaged(draw):
    """Return a known file with a piece in the place of a part of it."""
    text = draw(st.sampled_from(_TEXTS))
    start = draw(st.integers(0, len(text)))
    return text[:start] + draw(PIECES) + text[start + draw(st.integers(0, 5)) :]


@given(MADE | damaged())
def test_a_text_is_read_completely_or_refused(text):
    with contextlib.suppress(PartitionsProblem):
        definitions = parse(text.encode(), "p.conf")
        assert parse(render(definitions).encode(), "p.conf") == definitions


@given(st.binary(max_size=200))
def test_bytes_are_read_or_refused(data):
    with contextlib.suppress(PartitionsProblem):
        assert parse(data, "p.conf")


@given(MADE | damaged())
def test_each_mistake_has_a_line_of_the_file_and_one_line_of_text(text):
    try:
        parse(text.encode(), "p.conf")
    except PartitionsProblem as problem:
        lines = text.count("\n") + 1
        assert all(0 <= (one.line or 0) <= lines for one in problem.errors)
        assert str(problem).count("\n") == len(problem.errors) - 1
