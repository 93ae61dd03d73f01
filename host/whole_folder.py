# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a folder together with what we put into it, so that it is never seen empty."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Callable

from ovirt_rdma.host.atomic_file import sync_directory


def unfinished(folder: Path) -> Path:
    """Return where ``folder`` is while it is being made; a kill leaves it there."""
    return folder.with_name(f".{folder.name}.ovirt-rdma")


def make_in_folder(path: Path, make: Callable[[Path], None]) -> None:
    """Call ``make`` to make something at ``path``; its folder, if there is none, comes
    with it at once.
    """
    folder = path.parent
    if folder.is_dir():
        make(path)
        return
    fresh = unfinished(folder)
    shutil.rmtree(fresh, ignore_errors=True)
    fresh.mkdir()
    fresh.chmod(0o755)
    make(fresh / path.name)
    fresh.rename(folder)
    sync_directory(folder.parent)
