# SPDX-License-Identifier: GPL-2.0-or-later
"""Long work, shown while it goes on: on a terminal one line a host and a bar over all,
as JSON lines on stderr elsewhere.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from typing import IO, Any, Callable, Optional, Union, cast

from ovirt_rdma.cli.output import ProgressStream, Screen, terminal_width
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.host.system.printable import printable

# Hosts with a line of their own; of more only those are shown that are at work.
_LINES = 20


def engine_progress(screen: Screen) -> Union[TerminalProgress, JsonProgress]:
    """Return who shows progress on this stderr; its ``close`` ends that."""
    if terminal_width(sys.stderr) is None or os.environ.get("TERM") == "dumb":
        return JsonProgress(screen)
    return TerminalProgress()


class JsonProgress(Listener):
    """A JSON object a line: ``event`` (plan, begin, end, note), ``step``, ``host``,
    ``problem``, and ``at`` in seconds since 1970.
    """

    def __init__(self, screen: Screen, clock: Callable[[], float] = time.time) -> None:
        self._screen = screen
        self._clock = clock
        self._lock = threading.Lock()

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Say what the work is about."""
        self._say("plan", hosts=list(subjects), steps=total)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Say that a step begins."""
        self._say("begin", step=step, host=subject)

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Say that it ended."""
        self._say("end", step=step, host=subject, problem=problem)

    def note(self, sentence: str) -> None:
        """Say something else."""
        self._say("note", sentence=sentence)

    def close(self) -> None:
        """Nothing is left to end."""

    def _say(self, event: str, **more: Any) -> None:
        at = round(self._clock(), 3)
        line = json.dumps({"event": event, **more, "at": at})
        with self._lock:
            self._screen.message(line)


class TerminalProgress(Listener):
    """Lines and a bar of rich on stderr, begun with the first step."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            TimeElapsedColumn,
        )
        from rich.text import Text

        class Words(ProgressColumn):
            """A task's own field; rich would let a terminal's codes through."""

            def __init__(self, field: str) -> None:
                super().__init__()
                self._field = field

            def render(self, task: Any) -> Any:
                return Text(printable(task.fields[self._field]))

        class OfAll(BarColumn):
            """The bar, and nothing beside a host: how far one is, nobody knows."""

            def render(self, task: Any) -> Any:
                return Text() if task.fields["host"] else super().render(task)

        class TimeOfAll(TimeElapsedColumn):
            """The time since it began."""

            def render(self, task: Any) -> Any:
                return Text() if task.fields["host"] else super().render(task)

        # Honours NO_COLOR by itself.
        self._bars = Progress(
            Words("name"),
            OfAll(bar_width=20),
            Words("state"),
            TimeOfAll(),
            console=Console(file=cast("IO[str]", ProgressStream())),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._all: Any = None
        self._lines: dict[str, Any] = {}
        self._lock = threading.Lock()

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Show a line for each, and how much there is to do."""
        with self._lock:
            self._start(total)
            for subject in subjects[:_LINES]:
                self._line(subject)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Show what goes on at ``subject``."""
        with self._lock:
            self._start(None)
            place = self._all if subject is None else self._line(subject)
            self._bars.update(place, state=step)

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Count it; a problem stays on the screen."""
        with self._lock:
            self._start(None)
            self._bars.advance(self._all)
            of_all = self._bars.tasks[self._all]
            if of_all.total is not None and of_all.completed > of_all.total:
                # More was to do than was thought, such as taking it back.
                self._bars.update(self._all, total=of_all.completed)
            if subject is not None:
                shown = f"failed: {step}" if problem else f"done: {step}"
                self._bars.update(self._line(subject), state=shown)
            if problem:
                self._print(f"{subject}: {problem}" if subject else problem)

    def note(self, sentence: str) -> None:
        """Show a sentence above the lines."""
        with self._lock:
            self._print(f"note: {sentence}")

    def close(self) -> None:
        """Take the lines away."""
        self._bars.stop()

    def _start(self, total: Optional[int]) -> None:
        if self._all is None:
            self._all = self._bars.add_task(
                "", total=total, name="all", state="", host=False
            )
            self._bars.start()
        elif total is not None:
            self._bars.update(self._all, total=total)

    def _line(self, subject: str) -> Any:
        if subject not in self._lines:
            self._lines[subject] = self._bars.add_task(
                "", total=None, name=subject, state="", host=True
            )
        return self._lines[subject]

    def _print(self, sentence: str) -> None:
        self._bars.console.print(
            printable(sentence), markup=False, emoji=False, highlight=False
        )
