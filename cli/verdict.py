# SPDX-License-Identifier: GPL-2.0-or-later
"""The exit code of verbs that check: nothing to look at is not good."""

from __future__ import annotations

from ovirt_rdma.cli.parser import Parser
from ovirt_rdma.host.exit_code import ExitCode


class AllowNone:
    """The value of :func:`add_allow_none`."""

    allow_none: bool


def add_allow_none(parser: Parser, what: str) -> None:
    """Add ``--allow-none``; ``what`` may be missing, as ``RDMA device``."""
    parser.add_argument(
        "--allow-none",
        action="store_true",
        help=f"exit with 0 also if there is no {what} to check",
    )


def verdict_code(args: AllowNone, *, looked_at: bool, failed: bool) -> ExitCode:
    """Return 3 if a check failed, or if nothing was looked at and that is not
    allowed; else 0.
    """
    good = not failed and (looked_at or args.allow_none)
    return ExitCode.DONE if good else ExitCode.CHECKS_FAILED
