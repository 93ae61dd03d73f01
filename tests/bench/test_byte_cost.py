# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the arithmetic of what a byte costs, and its programs; the lab has the rest."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("pyperf", reason="make selftest has it")

from bench.byte_cost import section
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

pytestmark = pytest.mark.selftest

READ = Case(Mount(RDMA, "4.2"), Load("read", 64 * KIB))
HCA = Executed(900.0, 65536.0)


def row(*instructions, copied=65536.0, case=READ, adapter=HCA):
    hosts = tuple(Executed(value, copied) for value in instructions)
    return Row(case, hosts, (adapter,) * len(hosts), 1, 16.1, 16.0, 48.0)


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
    text = (
        "rpcrdma 364544 1 - Live 0xffffffffc0512000\n"
        "sunrpc 8 1 - Live 0xffffffffc031c000\n"
    )
    first = (0xFFFFFFFFC0512000 - KERNEL) // 4096
    last = first + 364544 // 4096 - 1
    # Behind the module there is none; then the kernel, user space, and the rest.
    core = (0xFFFFFFFF81000000 - KERNEL) // 4096
    counts = {first: 1, last: 2, last + 1: 4, core: 8, USER: 16, OTHER: 32}
    slots = {slot: Executed(n, 0) for slot, n in counts.items()}
    parts = {"rpcrdma": 3, UNNAMED: 36, CORE: 8, USER_SPACE: 16}
    assert by_part(slots, parse_modules(text)) == {
        name: Executed(n, 0) for name, n in parts.items()
    }


def test_the_table_keeps_the_adapter_apart():
    case = Case(Mount(RDMA, "4.2", nconnect=4), Load("read", MIB, 8))
    adapter = Executed(MIB / 2, 2.0 * MIB)
    made = row(MIB * 3.0, copied=1.0 * MIB, case=case, adapter=adapter)
    (cells,) = section.table([made]).rows
    assert cells[2:4] == ("1 (4 asked for)", "read 1 MiB, 8 at once")
    assert cells[5:8] == ("3.00", "1.00", "0.50 + 2.00 copied")


def test_what_does_not_grow_with_the_operations_costs_nothing():
    # 1000 at the start, and 50 for each operation, of which the second run has 30.
    few = {"nfs": Executed(1000 + 10 * 50, 10 * 8), "sunrpc": Executed(7)}
    many = {"nfs": Executed(1000 + 30 * 50, 30 * 8), CORE: Executed(40)}
    (cost,) = slopes([few, many], 10)
    assert cost["nfs"] == Executed(50, 8)
    assert total(cost, ["nfs", CORE, "absent"]) == Executed(52, 8)


def test_every_row_has_a_name_of_its_own_and_the_short_table_is_in_the_whole():
    every, short = cases(every=True), cases(every=False)
    assert len({case.key for case in every}) == len(every)
    assert {case.key for case in short} < {case.key for case in every}
    assert {case.mount.transport for case in every} == set(TRANSPORTS)
    assert RXE not in {case.mount.transport for case in short}
    # Nothing sets datagram mode again.
    inside = [case.mount.transport for case in every if case.mount.transport is not RXE]
    assert inside[inside.index(CONNECTED) :] == [CONNECTED] * inside.count(CONNECTED)


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


def test_without_a_recorded_row_nothing_is_compared_and_the_section_says_so():
    made = judged([row(1.0)], {})
    assert made.verdicts == ()
    assert "--all --record" in made.left_out


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
