# SPDX-License-Identifier: GPL-2.0-or-later
"""Kill a call, in a separate process or by an exception that ends all of it."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from functools import partial
from types import ModuleType


class Killed(BaseException):
    """The process was killed."""


def is_killed(call: Callable[[], object]) -> bool:
    """Make the call in a separate process; return whether it kills itself. It must not
    fail.
    """
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            call()
            status = 0
        finally:
            os._exit(status)
    ended = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    assert ended in (0, -signal.SIGKILL)
    return ended == -signal.SIGKILL


def killed_at_each_line(
    call: Callable[[], object], *modules: ModuleType
) -> Iterator[int]:
    """Run ``call`` repeatedly, killed by SIGKILL before its first line in ``modules``,
    its second, etc. Yields after each kill, and ends with a run that completes.
    """
    files = {module.__file__ for module in modules}

    def until(line: int) -> None:
        left = line

        def look(frame, event, _):
            nonlocal left
            if frame.f_code.co_filename not in files:
                return None
            if event == "line":
                if left == 0:
                    os.kill(os.getpid(), signal.SIGKILL)
                left -= 1
            return look

        sys.settrace(look)
        call()

    line = 0
    while is_killed(partial(until, line)):
        yield line
        line += 1
