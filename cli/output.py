# SPDX-License-Identifier: GPL-2.0-or-later
"""Print results and messages: tables, JSON, YAML, times in words.

Printing results: aligned tables for people, JSON and YAML for programs.

stdout gets the result, and only a whole one: it is kept until ``flush``, so an
error leaves stdout empty. stderr gets the messages. Colour only on a terminal, and
not where NO_COLOR is set (no-color.org) or TERM is ``dumb``. Verbs that change the host
flush a line a step, so that what was done is seen as it is done.

Nothing else of ours writes to stdout or stderr, and all text goes through ``printable``
here: much of it is from hosts, the engine and files, which may be anybody's by now.

Times in words for people.
"""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone

from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.printable import printable

TYPE_CHECKING = False  # of typing, which would be a tenth of the start-up of --help
if TYPE_CHECKING:
    from typing import Any, Optional, TextIO

SCHEMA_VERSION = 1
FORMATS = ("table", "json", "yaml")

_COLOURS = {"good": "32", "bad": "31", "doubtful": "33"}
_GAP = "  "
# Text narrower than this is harder to read than a line that the terminal breaks.
_NARROWEST = 20


class Screen:
    """Where a verb prints; ``output`` is one of FORMATS."""

    def __init__(self, output: str = "table") -> None:
        self.output = output
        self._out = sys.stdout
        self._lines: list[str] = []
        self._printed = False
        self._width = terminal_width(self._out)
        # What stands on the terminal's last line, to be wiped out.
        self._passing = False
        self._colour = (
            self._width is not None
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )

    @property
    def for_people(self) -> bool:
        """Whether a table is wanted, not a document."""
        return self.output == "table"

    def line(self, text: str = "", tone: Optional[str] = None) -> None:
        """Add one line to a result for people, coloured by ``tone``."""
        self._lines.append(self._toned(printable(text), tone))

    def text(self, text: str, indent: str = "", hang: str = "") -> None:
        """Add a sentence or paragraph, which on a terminal goes on below itself.

        ``hang`` stands before its first line, which is indented as the others are.
        """
        start = f"{indent}{printable(hang)}"
        self._lines.append(start + self._folded(printable(text), len(start)))

    def message(self, text: str) -> None:
        """Print a message to stderr at once."""
        self.passing("")
        if sys.stderr is not None:
            _to_stderr(_encodable(printable(text), sys.stderr) + "\n")

    def asked(self, question: str) -> bool:
        """Ask on the terminal; True for yes. stdout stays for the result."""
        self.passing("")
        _to_stderr(_encodable(printable(question), sys.stderr))
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def passing(self, text: str) -> None:
        """Show what goes on now on a terminal's stderr, in place of what this method
        showed before; "" wipes it out. Nothing where nobody looks on.
        """
        columns = terminal_width(sys.stderr) if self.for_people else None
        if not columns or os.environ.get("TERM") == "dumb":
            return
        if text or self._passing:
            line = _encodable(printable(text), sys.stderr)[: columns - 1]
            _to_stderr(f"\r\x1b[K{line}")
        self._passing = bool(text)

    def document(self, kind: str, content: Mapping[str, Any]) -> None:
        """Add ``content`` as JSON or YAML, with schema_version and kind."""
        self.raw_document({"schema_version": SCHEMA_VERSION, "kind": kind, **content})

    def raw_document(self, whole: Mapping[str, Any]) -> None:
        """Add ``whole``, which brings its own schema_version and kind."""
        import json

        text = json.dumps(whole, indent=2)
        if self.output == "yaml":
            import yaml

            text = yaml.safe_dump(json.loads(text), sort_keys=False).rstrip("\n")
        self._lines.append(text)

    def error(self, id: str, exit_code: int, problem: Mapping[str, Any]) -> None:
        """Print a document of kind ``error`` in place of the result, for programs.

        Nothing for people, and nothing where a document was printed already.
        """
        self._lines = []
        if self.for_people or self._printed:
            return
        self.document("error", {"id": id, "exit_code": exit_code, **problem})
        with contextlib.suppress(Problem):  # stdout may be what failed
            self.flush()

    def table(
        self,
        headings: Sequence[str],
        rows: Iterable[Sequence[str]],
        tones: Optional[Mapping[str, str]] = None,
        below: Sequence[str] = (),
        widest: int = sys.maxsize,
    ) -> None:
        """Add rows under headings, columns aligned, cells coloured by ``tones``.

        On a terminal a long last cell goes on below itself. ``below`` has a text for
        each row, which stands under its last cell unless it is empty. A cell of more
        than ``widest`` characters widens no column: after it the last cell starts on
        a line of its own on a terminal, and out of its column elsewhere.
        """
        lines = [[printable(cell) for cell in row] for row in (headings, *rows)]
        widths = [
            max((len(cell) for cell in column if len(cell) <= widest), default=0)
            for column in zip(*lines)
        ]
        indent = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        for number, line in enumerate(lines):
            cells = [cell.ljust(width) for cell, width in zip(line, widths)]
            cells[-1] = self._folded(line[-1], indent)
            if self._width and sum(map(len, cells[:-1])) > sum(widths[:-1]):
                cells[-1] = f"\n{' ' * indent}{cells[-1]}"
            if number and tones:
                cells = [
                    self._toned(cell, tones.get(word))
                    for cell, word in zip(cells, line)
                ]
            text = _GAP.join(cells).rstrip()
            self._lines.append(text.replace(f"{_GAP}\n", "\n"))
            if number and below and below[number - 1]:
                self.text(below[number - 1], " " * indent)

    def row(self, cells: Sequence[str], widths: Sequence[int], tone: str = "") -> None:
        """Add a row whose columns but the last are as wide as ``widths``, the first
        cell coloured: for rows that come one by one, before all of them are known.
        """
        *before, last = map(printable, cells)
        padded = [cell.ljust(width) for cell, width in zip(before, widths)]
        indent = sum(map(len, padded)) + len(_GAP) * len(padded)
        padded[0] = self._toned(padded[0], tone or None)
        self._lines.append(_GAP.join([*padded, self._folded(last, indent)]).rstrip())

    def fields(self, pairs: Iterable[tuple[str, str]], indent: str = "") -> None:
        """Add ``name  value`` lines, values aligned."""
        shown = [(printable(name), printable(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            start = f"{indent}{name.ljust(width)}{_GAP}"
            text = self._folded(value, len(start))
            self._lines.append(f"{start}{text}".rstrip())

    def next(self, command: str) -> None:
        """Add the command to run next."""
        if command:
            self.line(f"next: {command}")

    def fix(self, text: str) -> None:
        """Add the hint that tells what to do."""
        if text:
            self.line(f"fix: {text}")

    def flush(self) -> None:
        """Print the result to stdout.

        A reader that went away, as ``head`` does, has seen what it wanted. Raises
        Problem where the result cannot be written for another reason.
        """
        lines, self._lines = self._lines, []
        self.passing("")
        if not lines:
            return
        text = "\n".join(lines) + "\n"
        self._printed = True
        try:
            if self._out is None:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF))
            self._out.write(_encodable(text, self._out))
            self._out.flush()
        except BrokenPipeError:
            _discard(self._out)
        except OSError as error:
            _discard(self._out)
            raise Problem(
                "stdout-not-written",
                f"the result cannot be written to stdout: {error.strerror}",
            ) from error

    def _folded(self, text: str, indent: int) -> str:
        """Break ``text`` at spaces to fit a terminal when it starts at ``indent``."""
        room = (self._width or 0) - indent
        if self._width is None or len(text) <= room or room < _NARROWEST:
            return text
        import textwrap

        # Words stay whole: an option string or a path is there to be copied.
        lines = textwrap.wrap(
            text, room, break_long_words=False, break_on_hyphens=False
        )
        return ("\n" + " " * indent).join(lines)

    def _toned(self, text: str, tone: Optional[str]) -> str:
        if not self._colour or tone is None:
            return text
        return f"\x1b[{_COLOURS[tone]}m{text}\x1b[0m"


def count(number: int, noun: str) -> str:
    """Return ``1 mount``, ``2 mounts``; for nouns whose plural ends in s."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


class ProgressStream:
    """stderr for a library that shows progress; a terminal that is gone ends nothing.
    Its texts are made printable before it gets them.
    """

    def write(self, text: str) -> int:
        """Write; nobody is left to tell where stderr is gone."""
        _to_stderr(text)
        return len(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(sys.stderr, name)

    def flush(self) -> None:
        """All is written at once."""


def terminal_width(stream: Optional[TextIO]) -> Optional[int]:
    """Return the columns of a terminal; None for a file, a pipe or nothing."""
    if stream is None or not stream.isatty():
        return None
    with contextlib.suppress(OSError):
        return os.get_terminal_size(stream.fileno()).columns or 80
    return 80


def _encodable(text: str, stream: TextIO) -> str:
    encoding = stream.encoding or "utf-8"
    return text.encode(encoding, "backslashreplace").decode(encoding)


def _to_stderr(text: str) -> None:
    """Write at once; nobody is left to tell where stderr is gone."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: Optional[TextIO]) -> None:
    """Keep Python from trying once more when it ends, and exiting with 120."""
    with contextlib.suppress(OSError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # type: ignore[union-attr]
        os.close(null)


def when(seconds: float) -> str:
    """Return a time, in seconds since 1970, for people: in UTC, to a second."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def when_iso(text: str) -> str:
    """Return an ISO 8601 time for people; as it is where it is none."""
    try:
        return when(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return text
