# SPDX-License-Identifier: GPL-2.0-or-later
"""A strict Runner of pyperf that measures one value in this process.

pyperf itself starts a process for each benchmark, and each prepares all benchmarks.
"""

from __future__ import annotations

import importlib
import subprocess
import time
from collections.abc import Mapping
from dataclasses import dataclass

import pyperf


@dataclass(frozen=True)
class Benchmark:
    name: str
    seconds: float

    def get_name(self):
        return self.name

    def get_values(self):
        return (self.seconds,)


class Runner:
    def __init__(self, program_args):
        self.program_args = program_args
        self.benchmarks = []

    def bench_func(self, name, call, *arguments):
        self._took(name, lambda: call(*arguments))

    def bench_time_func(self, name, measured, *arguments):
        self._is(name, measured(1, *arguments))

    def bench_command(self, name, command):
        nowhere = subprocess.DEVNULL
        self._took(name, lambda: subprocess.run(command, check=True, stdout=nowhere))

    def _took(self, name, call):
        started = time.perf_counter()
        call()
        self._is(name, time.perf_counter() - started)

    def _is(self, name, seconds):
        names = [benchmark.name for benchmark in self.benchmarks]
        assert name not in names, "pyperf refuses it"
        assert seconds > 0
        self.benchmarks.append(Benchmark(name, seconds))


def in_this_process(monkeypatch):
    """Return a replacement for rounds._round."""

    def one_round(program: str, environment: Mapping[str, str]):
        runners = []

        def runner(program_args):
            assert program_args == ("-m", program), "the processes would run another"
            runners.append(Runner(program_args))
            return runners[-1]

        with monkeypatch.context() as during:
            during.setattr(pyperf, "Runner", runner)
            for name, value in environment.items():
                during.setenv(name, value)
            importlib.import_module(program).main()
        (made,) = runners
        return made.benchmarks

    return one_round
