# SPDX-License-Identifier: GPL-2.0-or-later
"""Measure in the hypervisor guest; prints JSON. Times are seconds of its clock.

``python paths_program.py small FILE``: the median time of reading 4 KiB of a file on an
NFS mount without the page cache, which is one RPC.

``python paths_program.py processes PID SECONDS WINDOWS``: for each window of so many
seconds, ``cpu`` has the CPU time of a process and its descendants, those that ended
meanwhile included; ``memory`` the largest sum of their proportional set sizes in bytes
(each page counts once, shared ones in parts), seen twice a second; ``python`` the
median CPU time of a Python that does nothing, after it.
"""

from __future__ import annotations

import json
import mmap
import os
import resource
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Callable

_READS, _STARTS = 200, 9
_BLOCK = 4096
_SAMPLE_S = 0.5


def small_rpc(file: str) -> float:
    """Return the median time of a small RPC."""
    # O_DIRECT needs memory that begins at a page.
    block = mmap.mmap(-1, _BLOCK)
    descriptor = os.open(file, os.O_RDONLY | os.O_DIRECT)
    took = []
    for _ in range(_READS):
        began = time.monotonic()
        if os.preadv(descriptor, [block], 0) != _BLOCK:
            raise ValueError(f"{file} is too short")
        took.append(time.monotonic() - began)
    return statistics.median(took)


def python_start() -> float:
    """Return the median CPU time of a Python that does nothing."""
    took = []
    for _ in range(_STARTS):
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        subprocess.run(["/usr/bin/python3", "-c", "pass"], check=True)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        user = after.ru_utime - before.ru_utime
        took.append(user + after.ru_stime - before.ru_stime)
    return statistics.median(took)


def processes(pid: int, seconds: float, windows: int) -> dict[str, list[float]]:
    """Measure the process and its descendants."""
    cpu, memory, python = [], [], []
    for _ in range(windows):
        begun, before = time.monotonic(), _now(_cpu, pid)
        most = 0.0
        while time.monotonic() - begun < seconds:
            most = max(most, _now(_memory, pid))
            time.sleep(_SAMPLE_S)
        took = time.monotonic() - begun
        cpu.append((_now(_cpu, pid) - before) / took * seconds)
        memory.append(most)
        python.append(python_start())
    return {"cpu": cpu, "memory": memory, "python": python}


def _now(count: Callable[[Path], float], pid: int) -> float:
    """Sum over the process and its descendants; again if one ends meanwhile."""
    while True:
        try:
            return sum(map(count, _tree(pid)))
        except (FileNotFoundError, ProcessLookupError):
            Path(f"/proc/{pid}").stat()


def _tree(pid: int) -> list[Path]:
    found = [Path(f"/proc/{pid}")]
    for one in found:
        for thread in (one / "task").iterdir():
            children = (thread / "children").read_text().split()
            found += [Path("/proc", child) for child in children]
    return found


def _cpu(process: Path) -> float:
    """Its CPU time, and that of the children it has waited for (proc(5), stat)."""
    fields = (process / "stat").read_text().rpartition(")")[2].split()
    return sum(map(int, fields[11:15])) / os.sysconf("SC_CLK_TCK")


def _memory(process: Path) -> float:
    try:
        lines = (process / "smaps_rollup").read_text().splitlines()
    except ProcessLookupError:  # it has ended
        return 0.0
    (size,) = (line.split()[1] for line in lines if line.startswith("Pss:"))
    return int(size) * 1024.0


if __name__ == "__main__":
    what, *words = sys.argv[1:]
    if what == "small":
        print(json.dumps(small_rpc(*words)))
    else:
        print(json.dumps(processes(int(words[0]), float(words[1]), int(words[2]))))
