# SPDX-License-Identifier: GPL-2.0-or-later
"""Let only one run at a time change the host, and report which run has the lock.

Commands that only read do not take the lock. The lock ends with its process. The file
stays, because after a removal two runs could lock two files of the same name.

A rollback that must not wait ends a process that keeps the lock. That is safe at any
point: its changes are in the journal, and the next run rolls them back. A process that
waits in the kernel, where no signal ends it, keeps the lock; then the unit tries again
(``changes/run``).

A run writes its name and process into the file. That is used only if the process with
this id and start time really has the lock according to /proc (proc(5), /proc/pid/stat
and /proc/pid/fdinfo), so the text of a run that has ended or was killed does no harm.
"""

from __future__ import annotations

import fcntl
import json
import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.errors import ExitCode, Problem
from ovirt_rdma.host.paths import RUN_LOCK, under
from ovirt_rdma.host.system.files import fix_for, make_folder
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import state_and_start

# ruff: noqa: PTH116, PTH208


# A fixed length: overwriting needs no space on a full file system.
_LENGTH = 1024
_LONGEST_BY = 100
_STOPPED = (b"T", b"t")
_FORM = {"pid": int, "start": int, "by": str, "since": int}


@dataclass(frozen=True)
class Holder:
    """The process that has the lock.

    ``pid`` started ``start`` clock ticks after the boot and took ``lock`` ``since``
    seconds after 1970 UTC, for ``by``. ``stopped``: by a signal such as Ctrl-Z's, or by
    a debugger.
    """

    pid: int
    start: int
    by: str
    since: int
    stopped: bool = field(default=False, compare=False)
    lock: str = RUN_LOCK

    def __str__(self) -> str:
        at = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(self.since))
        stopped = ", stopped" if self.stopped else ""
        return f"{self.by} (process {self.pid}{stopped}, since {at} UTC)"


def write_holder(descriptor: int, by: str) -> None:
    """Write this process and ``by`` into the lock file, open at ``descriptor``.

    Errors are ignored: the lock does not need the text.
    """
    try:
        _, start = state_and_start(os.getpid())
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


def holder_of(root: Union[str, Path], lock: str = RUN_LOCK) -> Optional[Holder]:
    """Return the process that has the lock of the host below ``root``.

    None if there is none, or if it is unknown, for example without root's rights.
    """
    path = under(root, lock)
    try:
        content = json.loads(read_file(path, 2 * _LENGTH))
        form = {key: type(value) for key, value in content.items()}
        numbers = [value for value in content.values() if not isinstance(value, str)]
        if form != _FORM or not all(0 <= number < 1 << 40 for number in numbers):
            return None
        holder = Holder(**content)
        state, start = state_and_start(holder.pid)
        if start != holder.start or not _has_lock(holder.pid, os.stat(path)):
            return None
    except (OSError, ValueError, AttributeError, RecursionError):
        return None
    return replace(holder, stopped=state in _STOPPED, lock=lock)


def _has_lock(pid: int, lock: os.stat_result) -> bool:
    for name in os.listdir(f"/proc/{pid}/fd"):
        try:
            same = os.path.samestat(os.stat(f"/proc/{pid}/fd/{name}"), lock)
            # fdinfo has a line for each lock of this descriptor.
            if same and b"FLOCK" in read_file(f"/proc/{pid}/fdinfo/{name}"):
                return True
        except OSError:
            continue  # closed in the meantime
    return False


_RETRY_S = 0.1


class LockHeld(Problem):
    """Another run has the lock; nothing was changed."""

    exit_code = ExitCode.OTHER_RUN


