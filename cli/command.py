# SPDX-License-Identifier: GPL-2.0-or-later
"""What both commands do around their verbs: words, problems, bugs, exit codes."""

from __future__ import annotations

import contextlib
import io
import os

from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.cli.words import parse
from ovirt_rdma.host.problem import Problem

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from argparse import Namespace
    from collections.abc import Callable, Sequence
    from typing import Optional

    from ovirt_rdma.cli.words import Parser

# Set to 1, it shows the traceback of an error that is ours.
DEBUG = "OVIRT_RDMA_DEBUG"

# 128 + SIGINT, as a shell reports it.
INTERRUPTED = 130


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
        code = _run(parser, arguments, screen, call)
        screen.flush()
        return code
    except Problem as problem:
        for line in str(problem).splitlines():
            screen.message(f"{program}: {line}")
        if problem.fix:
            screen.message(f"fix: {problem.fix}")
        return problem.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the last resort: a bug of ours)
        _report_bug(program, error, screen)
        return 1


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


def _report_bug(program: str, error: Exception, screen: Screen) -> None:
    debugging = os.environ.get(DEBUG) == "1"
    if debugging:
        import traceback

        for line in traceback.format_exc().splitlines():
            screen.message(line)
    screen.message(
        f"{program}: this is a bug, please report it: {type(error).__name__}: {error}"
    )
    if not debugging:
        screen.message(f"fix: run it again with {DEBUG}=1 and add what it prints")
