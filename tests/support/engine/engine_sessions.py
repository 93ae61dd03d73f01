# SPDX-License-Identifier: GPL-2.0-or-later
"""Open sessions with the engine double whose waits take no time."""

from __future__ import annotations

from typing import Any

from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.api.settings import Settings
from support.engine.engine_command_line import Clock


class Notes(Listener):
    """A listener that keeps the notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, sentence: str) -> None:
        self.notes.append(sentence)


def open_session(double: Any, clock: Clock, **more: Any) -> Any:
    """Return a session with ``double``; ``more`` are settings. Its notes are in
    ``session.listener.notes``.
    """
    user, password = next(iter(double.world.passwords.items()))
    settings = Settings(double.url, user, password, **more)
    made = Session(settings, clock=clock, sleep=clock.sleep)
    made.listener = Notes()
    return made
