# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the arithmetic of what a byte costs, and its programs; the lab has the rest."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyperf", reason="make selftest has it")

from bench.byte_cost import section
from bench.byte_cost.build import build
from bench.byte_cost.cases import (
    CONNECTED,
    KIB,
    MIB,
    RDMA,
    RXE,
    TRANSPORTS,
    Case,
    Load,
    Mount,
    cases,
)
from bench.byte_cost.counts import (
    CORE,
    KERNEL,
    OTHER,
    UNNAMED,
    USER,
    USER_SPACE,
    Executed,
    Module,
    by_part,
    parse_counts,
    parse_modules,
    slopes,
    spread,
    total,
)
from bench.byte_cost.runs import Row
from bench.byte_cost.section import Cost, judged, recorded
from bench.report import broken_limits
from bench.rounds import BenchmarkFailed

pytestmark = pytest.mark.selftest

# /proc/modules of a guest, as root reads it.
MODULES = """\
rpcrdma 364544 1 - Live 0xffffffffc0512000
ib_fabric 114688 0 - Live 0xffffffffc070d000 (OE)
sunrpc 692224 41 rpcrdma,nfsd,nfs, Live 0xffffffffc031c000
"""
READ = Case(Mount(RDMA, "4.2"), Load("read", 64 * KIB))
HCA = Executed(900.0, 65536.0)


def slot(address: int) -> int:
    return (address - KERNEL) // 4096


def row(*instructions, copied=65536.0, case=READ, adapter=HCA):
    hosts = tuple(Executed(value, copied) for value in instructions)
    return Row(case, hosts, (adapter,) * len(hosts), 1, 16.1, 16.0, 48.0)


def test_modules_are_sorted_by_address():
    assert [module.name for module in parse_modules(MODULES)] == [
        "sunrpc",
        "rpcrdma",
        "ib_fabric",
    ]
    assert parse_modules(MODULES)[0] == Module("sunrpc", 0xFFFFFFFFC031C000, 692224)


def test_counts_between_marks():
    text = "3 100 7\n4 5 0\nmark\nmark\n3 1 2\nmark\n9 9 9\n"
    assert parse_counts(text) == [
        {3: Executed(100, 7), 4: Executed(5, 0)},
        {},
        {3: Executed(1, 2)},
    ]


@pytest.mark.parametrize("line", ["3 100", "3 100 x", "3 -1 0", "marks", "1 2 3 4"])
def test_a_torn_line_of_counts_is_told(line):
    with pytest.raises(ValueError, match="line 2 of the counts"):
        parse_counts(f"mark\n{line}\nmark\n")


@given(
    st.lists(
        st.dictionaries(
            st.integers(0, OTHER),
            st.builds(Executed, st.integers(0, 2**63), st.integers(0, 2**63)),
        )
    )
)
def test_counts_are_read_as_they_are_written(marks):
    text = "".join(
        "".join(f"{at} {one.instructions} {one.copied}\n" for at, one in each.items())
        + "mark\n"
        for each in marks
    )
    assert parse_counts(text) == marks


def test_a_page_belongs_to_its_module():
    first, last = 0xFFFFFFFFC0512000, 0xFFFFFFFFC0512000 + 364544 - 4096
    slots = {
        slot(first): Executed(1, 0),
        slot(last): Executed(2, 5),
        # Behind the module there is none.
        slot(last + 4096): Executed(4, 0),
        slot(0xFFFFFFFF81000000): Executed(8, 0),
        USER: Executed(16, 0),
        OTHER: Executed(32, 0),
    }
    assert by_part(slots, parse_modules(MODULES)) == {
        "rpcrdma": Executed(3, 5),
        UNNAMED: Executed(36, 0),
        CORE: Executed(8, 0),
        USER_SPACE: Executed(16, 0),
    }


def test_the_table_keeps_the_adapter_apart():
    case = Case(Mount(RDMA, "4.2", nconnect=4), Load("read", MIB, 8))
    adapter = Executed(MIB / 2, 2.0 * MIB)
    made = row(MIB * 3.0, copied=1.0 * MIB, case=case, adapter=adapter)
    (cells,) = section.table([made]).rows
    assert cells[:4] == (
        "RDMA on the fabric",
        "4.2",
        "1 (4 asked for)",
        "read 1 MiB, 8 at once",
    )
    assert cells[5:8] == ("3.00", "1.00", "0.50 + 2.00 copied")


def test_what_does_not_grow_with_the_operations_costs_nothing():
    # 1000 at the start, and 50 for each operation, of which the second run has 30.
    few = {"nfs": Executed(1000 + 10 * 50, 10 * 8), "sunrpc": Executed(7)}
    many = {"nfs": Executed(1000 + 30 * 50, 30 * 8), CORE: Executed(40)}
    (cost,) = slopes([few, many], 10)
    assert cost["nfs"] == Executed(50, 8)
    assert total(cost, ["nfs", CORE, "absent"]) == Executed(52, 8)


