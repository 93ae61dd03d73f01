# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep the notes of a smoke run: each object is on disk before it is made."""

from __future__ import annotations

import fcntl
import json
import os
from pathlib import Path
from typing import Any

FILE, STATES = "made.jsonl", "states"
# The prefix of all names that a run makes in the engine, and of no others.
PREFIX = "ovirt-rdma-smoke-"


class OtherRun(Exception):
    """Another smoke run of this machine is under way."""


class Notes:
    """The notes in ``folder``, locked against other runs until closed.

    ``states`` is the folder for the states of conversions, which a later run needs too.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.states = folder / STATES
        self.states.mkdir(mode=0o700, exist_ok=True)
        self._path = folder / FILE
        self._file = self._path.open("a", encoding="utf-8")
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            self._file.close()
            raise OtherRun(
                "conversion-lock-held", f"another smoke run holds {self._path}"
            ) from None

    def will_make(self, kind: str, name: str, **more: Any) -> None:
        """Write to disk what is made next."""
        line = json.dumps({"kind": kind, "name": name, **more})
        self._file.write(f"{line}\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def all(self) -> list[dict[str, Any]]:
        """Return the notes, the oldest first. An incomplete last line was not made."""
        found = []
        for line in self._path.read_text(encoding="utf-8").splitlines():
            try:
                found.append(json.loads(line))
            except ValueError:
                break
        return found

    def names(self, kind: str) -> list[str]:
        return [one["name"] for one in self.all() if one["kind"] == kind]

    def clear(self) -> None:
        """Forget all notes: everything is removed."""
        self._file.truncate(0)
        for one in self.states.rglob("*"):
            if one.is_file():
                one.unlink()

    def close(self) -> None:
        self._file.close()
