# SPDX-License-Identifier: GPL-2.0-or-later
"""What both commands do around their verbs: words, problems, bugs, exit codes."""

from __future__ import annotations

import contextlib
import io
import os
import signal
import sys
import time

from ovirt_rdma.cli.output import Screen
from ovirt_rdma.cli.parser import parse
from ovirt_rdma.host.errors import Problem

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Iterator, Sequence
    from types import FrameType
    from typing import Any, Optional

    from ovirt_rdma.cli.parser import Parser

# Set to 1, it shows the traceback of an error that is ours.
DEBUG = "OVIRT_RDMA_DEBUG"

# 128 + SIGINT, as a shell reports it.
INTERRUPTED = 130
_ENDS = (signal.SIGTERM, signal.SIGHUP)
# What ends takes less: stopping Ansible has 10 s.
_ENDING_S = 30.0


class Ended(KeyboardInterrupt):
    """SIGTERM or SIGHUP: what is under way ends as after Ctrl-C. ``code`` is the exit
    code, 128 + the signal.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.code = 128 + number


def run_command(
    program: str,
    parser: Callable[[], Parser],
    arguments: Optional[Sequence[str]],
    call: Callable[[Namespace, Screen], int],
) -> int:
    """Run the verb that ``arguments`` name; return the exit code.

    ``call`` gets the words and calls ``words.verb``. Problems become sentences on
    stderr.
    """
    screen = Screen()
    try:
        with _ended_by_signals(), _threads_on(screen):
            return _guarded(program, parser, arguments, screen, call)
    except Ended as ended:  # while the last words are said
        return ended.code
    except KeyboardInterrupt:
        return INTERRUPTED


def _guarded(
    program: str,
    parser: Callable[[], Parser],
    arguments: Optional[Sequence[str]],
    screen: Screen,
    call: Callable[[Namespace, Screen], int],
) -> int:
    try:
        code = _run(parser, arguments, screen, call)
        screen.flush()
        return code
    except Problem as problem:
        _report_problem(program, problem, screen)
        return problem.exit_code
    except Ended as ended:
        return ended.code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the last resort: a bug of ours)
        _report_bug(program, error, screen)
        return 1


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """Let SIGTERM and SIGHUP raise Ended, so that nothing is left behind. Those that
    come while it ends do not count: a shell and its terminal both send SIGHUP. Later
    ones do: C code that calls Python may have dropped the first, as older pycurl does.
    What is ignored, as by nohup, stays ignored.
    """
    since = float("-inf")

    def end(number: int, frame: Optional[FrameType]) -> None:
        nonlocal since
        now = time.monotonic()
        if now - since >= _ENDING_S:
            since = now
            raise Ended(number)

    earlier: dict[int, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for one in _ENDS:
            if signal.getsignal(one) == signal.SIG_DFL:
                earlier[one] = signal.signal(one, end)
    try:
        yield
    finally:
        for number, handler in earlier.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def _threads_on(screen: Screen) -> Iterator[None]:
    """Let threads that break off say so on ``screen``: Python would write their texts
    to stderr as they are.
    """
    import threading

    def say(told: Any) -> None:
        _say_traceback(screen, told.exc_type, told.exc_value, told.exc_traceback)

    earlier, threading.excepthook = threading.excepthook, say
    try:
        yield
    finally:
        threading.excepthook = earlier


def _run(
    parser: Callable[[], Parser],
    arguments: Optional[Sequence[str]],
    screen: Screen,
    call: Callable[[Namespace, Screen], int],
) -> int:
    with contextlib.redirect_stdout(io.StringIO()) as help_text:
        try:
            words = parse(parser(), arguments)
        except SystemExit:  # argparse, after --help or --version
            words = None
    if words is None:
        for line in help_text.getvalue().splitlines():
            screen.line(line)
        return 0
    screen.output = words.output
    return call(words, screen)


def _report_problem(program: str, problem: Problem, screen: Screen) -> None:
    lines = str(problem).splitlines()
    for line in lines:
        screen.message(f"{program}: {line}")
    if problem.fix:
        screen.message(f"fix: {problem.fix}")
    reasons = [{"id": one.id, "sentence": one} for one in problem.reasons]
    about = {"sentences": lines, "fix": problem.fix, "reasons": reasons}
    screen.error(problem.id, problem.exit_code, about)


def _report_bug(program: str, error: Exception, screen: Screen) -> None:
    debugging = os.environ.get(DEBUG) == "1"
    if debugging:
        _say_traceback(screen, *sys.exc_info())
    screen.message(
        f"{program}: this is a bug, please report it: {type(error).__name__}: {error}"
    )
    fix = "" if debugging else f"run it again with {DEBUG}=1 and add what it prints"
    if fix:
        screen.message(f"fix: {fix}")
    sentence = f"{type(error).__name__}: {error}"
    screen.error("bug", 1, {"sentences": [sentence], "fix": fix, "reasons": []})


def _say_traceback(screen: Screen, *raised: Any) -> None:
    import traceback

    for part in traceback.format_exception(*raised):
        for line in part.splitlines():
            screen.message(line)
