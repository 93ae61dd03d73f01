# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ovirt-rdma in this process against the engine double, or open sessions with it;
waits take no time.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import Any
from unittest import mock

from ovirt_rdma.cli.engine import session as cli_session
from ovirt_rdma.cli.engine.main import main
from ovirt_rdma.engine_sdk_tools.api import session
from ovirt_rdma.engine_sdk_tools.api.auth import Settings
from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.host.errors import NOTHING_CHANGED


class Clock:
    """A clock that only ``sleep`` advances. ``slept`` has the pauses."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.slept: list[float] = []

    def __call__(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


@dataclass(frozen=True)
class Result:
    """The result of a run: exit code, stdout, stderr."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> Any:
        """Return stdout as JSON."""
        return json.loads(self.out)

    @property
    def events(self) -> list[Any]:
        """Return the JSON lines of stderr."""
        return [json.loads(x) for x in self.err.splitlines() if x.startswith("{")]

    def refused(self, code: int, *words: str) -> None:
        """Check for an error in sentences with all ``words``, and nothing on stdout."""
        assert (self.code, self.out) == (code, ""), self
        assert "Traceback" not in self.err
        for part in words:
            assert part in self.err
        lines = self.err.splitlines()
        # Another run may take over in the middle, too (75).
        assert NOTHING_CHANGED in lines or code not in (3, 4)
        for line in lines:
            known = ("ovirt-rdma: ", "fix: ", "note: ", "warning: ", "{", "[")
            assert line.startswith((*known, NOTHING_CHANGED)), line


def run_engine(capsys: Any, double: Any, door: Any, *words: str) -> Result:
    """Run main() here, logged in to ``double`` (None: nowhere), with ``door`` as host
    access. Waits take no time.
    """
    capsys.readouterr()
    clock = Clock()

    def quick(settings: Any) -> Session:
        return Session(settings, clock=clock, sleep=clock.sleep)

    with (
        mock.patch.object(session, "Session", quick),
        mock.patch.object(cli_session, "Session", quick),
        mock.patch.dict(os.environ, access(double)),
    ):
        code = main(words, door)
    out, err = capsys.readouterr()
    return Result(code, out, err)


def access(double: Any) -> dict[str, str]:
    """Return the variables for a login to ``double`` without this user's settings."""
    nowhere = {"XDG_CONFIG_HOME": "/nonexistent", "NO_COLOR": "1"}
    if double is None:
        return nowhere
    user, password = next(iter(double.world.passwords.items()))
    return {
        **nowhere,
        "OVIRT_URL": double.url,
        "OVIRT_USERNAME": user,
        "OVIRT_PASSWORD": password,
    }


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
