# SPDX-License-Identifier: GPL-2.0-or-later
"""One run at a time: what changes the host holds a lock while it does.

What only reads never takes it. The lock ends with its process, however that ends;
the file stays, because removing it would let two runs lock two files of one name.
"""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Union

from ovirt_rdma.host.paths import RUN_LOCK, under
from ovirt_rdma.host.problem import Problem

_LOOK_AGAIN_S = 0.1


class LockHeld(Problem):
    """Another run is at work; nothing was changed."""

    exit_code = 75


@contextmanager
def one_run(root: Union[str, Path], wait_s: float = 0.0) -> Iterator[None]:
    """Hold the lock of the host below ``root``; its folder is made if need be.

    Raises LockHeld where another run holds it for longer than ``wait_s`` seconds, and
    Problem where the file cannot be made or opened.
    """
    until = time.monotonic() + wait_s
    path = under(root, RUN_LOCK)
    try:
        if not path.parent.is_dir():
            path.parent.mkdir(parents=True, exist_ok=True)
            path.parent.chmod(0o755)
        # Root's alone: whoever can open the file can hold the lock for ever.
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
    except OSError as error:
        raise Problem(
            f"{path} cannot be opened: {error.strerror}", "run this command as root"
        ) from error
    try:
        while not _taken(descriptor):
            if time.monotonic() >= until:
                raise LockHeld(
                    "another run of ovirt-rdma-host is changing this host",
                    "wait until it has ended, then run this command again",
                )
            time.sleep(_LOOK_AGAIN_S)
        yield
    finally:
        os.close(descriptor)


def _taken(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
