# SPDX-License-Identifier: GPL-2.0-or-later
"""Test how the lab's guests get the packages of a VDSM checkout."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path

from lab.vdsm_packages import BUILD_VDSM, CHECKOUT


def test_the_guests_command_makes_a_checkout_importable(tmp_path: Path) -> None:
    for name in ("vdsm/storage/storageServer.py", "yajsonrpc/__init__.py"):
        path = tmp_path / "checkout/lib" / name
        path.parent.mkdir(parents=True)
        path.write_text("FROM = 'the checkout'\n")
    packages = tmp_path / "packages"
    packages.mkdir()
    program, *words = shlex.split(BUILD_VDSM)
    assert program == "/usr/bin/python3"
    subprocess.run(
        [sys.executable, *words, str(tmp_path / "checkout"), str(packages)],
        cwd=CHECKOUT / "tests",
        check=True,
    )
    module = packages / "vdsm/storage/storageServer.py"
    assert module.read_text() == "FROM = 'the checkout'\n"
