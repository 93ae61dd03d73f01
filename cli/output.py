# SPDX-License-Identifier: GPL-2.0-or-later
"""Print results and messages: tables for people, JSON and YAML for programs.

stdout gets the result. It is kept until ``flush``, so an error leaves stdout empty;
verbs that change the host flush one line per step, to show each as it is done. stderr
gets the messages. Colour is used only on a terminal, and not if NO_COLOR is set
(no-color.org) or TERM is ``dumb``.

No other module writes to stdout or stderr, and all text goes through ``printable``
here: much of it comes from hosts, the engine and files that others may write.
"""

from __future__ import annotations

import contextlib
import errno
import json
import os
import sys
import textwrap
import time
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from typing import Any, Optional, TextIO

from ovirt_rdma.host.errors import NOTHING_CHANGED, Problem, Sentence
from ovirt_rdma.host.system.text import printable

FORMATS = ("table", "json", "yaml")

# A Problem with one of these is raised before the first change: checks failed, refused,
# another run.
_REFUSALS = (3, 4, 75)

_COLOURS = {"good": "32", "bad": "31", "doubtful": "33"}
_GAP = "  "
# A narrower column is harder to read than a line that the terminal breaks.
_NARROWEST = 20
# Cells that say nothing.
_EMPTY = ("", "-")


