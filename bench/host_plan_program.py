# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.host_plan`: whole processes, and parts."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pyperf

from bench.host_plan import (
    DUMP,
    FILES,
    HOSTS,
    INSIDE,
    LIVE,
    LOADS,
    PROGRAM,
    benchmark_name,
)
from bench.large_host_run import decide_on

# One line each, because pyperf records the command.
_READ_FILES = (
    "import os, sys; "
    "[open(os.path.join(folder, name), 'rb', buffering=0).read() "
    "for folder, _, names in os.walk(sys.argv[1]) for name in names]"
)
_LOAD = "import json, sys; json.load(open(sys.argv[1], 'rb'))"


def main() -> None:
    """Run the pyperf program."""
    runner = pyperf.Runner(program_args=("-m", PROGRAM))
    hosts = Path(os.environ[HOSTS])
    for devices in sorted(int(host.name) for host in hosts.iterdir()):
        folder = hosts / str(devices)
        plan = [sys.executable, "-m", "bench.large_host_run", str(folder), "plan"]
        dump = str(folder / "facts.json")
        for what, command in (
            (FILES, [sys.executable, "-c", _READ_FILES, str(folder / "root")]),
            (LIVE, plan),
            (LOADS, [sys.executable, "-c", _LOAD, dump]),
            (DUMP, [*plan, "--facts", dump]),
        ):
            runner.bench_command(benchmark_name(what, devices), command)
        runner.bench_func(benchmark_name(INSIDE, devices), decide_on, folder)


if __name__ == "__main__":
    main()
