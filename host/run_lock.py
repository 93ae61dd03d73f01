# SPDX-License-Identifier: GPL-2.0-or-later
"""One run at a time: what changes the host holds a lock while it does.

What only reads never takes it. The lock ends with its process, however that ends;
the file stays, because removing it would let two runs lock two files of one name.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Union

from ovirt_rdma.host.lock_holder import holder_of, note_holder
from ovirt_rdma.host.paths import RUN_LOCK, under
from ovirt_rdma.host.problem import Problem

_LOOK_AGAIN_S = 0.1
_MAKE_ROOM = "make room on the file system of {folder}"
_FIXES = {
    errno.EACCES: "become root",
    errno.EPERM: "become root",
    errno.ENOSPC: _MAKE_ROOM,
    errno.EDQUOT: _MAKE_ROOM,
    errno.EROFS: "mount the file system of {folder} for writing",
    errno.ELOOP: "remove the symbolic link, which is none of ours",
    # flock(2): out of memory for lock records.
    errno.ENOLCK: "see why the kernel has no memory for locks",
}


class LockHeld(Problem):
    """Another run is at work; nothing was changed."""

    exit_code = 75


@contextmanager
def one_run(
    root: Union[str, Path], wait_s: float = 0.0, *, by: str = "a run"
) -> Iterator[None]:
    """Hold the lock of the host below ``root``, for ``by``, a verb or the name of a
    hook, which others are told; the lock's folder is made if need be.

    Raises LockHeld where another run holds it for longer than ``wait_s`` seconds, and
    Problem where the file cannot be made, opened or locked.
    """
    until = time.monotonic() + wait_s
    path = under(root, RUN_LOCK)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)
        # Root's alone: whoever can open the file can hold the lock for ever.
        descriptor = os.open(
            path,
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            0o600,
        )
    except OSError as error:
        raise _unusable(path, "opened", error) from error
    try:
        while not _taken(descriptor, path):
            if time.monotonic() >= until:
                holder = holder_of(root)
                raise LockHeld(
                    "another run of ovirt-rdma-host is changing this host"
                    + (f": {holder}" if holder else ""),
                    "wait until it has ended, then run this command again",
                )
            time.sleep(_LOOK_AGAIN_S)
        note_holder(descriptor, by)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int, path: Path) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError as error:
        raise _unusable(path, "locked", error) from error
    return True


def _unusable(path: Path, done: str, error: OSError) -> Problem:
    fix = _FIXES.get(error.errno or 0, "see to {folder}, and to the kernel's log")
    return Problem(
        f"{path} cannot be {done}: {error.strerror or error}; nothing was changed",
        f"{fix.format(folder=path.parent)}, then run this command again",
    )
