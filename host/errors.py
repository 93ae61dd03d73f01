# SPDX-License-Identifier: GPL-2.0-or-later
"""The error that every room raises for bad input: one sentence for a person."""

from __future__ import annotations


class Problem(Exception):
    """Something the operator can mend: what is wrong, where, and what to do.

    ``str(problem)`` is the whole message, one clear sentence or several lines of
    one sentence each; ``fix`` is the hint printed after ``fix:``. The commands
    print both and exit with ``exit_code``.
    """

    exit_code = 1

    def __init__(self, sentence: str, fix: str = "") -> None:
        super().__init__(sentence)
        self.fix = fix

    @property
    def one_line(self) -> str:
        """The message on one line, for a log or within another sentence."""
        return "; ".join(str(self).splitlines())


class UsageProblem(Problem):
    """The words of the command line are wrong (exit code 2)."""

    exit_code = 2
