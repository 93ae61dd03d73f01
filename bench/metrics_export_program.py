# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.metrics_export`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
import time
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pyperf
from support.storage.metrics_host import FOLDER, MetricsHost

from bench.metrics_export import (
    BARE,
    FIRST,
    MOUNTS,
    MOUNTSTATS,
    PROGRAM,
    RUN,
    TEXTFILE,
    VERB,
    host_with_program,
)
from bench.startup import INTERPRETER
from lab import prometheus
from ovirt_rdma.host.paths import METRICS_JSON, under

_VERB = """\
import sys
from ovirt_rdma.cli.host.main import main
if __name__ == '__main__':
    sys.exit(main())
"""


def main() -> None:
    """Run the pyperf program."""
    runner = pyperf.Runner(program_args=("-m", PROGRAM))
    python = os.environ[INTERPRETER]
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        folder = Path(name)
        host, program = host_with_program(folder / "host", python)
        script = folder / "ovirt-rdma-host"
        script.write_text(_VERB, encoding="ascii")
        run = [python, "-IS", str(program)]
        subprocess.run(run, check=True)
        runner.bench_command(BARE, [python, "-c", "pass"])
        runner.bench_command(RUN, run)
        kept = under(host.root, METRICS_JSON)

        def judging(loops: int) -> float:
            spent = 0.0
            for _ in range(loops):
                kept.unlink()
                started = time.perf_counter()
                subprocess.run(run, check=True)
                spent += time.perf_counter() - started
            return spent

        runner.bench_time_func(FIRST, judging)
        words = ["metrics", "--root", str(host.root)]
        runner.bench_command(VERB, [python, str(script), *words])
        over_tcp = MetricsHost(folder / "tcp")
        for number in range(MOUNTS):
            over_tcp.mount(f"nas:/vm{number}", "tcp")
        mountstats = stack.enter_context(_collecting(over_tcp, folder / "a"))
        runner.bench_func(MOUNTSTATS, mountstats.get, "/metrics?collect[]=mountstats")
        textfile = stack.enter_context(_collecting(host, folder / "b"))
        runner.bench_func(TEXTFILE, textfile.get, "/metrics?collect[]=textfile")


def _collecting(
    host: MetricsHost, folder: Path
) -> AbstractContextManager[prometheus.Server]:
    proc = folder / "proc"
    (proc / "1").mkdir(parents=True)
    (proc / "self").symlink_to("1")
    for name in ("mountstats", "mountinfo"):
        shutil.copy(host.root / "proc/self" / name, proc / "1")
    collectors = ("mountstats", "textfile")
    textfiles = host.root / FOLDER.strip("/")
    return prometheus.node_exporter(folder, proc, collectors, textfiles)


if __name__ == "__main__":
    main()
