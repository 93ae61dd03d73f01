# SPDX-License-Identifier: GPL-2.0-or-later
"""Store the state of a conversion on disk, atomically and with a digest.

It is written before and after each step; a lock per data center allows one run at a
time. An invalid file is left unchanged, because it may be the only record of how a
domain was mounted before.
"""

from __future__ import annotations

import contextlib
import fcntl
import hmac
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Generic, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.conversion.model import CONVERT, HEAL, ConversionState
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.files import remove_unfinished, write_atomically
from ovirt_rdma.host.system.json_codec import Records, plain
from ovirt_rdma.host.system.json_document import (
    Envelope,
    WrongRecord,
    read_json,
)
from ovirt_rdma.host.system.lock import LockHeld
from ovirt_rdma.host.system.safe_file import read_file

CONVERSION = Envelope("conversion", digested="state")
# The file contains the hosts' policies.
FILE_MODE = 0o600
FOLDER_MODE = 0o700
MACHINE_ID = Path("/etc/machine-id")
_APPLICATION = bytes.fromhex("5a3c1be6d47f4e0c9b21f08e6d95a7c4")

_Record = TypeVar("_Record")
# A Guid, the form of all ids of the engine.
_ID = re.compile("[0-9a-f-]{36}")


class StateFileProblem(Problem):
    """The state file cannot be used or written."""


class StateFolder:
    """The folder with the states of all conversions of this machine, one file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def only_run(self, data_center: str) -> Iterator[None]:
        """Hold the lock of a data center: one run at a time changes its hosts.

        Raises LockHeld (75) if another run of this machine has it, and
        StateFileProblem if its file cannot be opened or the id is invalid.
        """
        path = self._folder / f"{_checked(data_center)}.lock"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW
            descriptor = os.open(path, flags, FILE_MODE)
        except OSError as error:
            raise _unwritable(path, error) from error
        try:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise LockHeld(
                    "conversion-running",
                    "another run of ovirt-rdma is changing hosts of this data center",
                    "wait until it has ended, then run this command again",
                ) from None
            remove_unfinished(self._folder)
            yield
        finally:
            os.close(descriptor)

    def owner(self) -> str:
        """Return the name of this folder for others, created once: the machine's name
        and a random word. A machine that has a copy of the folder, or shares it, gets a
        name of its own. Raises StateFileProblem.
        """
        path = self._folder / f"owner-{_this_machine()}"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            if not path.exists():
                text = f"{socket.gethostname()} {secrets.token_hex(4)}\n"
                # The first of several runs that start at the same time wins.
                with contextlib.suppress(FileExistsError):
                    write_atomically(path, text.encode(), FILE_MODE, replace=False)
            owner = read_file(path).decode("utf-8", "replace").strip()
        except OSError as error:
            raise _unwritable(path, error) from error
        if not owner:
            raise StateFileProblem(
                "owner-file-empty",
                f"{path} is empty; it should have the name of this machine for the "
                "engine's tasks",
                "remove the file; if a task is still open then, use --take-over",
            )
        return owner

    def file_for(self, state: ConversionState) -> StateFile:
        """Return the file of a state, named by the data center for a heal, otherwise by
        the first domain.
        """
        key = state.data_center if state.kind == HEAL else state.domains[0].id
        return StateFile(self._folder / f"{state.kind}-{_checked(key)}.json")

    def path_for(self, kind: str, data_center: str) -> Path:
        """Return the path of the file of another ``kind`` of run of a data center."""
        return self._folder / f"{kind}-{_checked(data_center)}.json"

    def states(self, data_center: str) -> list[ConversionState]:
        """Return all states of a data center. Raises StateFileProblem for the first
        invalid file, because it is unknown which domains are in it.
        """
        states = []
        for kind in (CONVERT, HEAL):
            for path in sorted(self._folder.glob(f"{kind}-*.json")):
                state = StateFile(path).read()
                if state is not None and state.data_center == data_center:
                    states.append(state)
        return states


def _this_machine() -> str:
    """Return a digest that a clone of this machine does not have, because it has
    another machine-id(5) or another name.

    As sd_id128_get_machine_app_specific(3) makes it, since the id is not to be
    published.
    """
    id = b""
    with contextlib.suppress(OSError):
        id = read_file(MACHINE_ID).strip()
    name = socket.gethostname().encode()
    return hmac.new(id, _APPLICATION + name, "sha256").hexdigest()[:16]


class RecordFile(Generic[_Record]):
    """A file with one dataclass of plain data, and its digest.

    Subclasses say which: ``record``, and the ``envelope`` of the file. ``last`` is the
    state that was written last, also if that failed: it is true all the same.
    """

    record: type[_Record]
    envelope: Envelope

    def __init__(self, path: Path) -> None:
        self.path = path
        self.last: Optional[_Record] = None

    def read(self) -> Optional[_Record]:
        """Return the stored state, None if there is none. Raises StateFileProblem."""
        try:
            self.path.stat()
        except FileNotFoundError:
            return None
        except OSError:
            pass  # its reader says why
        try:
            return self._decoded(read_json(self.path))
        except WrongRecord as error:
            raise self.invalid(f"is invalid: {error}", error.fix) from None

    def write(self, state: _Record) -> None:
        """Replace the stored state. Raises StateFileProblem, and keeps the old one."""
        self.last = state
        text = self.envelope.text({"state": plain(state)}, indent=1)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            write_atomically(self.path, text.encode("ascii"), FILE_MODE)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def invalid(self, reason: str, fix: str = "") -> StateFileProblem:
        """Return the problem of an invalid file; ``reason`` follows its path. ``fix``
        is "" for the file's own.
        """
        raise NotImplementedError

    def _decoded(self, whole: Any) -> _Record:
        data = self.envelope.content(whole).get("state")
        return Records("the state").read(self.record, data)


class StateFile(RecordFile[ConversionState]):
    """The state of one conversion."""

    record = ConversionState
    envelope = CONVERSION

    def invalid(self, reason: str, fix: str = "") -> StateFileProblem:
        """See RecordFile."""
        return StateFileProblem(
            "conversion-state-invalid",
            f"the state file {self.path} {reason}; nothing was changed, the file "
            "included",
            fix
            or "it records how the domains were mounted before: keep a copy, then fix "
            "it or restore it from a backup; without one, see with 'ovirt-rdma domain "
            "verify' which hosts are converted, move the file away and convert again, "
            "to the transport that you want",
        )


def _checked(name: str) -> str:
    """Return ``name`` if it is a valid id of the engine, to use it in a file name."""
    if not _ID.fullmatch(name):
        raise StateFileProblem(
            "engine-id-invalid",
            f"the engine has sent an invalid id: {name!a}",
            "check that this is the engine that you mean",
        )
    return name


def _unwritable(path: Path, error: OSError) -> StateFileProblem:
    return StateFileProblem(
        "conversion-state-not-written",
        f"{path}: the state cannot be stored: {error.strerror or error}",
        "free disk space, or run the command as a user with write access",
    )
