# SPDX-License-Identifier: GPL-2.0-or-later
"""The journal of changes: records, lines with checksums, compaction, writing.

Which records of a long journal are kept: all of each run that something is held of
or that is open, and all of the newest runs. Pure.

A record of the journal as a line of JSON with a checksum, and back, strictly. Pure.

The checksum is the line's first key, and the CRC-32 of the line without it.

The journal on disk: one record a line, each there before the next thing is done.

A last line that a power cut tore is not read, and cut off by the next writer: nothing
was done yet on the strength of it. Any other damage is for a person to look at: a
checksum a line tells it, also where only the end of the last line was hit.

A run's notes: what it puts into the journal, and tells whoever listens.

Going forward, what cannot be noted is not done. On the way back it is done all the
same: a full disk must not keep a host half changed. After the first record that could
not be written none is: the journal then shows an open run, which the next one closes.
"""

from __future__ import annotations

import errno
import json
import os
import re
import stat
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Optional, Union, get_args

from ovirt_rdma.host.changes.kinds.model import (
    OUTCOMES,
    SCHEMA_VERSION,
    VERBS,
    Begin,
    End,
    Listener,
    Record,
)
from ovirt_rdma.host.changes.ledger import Ledger, WrongOrder, fold
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.system.files import how_to_mend, sync_directory, write_atomically
from ovirt_rdma.host.system.json_codec import Records, WrongRecord, kind, plain

RUNS_KEPT = 100


def compacted(records: Sequence[Record], newest: int = RUNS_KEPT) -> tuple[Record, ...]:
    """Return the records of the runs to keep, in their order; the ledger of them is the
    ledger of all without the other runs. Raises WrongOrder as :func:`fold`.
    """
    runs = fold(records).runs
    kept = {run.number for run in runs[len(runs) - min(newest, len(runs)) :]}
    kept |= {run.number for run in runs if run.held or run.outcome is None}
    return tuple(record for record in records if record.run in kept)


_KEY = "record"
_KINDS: dict[str, Any] = {cls.__name__.lower(): cls for cls in get_args(Record)}
_NEWER = "use the version of ovirt-rdma-host that wrote it, or a newer one"
# At the front, and in this form only: anywhere else it is a key that nobody knows.
_CHECKED = re.compile(rb'\{"crc32":"([0-9a-f]{8})",')


