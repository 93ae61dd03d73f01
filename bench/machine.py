# SPDX-License-Identifier: GPL-2.0-or-later
"""Describe the machine and the versions of a measurement."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from collections.abc import Iterator, Sequence
from datetime import datetime, timezone
from importlib.metadata import version
from pathlib import Path

from bench.rounds import CHECKOUT
from lab import qemu
from lab.guest import Guest

_STORAGE_SERVER = "lib/vdsm/storage/storageServer.py"


def facts() -> Iterator[tuple[str, str]]:
    """Yield facts about this machine and its software."""
    yield "date", datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC")
    yield "ovirt-rdma", commit(CHECKOUT)
    yield "CPU", f"{_cpu_model()}, {len(os.sched_getaffinity(0))} cores"
    yield "load before", " ".join(f"{load:.2f}" for load in os.getloadavg())
    yield "system", f"{_system_name()}, Linux {platform.release()}"
    yield "Python of tools", platform.python_version()
    yield "pyperf", version("pyperf")
    yield "VDSM", vdsm(os.environ.get("VDSM_SOURCE"))


def lab_facts() -> Iterator[tuple[str, str]]:
    """Yield facts about guests; boots one."""
    with Guest("versions") as guest:
        asked = guest.run("uname -r; mount.nfs -V", check=True)
    release, mount = asked.stdout.splitlines()
    nfs_utils = re.search(r"nfs-utils ([\w.]+)", mount)
    yield "guests", f"QEMU {qemu_version()}, {qemu.accelerator()}"
    yield "guests' kernel", release
    yield "guests' nfs-utils", nfs_utils[1] if nfs_utils else mount


def commit(checkout: Path) -> str:
    """Return git's description of ``checkout``, or that it is not a git checkout."""
    describe = ["describe", "--tags", "--always", "--abbrev=12", "--dirty"]
    done = _run(["git", "-C", str(checkout), *describe])
    return done or "not a git checkout"


def vdsm(source: str | None) -> str:
    """Return the version of the VDSM that was the rival."""
    if not source:
        return "none (VDSM_SOURCE is not set)"
    version = commit(Path(source))
    if not (Path(source) / ".git").exists():
        version = f"not a git checkout, sha256 of storageServer.py: {_digest(source)}"
    return f"{version}, as a source tree"


def _digest(source: str) -> str:
    digest = _run(["sha256sum", str(Path(source) / _STORAGE_SERVER)])
    return digest[:12]


def _cpu_model() -> str:
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    model = re.search(r"^model name\s*: (.+)$", text, re.MULTILINE)
    return model[1] if model else platform.machine()


def _system_name() -> str:
    return platform.freedesktop_os_release()["PRETTY_NAME"]


def qemu_version() -> str:
    """Return the version of QEMU, or what it says if that has none."""
    shown = _run([qemu.PROGRAM, "--version"])
    found = re.search(r"version ([\d.]+)", shown)
    return found[1] if found else shown


def _run(command: Sequence[str]) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() if done.returncode == 0 else ""
