# SPDX-License-Identifier: GPL-2.0-or-later
"""Take the lock for a rollback that must not wait: a process that keeps it is ended.

To end a run is safe at any point: its changes are in the journal, and the next run
rolls them back. A process that waits in the kernel, where no signal ends it, keeps the
lock; then the unit tries again (``confirmation``).
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.paths import RUN_LOCK
from ovirt_rdma.host.system.lock import Holder, LockHeld, holder_of, one_run

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
