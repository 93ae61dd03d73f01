# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.counters`."""

from __future__ import annotations

import os
import resource
import subprocess
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from unittest import mock

import pyperf

from bench.counters import HOST, LOOK, MOUNTS, PROGRAM, STAT, WITH, WITHOUT
from bench.large_host_run import tools_of
from ovirt_rdma.host.collect import statistics
from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.statistics import Statistics
from ovirt_rdma.host.paths import POLICY_JSON, under
from ovirt_rdma.host.policy.model import Policy
from ovirt_rdma.host.policy.store import read
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.system.commands import CommandFailed
from ovirt_rdma.storage.health.look import Looker
from ovirt_rdma.storage.health.state import OK


def main() -> None:
    """Run the pyperf program."""
    runner = pyperf.Runner(program_args=("-m", PROGRAM))
    folder = Path(os.environ[HOST])
    runner.bench_time_func(WITHOUT, partial(_cpu_s, partial(_check, folder, False)))
    runner.bench_time_func(WITH, partial(_cpu_s, partial(_check, folder, True)))
    runner.bench_time_func(STAT, partial(_cpu_s, _stat))
    root = folder / "root"
    looker = Looker(str(root), sleep=lambda seconds: None)
    runner.bench_time_func(LOOK, partial(_cpu_s, partial(_look, looker)))


def _check(folder: Path, counters: bool) -> None:
    """Read the host and decide, as ``check`` does."""
    root = folder / "root"
    stored = read(under(root, POLICY_JSON))
    reader = HostReader(root, _with_routes(tools_of(folder)))
    if counters:
        facts = reader.facts()
    else:
        nothing = mock.Mock(return_value=Statistics(0.0))
        with mock.patch.object(statistics, "read_statistics", nothing):
            facts = reader.facts()
    activity = facts.activity
    if stored is None or activity is None:
        raise AssertionError(f"{root} has no policy or no activity")
    if bool(activity.mounts and activity.ports) != counters:
        raise AssertionError(f"{root} has not the counters that are measured")
    decide(facts, stored.policy)


def _with_routes(run: Callable[[Sequence[str]], str]) -> Callable[[Sequence[str]], str]:
    """Return a runner that knows no route to the servers, which are new here."""

    def runner(argv: Sequence[str]) -> str:
        if "route" in argv:
            raise CommandFailed("RTNETLINK answers: Network is unreachable", 2)
        return run(argv)

    return runner


def _stat() -> None:
    for _ in range(MOUNTS):
        command = ["timeout", "2", "stat", "/"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _look(looker: Looker) -> None:
    states = [mount.state for mount in looker.look(Policy()).mounts]
    if states != [OK] * MOUNTS:
        raise AssertionError(f"the mounts are {states}")


def _cpu_s(work: Callable[[], None], loops: int) -> float:
    """Return the seconds of CPU of ``loops`` times ``work``, with its children."""
    before = _used_s()
    for _ in range(loops):
        work()
    return _used_s() - before


def _used_s() -> float:
    both = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    used = [resource.getrusage(who) for who in both]
    return sum(one.ru_utime + one.ru_stime for one in used)


if __name__ == "__main__":
    main()
