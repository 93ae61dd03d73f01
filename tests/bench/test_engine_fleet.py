# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the limits of the fleet, and its table.

The rival is Ansible's, which is not installed for tests.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace

import pytest

pytest.importorskip("pyperf", reason="make selftest has it")

from bench import engine_fleet, engine_rival, engine_runs
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
from bench.engine_runs import served
from bench.rounds import BenchmarkFailed

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


def test_a_double_that_does_not_start_is_told(monkeypatch, tmp_path):
    python = tmp_path / "python"
    python.write_text("#!/bin/sh\necho 'no module' >&2\nexit 1\n")
    python.chmod(0o755)
    monkeypatch.setattr(engine_runs.sys, "executable", str(python))
    starts = served(2, 0.0)
    with pytest.raises(BenchmarkFailed, match="does not start:\nno module"), starts:
        pass


def test_it_is_left_out_where_the_rival_cannot_be_had(monkeypatch):
    def install():
        raise engine_rival.NotInstalled("it cannot be installed: no network")

    monkeypatch.setattr(engine_rival, "install", install)
    section = engine_fleet.section(1)
    assert (section.tables, section.verdicts) == ((), ())
    assert section.left_out == "it cannot be installed: no network."


def test_a_rival_that_pip_does_not_find_is_one_sentence(monkeypatch, tmp_path):
    def run(command, **_):
        error = "noise\nERROR: no such version\n"
        return subprocess.CompletedProcess(command, "pip" in command[0], "", error)

    monkeypatch.setattr(engine_rival.subprocess, "run", run)
    venv = tmp_path / "venv"
    with pytest.raises(engine_rival.NotInstalled) as told:
        engine_rival.install(venv)
    assert str(told.value) == (
        f"{engine_rival.ANSIBLE} cannot be installed: ERROR: no such version"
    )


def test_the_rival_is_installed_once_for_its_versions(monkeypatch, tmp_path):
    commands = []

    def run(command, **_):
        commands.append(command)
        return subprocess.CompletedProcess(command, 0, "", "")

    monkeypatch.setattr(engine_rival.subprocess, "run", run)
    engine_rival.install(tmp_path)
    assert commands[0][:3] == [sys.executable, "-m", "venv"]
    assert engine_rival.ANSIBLE in commands[1]
    engine_rival.install(tmp_path)
    assert len(commands) == 2
    monkeypatch.setattr(engine_rival, "_REQUIREMENTS", ("ansible==0",))
    engine_rival.install(tmp_path)
    assert len(commands) == 4


def test_a_playbook_that_fails_is_told_with_its_words(monkeypatch, tmp_path):
    program = tmp_path / "bin/ansible-playbook"
    program.parent.mkdir()
    program.write_text('#!/bin/sh\necho "fatal: $2, engine $OVIRT_URL"\nexit 2\n')
    program.chmod(0o755)
    monkeypatch.setattr(engine_rival, "VENV", tmp_path)
    with pytest.raises(BenchmarkFailed) as told:
        engine_rival.play(5, {"OVIRT_URL": "http://e"}, tmp_path)
    words = "fatal: expected_hosts=5, engine http://e"
    assert words in str(told.value)
