# SPDX-License-Identifier: GPL-2.0-or-later
"""Collect all objections to a plan, and raise them as one error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.exit_code import ExitCode

# Up to this number of hosts with the same objection have one line each.
ONE_BY_ONE = 4


class ChecksFailed(Problem):
    """Checks failed, and nothing was changed; one line per failure (exit code 3)."""

    exit_code = ExitCode.CHECKS_FAILED

    def __init__(self, sentences: Sequence[str], fix: str = "") -> None:
        super().__init__("checks-failed", "\n".join(_alike(sentences)), fix)
        self.sentences = tuple(sentences)

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """The sentences that have an id."""
        return tuple(text for text in self.sentences if isinstance(text, Sentence))


class Refused(Problem):
    """Refused as unsafe, and nothing was changed; one line per reason (exit code 4)."""

    exit_code = ExitCode.REFUSED

    def __init__(self, sentences: Sequence[str], fix: str = "") -> None:
        super().__init__("refused", "\n".join(sentences), fix)
        self.sentences = tuple(sentences)

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """The sentences that have an id."""
        return tuple(text for text in self.sentences if isinstance(text, Sentence))


def _alike(sentences: Sequence[str]) -> Iterator[str]:
    """Yield a sentence that many hosts share ("host01: ...") once, with all names."""
    hosts: dict[str, list[str]] = {}
    for sentence in sentences:
        name, colon, rest = sentence.partition(": ")
        key, names = (rest, [name]) if colon and " " not in name else (sentence, [])
        hosts.setdefault(key, []).extend(names)
    for rest, names in hosts.items():
        if len(names) > ONE_BY_ONE:
            yield f"{', '.join(names)}: {rest}"
        else:
            yield from (f"{name}: {rest}" for name in names)
            if not names:
                yield rest


def check(sentences: Sequence[str], fix: str = "") -> None:
    """Raise ChecksFailed with all ``sentences``, each once, if there are any."""
    if sentences:
        raise ChecksFailed(tuple(dict.fromkeys(sentences)), fix)
