# SPDX-License-Identifier: GPL-2.0-or-later
"""Folders of drop-ins that a host loads, ignores or refuses, and its verdict."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Callable

POLICY = "version: 1\nnfs: {rules: [{server: nas1, transport: tcp}]}\n"
# No tox environment has the package installed: PYTHONPATH names it there.
COMMAND = (
    *("/usr/bin/env", f"PYTHONPATH={os.environ.get('PYTHONPATH', '')}"),
    *(sys.executable, "-m", "ovirt_rdma.cli.host.main"),
)


def _file(name: str, text: str = POLICY) -> Callable[[Path], None]:
    def make(folder: Path) -> None:
        (folder / name).write_text(text)

    return make


def _link(folder: Path) -> None:
    (folder / "site").write_text(POLICY)
    (folder / "50-a.yaml").symlink_to("site")


FOLDERS: dict[str, Callable[[Path], None]] = {
    "a drop-in": _file("50-a.yaml"),
    "an invalid one": _file("50-a.yaml", "nsf: {}\n"),
    "a yml file": _file("50-a.yml"),
    "a name without digits": _file("a.yaml"),
    "what an editor left": _file(".50-a.yaml", "nsf: {}\n"),
    "what rpm left": _file("50-a.yaml.rpmsave", "nsf: {}\n"),
    "a folder": lambda folder: (folder / "50-a.yaml").mkdir(),
    "a link to nothing": lambda folder: (folder / "50-a.yaml").symlink_to("nothing"),
    "a link beside": _link,
}


def host_takes(policy: Path) -> bool:
    """Whether ``policy check`` of the real command takes the file with its drop-ins."""
    done = subprocess.run(
        [*COMMAND, "policy", "check", str(policy)], capture_output=True, check=False
    )
    assert done.returncode in (0, 1, 3), done
    return done.returncode == 0
