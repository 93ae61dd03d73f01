# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the pyperf program of :mod:`bench.startup`: whole processes of one Python."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pyperf

from bench.startup import BARE, INTERPRETER, PROGRAM, VERBS

# The script that pip writes for the entry point, without its shebang.
_SCRIPT = """\
import sys
from ovirt_rdma.cli.host.main import main
if __name__ == '__main__':
    sys.exit(main())
"""


def main() -> None:
    """Run the pyperf program."""
    runner = pyperf.Runner(program_args=("-m", PROGRAM))
    python = os.environ[INTERPRETER]
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "ovirt-rdma-host"
        script.write_text(_SCRIPT, encoding="ascii")
        runner.bench_command(BARE, [python, "-c", "pass"])
        for verb in VERBS:
            command = [python, str(script), *verb.split()]
            runner.bench_command(f"{script.name} {verb}", command)


if __name__ == "__main__":
    main()
