# SPDX-License-Identifier: GPL-2.0-or-later
"""The tools that a fake host has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Union

from ovirt_rdma.host.system.commands import CommandFailed, NotInstalled

Answer = Union[str, CommandFailed, Callable[[], str]]
"""Stdout, a function that makes it, or a failure."""


class FakeRunner:
    """Answers the commands that were prepared; other commands of the same tool fail the
    test. A tool without prepared commands is not installed.
    """

    def __init__(self) -> None:
        self.answers: dict[tuple[str, ...], Answer] = {}
        self.programs: dict[str, Callable[[Sequence[str]], str]] = {}
        self.ran: list[tuple[str, ...]] = []

    def answer(self, command: str, result: Answer) -> None:
        """Prepare the answer to ``command``."""
        self.answers[tuple(command.split())] = result

    def program(self, name: str, run: Callable[[Sequence[str]], str]) -> None:
        """Have ``run`` answer all commands of a tool; it may raise CommandFailed."""
        self.programs[name] = run

    def __call__(self, argv: Sequence[str]) -> str:
        self.ran.append(tuple(argv))
        if argv[0] in self.programs:
            return self.programs[argv[0]](argv)
        if argv[0] not in {known[0] for known in self.answers}:
            raise NotInstalled("No such file or directory")
        if tuple(argv) not in self.answers:
            raise AssertionError(f"no answer is prepared for: {' '.join(argv)}")
        result = self.answers[tuple(argv)]
        if isinstance(result, CommandFailed):
            raise result
        return result() if callable(result) else result
