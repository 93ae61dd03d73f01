# SPDX-License-Identifier: GPL-2.0-or-later
"""The lock for a run that has to be taken back: whoever does not give it up is ended.

To end a run does no harm at any point: the journal has what it did, and the next run
takes that back. A process that waits in the kernel, where no signal ends it, keeps the
lock; then the unit tries again (``confirmation``).
"""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Callable, Optional, Union

from ovirt_rdma.host.system.lock import Holder, LockHeld, holder_of, one_run

Say = Callable[[str], None]


@dataclass(frozen=True)
class Patience:
    """The seconds that the holder of the lock gets: by itself, after SIGTERM, and to go
    after SIGKILL.

    By itself: hooks, ``policy load`` and ``confirm`` are done by then, and a run that
    is still at work is taken back in any case, for its time to be confirmed is over.
    After SIGTERM a run finishes its act, and takes back what it did: a tool gets 60 s
    at most (``effect.COMMAND_TIMEOUT_S``), there, back, and once more for all that is
    short. What is not taken back by then, the next run takes back.
    """

    before_s: float = 60.0
    asked_s: float = 180.0
    killed_s: float = 10.0


def lock_at_last(
    stack: ExitStack,
    root: Union[str, Path],
    by: str,
    *,
    is_needed: Callable[[], bool],
    say: Say,
    patience: Patience,
) -> bool:
    """Take the lock of the host below ``root``, for ``by``, until ``stack`` ends; a
    holder that keeps it is asked to end, then killed, which ``say`` is told.

    Returns False, without the lock, where it is held, and ``is_needed`` says that
    nothing is to be done any more. Raises LockHeld where the holder cannot be told or
    does not go, and as :func:`.one_run`.
    """
    asked: Optional[Holder] = None
    killed: Optional[Holder] = None
    wait_s = patience.before_s
    while True:
        try:
            stack.enter_context(one_run(root, wait_s, by=by))
        except LockHeld:
            if not is_needed():
                return False
            holder = holder_of(root)
            if holder is None or holder == killed:
                raise
            if holder == asked:
                say(f"{holder} does not end, and is killed")
                _signal(root, holder, signal.SIGKILL)
                killed, wait_s = holder, patience.killed_s
            else:
                say(f"{holder} holds the lock of this host, and is asked to end")
                # In this order: a stopped process has both when it goes on.
                _signal(root, holder, signal.SIGTERM, signal.SIGCONT)
                asked, wait_s = holder, patience.asked_s
        else:
            return True


def _signal(root: Union[str, Path], holder: Holder, *numbers: signal.Signals) -> None:
    """Send signals to ``holder`` if it still is: nobody else may have its id by now."""
    if holder.pid == os.getpid():
        return
    try:
        process = os.pidfd_open(holder.pid)
    except OSError:
        return  # it has ended
    try:
        if holder_of(root) == holder:
            for number in numbers:
                signal.pidfd_send_signal(process, number)
    except ProcessLookupError:
        pass
    finally:
        os.close(process)
