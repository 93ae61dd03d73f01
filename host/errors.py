# SPDX-License-Identifier: GPL-2.0-or-later
"""Errors for people and programs: an id, a sentence, a fix; and the exit codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from enum import IntEnum


class ExitCode(IntEnum):
    """An exit code, with the ``sentence`` of ``--help`` and the manual pages."""

    sentence: str

    DONE = 0, "done, or nothing to do"
    FAILED = 1, "failed"
    USAGE = 2, "usage error"
    CHECKS_FAILED = 3, "checks failed, or something is not as it should be"
    REFUSED = 4, "refused as unsafe, or declined"
    SOME = 5, "done on some hosts, not on others"
    ROLLED_BACK = 6, "failed, and everything was rolled back"
    OTHER_RUN = 75, "another run is changing the same host or data center"
    INTERRUPTED = (
        130,
        "interrupted by Ctrl-C; 129 by a lost terminal (SIGHUP), 143 by SIGTERM",
    )

    def __new__(cls, number: int, sentence: str) -> ExitCode:
        """Return ``number`` with its ``sentence``."""
        code = int.__new__(cls, number)
        code._value_ = number
        code.sentence = sentence
        return code


# What a run of several parts ends with, if its parts end differently: the first of
# these. What needs somebody comes before what was undone, and that before what was
# never started.
_WORST_FIRST: tuple[int, ...] = (
    ExitCode.FAILED,
    ExitCode.SOME,
    ExitCode.ROLLED_BACK,
    ExitCode.USAGE,
    ExitCode.REFUSED,
    ExitCode.CHECKS_FAILED,
    ExitCode.OTHER_RUN,
    ExitCode.DONE,
)


def worst(codes: Iterable[int]) -> int:
    """Return the worst of the exit codes of several parts by what they mean; 0 for
    none.
    """
    return min(codes, key=_WORST_FIRST.index, default=0)


# The last sentence of each refusal and each dry run.
NOTHING_CHANGED = "Nothing was changed."


def did_you_mean(word: str, known: Iterable[object], most: int = 1) -> str:
    """Return ``did you mean A or B?`` with up to ``most`` of ``known`` that are like
    ``word``, in upper or lower case; "" if none is.
    """
    import difflib  # noqa: PLC0415 - vdsmd never needs it

    texts = {str(one).lower(): str(one) for one in known}
    # Letters in another order are the likeliest mistake, which difflib rates low.
    same = [one for one in texts if sorted(one) == sorted(word.lower())]
    near = (same or difflib.get_close_matches(word.lower(), texts, n=most))[:most]
    return f"did you mean {' or '.join(texts[one] for one in near)}?" if near else ""


class Sentence(str):
    """A sentence for people with a stable ``id`` for programs and tests.

    The id is lower-case words with hyphens (``plan-outdated``); it stays when the
    wording changes.

    >>> Sentence("netdev-unknown", "this host has no netdev ib9").id
    'netdev-unknown'
    """

    __slots__ = ("id",)

    id: str

    def __new__(cls, id: str, text: str) -> Sentence:
        """Return ``text`` as a sentence with this id."""
        sentence = super().__new__(cls, text)
        sentence.id = id
        return sentence

    def __getnewargs__(self) -> tuple[str, str]:  # type: ignore[override]
        """Let copies and pickles keep the id."""
        return self.id, str(self)

    def about(self, subject: str) -> Sentence:
        """Return ``SUBJECT: sentence`` with the same id."""
        return Sentence(self.id, f"{subject}: {self}")


class Problem(Exception):
    """An error that the operator can fix: what is wrong, where, and what to do.

    ``id`` is stable, as in Sentence. ``str(problem)`` is the whole message, one
    sentence or several lines of one sentence each; ``fix`` is the hint printed after
    ``fix:``. The commands print both and exit with ``exit_code``. ``reasons``, where
    there are several, have ids of their own.
    """

    exit_code: int = ExitCode.FAILED

    def __init__(
        self, id: str, sentence: str, fix: str = "", reasons: Iterable[Sentence] = ()
    ) -> None:
        super().__init__(sentence)
        self.id = id
        self.fix = fix
        self.reasons = tuple(reasons)

    @property
    def one_line(self) -> str:
        """The message on one line, for a log or within another sentence."""
        return "; ".join(str(self).splitlines())


class UsageProblem(Problem):
    """The command line is not valid (exit code 2)."""

    exit_code = ExitCode.USAGE


class Refused(Problem):
    """It would be unsafe, or is not what was reviewed; nothing was done (exit code 4).

    The message has the sentence, and below it a line for each of ``reasons``.
    """

    exit_code = ExitCode.REFUSED

    def __init__(
        self, id: str, sentence: str, fix: str = "", *, reasons: Sequence[Sentence] = ()
    ) -> None:
        super().__init__(id, "\n".join([sentence, *reasons]), fix, reasons)
