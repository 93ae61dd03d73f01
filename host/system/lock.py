# SPDX-License-Identifier: GPL-2.0-or-later
"""The lock of the host, and who holds it.

Who holds the lock of the host: what a run leaves in the lock file, and whether that
is still so.

What the file says is believed only where the process with that id and start time has
the lock in truth, as /proc tells (proc(5), /proc/pid/stat and /proc/pid/fdinfo). So
what a run has left there that ended, or was killed, does no harm.

One run at a time: what changes the host holds a lock while it does.

What only reads never takes it. The lock ends with its process, however that ends;
the file stays, because removing it would let two runs lock two files of one name.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Optional, Union

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import RUN_LOCK, under
from ovirt_rdma.host.system.safe_file import read_file

# ruff: noqa: PTH116, PTH208


# Always as long: what is written over needs no new room on a full file system.
_LENGTH = 1024
_LONGEST_BY = 100
# proc(5): the fields of stat that follow the name in parentheses.
_STATE, _START = 0, 19
_STOPPED = (b"T", b"t")


@dataclass(frozen=True)
class Holder:
    """The process ``pid``, started ``start`` clock ticks after the boot, that took the
    lock ``since`` seconds after 1970 UTC to do ``by``. ``stopped``: by a signal, as
    Ctrl-Z does, or by a debugger.
    """

    pid: int
    start: int
    by: str
    since: int
    stopped: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.since))
        stopped = ", stopped" if self.stopped else ""
        return f"{self.by} (process {self.pid}{stopped}, since {at} UTC)"


def note_holder(descriptor: int, by: str) -> None:
    """Leave in the lock file, which is open at ``descriptor``, that this process has
    the lock, for ``by``. That it cannot be written is no reason not to go on.
    """
    try:
        _, start = _process(os.getpid())
        content = {
            "pid": os.getpid(),
            "start": start,
            "by": by[:_LONGEST_BY],
            "since": int(time.time()),
        }
        text = json.dumps(content).encode("ascii")[: _LENGTH - 1]
        os.pwrite(descriptor, text.ljust(_LENGTH - 1) + b"\n", 0)
    except (OSError, ValueError):
        pass


def holder_of(root: Union[str, Path]) -> Optional[Holder]:
    """Return who holds the lock of the host below ``root``; None where nobody does, or
    it cannot be told, as without root's rights.
    """
    path = under(root, RUN_LOCK)
    try:
        noted = json.loads(read_file(path, 2 * _LENGTH))
        found = _holder(noted)
        state, start = _process(found.pid)
        if start != found.start or not _has_lock(found.pid, os.stat(path)):
            return None
    except (OSError, ValueError, RecursionError):
        return None
    stopped = state in _STOPPED
    return Holder(found.pid, found.start, found.by, found.since, stopped)


def _holder(noted: Any) -> Holder:
    if not isinstance(noted, dict):
        raise ValueError("not an object")
    pid, start, since = (noted.get(key) for key in ("pid", "start", "since"))
    by = noted.get("by")
    for number in (pid, start, since):
        if type(number) is not int or not 0 <= number < 1 << 40:
            raise ValueError("not a number")
    if not isinstance(by, str):
        raise ValueError("no text")
    return Holder(pid, start, by, since)  # type: ignore[arg-type]


def _process(pid: int) -> tuple[bytes, int]:
    """Return state and start time of a process. Raises OSError, ValueError."""
    fields = read_file(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    if len(fields) <= _START:
        raise ValueError("another form of stat")
    return fields[_STATE], int(fields[_START])


def _has_lock(pid: int, lock: os.stat_result) -> bool:
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            same = os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), lock)
            # It has a line for each lock of this very descriptor.
            if same and b"FLOCK" in read_file(f"/proc/{pid}/fdinfo/{name}"):
                return True
        except OSError:
            continue  # closed meanwhile
    return False


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
                    "host-lock-held",
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
        "host-lock-unusable",
        f"{path} cannot be {done}: {error.strerror or error}; nothing was changed",
        f"{fix.format(folder=path.parent)}, then run this command again",
    )
