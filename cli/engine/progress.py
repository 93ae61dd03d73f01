# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the progress of long work on stderr.

On a terminal this is one line per host and one bar; elsewhere, and where the library
rich is not installed, one line per step that ended; with -o json|yaml one JSON object
per line. EL packages rich only in EPEL, which oVirt's documentation keeps off engine
machines.
"""

from __future__ import annotations

import os
import sys
import threading
from typing import IO, Any, Optional, Union, cast

from ovirt_rdma.cli.output import Output, ProgressStream, terminal_width
from ovirt_rdma.engine_sdk_tools.api.progress import Listener
from ovirt_rdma.host.system.printable import printable

# Up to this many hosts have a line from the start; others get one when they start.
_LINES = 20


def engine_progress(
    output: Output,
) -> Union[TerminalProgress, LineProgress, JsonProgress]:
    """Return the listener that shows progress on this stderr until it is closed."""
    if output.json_lines:
        return JsonProgress(output)
    if terminal_width(sys.stderr) is None or os.environ.get("TERM") == "dumb":
        return LineProgress(output)
    try:
        return TerminalProgress()
    except ImportError:  # rich, or a library that it needs
        return LineProgress(output)


def noted(sentence: str) -> str:
    """Return the line of a note; a warning says so itself."""
    return sentence if sentence.startswith("warning: ") else f"note: {sentence}"


class JsonProgress(Listener):
    """Prints one JSON object per line: ``event`` (plan, begin, end), ``step``,
    ``host``, ``problem``, and ``at`` in seconds since 1970. Messages have that form
    too: note, warning, fix, message.
    """

    def __init__(self, output: Output) -> None:
        self._output, self._print = output, output.event

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Print the hosts and the number of steps."""
        self._print("plan", hosts=list(subjects), steps=total)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Print that a step begins."""
        self._print("begin", step=step, host=subject)

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Print that a step ended."""
        self._print("end", step=step, host=subject, problem=problem)

    def note(self, sentence: str) -> None:
        """Print a note."""
        self._output.message(noted(sentence))

    def close(self) -> None:
        """Do nothing."""


class LineProgress(Listener):
    """Prints one line per step that ended, with the number of steps so far."""

    def __init__(self, output: Output) -> None:
        self._output = output
        self._done = self._total = 0
        self._lock = threading.Lock()

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Take the total number of steps."""
        self._total = total

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Show the step until another one begins or ends."""
        with self._lock:
            self._output.progress(self._line(step, subject))

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Print the step; a problem follows it."""
        with self._lock:
            self._done += 1
            line = self._line(step, subject)
            self._output.message(f"{line}: failed: {problem}" if problem else line)

    def note(self, sentence: str) -> None:
        """Print a note."""
        with self._lock:
            self._output.message(noted(sentence))

    def close(self) -> None:
        """Erase the step that is shown."""
        self._output.progress("")

    def _line(self, step: str, subject: Optional[str]) -> str:
        # There may be more steps than planned, such as a rollback.
        total = f"/{self._total}" if self._done <= self._total else ""
        where = f"{subject}: " if subject else ""
        return f"[{self._done}{total}] {where}{step}"


class TerminalProgress(Listener):
    """Shows lines and a bar of rich on stderr, from the first step on."""

    def __init__(self) -> None:
        from rich.console import Console
        from rich.progress import (
            BarColumn,
            Progress,
            ProgressColumn,
            TimeElapsedColumn,
        )
        from rich.text import Text

        class TextColumn(ProgressColumn):
            """A text of a task; rich itself would let terminal codes through."""

            def __init__(self, field: str) -> None:
                super().__init__()
                self._field = field

            def render(self, task: Any) -> Any:
                return Text(printable(task.fields[self._field]))

        class TotalBar(BarColumn):
            """The bar, but none for a host: its share of the work is unknown."""

            def render(self, task: Any) -> Any:
                return Text() if task.fields["host"] else super().render(task)

        class TotalTime(TimeElapsedColumn):
            """The time since the start."""

            def render(self, task: Any) -> Any:
                return Text() if task.fields["host"] else super().render(task)

        # Honours NO_COLOR by itself.
        self._bars = Progress(
            TextColumn("name"),
            TotalBar(bar_width=20),
            TextColumn("state"),
            TotalTime(),
            console=Console(file=cast("IO[str]", ProgressStream())),
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._all: Any = None
        self._lines: dict[str, Any] = {}
        self._lock = threading.Lock()

    def plan(self, subjects: tuple[str, ...], total: int) -> None:
        """Show one line per subject, and the total number of steps."""
        with self._lock:
            self._start(total)
            for subject in subjects[:_LINES]:
                self._line(subject)

    def begin(self, step: str, subject: Optional[str] = None) -> None:
        """Show the step at ``subject``."""
        with self._lock:
            self._start(None)
            task = self._all if subject is None else self._line(subject)
            self._bars.update(task, state=step)

    def end(self, step: str, subject: Optional[str] = None, problem: str = "") -> None:
        """Count the step; a problem stays on the terminal."""
        with self._lock:
            self._start(None)
            self._bars.advance(self._all)
            total = self._bars.tasks[self._all]
            if total.total is not None and total.completed > total.total:
                # There were more steps than planned, such as a rollback.
                self._bars.update(self._all, total=total.completed)
            if subject is not None:
                shown = f"failed: {step}" if problem else f"done: {step}"
                self._bars.update(self._line(subject), state=shown)
            if problem:
                self._print(f"{subject}: {problem}" if subject else problem)

    def note(self, sentence: str) -> None:
        """Print a sentence above the lines."""
        with self._lock:
            self._print(noted(sentence))

    def close(self) -> None:
        """Remove the lines and the bar."""
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
