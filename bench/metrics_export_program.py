# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.metrics_export`."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path

import pyperf
from support.storage.metrics_host import FOLDER, MetricsHost, large

from bench.metrics_export import (
    BARE,
    MOUNTS,
    MOUNTSTATS,
    PORTS,
    PROGRAM,
    RUN,
    TEXTFILE,
    VERB,
)
from bench.rounds import PACKAGE
from bench.startup import INTERPRETER
from lab import prometheus

# As the daemon: all is imported, and each run is a child process.
_RUNS = """\
import os, sys, time
package, root, loops = sys.argv[1:]
sys.path.insert(0, package)
from ovirt_rdma.storage.metrics.exporter import export
export(root)
spent = 0.0
for _ in range(int(loops)):
    started = time.perf_counter()
    child = os.fork()
    if not child:
        export(root)
        os._exit(0)
    os.waitpid(child, 0)
    spent += time.perf_counter() - started
print(spent)
"""
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
        host = large(folder / "host", MOUNTS, PORTS)
        script = folder / "ovirt-rdma-host"
        script.write_text(_VERB, encoding="ascii")
        runner.bench_command(BARE, [python, "-c", "pass"])

        def runs(loops: int) -> float:
            words = (PACKAGE, str(host.root), str(loops))
            done = subprocess.run(
                [python, "-c", _RUNS, *words], capture_output=True, check=True
            )
            return float(done.stdout)

        runner.bench_time_func(RUN, runs)
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
