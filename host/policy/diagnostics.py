# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors and warnings about a policy file, with line and key."""

from __future__ import annotations

import re
from typing import NamedTuple, Optional, Union

from ovirt_rdma.host.errors import Problem, Sentence

# Where a value is: keys and, for lists, positions from 0.
KeyPath = tuple[Union[str, int], ...]
# A sentence about the value at a path.
Mistake = tuple[KeyPath, Sentence]

_PLAIN_KEY = re.compile(r"[A-Za-z0-9_-]+")


class Diagnostic(NamedTuple):
    """One sentence about the value ``key`` in line ``line`` (from 1).

    A sentence about the whole file has None as ``line`` and an empty ``key``. ``file``
    is its path; "" stands for the policy file.
    """

    line: Optional[int]
    key: str
    sentence: Sentence
    file: str = ""

    def at(self, where: str) -> Sentence:
        """Return ``FILE:LINE: KEY: sentence``; ``where`` is the policy file."""
        line = f":{self.line}" if self.line is not None else ""
        key = f" {self.key}:" if self.key else ""
        return Sentence(
            self.sentence.id, f"{self.file or where}{line}:{key} {self.sentence}"
        )


class PolicyProblem(Problem):
    """A policy file is invalid; ``errors`` has a Remark for each mistake."""

    def __init__(
        self, where: str, errors: tuple[Diagnostic, ...], fix: str = ""
    ) -> None:
        self._reasons = tuple(error.at(where) for error in errors)
        super().__init__("policy-invalid", "\n".join(self._reasons), fix)
        self.errors = errors

    @property
    def exit_code(self) -> int:  # type: ignore[override]
        """That of failed checks, or of a failure if a file cannot be read."""
        return 1 if isinstance(self.__cause__, OSError) else 3

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """Each mistake with file, line and key."""
        return self._reasons


def key_text(path: KeyPath) -> str:
    """Return ``path`` for people: ``nfs.rules[2].port``. Positions count from 1."""
    text = ""
    for part in path:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            shown = part if _PLAIN_KEY.fullmatch(part) else repr(part)
            text += f".{shown}" if text else shown
    return text
