# SPDX-License-Identifier: GPL-2.0-or-later
"""Write files atomically, and remove what a killed write left.

Write a file so that a reader sees the old content or the new, never a part; and take
away what such a write left that was killed.

A file that is being written stands beside its place, locked by its writer (flock(2)).
The lock ends with the process, so one that is not locked has no writer any more; a
process id or an age would not tell that.

Make a folder together with what we put into it, so that it is never seen empty.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import shutil
import stat
import tempfile
from pathlib import Path
from typing import Callable

# No name that an editor gives, or a person to a copy; and none that ends in .conf.
_SUFFIX = ".ovirt-rdma"
# The eight characters are tempfile's.
_UNFINISHED = re.compile(r"\.(.+)\.[a-z0-9_]{8}" + re.escape(_SUFFIX), re.DOTALL)


class NotDurable(OSError):
    """The file is written and in its place, but the disk has not confirmed the folder's
    entry: after a power cut the earlier file may be there again.
    """

    def __init__(self, error: OSError) -> None:
        words = (
            "it is in its place now, but may be the earlier one after a power cut: "
            f"{error.strerror or error}"
        )
        super().__init__(error.errno, words, error.filename)


def write_atomically(
    path: Path, data: bytes, mode: int, *, replace: bool = True
) -> None:
    """Replace ``path`` by a file with ``data`` and the permission bits ``mode``.

    The bits are set whatever the umask is. Data and directory entry are on disk
    when this returns. On failure the old file is untouched, nothing is left
    beside it, and the OSError is raised; NotDurable alone comes after the change. A
    symlink at ``path`` is replaced. Without ``replace``, FileExistsError is raised
    where there is something already. What killed writes left in the folder goes.
    """
    remove_unfinished(path.parent)
    descriptor, temporary = _locked_beside(path)
    with os.fdopen(descriptor, "wb") as stream:  # closed, so unlocked, after the rename
        try:
            os.fchmod(descriptor, mode)
            stream.write(data)
            stream.flush()
            os.fsync(descriptor)
            if replace:
                temporary.replace(path)
            else:
                os.link(temporary, path)
                temporary.unlink()
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    try:
        sync_directory(path.parent)
    except OSError as error:
        raise NotDurable(error) from error


def _locked_beside(path: Path) -> tuple[int, Path]:
    while True:
        descriptor, name = tempfile.mkstemp(_SUFFIX, f".{path.name}.", path.parent)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:  # somebody is about to remove it as left over
            os.close(descriptor)
            continue
        except OSError:  # no locks here, so nobody can take it for left over either
            pass
        if os.fstat(descriptor).st_nlink:
            return descriptor, Path(name)
        os.close(descriptor)


def unfinished_files(path: Path) -> list[Path]:
    """Return what stands beside ``path`` of a :func:`write_atomically` that was killed,
    or is at work.
    """
    if not path.parent.is_dir():
        return []
    return [
        entry for entry in _unfinished(path.parent) if _target(entry.name) == path.name
    ]


def remove_unfinished(folder: Path) -> None:
    """Remove what killed writes of this user left in ``folder``: regular files with our
    kind of name. Never raises; what cannot be removed stays.
    """
    with contextlib.suppress(OSError):
        for path in _unfinished(folder):
            with contextlib.suppress(OSError):
                _remove_if_left_over(path)


def _unfinished(folder: Path) -> list[Path]:
    with os.scandir(folder) as entries:
        return sorted(
            Path(entry.path)
            for entry in entries
            if _target(entry.name) and entry.is_file(follow_symlinks=False)
        )


def _target(name: str) -> str:
    found = _UNFINISHED.fullmatch(name)
    return found[1] if found else ""


def _remove_if_left_over(path: Path) -> None:
    descriptor = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        found = os.fstat(descriptor)
        if stat.S_ISREG(found.st_mode) and found.st_uid == os.geteuid():
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            path.unlink()
    finally:
        os.close(descriptor)


def sync_directory(directory: Path) -> None:
    """Put the entries of ``directory`` on disk: files made, renamed or removed."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def how_to_mend(error: OSError, path: Path) -> str:
    """Return what to do where ``path`` cannot be written because of ``error``."""
    if error.errno in (errno.EACCES, errno.EPERM):
        return "run this command as root"
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"make room on the file system of {path.parent}"
    if error.errno == errno.EROFS:
        return f"the file system of {path.parent} is read-only: make it writable"
    if error.errno == errno.EIO:
        return f"the disk of {path.parent} fails: look into journalctl -k"
    return f"look at {path.parent}: it should be a folder that root may write to"


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
