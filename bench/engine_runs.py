# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``ovirt-rdma`` with an engine double in a separate process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.memory import highest_memory
from bench.rounds import PACKAGE, PROGRAM_PATH, BenchmarkFailed

CHECK, VERIFY, REPORT = "`hosts check`", "`domain verify`", "`report`"
# In the folder of the dumps.
PAGE = "fabric.html"
# How the names of results of `ovirt-rdma-host bench` end there.
RESULT = ".bench.json"

_MAIN = "ovirt_rdma.cli.engine.main:main"
# The same as the script that pip writes.
_COMMAND = """\
import sys
from ovirt_rdma.cli.engine.main import main
sys.exit(main())
"""


@dataclass(frozen=True)
class Run:
    """One run: its duration, its number of calls, the CPU time of the double for them,
    and that of the command itself.
    """

    seconds: float
    calls: int
    double_cpu_s: float
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Served:
    """An engine double in a separate process; ``folder`` has the dumps of its hosts."""

    url: str
    folder: Path
    hosts: int

    @property
    def environment(self) -> dict[str, str]:
        """Variables that name this engine, and hide this user's settings."""
        return {
            "OVIRT_URL": self.url,
            "OVIRT_USERNAME": "admin@ovirt@internalsso",
            "OVIRT_PASSWORD": "secret",
            "PYTHONPATH": str(PACKAGE),
            "XDG_CONFIG_HOME": str(self.folder / "no-settings"),
            "NO_COLOR": "1",
            "no_proxy": "127.0.0.1",
        }

    def words(self, verb: str) -> list[str]:
        """Return the arguments of a command for ``verb``."""
        dumps = ["--facts-dir", str(self.folder), "--output", "json"]
        if verb == CHECK:
            policy = str(self.folder / "policy.yaml")
            return ["hosts", "check", "--policy", policy, *dumps]
        if verb == REPORT:
            page, policy = (str(self.folder / one) for one in (PAGE, "policy.yaml"))
            results = sorted(self.folder.glob(f"*{RESULT}"))
            bench = [word for file in results for word in ("--bench", str(file))]
            words = ["report", page, "--replace", "--policy", policy]
            return [*words, *bench, *dumps[:2]]
        return ["domain", "verify", *dumps]

    def seen(self) -> dict[str, Any]:
        """Return what the double has served. Raises BenchmarkFailed if it got a request
        that it does not know.
        """
        address = f"{self.url.split('/ovirt-engine')[0]}/bench/seen"
        no_proxy = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        with no_proxy.open(address, timeout=60) as answer:
            seen: dict[str, Any] = json.load(answer)
        if seen["strict_errors"]:
            raise BenchmarkFailed(f"the engine double: {seen['strict_errors'][0]}")
        return seen


@contextmanager
def served(hosts: int, latency_ms: float, domains: int = 4) -> Iterator[Served]:
    """Run an engine with ``hosts`` hosts that mount ``domains`` domains. Raises
    BenchmarkFailed.
    """
    with tempfile.TemporaryDirectory() as folder:
        arguments = [folder, str(hosts), str(latency_ms), str(domains)]
        process = subprocess.Popen(
            [sys.executable, "-m", "bench.engine_world", *arguments],
            env={**os.environ, "PYTHONPATH": PROGRAM_PATH},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        try:
            assert process.stdout is not None
            url = process.stdout.readline().strip()
            if not url:
                _, error = process.communicate()
                raise BenchmarkFailed(f"the engine double does not start:\n{error}")
            yield Served(url, Path(folder), hosts)
        finally:
            process.terminate()
            process.communicate()


def run_verb(engine: Served, verb: str) -> Run:
    """Run a verb as a process. Raises BenchmarkFailed if it reports a problem (the
    hosts have none) or does not show all hosts.
    """
    if verb == REPORT:
        return _run_report(engine)
    command = [sys.executable, "-c", _COMMAND, *engine.words(verb)]
    with tempfile.TemporaryFile("w+", encoding="utf-8") as printed:

        def act() -> None:
            done = subprocess.run(
                command,
                env={**os.environ, **engine.environment},
                stdout=printed,
                stderr=subprocess.PIPE,
                text=True,
                check=False,
            )
            if done.returncode:
                sentence = f"{verb} failed ({done.returncode}):\n{done.stderr}"
                raise BenchmarkFailed(sentence)

        run = timed(engine, act)
        printed.seek(0)
        rows = len(json.load(printed)["rows"])
    if rows != engine.hosts:
        raise BenchmarkFailed(f"{verb} shows {rows} of {engine.hosts} hosts")
    return run


def _run_report(engine: Served) -> Run:
    page = engine.folder / PAGE
    page.unlink(missing_ok=True)

    def act() -> None:
        done = subprocess.run(
            [sys.executable, "-c", _COMMAND, *engine.words(REPORT)],
            env={**os.environ, **engine.environment},
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode or "All is well" not in done.stdout:
            sentence = (
                f"{REPORT} failed ({done.returncode}):\n{done.stdout}{done.stderr}"
            )
            raise BenchmarkFailed(sentence)

    run = timed(engine, act)
    # A row in each of the two matrices.
    shown = page.read_text("utf-8").count(f'<tr><th scope="row">{_FIRST_LETTERS}')
    if shown < 2 * engine.hosts:
        raise BenchmarkFailed(f"{REPORT} shows {shown // 2} of {engine.hosts} hosts")
    return run


# All names of hosts begin with it.
_FIRST_LETTERS = "host"


def memory_of(engine: Served, verb: str) -> int:
    """Return a verb's highest resident memory in bytes. Raises BenchmarkFailed."""
    return highest_memory(verb, _MAIN, engine.words(verb), engine.environment)


def timed(engine: Served, act: Callable[[], None]) -> Run:
    """Call ``act``; return its duration and its use of the double."""
    before = engine.seen()
    began, cpu = time.perf_counter(), os.times()
    act()
    seconds, done = time.perf_counter() - began, os.times()
    own = done.children_user - cpu.children_user
    own += done.children_system - cpu.children_system
    after = engine.seen()
    calls, cpu_s = (after[what] - before[what] for what in ("calls", "cpu_s"))
    return Run(seconds, calls, cpu_s, own)
