# SPDX-License-Identifier: GPL-2.0-or-later
"""Read and write recordings: ``exchanges.jsonl``, one line per exchange, and
``manifest.json``.

The manifest has ``format`` (1), ``engine_version`` (as the API says it), ``date``
(YYYY-MM-DD, UTC), ``began_with`` (for each list of the snapshot: id to name, null for
what has none), ``exchanges`` (how many) and ``dropped`` (readings left out: asked and
answered as the last time, with no change since).

An exchange has ``number`` (of the line, from 1), ``part`` (``snapshot``: the lists that
the double's world is made from; ``run``: all else), ``at_s`` (when it was sent, in
seconds since the beginning), ``method``, ``target`` (path and query as sent),
``request_headers`` and ``headers`` (in small letters, only those that matter),
``request_body`` (as sent), ``status`` (null: no answer came) and ``body`` (text; null
where ``body_as_in`` is the number of an exchange with the same body).
docs/engine-double.md, "Recorded answers", has the rest.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Optional

FORMAT = 1
MANIFEST = "manifest.json"
EXCHANGES = "exchanges.jsonl"
# Left out of bodies: indentation, which is half of an engine's output; the clock of
# GET /api; and in lists the engine's own jobs, of which there are hundreds.
_BETWEEN = re.compile(r">\s+<")
_CLOCK = re.compile(r"<summary>.*</summary>|<time>[^<]*</time>")
_JOB = re.compile(r"<job .*?</job>")
_OWN = "<external>false</external>"
SNAPSHOT, RUN = "snapshot", "run"


class RecordingProblem(Exception):
    """A folder is not a readable recording; the text says why."""


@dataclass(frozen=True)
class Exchange:
    """A request and its answer; ``status`` None: the connection broke.

    ``target`` is path and query as sent. Header names are in small letters. ``at_s``
    is when it was sent, in seconds since the recording began.
    """

    number: int
    part: str
    at_s: float
    method: str
    target: str
    request_headers: Mapping[str, str]
    request_body: str
    status: Optional[int]
    headers: Mapping[str, str] = field(default_factory=dict)
    body: str = ""

    @property
    def path(self) -> str:
        return self.target.partition("?")[0]

    @property
    def changes(self) -> bool:
        return self.method != "GET"

    @property
    def name(self) -> str:
        """The name for messages."""
        return f"{self.number}: {self.method} {self.target}"


@dataclass(frozen=True)
class Recording:
    """A folder's content. ``manifest`` as it is in the file."""

    folder: Path
    manifest: Mapping[str, Any]
    exchanges: tuple[Exchange, ...]

    def part(self, name: str) -> tuple[Exchange, ...]:
        return tuple(one for one in self.exchanges if one.part == name)


class RecordingWriter:
    """Writes exchanges as they come. Repeated polls are left out: the same request with
    the same answer, and no change in between.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.written = self.dropped = 0
        self._bodies: dict[str, int] = {}
        self._last: dict[tuple[str, str], Exchange] = {}
        folder.mkdir(parents=True, exist_ok=True)
        if any(folder.iterdir()):
            raise RecordingProblem(f"{folder} has files already: give an empty folder")

    def add(self, exchange: Exchange) -> None:
        """Write one exchange, with the next number."""
        exchange = replace(exchange, body=_shortened(exchange))
        if exchange.changes:
            self._last.clear()
        else:
            asked = exchange.target, exchange.request_headers.get("authorization", "")
            same = self._last.get(asked)
            if same is not None and _answer(same) == _answer(exchange):
                self.dropped += 1
                return
            self._last[asked] = exchange
        self.written += 1
        exchange = replace(exchange, number=self.written)
        document = asdict(exchange)
        first = self._bodies.setdefault(exchange.body, exchange.number)
        if exchange.body and first != exchange.number:
            document["body"] = None
            document["body_as_in"] = first
        line = json.dumps(document, ensure_ascii=False)
        with (self.folder / EXCHANGES).open("a", encoding="utf-8") as file:
            file.write(f"{line}\n")

    def finish(self, manifest: Mapping[str, Any]) -> None:
        """Write the manifest, which makes the folder a recording."""
        counts = {"exchanges": self.written, "dropped": self.dropped}
        whole = {"format": FORMAT, **manifest, **counts}
        text = json.dumps(whole, indent=1, ensure_ascii=False)
        part = self.folder / f"{MANIFEST}.part"
        part.write_text(f"{text}\n", encoding="utf-8")
        part.replace(self.folder / MANIFEST)


def read_recording(folder: Path) -> Recording:
    """Read a folder; raises RecordingProblem."""
    manifest = _document(folder / MANIFEST, _text(folder / MANIFEST))
    if manifest.get("format") != FORMAT:
        raise RecordingProblem(
            f"{folder / MANIFEST} has format {manifest.get('format')}, not {FORMAT}"
        )
    bodies: dict[int, str] = {}
    found = []
    file = folder / EXCHANGES
    for number, line in enumerate(_text(file).splitlines(), 1):
        document = _document(file, line)
        try:
            same = document.pop("body_as_in", None)
            if same is not None:
                document["body"] = bodies[same]
            found.append(Exchange(**document))
        except (KeyError, TypeError) as error:
            text = f"line {number} of {file} is no exchange: {error}"
            raise RecordingProblem(text) from error
        bodies[number] = found[-1].body
    if len(found) != manifest.get("exchanges"):
        raise RecordingProblem(f"{file} does not have as many lines as {MANIFEST} says")
    return Recording(folder, manifest, tuple(found))


def _shortened(one: Exchange) -> str:
    body = _BETWEEN.sub("><", one.body.strip())
    if body.endswith("</api>"):
        body = _CLOCK.sub("", body)
    if body.endswith("</jobs>"):
        body = _JOB.sub(lambda job: "" if _OWN in job[0] else job[0], body)
    return body


def _answer(one: Exchange) -> tuple[Any, ...]:
    return one.status, one.headers.get("content-type"), one.body


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8")
    except (OSError, ValueError) as error:
        raise RecordingProblem(f"{file} cannot be read: {error}") from error


def _document(file: Path, text: str) -> dict[str, Any]:
    try:
        document: dict[str, Any] = json.loads(text)
    except ValueError as error:
        raise RecordingProblem(f"{file} cannot be read: {error}") from error
    return document
