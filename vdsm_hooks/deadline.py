# SPDX-License-Identifier: GPL-2.0-or-later
"""A hook's work in a process of its own, for so long and no longer.

VDSM waits for a hook without a limit, until nobody holds the hook's stdout and stderr
any more (common/hooks.py: ``communicate``). So the worker has neither, and is left
behind where it does not even die: whoever waits in the kernel cannot be killed.

Imports little, because a hook starts a Python each time.
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

# What VDSM takes from a hook: go on, or stop with what is on stderr.
GO_ON, STOP = 0, 2
# Between the word to stop, after which a run takes itself back, and the end.
GRACE_S = 3.0
# For the last words to VDSM and to syslog, should either not take them.
_LAST_WORDS_S = 0.5
_LONGEST = 2000
_END = b"\0"


class Answer(NamedTuple):
    """The hook's exit code, GO_ON or STOP, and the sentence for VDSM's log with it."""

    code: int = GO_ON
    sentence: str = ""


Work = Callable[[], Answer]


def answer_within(point: str, limit_s: float, work: Work) -> Answer:
    """Let ``work`` run for at most ``limit_s`` seconds and return what it answers.

    GO_ON, and a line in syslog, where it fails, dies or does not end. ``point`` names
    the hook there. GRACE_S before the end, but not in the first half of its time, it
    gets SIGTERM; at the end it and all it started get SIGKILL.
    """
    _end_by_all_means(limit_s + _LAST_WORDS_S, GO_ON)
    reading, writing = os.pipe()
    worker = os.fork()
    if worker == 0:
        _be_worker(point, limit_s, work, writing)
    # The worker may hear nothing but SIGKILL, and a busy machine let our time pass.
    _end_by_all_means(limit_s + _LAST_WORDS_S, GO_ON, worker)
    os.close(writing)
    end = time.monotonic() + limit_s
    answer = _read(reading, end - min(GRACE_S, limit_s / 2))
    if answer is None:
        _kill(worker, signal.SIGTERM)
        answer = _read(reading, end)
        _kill(worker, signal.SIGKILL)
        say(point, f"no answer within {limit_s:g} s: stopped, VDSM goes on")
        # What it still answered is how its run ended.
        return answer or Answer()
    return answer


def tell_vdsm(answer: Answer) -> int:
    """Write the sentence to stderr, which VDSM hands on; return the exit code."""
    if answer.code == STOP:
        _end_by_all_means(_LAST_WORDS_S, STOP)
        with contextlib.suppress(OSError):  # nobody listens
            os.write(2, f"{printable(answer.sentence)}\n".encode("utf-8", "replace"))
    return answer.code


def _end_by_all_means(seconds: float, code: int, worker: Optional[int] = None) -> None:
    """End this process after ``seconds``, as when syslog takes no line, and ``worker``
    with it.
    """

    def end(*_: object) -> None:
        if worker is not None:
            _kill(worker, signal.SIGKILL)
        os._exit(code)

    signal.signal(signal.SIGALRM, end)
    signal.setitimer(signal.ITIMER_REAL, seconds, _LAST_WORDS_S)


def _read(reading: int, until: float) -> Optional[Answer]:
    """Return the worker's answer, GO_ON where it died; None: not yet."""
    poll = select.poll()
    poll.register(reading, select.POLLIN)
    found = b""
    while not found.endswith(_END):
        left = until - time.monotonic()
        if left <= 0 or not poll.poll(left * 1000):
            return None
        part = os.read(reading, _LONGEST)
        if not part:
            return Answer()
        found += part
    code, _, sentence = found[:-1].decode("utf-8", "replace").partition(" ")
    return Answer(STOP, sentence) if code == str(STOP) else Answer()


def _be_worker(point: str, limit_s: float, work: Work, writing: int) -> None:
    """Do the work and end; never returns."""
    answer = Answer()
    try:
        os.setsid()
        _let_go(writing)
        # Should the parent be killed, this ends all the same.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s + _LAST_WORDS_S)
        answer = work()
    except BaseException as error:  # noqa: BLE001  (a hook never fails VDSM)
        say(point, f"nothing was done: {reason(error)}")
    finally:
        text = f"{answer.code} {answer.sentence}".encode("utf-8", "replace")
        os.write(writing, text[:_LONGEST].replace(_END, b" ") + _END)
        os._exit(0)


def _let_go(kept: int) -> None:
    """Close every file but ``kept``; the three standard ones become /dev/null."""
    nowhere = os.open(os.devnull, os.O_RDWR)
    for number in (0, 1, 2):
        os.dup2(nowhere, number)
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208  (no time for pathlib)
        if int(name) > 2 and int(name) != kept:
            with contextlib.suppress(OSError):  # the one that listed them
                os.close(int(name))
    sys.stdin = sys.stdout = sys.stderr = None


def _kill(worker: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number == signal.SIGTERM:
            # Not what it has started: a run finishes what it does and goes back.
            os.kill(worker, number)
        else:
            os.killpg(worker, number)
