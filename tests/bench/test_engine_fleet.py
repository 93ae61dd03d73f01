# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the limits of the fleet, and its table.

The rival is Ansible's, which is not installed for tests.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyperf", reason="make selftest has it")

from bench import engine_fleet
from bench.engine_fleet import (
    BOTH,
    CHECK,
    HOSTS,
    RIVAL,
    VERIFY,
    Measured,
    Run,
    judged,
    memory_verdict,
    rival_verdict,
    time_verdict,
)

pytestmark = pytest.mark.selftest


def measured(check=2.0, verify=3.0, rival=10.0):
    one = Run(1.0, 7, 0.5)
    runs = {CHECK: check, VERIFY: verify, RIVAL: rival}
    rounds = {
        what: (replace(one, seconds=seconds),) * 3 for what, seconds in runs.items()
    }
    return Measured(rounds, {CHECK: 70_000_000, VERIFY: 60_000_000})


@pytest.mark.parametrize(
    ("seconds", "holds"), [({"check": 2.9}, True), ({"verify": 3.0}, False)]
)
def test_the_limit_of_time_is_held_by_each_verb(seconds, holds):
    assert time_verdict(measured(**{"verify": 2.9, **seconds})).holds == holds


@pytest.mark.parametrize(("rival", "holds"), [(10.0, True), (9.0, False)])
def test_both_verbs_together_are_held_against_the_rivals_best(rival, holds):
    verdict = rival_verdict(measured(rival=rival))
    assert verdict.holds == holds
    assert f"{rival / 5:.1f} times as fast" in verdict.sentence


@pytest.mark.parametrize(("megabytes", "holds"), [(79, True), (80, False)])
def test_the_limit_of_memory_is_held_by_the_larger_verb(megabytes, holds):
    memory = {CHECK: megabytes * 1_000_000, VERIFY: 1}
    verdict = memory_verdict(memory)
    assert verdict.holds == holds
    assert CHECK in verdict.sentence


def test_the_table_has_the_verbs_alone_and_together_and_the_rival():
    times, memory = judged("", measured()).tables
    rows = {row[0]: row[1:] for row in times.rows}
    assert list(rows) == [CHECK, VERIFY, BOTH, RIVAL]
    assert rows[BOTH][:2] == ("14", "5.00 s")
    expected = ("7", "10.0 s", "10.0 s", "10.0 s", "500 ms", "2.00")
    assert rows[RIVAL] == expected
    assert [row[1] for row in memory.rows] == ["70.0 MB", "60.0 MB"]
    assert str(HOSTS) in engine_fleet.TITLE
