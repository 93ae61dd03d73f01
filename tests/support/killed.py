# SPDX-License-Identifier: GPL-2.0-or-later
"""Kill a call at each of its lines, in a separate process."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from types import ModuleType


def killed_at_each_line(
    call: Callable[[], object], *modules: ModuleType
) -> Iterator[int]:
    """Run ``call`` repeatedly, killed by SIGKILL before its first line in ``modules``,
    its second, etc. Yields after each kill, and ends with a run that completes.
    """
    files = {module.__file__ for module in modules}
    line = 0
    while _is_killed(call, files, line):
        yield line
        line += 1


def _is_killed(call: Callable[[], object], files: set[str | None], line: int) -> bool:
    pid = os.fork()
    if pid == 0:
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

        status = 1
        try:
            sys.settrace(look)
            call()
            status = 0
        finally:
            os._exit(status)
    _, ended = os.waitpid(pid, 0)
    if os.WIFSIGNALED(ended):
        return True
    assert os.waitstatus_to_exitcode(ended) == 0
    return False
