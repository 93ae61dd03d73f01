# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.policy_size`."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyperf

from bench import thousand_rules
from bench.policy_size import (
    CURRENT,
    FIRST,
    LAST,
    LOAD,
    NONE,
    PROGRAM,
    READ,
    SIZES,
    benchmark_name,
)
from ovirt_rdma.host.export import Export
from ovirt_rdma.host.policy.model import rule_for
from ovirt_rdma.host.policy.store import PolicySource, read, store


def main() -> None:
    """Run the pyperf program."""
    runner = pyperf.Runner(program_args=("-m", PROGRAM))
    with tempfile.TemporaryDirectory() as name:
        for rules in SIZES:
            folder = Path(name) / str(rules)
            folder.mkdir()
            _bench(runner, rules, folder)


def _bench(runner: pyperf.Runner, rules: int, folder: Path) -> None:
    policy = thousand_rules.policy(rules)
    stored = folder / "policy.json"
    store(policy, "policy.yaml", stored)
    source = PolicySource(stored)
    source_file = folder / "policy.yaml"
    source_file.write_text(thousand_rules.yaml_text(rules), encoding="ascii")
    runner.bench_time_func(
        benchmark_name(LOAD, rules), _load, source_file, folder / "root"
    )
    runner.bench_func(benchmark_name(READ, rules), read, stored)
    runner.bench_func(benchmark_name(CURRENT, rules), source.current)
    last = thousand_rules.last(rules)
    for what, text in (
        (FIRST, thousand_rules.FIRST),
        (LAST, last),
        (NONE, thousand_rules.NONE),
    ):
        # Parsed each time, as for each connection.
        runner.bench_func(
            benchmark_name(what, rules),
            lambda text=text: rule_for(policy, Export.parse(text)),
        )


def _load(loops: int, policy: Path, root: Path) -> float:
    """Return the seconds of ``loops`` first loads."""
    stored = root / "var/lib/ovirt-rdma/policy.json"
    arguments = ["policy", "load", "-y", str(policy), "--root", str(root)]
    command = [sys.executable, "-m", "ovirt_rdma.cli.host.main", *arguments]
    seconds = 0.0
    for _ in range(loops):
        stored.unlink(missing_ok=True)
        started = time.perf_counter()
        subprocess.run(command, stdout=subprocess.DEVNULL, check=True)
        seconds += time.perf_counter() - started
    return seconds


if __name__ == "__main__":
    main()
