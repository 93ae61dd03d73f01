# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the progress of long work on stderr.

One line per step that ended; on a terminal, the step that is being done is shown below
them. With -o json|yaml, one JSON object per line.
"""

from __future__ import annotations

import threading
from typing import Optional, Union

from ovirt_rdma.cli.output import Output
from ovirt_rdma.engine_sdk_tools.api.progress import Listener


def engine_progress(output: Output) -> Union[LineProgress, JsonProgress]:
    """Return the listener that shows progress on this stderr until it is closed."""
    return JsonProgress(output) if output.json_lines else LineProgress(output)


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
