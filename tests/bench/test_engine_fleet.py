# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that the fleet's programs do what its table shows, on two hosts.

The rival is Ansible's, which is not installed for tests.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

pytest.importorskip("pyperf", reason="make selftest has it")

from bench import engine_fleet, engine_runs
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
from bench.engine_runs import memory_of, run_verb, served
from bench.rounds import BenchmarkFailed

pytestmark = pytest.mark.selftest


@pytest.fixture(scope="module")
def two_hosts():
    with served(2, 0.0) as engine:
        yield engine


# One process each, with the SDK: half a second.
@pytest.mark.parametrize("verb", [CHECK, VERIFY])
def test_a_verb_is_run_on_hosts_that_are_well(two_hosts, verb):
    run = run_verb(two_hosts, verb)
    # /api, data centers, clusters, hosts, domains, connections; a data center's
    # domains: the same for any number of hosts.
    assert run.calls == 7
    assert 0 < run.double_cpu_s < 10
    assert run.seconds > 0


def test_the_memory_of_a_verb_is_that_of_its_process(two_hosts):
    assert 20e6 < memory_of(two_hosts, VERIFY) < 150e6


def test_a_verb_that_does_not_show_every_host_is_told(two_hosts, monkeypatch):
    shows_one = """print('{"rows": [{"name": "host01"}]}')"""
    monkeypatch.setattr(engine_runs, "_COMMAND", shows_one)
    with pytest.raises(BenchmarkFailed, match="`domain verify` shows 1 of 2 hosts"):
        run_verb(two_hosts, VERIFY)


def test_a_host_that_is_not_well_is_told(two_hosts):
    dump = two_hosts.folder / "host02.facts.json"
    text = dump.read_text()
    dump.write_text("{")
    try:
        with pytest.raises(BenchmarkFailed, match=r"`hosts check` failed \(3\)"):
            run_verb(two_hosts, CHECK)
    finally:
        dump.write_text(text)


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
