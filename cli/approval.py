# SPDX-License-Identifier: GPL-2.0-or-later
"""Show what would be changed, and ask before it is done."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Iterable

from ovirt_rdma.cli.output import Output, terminal_width
from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.exit_code import ExitCode


class Declined(Problem):
    """The operator declined, or there is no terminal to ask on."""

    exit_code = ExitCode.REFUSED


class Approval:
    """The value of :func:`add_assume_yes`."""

    assume_yes: bool


def add_assume_yes(parser: Parser) -> None:
    """Add ``--assume-yes``."""
    parser.add_argument(
        "-y", "--assume-yes", action="store_true", help="do not ask for confirmation"
    )


def approve(
    args: Approval, output: Output, plan: Iterable[str], why: Iterable[str] = ()
) -> None:
    """Show the lines of ``plan`` and ask for confirmation, unless --assume-yes.

    Raises Declined if the answer is no, or without a terminal, with the lines of
    ``why`` it asks. After this, the run may change something.
    """
    if args.assume_yes:
        output.unchanged = False
        return
    if sys.stdin is None or not sys.stdin.isatty():
        raise Declined(
            "no-terminal",
            "\n".join([*why, "there is no terminal to ask on"]),
            "add --assume-yes, or --dry-run to show what would be done",
        )
    output.flush()
    width = terminal_width(sys.stderr) or 80
    for line in plan:
        indent = " " * (len(line) - len(line.lstrip()) + 2)
        for part in textwrap.wrap(line, width, subsequent_indent=indent):
            output.message(part)
    try:
        yes = output.ask("Continue? [y/N] ")
    except KeyboardInterrupt:
        output.message("")
        raise
    if not yes:
        raise Declined("declined", "declined")
    output.unchanged = False