def _check(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    """Say which word is none of the journal's: what a run is told by it."""
    if cls is Begin and values["verb"] not in VERBS:
        return "verb", f"is {values['verb']!a}, which is no verb of a run"
    if cls is End and values["outcome"] not in OUTCOMES:
        return "outcome", f"is {values['outcome']!a}, which is no outcome of a run"
    return "", ""


_records = Records("the journal", _check)


class WrongLine(ValueError):
    """A line is no record; the text says why, as a clause, ``fix`` what to do where
    the line is right and this version too old.
    """

    def __init__(self, words: str, fix: str = "") -> None:
        super().__init__(words)
        self.fix = fix


def line_of(record: Record) -> bytes:
    """Return ``record`` as a line: the checksum, then ``record``, which says the kind
    in small letters, then its fields. ASCII only.
    """
    data = {_KEY: type(record).__name__.lower(), **plain(record)}
    plainly = json.dumps(data, separators=(",", ":")).encode("ascii")
    return b'{"crc32":"%08x",%b\n' % (zlib.crc32(plainly), plainly[1:])


def is_whole(line: bytes) -> bool:
    """Whether ``line``, without its end, has a checksum and is as it was written."""
    checked, plainly = _without_checksum(line)
    return checked is not None and zlib.crc32(plainly) == int(checked[1], 16)


def _without_checksum(line: bytes) -> tuple[Optional[re.Match[bytes]], bytes]:
    """Return the checksum at the front of ``line``, if it has one, and the rest, which
    is an object again.
    """
    checked = _CHECKED.match(line)
    return checked, (b"{" + line[checked.end() :] if checked else line)


def record_in(line: bytes) -> Record:
    """Return the record of ``line``, which has a checksum unless an earlier version
    wrote it. Raises WrongLine.
    """
    line = line[:-1] if line.endswith(b"\n") else line
    checked, plainly = _without_checksum(line)
    if checked is not None and not is_whole(line):
        raise WrongLine(
            "is not as it was written (its checksum differs)",
            "nothing is changed as long as that is so; keep a copy of the journal, it "
            "says what this host had before, and put back that line from a backup; one "
            f"that you know to be right counts without {checked[0][1:].decode()}",
        )
    try:
        data = json.loads(plainly)
    except (ValueError, RecursionError):
        raise WrongLine("is no JSON") from None
    if not isinstance(data, dict):
        raise WrongLine(f"is {kind(data)}, not an object")
    name = data.pop(_KEY, None)
    version = data.get("schema_version", SCHEMA_VERSION)
    if type(version) is int and version > SCHEMA_VERSION:
        raise WrongLine(f"was written by a newer version (schema {version})", _NEWER)
    cls = _KINDS.get(name) if isinstance(name, str) else None
    if cls is None:
        raise WrongLine(f"has a record {name!a}, which this version does not know")
    try:
        record: Record = _records.read(cls, data)
    except WrongRecord as wrong:
        raise WrongLine(str(wrong)) from None
    if isinstance(record, Begin) and record.schema_version != SCHEMA_VERSION:
        raise WrongLine(f"schema_version is {version!a}, not {SCHEMA_VERSION}")
    return record


FILE_MODE = 0o600
_DIRECTORY_MODE = 0o755
# The file is written anew when it has so many runs that it pays.
_RUNS_TOO_MANY = 2 * RUNS_KEPT


class JournalProblem(Problem):
    """The journal cannot be read, or not be written."""


class Journal:
    """The journal of the host below ``root``. Who writes holds the lock."""

    def __init__(self, root: Union[str, Path] = "/") -> None:
        self.path = under(root, JOURNAL)

    def records(self) -> tuple[Record, ...]:
        """Return all records, none where there is no journal.

        Raises JournalProblem where it cannot be read, is damaged, or was written by a
        newer version.
        """
        lines = self._whole(self._bytes()).split(b"\n")[:-1]
        found = []
        for number, line in enumerate(lines, 1):
            try:
                found.append(record_in(line))
            except WrongLine as wrong:
                raise JournalProblem(
                    "journal-damaged",
                    f"{self.path}, line {number}: {wrong}",
                    wrong.fix or self._fix(),
                ) from None
        return tuple(found)

    def ledger(self) -> Ledger:
        """Return what the records come to. Raises JournalProblem as ``records``."""
        return self.in_order(self.records())

    def in_order(self, records: Sequence[Record]) -> Ledger:
        """Return what ``records`` of this journal come to. Raises JournalProblem."""
        try:
            return fold(records)
        except WrongOrder as wrong:
            raise JournalProblem(
                "journal-damaged", f"{self.path}: {wrong}", self._fix()
            ) from None

    def append(self, record: Record) -> None:
        """Put ``record`` on disk; it is there when this returns.

        Raises JournalProblem where that cannot be, and the journal is as it was.
        """
        try:
            self._append(line_of(record))
        except OSError as error:
            raise JournalProblem(
                "journal-not-written",
                f"{self.path} cannot be written: {error.strerror or error}",
                how_to_mend(error, self.path),
            ) from error

    def compact(self) -> bool:
        """Write the journal anew where many of its runs are of no more use; returns
        whether. The old one stays where that fails, which matters little.

        Raises JournalProblem as ``records``.
        """
        records = self.records()
        if len(self.in_order(records).runs) <= _RUNS_TOO_MANY:
            return False
        data = b"".join(line_of(record) for record in compacted(records))
        try:
            write_atomically(self.path, data, FILE_MODE)
        except OSError:
            return False
        return True

    def _append(self, line: bytes) -> None:
        if not self.path.parent.is_dir():
            self.path.parent.mkdir(parents=True)
            self.path.parent.chmod(_DIRECTORY_MODE)
        new = not self.path.exists()
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(self.path, flags, FILE_MODE)
        try:
            size = self._whole_size(descriptor)
            os.ftruncate(descriptor, size)
            try:
                self._write(descriptor, line, size)
                os.fsync(descriptor)
            except OSError:
                os.ftruncate(descriptor, size)
                raise
        finally:
            os.close(descriptor)
        if new:
            sync_directory(self.path.parent)

    def _whole_size(self, descriptor: int) -> int:
        """Return how many bytes the whole lines are."""
        size = os.fstat(descriptor).st_size
        if size and os.pread(descriptor, 1, size - 1) != b"\n":
            return len(self._whole(self._bytes()))
        return size

    @staticmethod
    def _write(descriptor: int, line: bytes, offset: int) -> None:
        while line:
            written = os.pwrite(descriptor, line, offset)
            line, offset = line[written:], offset + written

    def _bytes(self) -> bytes:
        try:
            # Not waiting for the other end, should it be a pipe.
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            descriptor = os.open(self.path, flags)
        except FileNotFoundError:
            return b""
        except PermissionError:
            raise JournalProblem(
                "not-root",
                f"{self.path} may be read by root only",
                "run this command as root",
            ) from None
        except OSError as error:
            link = error.errno == errno.ELOOP
            why = "it is a symbolic link" if link else error.strerror or error
            raise self._unread(why) from None
        try:
            why = _why_not_ours(os.fstat(descriptor))
            if why:
                raise self._unread(why)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read()
        except OSError as error:
            raise self._unread(error.strerror or error) from None
        finally:
            os.close(descriptor)

    def _unread(self, why: object) -> JournalProblem:
        return JournalProblem(
            "journal-unreadable",
            f"{self.path} cannot be used: {why}",
            "nothing is changed as long as that is so; find out whose doing it is, and "
            "put the journal back in its place: root's, a file, mode 0600",
        )

    def _whole(self, data: bytes) -> bytes:
        """Return the whole lines. Raises JournalProblem where the last has another end
        than it was written with: it was not torn.
        """
        end = data.rfind(b"\n") + 1
        if is_whole(data[end:-1]):
            number = data.count(b"\n") + 1
            raise JournalProblem(
                "journal-damaged",
                f"{self.path}, line {number}: ends with {data[-1:]!a}, not with a "
                "newline, so it was damaged",
                self._fix(),
            )
        return data[:end]

    def _fix(self) -> str:
        return (
            f"nothing is changed as long as that is so; keep a copy of {self.path}, "
            "it says what this host had before, and mend or remove that line"
        )


def _why_not_ours(found: os.stat_result) -> str:
    """Say, as a clause, why nobody should do what such a file says, or nothing."""
    if not stat.S_ISREG(found.st_mode):
        return "it is no regular file"
    if found.st_uid not in (0, os.geteuid()):
        return f"it belongs to the user {found.st_uid}, not to root"
    if found.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "others than its owner may write to it"
    return ""


class Notes:
    """The journal as it is, or would be. Raises JournalProblem where it is damaged."""

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal = journal
        self._listener = listener
        self._records = list(journal.records())
        self._ledger: Optional[Ledger] = journal.in_order(self._records)
        self.problem = ""

    @property
    def ledger(self) -> Ledger:
        """What the records come to, with those that could not be written."""
        if self._ledger is None:
            self._ledger = fold(self._records)
        return self._ledger

    @property
    def what_is_missing(self) -> str:
        """What a sentence about the run has to add where not all could be noted."""
        return f"; that is not noted: {self.problem}" if self.problem else ""

    def must(self, record: Record) -> None:
        """Note ``record``. Raises JournalProblem where that cannot be."""
        if self.problem:
            raise JournalProblem("journal-unreadable", self.problem)
        self._journal.append(record)
        self._know(record)

    def may(self, record: Record) -> None:
        """Note ``record``, if that can be; ``problem`` says so if not."""
        self._know(record)
        if self.problem:
            return
        try:
            self._journal.append(record)
        except JournalProblem as problem:
            self.problem = str(problem)
            self.say(f"{problem}: the next run looks at all of this again")

    def _know(self, record: Record) -> None:
        self._records.append(record)
        self._ledger = None

    def compact(self) -> None:
        """Let a journal that has grown long be written anew."""
        if not self.problem:
            with suppress(JournalProblem):
                self._journal.compact()

    def doing(self, step_id: str, sentence: str) -> None:
        """Tell that a step begins."""
        with suppress(OSError):
            self._listener.doing(step_id, sentence)

    def done(self, step_id: str, before: str, after: str) -> None:
        """Tell that a step is done."""
        with suppress(OSError):
            self._listener.done(step_id, before, after)

    def say(self, sentence: str) -> None:
        """Tell a sentence."""
        with suppress(OSError):
            self._listener.note(sentence)


def iso(seconds: float) -> str:
    """Return a time in seconds since 1970 UTC as ISO 8601, to the second."""
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
