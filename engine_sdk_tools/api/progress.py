# SPDX-License-Identifier: GPL-2.0-or-later
"""Report the progress of a long run to a listener."""

from __future__ import annotations

from typing import Optional, Protocol


class Listener(Protocol):
    """Receives progress: a terminal, JSON lines or the engine's job."""

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Take the hosts or domains of the run and its total number of steps."""

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Take a step that begins: a sentence, and its host."""

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Take the end of a step; ``problem`` is "" if it was successful."""

    def note(self, sentence: str) -> None:
        """Take a sentence that the operator should see."""


class NoProgress(Listener):
    """Ignores all progress."""

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Ignore it."""
        return

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Ignore it."""
        return

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Ignore it."""
        return

    def note(self, sentence: str) -> None:
        """Ignore it."""
        return
