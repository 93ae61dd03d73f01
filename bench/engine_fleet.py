# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure ``hosts check`` and ``domain verify`` of a fleet, and Ansible's modules."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from bench import engine_rival
from bench.engine_runs import (
    CHECK,
    VERIFY,
    Run,
    Served,
    memory_of,
    run_verb,
    served,
    timed,
)
from bench.report import Section, Table, Verdict
from bench.spread import (
    Spread,
    Timing,
    duration,
    durations,
    kilobytes,
    megabytes,
    times,
)

TITLE = "A fleet of 250 hosts: against Ansible's modules for oVirt"
HOSTS, LATENCY_MS = 250, 50.0
# Seconds, how many times as fast as the best that a playbook can do, and bytes.
LIMIT_S, LIMIT_TIMES, LIMIT_BYTES = 3.0, 2.0, 80e6

BOTH = "both, one after the other"
RIVAL = "ovirt.ovirt, all hosts in one task"


@dataclass(frozen=True)
class Measured:
    """Runs of each verb and of the rival, round by round, and the highest resident
    memory of the verbs, in bytes.
    """

    runs: Mapping[str, tuple[Run, ...]]
    memory: Mapping[str, int]


def section(rounds: int) -> Section:
    """Measure and return the results."""
    try:
        engine_rival.install()
    except engine_rival.NotInstalled as problem:
        return Section(TITLE, "", left_out=f"{problem}.")
    with served(HOSTS, LATENCY_MS) as engine:
        dump = (engine.folder / "host01.facts.json").stat().st_size
        measured = _measured(engine, rounds)
    return judged(_text(engine_rival.collection_version(), dump), measured)


def judged(text: str, measured: Measured) -> Section:
    """Return the section; pure."""
    memory = tuple((verb, megabytes(size)) for verb, size in measured.memory.items())
    return Section(
        TITLE,
        text,
        (_times(measured), Table(("command", "highest resident"), memory)),
        (
            time_verdict(measured),
            rival_verdict(measured),
            memory_verdict(measured.memory),
        ),
    )


def time_verdict(measured: Measured) -> Verdict:
    """Compare the slowest run of each verb with LIMIT_S; pure."""
    check, verify = (
        max(run.seconds for run in measured.runs[verb]) for verb in (CHECK, VERIFY)
    )
    return Verdict(
        max(check, verify) < LIMIT_S,
        f"for {HOSTS} hosts {CHECK} takes {duration(check)} at most, {VERIFY} "
        f"{duration(verify)}; promised: under {duration(LIMIT_S)}.",
    )


def rival_verdict(measured: Measured) -> Verdict:
    """Compare the rival's best with both verbs together; pure."""
    ours = _timing(_both(measured)).spread.median
    best = _timing(measured.runs[RIVAL]).spread.median
    return Verdict(
        best / ours >= LIMIT_TIMES,
        f"{RIVAL}, reads once in {duration(best)} what both verbs read; they take "
        f"{duration(ours)} together, the hosts' reports and the verdicts included: "
        f"{best / ours:.1f} times as fast; promised: at least {LIMIT_TIMES:.0f} times.",
    )


def memory_verdict(memory: Mapping[str, int]) -> Verdict:
    """Compare the verb with the higher memory with LIMIT_BYTES; pure."""
    verb = max(memory, key=lambda name: memory[name])
    return Verdict(
        memory[verb] < LIMIT_BYTES,
        f"{verb} needs {megabytes(memory[verb])} for {HOSTS} hosts; promised: under "
        f"{megabytes(int(LIMIT_BYTES))}.",
    )


def _measured(engine: Served, rounds: int) -> Measured:
    runs: dict[str, list[Run]] = {CHECK: [], VERIFY: [], RIVAL: []}

    def play() -> None:
        with tempfile.TemporaryDirectory() as folder:
            environment = engine.environment
            del environment["PYTHONPATH"]
            engine_rival.play(engine.hosts, environment, Path(folder))

    for number in range(1, rounds + 1):
        print(f"  bench.engine_fleet: round {number} of {rounds}", flush=True)
        for verb in (CHECK, VERIFY):
            runs[verb].append(run_verb(engine, verb))
        runs[RIVAL].append(timed(engine, play))
    memory = {verb: memory_of(engine, verb) for verb in (CHECK, VERIFY)}
    return Measured({what: tuple(those) for what, those in runs.items()}, memory)


def _both(measured: Measured) -> tuple[Run, ...]:
    pairs = zip(measured.runs[CHECK], measured.runs[VERIFY], strict=True)
    return tuple(
        Run(
            check.seconds + verify.seconds,
            check.calls + verify.calls,
            check.double_cpu_s + verify.double_cpu_s,
        )
        for check, verify in pairs
    )


def _timing(runs: Sequence[Run]) -> Timing:
    return Timing(tuple((run.seconds,) for run in runs))


def _times(measured: Measured) -> Table:
    both = _timing(_both(measured))
    rows = []
    for what in (CHECK, VERIFY, BOTH, RIVAL):
        runs = _both(measured) if what == BOTH else measured.runs[what]
        timing = _timing(runs)
        ratio = "1.00" if what == BOTH else times(timing.ratio(both))
        cpu = Spread(tuple(run.double_cpu_s for run in runs)).median
        calls = str(max(run.calls for run in runs))
        rows.append((what, calls, *durations(timing.spread), duration(cpu), ratio))
    heads = ("what", "calls", "median", "min", "max", "double's CPU", "times both")
    return Table(heads, tuple(rows))


def _text(collection: str, dump: int) -> str:
    return f"""
        The tests' engine double in a process of its own, {HOSTS} hosts, four NFS
        domains, each call of the API answered {LATENCY_MS:.0f} ms later. Ours: the
        whole command with `--facts-dir`, a report of each host (facts of
        {kilobytes(dump)}, status, policy), `--output json`; all is well, exit code 0.
        The rival: modules of ovirt.ovirt {collection} (of
        {_name(engine_rival.ANSIBLE)}, {_name(engine_rival.CORE)}, same Python, SDK
        {engine_rival.SDK}, Ansible's default settings), bench/engine_rival.yml. It
        reads of the engine what both verbs read: version, data centers with the
        statuses of their domains, clusters, domains with their connections, and
        `ovirt_host_info` with `follow: [hooks]` for all hosts in one task, which is
        the best that a playbook can do; no host is asked, nothing is decided.
        `double's CPU` says how far the double itself is busy."""


def _name(requirement: str) -> str:
    return requirement.replace("==", " ")
