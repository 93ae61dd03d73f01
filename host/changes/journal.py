# SPDX-License-Identifier: GPL-2.0-or-later
"""Read, write and compact the journal of changes.

The journal has one record per line, as JSON with a checksum: the first key, which is
the CRC-32 of the line without it. Each record is on disk before the next thing is done.

A last line that a power cut has torn is ignored, and the next writer removes it:
nothing was done yet because of it. Any other damage, also to the end of the last line,
shows in a checksum and is refused, so that a person looks at it.

JournalWriter records a run and reports it to a listener. A change that cannot be
recorded is not made. A rollback continues without records: a full disk must not leave a
host half changed. After the first record that could not be written, none is written:
the journal then shows an open run, which the next one closes.

Compaction keeps all records of the newest runs, of open runs, and of runs with changes
that are still applied.
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
from typing import Any, Optional, Union, cast, get_args

from ovirt_rdma.host.changes.kinds.model import (
    OUTCOMES,
    RECORDS,
    VERBS,
    Begin,
    End,
    Listener,
    Record,
)
from ovirt_rdma.host.changes.ledger import Ledger, WrongOrder, fold
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.system.files import fix_for, sync_directory, write_atomically
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import (
    WrongRecord,
    json_value,
)

RUNS_KEPT = 100


def compacted(records: Sequence[Record], newest: int = RUNS_KEPT) -> tuple[Record, ...]:
    """Return the records of the runs to keep, in their order. Their ledger is the
    ledger of all records without the other runs. Pure. Raises WrongOrder as
    :func:`fold`.
    """
    runs = fold(records).runs
    kept = {run.number for run in runs[len(runs) - min(newest, len(runs)) :]}
    kept |= {run.number for run in runs if run.applied or run.outcome is None}
    return tuple(record for record in records if record.run in kept)


_KEY = "record"
_KINDS: dict[str, Any] = {cls.__name__.lower(): cls for cls in get_args(Record)}
# At the front and in this form only: anywhere else it is an unknown key.
_CHECKED = re.compile(rb'\{"crc32":"([0-9a-f]{8})",')


def _check(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    """Return the key and the problem of a verb or outcome that is unknown."""
    if cls is Begin and values["verb"] not in VERBS:
        return "verb", f"is {values['verb']!a}, which is not a verb of a run"
    if cls is End and values["outcome"] not in OUTCOMES:
        return "outcome", f"is {values['outcome']!a}, which is not an outcome of a run"
    return "", ""


_records = Records("the journal", _check)


def line_of(record: Record) -> bytes:
    """Return ``record`` as a line: the checksum, then ``record`` with the kind in small
    letters, then its fields. ASCII only.
    """
    data = {_KEY: type(record).__name__.lower(), **plain(record)}
    text = json.dumps(data, separators=(",", ":")).encode("ascii")
    return b'{"crc32":"%08x",%b\n' % (zlib.crc32(text), text[1:])


def _checked(line: bytes) -> Optional[bytes]:
    """Return ``line`` without its checksum; None if that is missing or differs."""
    found = _CHECKED.match(line)
    text = b"{" + line[found.end() :] if found else b""
    return text if found and zlib.crc32(text) == int(found[1], 16) else None


def record_in(line: bytes) -> Record:
    """Return the record of ``line``, without its newline. Raises WrongRecord."""
    text = _checked(line)
    if text is None:
        raise WrongRecord("it is damaged (its checksum is missing or differs)")
    data = cast("dict[str, Any]", json_value(text))  # it begins with a brace
    name = data.pop(_KEY, None)
    cls = _KINDS.get(name) if isinstance(name, str) else None
    if cls is Begin or "schema_version" in data:
        RECORDS.check_version(data)
    if cls is None:
        raise WrongRecord(f"it has a record {name!a}, which is unknown to this version")
    return cast("Record", _records.read(cls, data))


FILE_MODE = 0o600
_DIRECTORY_MODE = 0o755
# The file is compacted when it has so many runs.
_RUNS_TOO_MANY = 2 * RUNS_KEPT


class JournalProblem(Problem):
    """The journal cannot be read or written."""


class Journal:
    """The journal of the host below ``root``. Writers need the lock of the host."""

    def __init__(self, root: Union[str, Path] = "/") -> None:
        self.path = under(root, JOURNAL)

    def records(self) -> tuple[Record, ...]:
        """Return all records; none if there is no journal.

        Raises JournalProblem where it cannot be read, is damaged, or was written by a
        newer version.
        """
        lines = self._whole(self._bytes()).split(b"\n")[:-1]
        records = []
        for number, line in enumerate(lines, 1):
            try:
                records.append(record_in(line))
            except WrongRecord as wrong:
                raise JournalProblem(
                    "journal-damaged",
                    f"{self.path}, line {number}: {wrong}",
                    wrong.fix or self._fix(),
                ) from None
        return tuple(records)

    def ledger(self) -> Ledger:
        """Return the ledger of all records. Raises JournalProblem as ``records``."""
        return self.ledger_of(self.records())

    def ledger_of(self, records: Sequence[Record]) -> Ledger:
        """Return the ledger of ``records``, which are this journal's. Raises
        JournalProblem.
        """
        try:
            return fold(records)
        except WrongOrder as wrong:
            raise JournalProblem(
                "journal-damaged", f"{self.path}: {wrong}", self._fix()
            ) from None

    def append(self, record: Record) -> None:
        """Write ``record``; it is on disk when this returns.

        Raises JournalProblem where it cannot be written; the journal is unchanged then.
        """
        try:
            self._append(line_of(record))
        except OSError as error:
            raise JournalProblem(
                "journal-not-written",
                f"{self.path} cannot be written: {error.strerror or error}",
                fix_for(error, self.path),
            ) from error

    def compact(self) -> bool:
        """Compact the journal if it has too many runs; return True if it was. If
        writing fails, the old journal stays, which does no harm.

        Raises JournalProblem as ``records``.
        """
        records = self.records()
        if len(self.ledger_of(records).runs) <= _RUNS_TOO_MANY:
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
        """Return the size of the whole lines in bytes."""
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
            # O_NONBLOCK: a named pipe would wait for its writer.
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
            raise self._unreadable(why) from None
        try:
            why = _why_not_ours(os.fstat(descriptor))
            if why:
                raise self._unreadable(why)
            with os.fdopen(descriptor, "rb", closefd=False) as stream:
                return stream.read()
        except OSError as error:
            raise self._unreadable(error.strerror or error) from None
        finally:
            os.close(descriptor)

    def _unreadable(self, why: object) -> JournalProblem:
        return JournalProblem(
            "journal-unreadable",
            f"{self.path} cannot be used: {why}",
            "nothing is changed until this is fixed; find out who changed it, and "
            "restore the journal: a regular file of root's with mode 0600",
        )

    def _whole(self, data: bytes) -> bytes:
        """Return the whole lines. Raises JournalProblem where the last line is complete
        but does not end with a newline: it is damaged, not torn.
        """
        end = data.rfind(b"\n") + 1
        if _checked(data[end:-1]) is not None:
            number = data.count(b"\n") + 1
            raise JournalProblem(
                "journal-damaged",
                f"{self.path}, line {number}: ends with {data[-1:]!a}, not with a "
                "newline, so it is damaged",
                self._fix(),
            )
        return data[:end]

    def _fix(self) -> str:
        return (
            f"nothing is changed until this is fixed; keep a copy of {self.path}, it "
            "has the earlier values of this host, and restore it from a backup, or "
            "remove that line"
        )


def _why_not_ours(status: os.stat_result) -> str:
    """Return, as a clause, why a file with this status cannot be trusted, or ""."""
    if not stat.S_ISREG(status.st_mode):
        return "it is not a regular file"
    if status.st_uid not in (0, os.geteuid()):
        return f"it belongs to the user {status.st_uid}, not to root"
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        return "other users than its owner may write to it"
    return ""


class JournalWriter:
    """Records a run in the journal, and reports it to ``listener``.

    ``problem`` says why a record could not be written, or is empty. Raises
    JournalProblem where the journal is damaged.
    """

    def __init__(self, journal: Journal, listener: Listener) -> None:
        self._journal = journal
        self._listener = listener
        self._records = list(journal.records())
        self._ledger: Optional[Ledger] = journal.ledger_of(self._records)
        self.problem = ""

    @property
    def ledger(self) -> Ledger:
        """The ledger of all records, also of those that could not be written."""
        if self._ledger is None:
            self._ledger = fold(self._records)
        return self._ledger

    @property
    def unrecorded(self) -> str:
        """The end of a sentence about the run if not all of it could be recorded."""
        return f"; this is not in the journal: {self.problem}" if self.problem else ""

    def write(self, record: Record) -> None:
        """Write ``record``. Raises JournalProblem where that is not possible."""
        if self.problem:
            raise JournalProblem("journal-not-written", self.problem)
        self._journal.append(record)
        self._add(record)

    def write_if_possible(self, record: Record) -> None:
        """Write ``record``; if that is not possible, set ``problem`` and report it."""
        self._add(record)
        if self.problem:
            return
        try:
            self._journal.append(record)
        except JournalProblem as problem:
            self.problem = str(problem)
            self.say(f"{problem}: the next run checks all of this again")

    def _add(self, record: Record) -> None:
        self._records.append(record)
        self._ledger = None

    def compact(self) -> None:
        """Compact a long journal, if all records could be written."""
        if not self.problem:
            with suppress(JournalProblem):
                self._journal.compact()

    def doing(self, step_id: str, sentence: str) -> None:
        """Report that a step begins."""
        with suppress(OSError):
            self._listener.doing(step_id, sentence)

    def done(self, step_id: str, before: str, after: str) -> None:
        """Report that a step is done."""
        with suppress(OSError):
            self._listener.done(step_id, before, after)

    def say(self, sentence: str) -> None:
        """Report a sentence."""
        with suppress(OSError):
            self._listener.note(sentence)


def iso(seconds: float) -> str:
    """Return a time in seconds since 1970 UTC as ISO 8601, with whole seconds."""
    at = datetime.fromtimestamp(seconds, timezone.utc)
    return at.replace(tzinfo=None).isoformat(timespec="seconds") + "Z"
