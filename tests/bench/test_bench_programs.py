# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that limits can fail, and which runs write RESULTS.md; nothing is measured."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("pyperf", reason="make selftest has it")

from bench import __main__ as bench_main
from bench import (
    constructor,
    counters,
    engine_fleet,
    engine_report,
    failing_connect,
    hook_cost,
    host_plan,
    machine,
    metrics_export,
    paths,
    policy_size,
    readiness,
    startup,
)
from bench.__main__ import main
from bench.byte_cost import section as byte_cost
from bench.report import Section, Verdict
from bench.rounds import CHECKOUT, PACKAGE, BenchmarkFailed, measure
from bench.spread import Spread, Timing

pytestmark = pytest.mark.selftest


def test_constructors_are_left_out_without_a_rival(monkeypatch):
    monkeypatch.delenv("VDSM_SOURCE", raising=False)
    section = constructor.section(1)
    assert (section.tables, section.verdicts) == ((), ())
    assert "VDSM_SOURCE" in section.left_out


def test_hooks_are_left_out_without_a_rival(monkeypatch):
    monkeypatch.delenv("VDSM_SOURCE", raising=False)
    section = hook_cost.section(1)
    assert (section.tables, section.verdicts) == ((), ())
    assert "VDSM_SOURCE" in section.left_out


@pytest.mark.parametrize(("slow", "holds"), [(1.29, True), (1.31, False)])
def test_the_limit_of_hooks_is_held_by_the_dearest(slow, holds):
    timings = {hook_cost.EMPTY_CAPS: 1.0, hook_cost.EMPTY_NETWORK: 1.0}
    timings |= dict.fromkeys(hook_cost.RIVALS, 0.5)
    timings[hook_cost.INFINIBAND] = slow
    timings[hook_cost.EMPTY_BARE] = 9.0
    section = hook_cost._judged(
        "", {name: Timing(((s,),)) for name, s in timings.items()}
    )
    (verdict,) = section.verdicts
    assert verdict.holds == holds
    assert hook_cost.INFINIBAND in verdict.sentence


@pytest.mark.parametrize(("slow", "holds"), [(0.049, True), (0.051, False)])
def test_the_limit_of_metrics_is_held_by_the_slowest_python(slow, holds):
    runs = {"3.9.18": Spread((slow,)), "3.11.2": Spread((0.01,))}
    verdict = metrics_export.time_verdict(runs)
    assert (verdict.holds, "3.9.18" in verdict.sentence) == (holds, True)


@pytest.mark.parametrize(("size", "holds"), [(29_000_000, True), (31_000_000, False)])
def test_the_limit_of_memory_of_metrics(size, holds):
    verdict = metrics_export.memory_verdict({"3.9.18": size, "3.11.2": 1})
    assert (verdict.holds, "3.9.18" in verdict.sentence) == (holds, True)


@pytest.mark.parametrize(("slow", "holds"), [(0.249, True), (0.251, False)])
def test_the_limit_of_a_help_is_held_by_the_slowest(monkeypatch, slow, holds):
    taken = {startup.BARE: 0.01}
    taken |= {f"ovirt-rdma-host {verb}": 0.1 for verb in startup.VERBS}
    # What is no help may take longer.
    taken |= {"ovirt-rdma-host plan": 9.0}
    slower = {**taken, "ovirt-rdma-host apply --help": slow}

    def measured(_program, _rounds, environment):
        old = environment[startup.INTERPRETER] == "/old"
        return {k: Timing(((s,),)) for k, s in (slower if old else taken).items()}

    monkeypatch.setattr(startup, "measure", measured)
    versions = {"/old": "3.9.18", "/new": "3.12.1"}
    pythons = [startup.Interpreter(Path(p), v) for p, v in versions.items()]
    (verdict,) = startup.section(pythons, 1).verdicts
    assert verdict.holds == holds
    assert "apply --help` takes" in verdict.sentence
    assert "on Python 3.9.18; promised: at most 250 ms" in verdict.sentence


def test_a_python_that_does_not_start_is_passed_over(tmp_path):
    shim = tmp_path / "python3.9"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    own = Path(sys.base_prefix, "bin", "python3")
    found = startup.interpreters([shim, own])
    assert [python.path for python in found] == [own.resolve()]


