# SPDX-License-Identifier: GPL-2.0-or-later
"""A conversion's state on disk: whole, with a digest, and one run at a time.

It is written before each act and after it. A file that is broken is left as it is: it
may be all that tells how a domain was mounted before.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import secrets
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.conversion.model import CONVERT, HEAL, ConversionState
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.system.files import remove_unfinished, write_atomically
from ovirt_rdma.host.system.json_codec import (
    Records,
    UnreadableJson,
    WrongRecord,
    plain,
    read_json,
)
from ovirt_rdma.host.system.lock import LockHeld

SCHEMA_VERSION = 2
KIND = "conversion"
# It has the hosts' policies in it.
FILE_MODE = 0o600
FOLDER_MODE = 0o700


# A Guid, as the engine writes all of its ids.
_ID = re.compile("[0-9a-f-]{36}")


class StateFileProblem(Problem):
    """The state file cannot be used or written."""


class StateFolder:
    """Where the states of all conversions of this machine are, a file each."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    @contextmanager
    def only_run(self, data_center: str) -> Iterator[None]:
        """Hold the lock of a data center: one run at a time changes its hosts.

        Raises LockHeld (75) where another run of this machine has it, and
        StateFileProblem where its file cannot be opened, or that is no id.
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
                    "another run of ovirt-rdma converts or heals domains of this data "
                    "center",
                    "wait until it has ended, then run this command again",
                ) from None
            remove_unfinished(self._folder)
            yield
        finally:
            os.close(descriptor)

    def owner(self) -> str:
        """Return what names this folder to others, made once: the machine's name, and a
        word of its own. Raises StateFileProblem.
        """
        path = self._folder / "owner"
        try:
            self._folder.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            if not path.exists():
                text = f"{socket.gethostname()} {secrets.token_hex(4)}\n"
                # The first one's: runs may begin at the same time.
                with contextlib.suppress(FileExistsError):
                    write_atomically(path, text.encode(), FILE_MODE, replace=False)
            owner = path.read_text(errors="replace").strip()
        except OSError as error:
            raise _unwritable(path, error) from error
        if not owner:
            raise StateFileProblem(
                "owner-file-empty",
                f"{path} is empty: it names this machine in the engine's tasks",
                "remove the file; a task that is still open then wants --take-over",
            )
        return owner

    def file_for(self, state: ConversionState) -> StateFile:
        """Return where a state is kept: a heal by its data center, others by their
        first domain.
        """
        heals = state.kind == HEAL
        key = state.data_center if heals else state.domains[0].id
        return StateFile(self._folder / f"{state.kind}-{_checked(key)}.json")

    def states(self, data_center: str) -> list[ConversionState]:
        """Return all states of a data center. Raises StateFileProblem for the first
        file that is broken: nobody knows which domains are in it.
        """
        found = []
        for kind in (CONVERT, HEAL):
            for path in sorted(self._folder.glob(f"{kind}-*.json")):
                state = StateFile(path).read()
                if state is not None and state.data_center == data_center:
                    found.append(state)
        return found


class StateFile:
    """The state of one conversion."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def read(self) -> Optional[ConversionState]:
        """Return what is stored, None where nothing is. Raises StateFileProblem."""
        if not self.path.exists():
            return None
        try:
            return _decoded(read_json(self.path))
        except UnreadableJson as error:
            raise self._broken(str(error)) from None
        except (WrongRecord, ValueError) as error:
            raise self._broken(f"is broken: {error}") from None

    def write(self, state: ConversionState) -> None:
        """Replace what is stored. Raises StateFileProblem; then the old stays."""
        data = plain(state)
        whole = {
            "schema_version": SCHEMA_VERSION,
            "kind": KIND,
            "digest": _digest(data),
            "state": data,
        }
        text = json.dumps(whole, indent=1) + "\n"
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=FOLDER_MODE)
            write_atomically(self.path, text.encode("ascii"), FILE_MODE)
        except OSError as error:
            raise _unwritable(self.path, error) from error

    def _broken(self, words: str) -> StateFileProblem:
        return StateFileProblem(
            "conversion-state-invalid",
            f"the state file {self.path} {words}; nothing was changed, and it is left "
            "as it is",
            "it tells how the domains were mounted before: keep a copy, mend it or put "
            "back one from a backup; without one, look with 'ovirt-rdma domain verify' "
            "which hosts are converted, move the file away and convert again, to the "
            "transport that you want",
        )


def _checked(name: str) -> str:
    """Return an id of the engine's that a file is named after."""
    if not _ID.fullmatch(name):
        raise StateFileProblem(
            "engine-id-invalid",
            f"the engine has given an id that is none: {name!a}",
            "see that the engine is the one that you mean",
        )
    return name


def _unwritable(path: Path, error: OSError) -> StateFileProblem:
    return StateFileProblem(
        "conversion-state-not-written",
        f"{path}: the state cannot be stored: {error.strerror or error}",
        "make room, or run it as a user who may write there",
    )


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def _decoded(whole: object) -> ConversionState:
    if not isinstance(whole, dict):
        raise ValueError("it is not an object")
    if whole.get("kind") != KIND:
        raise ValueError(f"kind is {whole.get('kind')!a}, not {KIND!r}")
    version = whole.get("schema_version")
    if version not in (1, SCHEMA_VERSION):
        raise ValueError(f"schema_version is {version!a}, not {SCHEMA_VERSION!r}")
    if whole.get("digest") != _digest(whole.get("state")):
        raise ValueError("it was cut off or changed by hand (the digest differs)")
    data = whole.get("state")
    return Records("the state").read(
        ConversionState, _of_version_1(data) if version == 1 else data
    )


def _of_version_1(data: Any) -> Any:
    """Return a state of version 1 with the fields that its records have got since."""
    if not isinstance(data, dict):
        return data
    new = {
        "hosts": {"event": 0, "left_out": False},
        "first_hosts": {"event": 0, "left_out": False},
        "domains": {"event": 0},
        "first_domains": {"event": 0},
    }
    records = {
        key: [
            {**fields, **one} if isinstance(one, dict) else one
            for one in data.get(key) or ()
        ]
        for key, fields in new.items()
    }
    return {**data, **records}
