# SPDX-License-Identifier: GPL-2.0-or-later
"""Report the progress of a long run to a listener."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.errors import Problem


class Listener:
    """Receives progress: a terminal, JSON lines or the engine's job. This one ignores
    all of it.
    """

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Take the hosts or domains of the run and its total number of steps."""

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Take a step that begins: a sentence, and its host."""

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Take the end of a step; ``problem`` is "" if it was successful."""

    def note(self, sentence: str) -> None:
        """Take a sentence that the operator should see."""


@dataclass
class Step:
    """A step that is being done; ``problem`` is "" unless it has failed."""

    problem: str = ""


@contextmanager
def step(
    listener: Listener, doing: str, subject: Optional[str] = None
) -> Iterator[Step]:
    """Report the begin and the end of a step to ``listener``; an error ends it, too."""
    listener.begin(doing, subject)
    now = Step()
    try:
        yield now
    except BaseException as error:
        now.problem = now.problem or (
            error.one_line if isinstance(error, Problem) else "interrupted"
        )
        raise
    finally:
        listener.end(doing, subject, now.problem)