class Output:
    """Prints the result and the messages of a verb; ``form`` is one of FORMATS."""

    def __init__(self, form: str = "table") -> None:
        self.form = form
        self._out = sys.stdout
        self._lines: list[str] = []
        self._printed = False
        # Whether somebody still reads the result: not after `| head` has ended.
        self.is_read = True
        # Whether each message is an object of JSON on a line of its own.
        self.json_lines = False
        # Whether a verb that changes things has changed nothing yet; None for others,
        # whose exit code says it.
        self.unchanged: Optional[bool] = None
        self._width = terminal_width(self._out)
        # The last line of the terminal has a progress text, to be erased.
        self._progress_shown = False
        self._colour = (
            self._width is not None
            and not os.environ.get("NO_COLOR")
            and os.environ.get("TERM") != "dumb"
        )

    @property
    def for_people(self) -> bool:
        """Whether a table is wanted, not a document."""
        return self.form == "table"

    def line(self, text: str = "", tone: Optional[str] = None) -> None:
        """Add one line to a result for people, coloured by ``tone``."""
        self._lines.append(self._coloured(printable(text), tone))

    def text(self, text: str, indent: str = "", hang: str = "") -> None:
        """Add a sentence or paragraph, wrapped on a terminal.

        ``indent`` and ``hang`` precede the first line; the others align with its text.
        """
        start = f"{indent}{printable(hang)}"
        self._lines.append(start + self._wrapped(printable(text), len(start)))

    def message(self, text: str) -> None:
        """Print a message to stderr at once."""
        if self.json_lines:
            kind, _, rest = text.partition(": ")
            known = kind in ("note", "warning", "fix")
            self.event(kind if known else "message", sentence=rest if known else text)
            return
        self.progress("")
        if sys.stderr is not None:
            _to_stderr(_encodable(printable(text), sys.stderr) + "\n")

    def event(self, event: str, **more: Any) -> None:
        """Print an object of JSON to stderr at once, with ``at`` in seconds since 1970,
        in the form of :attr:`json_lines`.
        """
        _to_stderr(
            json.dumps({"event": event, **more, "at": round(time.time(), 3)}) + "\n"
        )

    def problem(self, about: str, problem: Problem) -> dict[str, Any]:
        """Print a problem and its fix to stderr, each sentence after ``about``; return
        it for a document.
        """
        lines = str(problem).splitlines()
        for line in lines:
            self.message(f"{about}: {line}")
        refused = problem.exit_code in _REFUSALS
        if refused if self.unchanged is None else self.unchanged:
            self.message(NOTHING_CHANGED)
            lines.append(NOTHING_CHANGED)
        if problem.fix:
            self.message(f"fix: {problem.fix}")
        reasons = [{"id": reason.id, "sentence": reason} for reason in problem.reasons]
        return {"sentences": lines, "fix": problem.fix, "reasons": reasons}

    def ask(self, question: str) -> bool:
        """Ask on stderr, because stdout is for the result; return True for yes."""
        self.progress("")
        _to_stderr(_encodable(printable(question), sys.stderr))
        return sys.stdin.readline().strip().lower() in ("y", "yes")

    def progress(self, text: str) -> None:
        """Show on a terminal's stderr what is being done, in place of the last text.

        "" erases it. Prints nothing if stderr is not a terminal.
        """
        columns = terminal_width(sys.stderr) if self.for_people else None
        if not columns or os.environ.get("TERM") == "dumb":
            return
        if text or self._progress_shown:
            line = _encodable(printable(text), sys.stderr)[: columns - 1]
            _to_stderr(f"\r\x1b[K{line}")
        self._progress_shown = bool(text)

    def document(self, kind: str, content: Mapping[str, Any]) -> None:
        """Add ``content`` as JSON or YAML, with schema_version and kind."""
        self.raw_document({"schema_version": 1, "kind": kind, **content})

    def raw_document(self, whole: Mapping[str, Any]) -> None:
        """Add ``whole``, which has its own schema_version and kind."""
        text = json.dumps(whole, indent=2)
        if self.form == "yaml":
            # JSON is YAML too; a hypervisor may have no PyYAML.
            with contextlib.suppress(ModuleNotFoundError):
                import yaml  # noqa: PLC0415

                text = yaml.safe_dump(json.loads(text), sort_keys=False).rstrip("\n")
        self._lines.append(text)

    def error(self, id: str, exit_code: int, problem: Mapping[str, Any]) -> None:
        """Print a document of kind ``error`` in place of the result, for programs.

        Prints nothing for people, and nothing after a result that was flushed.
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
        *,
        widest: int = sys.maxsize,
        minor: Sequence[str] = (),
    ) -> None:
        """Add rows under headings, columns aligned, cells coloured by ``tones``.

        On a terminal the last cell is wrapped within its column. ``below`` has one
        text per row, printed under its last cell unless it is empty. A cell of more
        than ``widest`` characters does not widen its column: on a terminal the last
        cell then starts on the next line, elsewhere it is out of line.

        Columns fold if the terminal is too narrow, those named by ``minor`` first: the
        first column as a heading of its rows, with what all of them have; others to a
        line below their row, without empty cells, or below the table if all rows have
        the same.
        """
        lines = [[printable(cell) for cell in row] for row in (headings, *rows)]
        columns = list(zip(*lines))
        sizes = [
            max((len(cell) for cell in column if len(cell) <= widest), default=0)
            for column in columns
        ]
        kept, same, above, folded = _folds(
            columns,
            sizes,
            [lines[0].index(name) for name in minor if name in lines[0]],
            self._width,
        )
        widths = [sizes[n] for n in kept]
        indent = sum(widths[:-1]) + len(_GAP) * (len(widths) - 1)
        title = ""
        for number, whole in enumerate(lines):
            named = _named(lines[0], whole, above)
            if number and above and named != title:
                title = named
                self.text(f"{title}:")
            line = [whole[n] for n in kept]
            cells = [cell.ljust(width) for cell, width in zip(line, widths)]
            cells[-1] = self._wrapped(line[-1], indent)
            if self._width and sum(map(len, cells[:-1])) > sum(widths[:-1]):
                cells[-1] = f"\n{' ' * indent}{cells[-1]}"
            if number and tones:
                cells = [
                    self._coloured(cell, tones.get(word))
                    for cell, word in zip(cells, line)
                ]
            text = _GAP.join(cells).rstrip()
            self._lines.append(text.replace(f"{_GAP}\n", "\n"))
            if number and below and below[number - 1]:
                self.text(below[number - 1], " " * indent)
            said = [n for n in folded if whole[n] not in _EMPTY]
            if number and said:
                self.text(_named(lines[0], whole, said), _GAP)
        if same:
            self.text(f"In each row: {_named(lines[0], lines[1], same)}.")

    def row(self, cells: Sequence[str], widths: Sequence[int], tone: str = "") -> None:
        """Add one row, before all rows are known, with its first cell coloured.

        ``widths`` are those of all columns but the last.
        """
        *before, last = map(printable, cells)
        padded = [cell.ljust(width) for cell, width in zip(before, widths)]
        indent = sum(map(len, padded)) + len(_GAP) * len(padded)
        padded[0] = self._coloured(padded[0], tone or None)
        self._lines.append(_GAP.join([*padded, self._wrapped(last, indent)]).rstrip())

    def fields(self, pairs: Iterable[tuple[str, str]], indent: str = "") -> None:
        """Add ``name  value`` lines, with the values aligned."""
        shown = [(printable(name), printable(value)) for name, value in pairs]
        width = max((len(name) for name, _ in shown), default=0)
        for name, value in shown:
            start = f"{indent}{name.ljust(width)}{_GAP}"
            text = self._wrapped(value, len(start))
            self._lines.append(f"{start}{text}".rstrip())

    def next(self, command: str) -> None:
        """Add the command to run next."""
        if command:
            self.line(f"next: {command}")

    def fix(self, text: str) -> None:
        """Add the hint what to do."""
        if text:
            self.line(f"fix: {text}")

    def one_of_many(self, kind: str, content: Mapping[str, Any]) -> None:
        """Print one document of a stream at once: a line of JSON, or a document of a
        YAML stream.
        """
        if self.form == "yaml":
            self._lines.append("---")
            self.document(kind, content)
        else:
            self._lines.append(
                json.dumps({"schema_version": 1, "kind": kind, **content})
            )
        self.flush()

    def begin_screen(self) -> None:
        """Begin a result that replaces the one before on the screen of a terminal; the
        terminal may have another size since.
        """
        self._width = terminal_width(self._out)
        self._lines = []

    def show_screen(self) -> None:
        """Print it: elsewhere than on a terminal, after the one before."""
        if self._width is None or os.environ.get("TERM") == "dumb":
            self.flush()
            return
        rows = [row for line in self._lines for row in line.split("\n")]
        with contextlib.suppress(OSError):
            rows = rows[: os.get_terminal_size(self._out.fileno()).lines - 1]
        # To the top; each line is erased to its end, and what is below the last.
        self._lines = ["\x1b[H" + "\x1b[K\n".join(rows) + "\x1b[K\x1b[J"]
        self.flush()

    def flush(self) -> None:
        """Print the result to stdout.

        A reader that closed the pipe, as ``head`` does, is no error. Raises Problem if
        the result cannot be written for another reason.
        """
        lines, self._lines = self._lines, []
        self.progress("")
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
            self.is_read = False
            _discard(self._out)
        except OSError as error:
            _discard(self._out)
            raise Problem(
                "stdout-not-written",
                f"the result cannot be written to stdout: {error.strerror}",
            ) from error

    def _wrapped(self, text: str, indent: int) -> str:
        """Break ``text`` at blanks to fit the terminal if it starts at ``indent``."""
        room = (self._width or 0) - indent
        if self._width is None or len(text) <= room or room < _NARROWEST:
            return text

        # Words stay whole, so that option strings and paths can be copied.
        lines = textwrap.wrap(
            text, room, break_long_words=False, break_on_hyphens=False
        )
        return ("\n" + " " * indent).join(lines)

    def _coloured(self, text: str, tone: Optional[str]) -> str:
        if not self._colour or tone is None:
            return text
        return f"\x1b[{_COLOURS[tone]}m{text}\x1b[0m"


def _folds(
    columns: Sequence[Sequence[str]],
    sizes: Sequence[int],
    minor: Sequence[int],
    room: Optional[int],
) -> tuple[list[int], ...]:
    """Return the numbers of the columns that remain, and of those that fold: the same
    in each row, the same in each row with the same first cell, and others.

    Those that are the same fold first, then ``minor``, then others from right to left,
    until the rest fits ``room``; None has room for all.
    """
    kept = list(range(len(columns)))
    rows = list(zip(*columns))[1:]
    same = [n for n in kept[1:] if len(rows) > 1 and len(set(columns[n][1:])) == 1]
    for number in dict.fromkeys((*reversed(same), *minor, *reversed(kept[1:-1]))):
        *before, last = kept
        # A word that no fold would give enough room is not worth one.
        words = (len(word) for cell in columns[last] for word in cell.split())
        longest = max((n for n in words if room and n <= room // 2), default=0)
        width = sum(sizes[n] + len(_GAP) for n in before)
        if not room or width + min(sizes[last], max(longest, _NARROWEST)) <= room:
            break
        kept.remove(number)
    same = [n for n in same if n not in kept]
    above = [
        n
        for n in range(len(columns))
        if 0 not in kept and n not in (*kept, *same)
        if len({(row[0], row[n]) for row in rows}) == len({row[0] for row in rows})
    ]
    rest = {*range(len(columns))} - {*kept, *same, *above}
    return kept, same, above, sorted(rest)


def _named(headings: Sequence[str], row: Sequence[str], numbers: Iterable[int]) -> str:
    """Return these cells, each but the first after its heading: ``tcp, CONN 1``."""
    return ", ".join(f"{headings[n]} {row[n]}" if n else row[n] for n in numbers)


def sentences(found: Iterable[Sentence]) -> list[dict[str, str]]:
    """Return sentences with their ids, for a document."""
    return [{"id": one.id, "sentence": one} for one in found]


def count(number: int, noun: str) -> str:
    """Return ``1 mount``, ``2 mounts``; for nouns whose plural ends in s."""
    return f"{number} {noun}" + ("" if number == 1 else "s")


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
    """Write at once; ignore errors, because there is no other place to report them."""
    try:
        sys.stderr.write(text)
        sys.stderr.flush()
    except OSError:
        _discard(sys.stderr)


def _discard(stream: Optional[TextIO]) -> None:
    """Prevent Python from flushing again at its end, and exiting with 120."""
    with contextlib.suppress(OSError, AttributeError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, stream.fileno())  # type: ignore[union-attr]
        os.close(null)


def when(seconds: float) -> str:
    """Return a time, given in seconds since 1970, for people: in UTC, to a second."""
    return f"{datetime.fromtimestamp(seconds, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


def when_iso(text: str) -> str:
    """Return an ISO 8601 time for people; another text is returned unchanged."""
    try:
        return when(datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp())
    except (ValueError, OverflowError):
        return text
