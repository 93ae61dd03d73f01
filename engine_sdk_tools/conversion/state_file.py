# SPDX-License-Identifier: GPL-2.0-or-later
"""A conversion's state on disk: whole, with a digest, and one run at a time.

It is written before each act and after it. A file that is broken is left as it is: it
may be all that tells how a domain was mounted before.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.conversion.state import (
    CONVERT,
    HEAL,
    ConversionState,
)
from ovirt_rdma.host.atomic_file import write_atomically
from ovirt_rdma.host.json_file import UnreadableJson, read_json
from ovirt_rdma.host.json_records import Records, WrongRecord, plain
from ovirt_rdma.host.problem import Problem
from ovirt_rdma.host.run_lock import LockHeld

SCHEMA_VERSION = 1
KIND = "conversion"
# It has the hosts' policies in it.
FILE_MODE = 0o600
FOLDER_MODE = 0o700


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
        StateFileProblem where its file cannot be opened.
        """
        path = self._folder / f"{data_center}.lock"
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
                    "another run of ovirt-rdma converts or heals domains of this data "
                    "center",
                    "wait until it has ended, then run this command again",
                ) from None
            yield
        finally:
            os.close(descriptor)

    def file_for(self, state: ConversionState) -> StateFile:
        """Return where a state is kept: a heal by its data center, others by their
        first domain.
        """
        heals = state.kind == HEAL
        key = state.data_center if heals else state.domains[0].id
        return StateFile(self._folder / f"{state.kind}-{key}.json")

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
            f"the state file {self.path} {words}; nothing was changed, and it is left "
            "as it is",
            "it tells how the domains were mounted before: keep a copy, mend it or put "
            "back one from a backup; without one, look with 'ovirt-rdma domain verify' "
            "which hosts are converted, move the file away and convert again, to the "
            "transport that you want",
        )


def _unwritable(path: Path, error: OSError) -> StateFileProblem:
    return StateFileProblem(
        f"{path}: the state cannot be stored: {error.strerror or error}",
        "make room, or run it as a user who may write there",
    )


def _digest(data: Any) -> str:
    text = json.dumps(data, sort_keys=True, separators=(",", ":"))
    return f"sha256:{hashlib.sha256(text.encode('ascii')).hexdigest()}"


def _decoded(whole: object) -> ConversionState:
    if not isinstance(whole, dict):
        raise ValueError("it is not an object")
    for key, wanted in (("schema_version", SCHEMA_VERSION), ("kind", KIND)):
        if whole.get(key) != wanted:
            raise ValueError(f"{key} is {whole.get(key)!a}, not {wanted!r}")
    if whole.get("digest") != _digest(whole.get("state")):
        raise ValueError("it was cut off or changed by hand (the digest differs)")
    return Records("the state").read(ConversionState, whole.get("state"))
