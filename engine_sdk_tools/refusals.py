# SPDX-License-Identifier: GPL-2.0-or-later
"""Collect all objections to a plan, and raise them as one error."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ovirt_rdma.host.errors import Problem, Sentence
from ovirt_rdma.host.exit_code import ExitCode


class _Objections(Problem):
    """All ``sentences`` against a plan, one line each; nothing was changed."""

    kind = ""

    def __init__(self, sentences: Sequence[str], fix: str = "") -> None:
        super().__init__(self.kind, "\n".join(merged(sentences)), fix)
        self.sentences = tuple(sentences)

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """The sentences that have an id."""
        return tuple(text for text in self.sentences if isinstance(text, Sentence))


class ChecksFailed(_Objections):
    """Checks failed, and nothing was changed; one line per failure (exit code 3)."""

    kind = "checks-failed"
    exit_code = ExitCode.CHECKS_FAILED


class Refused(_Objections):
    """Refused as unsafe, and nothing was changed; one line per reason (exit code 4)."""

    kind = "refused"
    exit_code = ExitCode.REFUSED


def merged(sentences: Iterable[str]) -> list[Sentence]:
    """Return ``sentences``, those that differ only by the host at their beginning
    ("host01: ...") as one with all the names.
    """
    hosts: dict[tuple[str, str, bool], list[str]] = {}
    for sentence in sentences:
        name, colon, rest = sentence.partition(": ")
        of_host = bool(colon) and " " not in name
        id = sentence.id if isinstance(sentence, Sentence) else ""
        key = (id, rest if of_host else str(sentence), of_host)
        names = hosts.setdefault(key, [])
        if name not in names:
            names.append(name)
    return [
        Sentence(id, f"{', '.join(names)}: {rest}" if of_host else rest)
        for (id, rest, of_host), names in hosts.items()
    ]


def check(sentences: Sequence[str], fix: str = "") -> None:
    """Raise ChecksFailed with all ``sentences``, each once, if there are any."""
    if sentences:
        raise ChecksFailed(tuple(dict.fromkeys(sentences)), fix)
