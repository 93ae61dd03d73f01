# SPDX-License-Identifier: GPL-2.0-or-later
"""Run a hook's work in a child process with a deadline.

VDSM waits for a hook without a limit, until no process has the hook's stdout and stderr
open (common/hooks.py: ``communicate``). So the child, the worker, has neither; if it
hangs in the kernel and cannot be killed, it is left behind.

This module imports little, because every call of a hook starts a Python.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import time
from typing import Callable, NamedTuple, Optional

from ovirt_rdma.host.system.printable import printable
from ovirt_rdma.vdsm_hooks.syslog_line import reason, say

# The exit codes of a hook: VDSM continues, or stops with the text on stderr.
CONTINUE, STOP = 0, 2
# Between SIGTERM, after which a run rolls itself back, and SIGKILL.
GRACE_S = 3.0
# For the last output to VDSM and to syslog, if either blocks.
_OUTPUT_S = 0.5
_LONGEST = 2000
_END = b"\0"


class Answer(NamedTuple):
    """The hook's exit code, CONTINUE or STOP, and the sentence for VDSM's log."""

    code: int = CONTINUE
    sentence: str = ""


Work = Callable[[], Answer]


def answer_within(point: str, limit_s: float, work: Work) -> Answer:
    """Run ``work`` for at most ``limit_s`` seconds and return its answer.

    If it fails, dies or does not end, the answer is CONTINUE, and a line in syslog
    names the hook ``point``. The worker gets SIGTERM GRACE_S before the deadline, but
    not in the first half of its time; at the deadline it and all its children get
    SIGKILL.
    """
    _exit_after(limit_s + _OUTPUT_S, CONTINUE)
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        _run_worker(point, limit_s, work, writing)
    # The worker may ignore all signals but SIGKILL, and a busy machine may delay us.
    _exit_after(limit_s + _OUTPUT_S, CONTINUE, worker)
    os.close(writing)
    end = time.monotonic() + limit_s
    answer = _read(reading, end - min(GRACE_S, limit_s / 2))
    if answer is None:
        _kill(worker, signal.SIGTERM)
        answer = _read(reading, end)
        _kill(worker, signal.SIGKILL)
        say(point, f"no answer within {limit_s:g} s: stopped, VDSM continues")
        # An answer after SIGTERM says how its run ended.
        return answer or Answer()
    return answer


def report_to_vdsm(answer: Answer) -> int:
    """Write the sentence to stderr, which VDSM passes on; return the exit code."""
    if answer.code == STOP:
        _exit_after(_OUTPUT_S, STOP)
        with contextlib.suppress(OSError):  # nobody reads it
            os.write(2, f"{printable(answer.sentence)}\n".encode("utf-8", "replace"))
    return answer.code


def _exit_after(seconds: float, code: int, worker: Optional[int] = None) -> None:
    """End this process after ``seconds``, for example if syslog blocks, and kill
    ``worker``.
    """

    def end(*_: object) -> None:
        if worker is not None:
            _kill(worker, signal.SIGKILL)
        os._exit(code)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _OUTPUT_S)


def _read(reading: int, until: float) -> Optional[Answer]:
    """Return the worker's answer: CONTINUE if it died, None at the time ``until``."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    data = b""
    while not data.endswith(_END):
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        part = os.read(reading, _LONGEST)
        if not part:
            return Answer()
        data += part
    code, _, sentence = data[:-1].decode("utf-8", "replace").partition(" ")
    return Answer(STOP, sentence) if code == str(STOP) else Answer()


def _run_worker(point: str, limit_s: float, work: Work, writing: int) -> None:
    """Do the work and end; never returns."""
    answer = Answer()
    try:
        os.setsid()
        _close_files(writing)
        # The worker ends even if its parent was killed.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s + _OUTPUT_S)
        answer = work()
    except BaseException as error:  # noqa: BLE001  (a hook never fails VDSM)
        say(point, f"nothing was done: {reason(error)}")
    finally:
        text = f"{answer.code} {answer.sentence}".encode("utf-8", "replace")
        os.write(writing, text[:_LONGEST].replace(_END, b" ") + _END)
        os._exit(0)


def _close_files(kept: int) -> None:
    """Close every file but ``kept``; the three standard files become /dev/null."""
    null = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(null, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  (pathlib loads slowly)
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # the one that listdir used
                os.close(int(name))
    sys.stdin = sys.stdout = sys.stderr = None


def _kill(worker: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number == signal.SIGTERM:
            # Not its children: a run finishes its current change and rolls back.
            os.kill(worker, number)
        else:
            os.killpg(worker, number)
