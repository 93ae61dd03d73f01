# SPDX-License-Identifier: GPL-2.0-or-later
"""``ovirt-rdma-host``: runs the verb that the command line names.

Verbs are imported when they are called, so that ``--help`` and the light verbs
start fast and load no YAML.
"""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Sequence

from ovirt_rdma.cli.host_words import PROGRAM, parser
from ovirt_rdma.cli.screen import Screen
from ovirt_rdma.cli.words import named, parse
from ovirt_rdma.host.problem import Problem

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from typing import Optional

# Set to 1, it shows the traceback of an error that is ours.
DEBUG = "OVIRT_RDMA_DEBUG"

# 128 + SIGINT, as a shell reports it.
INTERRUPTED = 130


def main(arguments: Optional[Sequence[str]] = None) -> int:
    """Run the command; returns the exit code. Problems become sentences."""
    screen = Screen()
    try:
        code = _run(arguments, screen)
        screen.flush()
        return code
    except Problem as problem:
        for line in str(problem).splitlines():
            screen.message(f"{PROGRAM}: {line}")
        if problem.fix:
            screen.message(f"fix: {problem.fix}")
        return problem.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    except Exception as error:  # noqa: BLE001  (the last resort: a bug of ours)
        _report_bug(error, screen)
        return 1


def _run(arguments: Optional[Sequence[str]], screen: Screen) -> int:
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
    return int(named(words.verb)(words, screen))


def _report_bug(error: Exception, screen: Screen) -> None:
    debugging = os.environ.get(DEBUG) == "1"
    if debugging:
        import traceback

        for line in traceback.format_exc().splitlines():
            screen.message(line)
    screen.message(
        f"{PROGRAM}: this is a bug, please report it: {type(error).__name__}: {error}"
    )
    if not debugging:
        screen.message(f"fix: run it again with {DEBUG}=1 and add what it prints")


if __name__ == "__main__":
    sys.exit(main())
