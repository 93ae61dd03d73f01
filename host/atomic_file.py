# SPDX-License-Identifier: GPL-2.0-or-later
"""Write a file so that a reader sees the old content or the new, never a part."""

from __future__ import annotations

import contextlib
import os
import re
import tempfile
from pathlib import Path


def write_atomically(path: Path, data: bytes, mode: int) -> None:
    """Replace ``path`` by a file with ``data`` and the permission bits ``mode``.

    The bits are set whatever the umask is. Data and directory entry are on disk
    when this returns. On failure the old file is untouched, nothing is left
    beside it, and the OSError is raised. A symlink at ``path`` is replaced.
    """
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            os.fchmod(stream.fileno(), mode)
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise
    sync_directory(path.parent)


def unfinished_files(path: Path) -> list[Path]:
    """Return what a :func:`write_atomically` of ``path`` that was killed has left."""
    # mkstemp's eight characters; an editor's .NAME.swp is no file of ours.
    ours = re.compile(rf"\.{re.escape(path.name)}\.[a-z0-9_]{{8}}")
    if not path.parent.is_dir():
        return []
    return sorted(
        entry
        for entry in path.parent.iterdir()
        if ours.fullmatch(entry.name) and entry.is_file() and not entry.is_symlink()
    )


def sync_directory(directory: Path) -> None:
    """Put the entries of ``directory`` on disk: files made, renamed or removed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
