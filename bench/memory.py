# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure the highest resident memory of a command, with the kernel's own count."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence

from bench.rounds import BenchmarkFailed

# Not getrusage of children: their maximum begins with the parent's memory at the fork,
# and the parent may be larger than the command.
_WITH_MEMORY = """\
import importlib, sys
module, _, name = sys.argv[1].partition(":")
code = getattr(importlib.import_module(module), name)(sys.argv[2:])
print(next(line for line in open("/proc/self/status") if line.startswith("VmHWM:")))
sys.exit(code)
"""


def highest_memory(
    what: str, main: str, arguments: Sequence[str], environment: Mapping[str, str]
) -> int:
    """Run ``main`` (``module:function``) with ``arguments`` in a separate process;
    return its highest resident memory in bytes.

    ``what`` names the command in messages. Raises BenchmarkFailed if it fails.
    """
    done = subprocess.run(
        [sys.executable, "-c", _WITH_MEMORY, main, *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        error = (done.stderr.strip() or "no error message").splitlines()[-1]
        raise BenchmarkFailed(f"{what} failed ({done.returncode}): {error}")
    highest = re.search(r"VmHWM:\s+(\d+) kB", done.stdout)
    if highest is None:
        raise AssertionError(f"no VmHWM in {done.stdout!r}")
    return int(highest[1]) * 1024
