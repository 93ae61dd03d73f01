# SPDX-License-Identifier: GPL-2.0-or-later
"""The journal on disk: one record a line, each there before the next thing is done.

A last line that a power cut tore is not read, and cut off by the next writer: nothing
was done yet on the strength of it. Any other damage is for a person to look at: a
checksum a line tells it, also where only the end of the last line was hit.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from pathlib import Path
from typing import Union

from ovirt_rdma.host.atomic_file import how_to_mend, sync_directory, write_atomically
from ovirt_rdma.host.effects.journal_compaction import RUNS_KEPT, compacted
from ovirt_rdma.host.effects.journal_lines import (
    WrongLine,
    is_whole,
    line_of,
    record_in,
)
from ovirt_rdma.host.effects.journal_records import Record
from ovirt_rdma.host.effects.ledger import Ledger, WrongOrder, fold
from ovirt_rdma.host.paths import JOURNAL, under
from ovirt_rdma.host.problem import Problem

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
                    f"{self.path}, line {number}: {wrong}", wrong.fix or self._fix()
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
            raise JournalProblem(f"{self.path}: {wrong}", self._fix()) from None

    def append(self, record: Record) -> None:
        """Put ``record`` on disk; it is there when this returns.

        Raises JournalProblem where that cannot be, and the journal is as it was.
        """
        try:
            self._append(line_of(record))
        except OSError as error:
            raise JournalProblem(
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
                f"{self.path} may be read by root only", "run this command as root"
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
