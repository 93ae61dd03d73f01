# SPDX-License-Identifier: GPL-2.0-or-later
"""partitions.conf: what is read, what is refused, and that nothing is lost."""

from __future__ import annotations

import sys

import pytest
from hypothesis import given
from support.host.partitions import EL_DEFAULT, SWALLOWED, VALID, definitions_of_files

from ovirt_rdma.host.fabric.decisions import remarks
from ovirt_rdma.host.fabric.partitions_conf import (
    Definition,
    Member,
    PartitionsProblem,
    mistakes_between,
    parse,
    render,
)


def read(text: str) -> tuple[Definition, ...]:
    return parse(text.encode("utf-8"), "partitions.conf")


def ids(text: str) -> list[str]:
    with pytest.raises(PartitionsProblem) as caught:
        read(text)
    return [mistake.sentence.id for mistake in caught.value.errors]


def test_a_definition_is_read_with_all_that_it_has():
    text = (
        "# the storage partition\n"
        "Default=0x7fff, ipoib, mtu=5 : ALL=full;\n"
        "storage = 0x8001, indx0, ipoib, mtu=5, rate=0x7, sl=1, scope=2, "
        "defmember=full :\n"
        "  0x2c90300fb1231, SELF=limited,\n"
        "  ALL_SWITCHES=both ; # and those\n"
    )
    assert read(text) == (
        Definition("Default", 0x7FFF, True, False, {"mtu": 5}, (_all(),)),
        Definition(
            "storage",
            1,
            True,
            True,
            {"mtu": 5, "rate": 7, "sl": 1},
            (
                Member("0x0002c90300fb1231", "full"),
                Member("SELF", "limited"),
                Member("ALL_SWITCHES", "both"),
            ),
        ),
    )


def _all() -> Member:
    return Member("ALL", "full")


@pytest.mark.parametrize("text", VALID)
def test_valid_files_are_read_and_written_again(text):
    definitions = read(text)
    assert definitions
    assert read(render(definitions)) == definitions


def test_the_file_of_el_is_valid():
    first, second = read(EL_DEFAULT)
    assert (first.pkey, first.ipoib, second.ipoib) == (0x7FFF, False, True)
    assert [group.mgid for group in second.groups][:2] == [
        "ff12:401b::ffff:ffff",
        "ff12:401b::1",
    ]


@pytest.mark.parametrize(("id", "text"), SWALLOWED)
def test_what_opensm_swallows_is_refused(id, text):
    assert id in ids(text)


def test_every_mistake_is_named_with_its_line():
    text = "a=0x1,mtu=9 : ALL;\n# fine\nb=0x0 :\n  A, 0x5=full;\nc=0x3 : ALL"
    with pytest.raises(PartitionsProblem) as caught:
        read(text)
    assert str(caught.value).splitlines() == [
        "partitions.conf:1: 'mtu=9' is not valid; allowed, once each: mtu=1 to 5, "
        "rate=2 to 24, scope=2, Q_Key=1 to 4294967295, TClass=1 to 255, sl=0 to 15, "
        "FlowLabel=0 to 1048575, ipoib, indx0, defmember=full|limited|both",
        "partitions.conf:3: '0x0' is not a P_Key; allowed: hex with 0x, 0x0001 to "
        "0xffff but not 0x8000",
        "partitions.conf:4: 'A' is not a member; allowed: ALL, ALL_CAS, "
        "ALL_SWITCHES, ALL_ROUTERS, SELF, or a GUID of up to 64 bits, such as "
        "0x0002c90300fb1231",
        "partitions.conf:5: the definition has no ; at its end",
    ]


@pytest.mark.parametrize(
    ("written", "meant"), [("mtu=4096", "mtu=5"), ("rate=40", "rate=7")]
)
def test_a_number_in_place_of_its_code_is_recognized(written, meant):
    with pytest.raises(PartitionsProblem, match="did you mean") as caught:
        read(f"Default=0x7fff,ipoib,{written} : ALL=full;")
    assert f"did you mean {meant}?" in str(caught.value)


@given(definitions_of_files())
def test_what_is_written_is_read_again(definitions):
    assert read(render(definitions)) == definitions


@given(definitions_of_files())
def test_no_line_reaches_the_limit_of_opensm(definitions):
    assert max(map(len, render(definitions).splitlines())) < 200


@pytest.mark.parametrize("digits", ["9" * 4301, "0x" + "f" * 4301])
def test_numbers_of_thousands_of_digits_are_mistakes(digits):
    assert "pkey-invalid" in ids(f"a={digits} : ALL;")
    assert "flag-invalid" in ids(f"a=0x8001, mtu={digits} : ALL;")


@pytest.mark.parametrize(("more", "right"), [(0, True), (1, False)])
def test_a_line_has_as_many_bytes_as_opensm_reads_at_once(more, right):
    """fgets() with 4096 bytes less two, the newline included (osm_prtn_config.c)."""
    line = "Default=0x7fff : ALL=full;"
    text = line + "#" * (4093 + more - len(line)) + "\n"
    assert (read(text) != ()) if right else (ids(text) == ["line-too-long"])


def _traced_lines(count: int) -> int:
    """Return how many lines of our code read a file with ``count`` members."""
    members = ", ".join(f"0x{n:016x}=full" for n in range(1, count + 1))
    lines = [line + "," for line in members.split(", ")]
    text = "a=0x8001 :\n" + "\n".join(lines)[:-1] + ";\n"
    seen = 0

    def tracer(frame, event, _):
        nonlocal seen
        seen += event == "line"
        return tracer

    sys.settrace(tracer)
    try:
        read(text)
    finally:
        sys.settrace(None)
    return seen


def test_twice_the_members_are_twice_the_work():
    # settrace does not see what C does: no list is searched for a member either.
    few, many = _traced_lines(300), _traced_lines(600)
    assert many < 2.1 * few


class _Counted(str):
    compared = 0

    def __eq__(self, other):
        _Counted.compared += 1
        return str.__eq__(self, other)

    __hash__ = str.__hash__


def test_members_are_compared_with_few_others():
    def compared(count):
        ports = (_Counted(f"0x{n:016x}") for n in range(1, count + 1))
        members = tuple(Member(port, "full") for port in ports)
        _Counted.compared = 0
        assert [*mistakes_between([Definition("a", 1, members=members)])] == []
        return _Counted.compared

    assert compared(400) <= 2.1 * compared(200)


@pytest.mark.parametrize(
    ("text", "ids"),
    [
        ("a=0x1 : ALL;", ["default-partition-undefined"]),
        ("Default=0x7fff : ALL=full;", ["default-partition-without-ipoib"]),
        ("Default=0x7fff,ipoib : ALL;", ["default-partition-limited"]),
        ("Default=0x7fff,ipoib : ALL, SELF=full;", ["default-partition-limited"]),
        ("Default=0x7fff,ipoib : ALL=full;\na=0x1,mtu=5 : 0x1;", []),
    ],
)
def test_a_default_partition_that_keeps_ports_apart_is_a_warning(text, ids):
    assert [one.id for one in remarks(read(text))] == ids