@contextmanager
def one_run(
    root: Union[str, Path],
    wait_s: float = 0.0,
    *,
    by: str = "a run",
    lock: str = RUN_LOCK,
) -> Iterator[None]:
    """Hold the lock of the host below ``root``, and create its folder if necessary.

    ``by``, a verb or the name of a hook, is shown to other runs. ``lock``: another lock
    than that of the runs that change the host. Raises LockHeld if another run holds the
    lock for longer than ``wait_s`` seconds, and Problem if the file cannot be created,
    opened or locked.
    """
    deadline = time.monotonic() + wait_s
    path = under(root, lock)
    try:
        make_folder(path.parent)
        # Only for root: a process that can open the file could keep the lock.
        descriptor = os.open(
            path,
            os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC,
            0o600,
        )
    except OSError as error:
        raise _unusable(path, "opened", error) from error
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                pass
            except OSError as error:
                raise _unusable(path, "locked", error) from error
            if time.monotonic() >= deadline:
                holder = holder_of(root, lock)
                raise LockHeld(
                    "host-lock-held",
                    "another run of ovirt-rdma-host is changing this host"
                    + (f": {holder}" if holder else ""),
                    "wait until it has ended, then run this command again",
                )
            time.sleep(_RETRY_S)
        write_holder(descriptor, by)
        yield
    finally:
        os.close(descriptor)


def _unusable(path: Path, action: str, error: OSError) -> Problem:
    return Problem(
        "host-lock-unusable",
        f"{path} cannot be {action}: {error.strerror or error}; nothing was changed",
        fix_for(error, path),
    )


Say = Callable[[str], None]


@dataclass(frozen=True)
class HolderTimeouts:
    """How many seconds the holder of the lock gets before SIGTERM, after it, and after
    SIGKILL.

    Before: hooks, ``policy load`` and ``confirm`` end within that time. A run that is
    still running is rolled back in any case, because its deadline for the confirmation
    has passed. After SIGTERM a run finishes the change that it is making and rolls
    back: a tool gets 60 s at most (``base.COMMAND_TIMEOUT_S``), once for the change,
    once to undo it, and once more for everything short. The next run rolls back the
    rest.
    """

    before_sigterm_s: float = 60.0
    after_sigterm_s: float = 180.0
    after_sigkill_s: float = 10.0


def lock_or_end_holder(
    stack: ExitStack,
    root: Union[str, Path],
    by: str,
    *,
    is_needed: Callable[[], bool],
    say: Say,
    patience: HolderTimeouts,
    lock: str = RUN_LOCK,
) -> bool:
    """Take ``lock`` of the host below ``root``, for ``by``, until ``stack`` ends. A
    holder that keeps it is asked to end, then killed; ``say`` gets a sentence for each.

    Returns False, without the lock, if somebody has it and ``is_needed()`` is False by
    then. Raises LockHeld if the holder is unknown or does not end, and as
    :func:`.one_run`.
    """
    asked: Optional[Holder] = None
    killed: Optional[Holder] = None
    wait_s = patience.before_sigterm_s
    while True:
        try:
            stack.enter_context(one_run(root, wait_s, by=by, lock=lock))
        except LockHeld:
            if not is_needed():
                return False
            holder = holder_of(root, lock)
            if holder is None or holder == killed:
                raise
            if holder == asked:
                say(f"{holder} does not end, and is killed")
                _signal(root, holder, signal.SIGKILL)
                killed, wait_s = holder, patience.after_sigkill_s
            else:
                say(f"{holder} holds the lock of this host, and is asked to end")
                # In this order: a stopped process has both signals when it continues.
                _signal(root, holder, signal.SIGTERM, signal.SIGCONT)
                asked, wait_s = holder, patience.after_sigterm_s
        else:
            return True


def _signal(root: Union[str, Path], holder: Holder, *numbers: signal.Signals) -> None:
    """Send signals to ``holder`` if it still has the lock: another process may have
    its process id by now.
    """
    if holder.pid == os.getpid():
        return
    try:
        process = os.pidfd_open(holder.pid)
    except OSError:
        return  # it has ended
    try:
        if holder_of(root, holder.lock) == holder:
            for number in numbers:
                signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(process)