def test_no_python_that_starts_is_one_sentence(tmp_path):
    shim = tmp_path / "python3.9"
    shim.write_text("#!/bin/sh\nexit 127\n")
    shim.chmod(0o755)
    with pytest.raises(BenchmarkFailed, match="no Python of these starts: /"):
        startup.interpreters([shim])


def test_a_python_that_is_not_there_is_one_sentence(capsys):
    assert main(["--without-lab", "--python", "/nonexistent"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("bench: /nonexistent cannot be run (No such file")
    assert told.count("\n") == 1


@pytest.mark.parametrize("rounds", ["0", "-1", "many"])
def test_rounds_are_a_number_from_1_on(capsys, rounds):
    with pytest.raises(SystemExit) as ended:
        main(["--rounds", rounds])
    assert ended.value.code == 2
    assert f"'{rounds}' is not a whole number" in capsys.readouterr().err


def test_a_place_for_the_output_that_is_not_there_is_told_at_once(capsys, tmp_path):
    with pytest.raises(SystemExit) as ended:
        main(["--output", str(tmp_path / "no" / "results.md")])
    assert ended.value.code == 2
    assert "is not a directory" in capsys.readouterr().err


def test_a_policy_that_does_not_load_is_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setattr(policy_size.thousand_rules, "yaml_text", lambda _: "odd: 1\n")
    with pytest.raises(
        BenchmarkFailed, match=r"^policy load with 1 rules failed \(\d"
    ) as e:
        policy_size._highest_memory(1, tmp_path)
    assert "\n" not in str(e.value)


@pytest.fixture
def nothing_measured(monkeypatch, tmp_path):
    """Make all sections empty; return the file that replaces RESULTS.md."""
    results = tmp_path / "RESULTS.md"
    monkeypatch.setattr(bench_main, "RESULTS", results)
    monkeypatch.setattr(machine, "lab_facts", lambda: [])
    rooms = (failing_connect, paths, constructor, hook_cost, policy_size, host_plan)
    for room in (*rooms, readiness, counters, engine_fleet, engine_report):
        monkeypatch.setattr(room, "section", lambda _: Section("Whole", ""))
    for room in (startup, metrics_export):
        monkeypatch.setattr(room, "section", lambda *_: Section("Whole", ""))
    monkeypatch.setattr(byte_cost, "section", lambda: Section("Whole", ""))
    return results


def test_a_complete_run_writes_results(nothing_measured, capsys):
    assert main([]) == 0
    assert "## Whole" in nothing_measured.read_text()
    printed = capsys.readouterr()
    assert f"{nothing_measured}: written" in printed.out
    assert printed.err == ""


def test_a_broken_limit_fails_the_run(nothing_measured, monkeypatch, capsys):
    slow = Section("Slow", "", verdicts=(Verdict(False, "it takes long."),))
    monkeypatch.setattr(startup, "section", lambda *_: slow)
    assert main([]) == 1
    assert "bench: limit broken: it takes long." in capsys.readouterr().err


@pytest.mark.parametrize("without_lab", [True, False])
def test_an_incomplete_run_leaves_results_alone(
    nothing_measured, monkeypatch, capsys, without_lab
):
    nothing_measured.write_text("before")
    if not without_lab:
        part = Section("Part", "", left_out="the rival.")
        monkeypatch.setattr(failing_connect, "section", lambda _: part)
    assert main(["--without-lab"] if without_lab else []) == 0
    assert nothing_measured.read_text() == "before"
    printed = capsys.readouterr()
    assert "**Left out:** " in printed.out
    assert "RESULTS.md is not written" in printed.err


def test_the_command_of_the_makefile_starts():
    """pytest has another path than it (pyproject.toml)."""
    line = [sys.executable, "-m", "bench", "--help"]
    done = subprocess.run(line, cwd=CHECKOUT, capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")


def test_help_and_contributing_agree_how_long_it_takes(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    long, short = bench_main.MINUTES, bench_main.MINUTES_WITHOUT_LAB
    told = " ".join(capsys.readouterr().out.split())
    assert f"{short} min instead of {long}" in told
    text = (CHECKOUT / "CONTRIBUTING.md").read_text()
    assert f"| {long} min; {short} min with `BENCH=--without-lab` |" in text


def test_a_limit_of_the_policy_is_held_by_the_worst_measurement():
    good = {what: Timing(((s / 2,),)) for what, s in policy_size.LIMITS_S.items()}
    assert policy_size.verdict(good).holds
    slow = {**good, policy_size.LAST: Timing(((0.02,),))}
    verdict = policy_size.verdict(slow)
    assert not verdict.holds
    assert "finding the rule: the last, 20.0 ms of 10.0 ms" in verdict.sentence


def test_servers_that_do_not_answer_as_planned_are_told(monkeypatch):
    monkeypatch.setattr(readiness, "PROGRAM", "bench.no_program")
    with pytest.raises(BenchmarkFailed, match=r"bench.no_program failed:"):
        readiness.ask(2, readiness.TOGETHER)


@pytest.mark.parametrize(
    ("seconds", "memory", "holds"),
    [
        (8.0, 30_000_000, [True, True, True]),
        (18.0, 30_000_000, [True, False, True]),
        (21.0, 30_000_000, [False, False, True]),
        (8.0, 51_000_000, [True, True, False]),
    ],
)
def test_limits_of_many_servers(seconds, memory, holds):
    ours = {
        4: [readiness.Asked(99.0, 9.0, 90_000_000)],
        64: [readiness.Asked(seconds, 1.0, memory)],
    }
    section = readiness.judged(ours, readiness.Asked(66.0, 1.0, 30_000_000))
    assert [verdict.holds for verdict in section.verdicts] == holds
    assert [row[1] for row in section.tables[0].rows] == ["4", "64", "64"]


@pytest.mark.parametrize(
    ("whole", "inside", "fast", "linear"),
    [
        (0.9, (0.02, 0.30), True, True),
        (1.1, (0.02, 0.30), False, True),
        (0.9, (0.02, 0.34), True, False),
    ],
)
def test_limits_of_a_plan(whole, inside, fast, linear):
    timings = {host_plan.benchmark_name(host_plan.LIVE, 16): Timing(((whole,),))}
    for size, seconds in zip((1, 16), inside):
        name = host_plan.benchmark_name(host_plan.INSIDE, size)
        timings[name] = Timing(((seconds,),))
    assert host_plan.time_verdict(timings).holds == fast
    assert host_plan.growth_verdict(timings).holds == linear


@pytest.mark.parametrize(
    ("check", "look", "holds"),
    [(1.29, 0.19, [True, True]), (1.31, 0.19, [False, True]), (1, 0.21, [True, False])],
)
def test_the_limits_of_counters(check, look, holds):
    seconds = {counters.WITHOUT: 1.0, counters.WITH: check, counters.LOOK: look}
    timings = {name: Timing(((value,),)) for name, value in seconds.items()}
    verdicts = (counters.growth_verdict(timings), counters.look_verdict(timings))
    assert [verdict.holds for verdict in verdicts] == holds


@pytest.mark.parametrize(("megabytes", "holds"), [(79, True), (81, False)])
def test_the_memory_limit_of_a_plan(megabytes, holds):
    verdict = host_plan.memory_verdict({16: megabytes * 1_000_000})
    assert verdict.holds == holds


def test_a_host_that_cannot_be_written_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(host_plan, "ENVIRONMENT", {"PYTHONHOME": "/nonexistent"})
    with pytest.raises(BenchmarkFailed, match="the host cannot be written:\n"):
        host_plan.write_host(tmp_path, 1)


def test_a_program_that_fails_is_told_with_its_words():
    environment = {"PYTHONPATH": str(PACKAGE), startup.INTERPRETER: "/nonexistent"}
    with pytest.raises(BenchmarkFailed, match="failed with exit code 1"):
        measure(startup.PROGRAM, 1, environment)


def test_the_rival_is_named(tmp_path):
    assert machine.vdsm(None) == "none (VDSM_SOURCE is not set)"
    source = tmp_path / "lib/vdsm/storage"
    source.mkdir(parents=True)
    (source / "storageServer.py").write_text("")
    assert "sha256 of storageServer.py: e3b0c44298fc" in machine.vdsm(str(tmp_path))
    facts = dict(machine.facts())
    assert f"{len(os.sched_getaffinity(0))} cores" in facts["CPU"]
