# SPDX-License-Identifier: GPL-2.0-or-later
"""The tools that a fake host has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Callable, Union

from ovirt_rdma.host.commands import CommandFailed

Answer = Union[str, CommandFailed, Callable[[], str]]
"""Stdout, a function that makes it, or a failure."""


class FakeRunner:
    """Answers the commands that were prepared; any other is a test's mistake."""

    def __init__(self) -> None:
        self.answers: dict[tuple[str, ...], Answer] = {}
        self.ran: list[tuple[str, ...]] = []

    def answer(self, command: str, result: Answer) -> None:
        """Prepare what ``command`` gives."""
        self.answers[tuple(command.split())] = result

    def __call__(self, argv: Sequence[str]) -> str:
        self.ran.append(tuple(argv))
        if tuple(argv) not in self.answers:
            raise AssertionError(f"no answer is prepared for: {' '.join(argv)}")
        result = self.answers[tuple(argv)]
        if isinstance(result, CommandFailed):
            raise result
        return result() if callable(result) else result
