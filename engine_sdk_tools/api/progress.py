# SPDX-License-Identifier: GPL-2.0-or-later
"""How long work tells what it does, to whoever listens."""

from __future__ import annotations

from typing import Optional, Protocol


class Listener(Protocol):
    """Told what goes on; a terminal, JSON lines, and the engine's job are such."""

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """The hosts (or domains) that the work is about, and its steps in all."""

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """A step begins: a sentence, and the host it is about."""

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """It ended; ``problem`` is "" where it went well."""

    def note(self, sentence: str) -> None:
        """Something that the operator should know."""


class Silent(Listener):
    """Listens to nothing."""

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Forget it."""
        return

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Forget it."""
        return

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Forget it."""
        return

    def note(self, sentence: str) -> None:
        """Forget it."""
        return