def test_the_spread_is_in_parts_of_the_median():
    assert spread([99.0, 100.0, 102.0]) == pytest.approx(0.03)
    assert spread([0.0, 0.0]) == 0.0


def test_every_row_has_a_name_of_its_own_and_the_short_table_is_in_the_whole():
    every, short = cases(every=True), cases(every=False)
    assert len({case.key for case in every}) == len(every)
    assert {case.key for case in short} < {case.key for case in every}
    assert {case.mount.transport for case in every} == set(TRANSPORTS)
    assert RXE not in {case.mount.transport for case in short}
    # Nothing sets datagram mode again.
    inside = [case.mount.transport for case in every if case.mount.transport is not RXE]
    assert inside[inside.index(CONNECTED) :] == [CONNECTED] * inside.count(CONNECTED)


def test_the_workers_of_a_load_have_equally_many_operations():
    for case in cases(every=True):
        assert case.load.operations % case.load.workers == 0


@pytest.mark.parametrize(
    ("instructions", "copied", "code"),
    [(103_000, 65_536, 0), (103_200, 65_536, 1), (90_000, 67_600, 1), (90_000, 0, 0)],
)
def test_an_operation_may_cost_3_percent_more_than_recorded(instructions, copied, code):
    known = {READ.key: Cost((90_000, 100_000, 95_000), (65_536,))}
    made = judged([row(float(instructions), copied=float(copied))], known)
    assert len(broken_limits([made])) == code
    assert all(READ.key in verdict.sentence for verdict in made.verdicts)


def test_every_row_has_a_limit_and_the_one_that_grew_most_is_named():
    small = Case(Mount(CONNECTED, "4.2"), Load("read", 4 * KIB))
    known = {small.key: Cost((100,), (1,)), READ.key: Cost((100,), (65_536,))}
    made = judged([row(104.0, copied=1.0, case=small), row(102.0)], known)
    (broken,) = broken_limits([made])
    assert small.key in broken


def test_an_operation_that_copies_nothing_is_no_division_by_zero():
    made = judged([row(5.0, copied=0.0)], {READ.key: Cost((5,), (0,))})
    assert broken_limits([made]) == []


def test_without_a_recorded_row_nothing_is_compared_and_the_section_says_so():
    made = judged([row(1.0)], {})
    assert made.verdicts == ()
    assert "--all --record" in made.left_out


def test_the_section_says_how_many_rows_are_steady():
    rows = [row(100.0, 101.0, 102.0), row(100.0, 101.0, 104.0)]
    assert "2% or less in 1 of 2 rows" in judged(rows, {}).text


def test_the_page_names_the_largest_spread_of_tcp():
    """It said 38 %, of a table that was recorded before."""
    most = max(
        spread(one.instructions)
        for name, one in recorded().items()
        if not name.startswith(("rdma", "rxe")) and " 4k " not in name
    )
    page = Path(__file__).parents[2] / "docs/byte-cost.md"
    assert f"eight at once within {most:.0%}".replace("%", " %") in page.read_text()


def test_what_is_recorded_is_read_again(tmp_path):
    file = tmp_path / "byte_cost.json"
    assert recorded(file) == {}
    rows = [row(10.0, 30.0, 20.0, copied=4.0)]
    file.write_text(section.document(rows, {"guests": "QEMU 7.2"}))
    assert recorded(file) == {READ.key: Cost((10, 30, 20), (4, 4, 4))}
    assert json.loads(file.read_text())["facts"] == {"guests": "QEMU 7.2"}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"rows": {"a": {"instructions": 3, "copied": [4]}}}',
        '{"rows": 3}',
    ],
)
def test_a_damaged_table_is_one_sentence(tmp_path, text):
    file = tmp_path / "byte_cost.json"
    file.write_text(text)
    with pytest.raises(BenchmarkFailed, match="is no recorded table"):
        recorded(file)


def test_the_load_moves_the_blocks_and_says_what_is_wrong(tmp_path):
    load = build(tmp_path).load
    file = tmp_path / "file"
    file.write_bytes(bytes(64 * KIB))
    done = subprocess.run(
        [load, file, "write", "4096", "8", "2", "1"], check=False, capture_output=True
    )
    if b"Invalid argument" not in done.stderr:  # a file system without O_DIRECT
        assert (done.returncode, done.stderr) == (0, b"")
        # 8 and 24 operations, from the beginning of the file.
        assert file.read_bytes()[: 24 * 4096] == b"x" * (24 * 4096)
    absent = [load, tmp_path / "absent", "read", "4096", "8", "1", "1"]
    done = subprocess.run(absent, check=False, capture_output=True)
    assert done.returncode == 1
    assert b"No such file" in done.stderr
