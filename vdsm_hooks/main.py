# SPDX-License-Identifier: GPL-2.0-or-later
"""Run the hook of a hook point: its work in a child process with a deadline, and a line
in syslog about what happens.

VDSM waits for a hook without a limit, until no process has the hook's stdout and stderr
open (common/hooks.py: ``communicate``). So the child, the worker, has neither; if it
hangs in the kernel and cannot be killed, it is left behind. VDSM discards the stderr of
before_vdsm_start, and logs that of the other hooks for the admin of the engine.

after_get_caps is not among them: it is a single file. This module imports little, and
the work of a hook point only in the worker: every call of a hook starts a Python.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import syslog
import time
from typing import Callable, NamedTuple, Optional

from ovirt_rdma.host.system.text import printable

# Seconds. The engine waits 120 s for a network setup, systemd 90 s for vdsmd's start.
LIMITS_S = {
    "before_vdsm_start": 20.0,
    "before_network_setup": 10.0,
    "after_network_setup": 10.0,
}

# The exit codes of a hook: VDSM continues, or stops with the text on stderr.
CONTINUE, STOP = 0, 2
# Between SIGTERM, after which a run rolls itself back, and SIGKILL.
GRACE_S = 3.0
# For the last output to VDSM and to syslog, if either blocks.
_OUTPUT_S = 0.5
_LONGEST_ANSWER = 2000
_END = b"\0"
IDENT = "ovirt-rdma"
# Enough for a sentence; a line longer than a datagram would not be logged at all.
_LONGEST_LINE = 1000


class Answer(NamedTuple):
    """The hook's exit code, CONTINUE or STOP, and the sentence for VDSM's log."""

    code: int = CONTINUE
    sentence: str = ""


Work = Callable[[], Answer]


def run(point: str, root: str) -> int:
    """Run the hook at ``point`` of the host below ``root`` ("" on a real host).

    Returns its exit code, CONTINUE or STOP. With STOP, stderr has the sentence that
    VDSM passes on.
    """

    def work() -> Answer:
        from ovirt_rdma.vdsm_hooks import network  # noqa: PLC0415

        answer: Answer = getattr(network, point)(root)
        return answer

    return report_to_vdsm(answer_within(point, LIMITS_S[point], work))


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
        # An answer after SIGTERM says how its run ended.
        answer = answer or Answer()
        goes_on = ", VDSM continues" if answer.code == CONTINUE else ""
        say(point, f"no answer within {limit_s:g} s: stopped{goes_on}")
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
        part = os.read(reading, _LONGEST_ANSWER)
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
        from ovirt_rdma.host.system.signals import close_files  # noqa: PLC0415

        close_files(writing)
        sys.stdin = sys.stdout = sys.stderr = None
        # The worker ends even if its parent was killed.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.setitimer(signal.ITIMER_REAL, limit_s + _OUTPUT_S)
        answer = work()
    except BaseException as error:  # noqa: BLE001  (a hook never fails VDSM)
        say(point, f"nothing was done: {reason(error)}")
    finally:
        text = f"{answer.code} {answer.sentence}".encode("utf-8", "replace")
        os.write(writing, text[:_LONGEST_ANSWER].replace(_END, b" ") + _END)
        os._exit(0)


def _kill(worker: int, number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        if number == signal.SIGTERM:
            # Not its children: a run finishes its current change and rolls back.
            os.kill(worker, number)
        else:
            os.killpg(worker, number)


def say(point: str, sentence: str) -> None:
    """Write a line; never raises, so that an unavailable syslog has no effect."""
    try:
        line = printable(" ".join(f"{point}: {sentence}".split()))[:_LONGEST_LINE]
        line = line.encode("ascii", "backslashreplace").decode()
        syslog.openlog(IDENT, syslog.LOG_PID, syslog.LOG_DAEMON)
        syslog.syslog(syslog.LOG_NOTICE, line)
    except Exception:  # noqa: BLE001, S110
        pass


def reason(error: BaseException) -> str:
    """Return the cause: sentence and fix of a Problem, or another error's place."""
    try:
        fix = getattr(error, "fix", None)
        if fix is not None:
            return f"{error}; {fix}" if fix else str(error)
        place, trace = "", error.__traceback__
        while trace:
            code = trace.tb_frame.f_code
            if not code.co_filename.startswith("<frozen"):
                place = f" ({code.co_filename}:{trace.tb_lineno})"
            trace = trace.tb_next
        return f"{type(error).__name__}: {error}{place}"
    except Exception:  # noqa: BLE001  (of its __str__, for example)
        return type(error).__name__
