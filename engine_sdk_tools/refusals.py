# SPDX-License-Identifier: GPL-2.0-or-later
"""Everything that is against a plan, collected and raised in one error."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ovirt_rdma.host.errors import Problem, Sentence

# So many hosts of which the same is said have a line each.
ONE_BY_ONE = 4


class ChecksFailed(Problem):
    """Nothing was done: the checks before found something; a line for each."""

    exit_code = 3

    def __init__(self, sentences: Sequence[str], fix: str = "") -> None:
        super().__init__("checks-failed", "\n".join(_alike(sentences)), fix)
        self.sentences = tuple(sentences)

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """The sentences that have an id."""
        return tuple(one for one in self.sentences if isinstance(one, Sentence))


class Refused(Problem):
    """Nothing was done: it would be unsafe; a line for each reason."""

    exit_code = 4

    def __init__(self, sentences: Sequence[str], fix: str = "") -> None:
        super().__init__("refused", "\n".join(sentences), fix)
        self.sentences = tuple(sentences)

    @property
    def reasons(self) -> tuple[Sentence, ...]:
        """The sentences that have an id."""
        return tuple(one for one in self.sentences if isinstance(one, Sentence))


def _alike(sentences: Sequence[str]) -> Iterator[str]:
    """Yield what is said of many hosts ("host01: ...") once, with all names."""
    said: dict[str, list[str]] = {}
    for sentence in sentences:
        name, colon, rest = sentence.partition(": ")
        key, names = (rest, [name]) if colon and " " not in name else (sentence, [])
        said.setdefault(key, []).extend(names)
    for rest, names in said.items():
        if len(names) > ONE_BY_ONE:
            yield f"{', '.join(names)}: {rest}"
        else:
            yield from (f"{name}: {rest}" for name in names)
            if not names:
                yield rest


def check(sentences: Sequence[str], fix: str = "") -> None:
    """Raise ChecksFailed with all of ``sentences``, each once; nothing for none."""
    if sentences:
        raise ChecksFailed(tuple(dict.fromkeys(sentences)), fix)
