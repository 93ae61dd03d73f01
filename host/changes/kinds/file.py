# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind FILE: write our configuration files.

A file is written atomically, and only if there is none or it is ours.
"""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import ClassVar, Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.kind import Kind
from ovirt_rdma.host.paths import JOURNAL
from ovirt_rdma.host.rules.base import FILE
from ovirt_rdma.host.system.files import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.own_files import OWN_FILES, foreign_reason
from ovirt_rdma.host.system.safe_file import read_file

_MODE = 0o644
_FIX = "move the file away, or remove from the policy what it sets"


class File(Kind):
    """The text of one of our files; ``after`` is None if it is removed."""

    name = FILE
    may_be_removed = True
    is_text = True
    fix_of_foreign: ClassVar[str] = _FIX

    def values(self) -> Optional[str]:
        return r"[^\0]*" if self.change.target in OWN_FILES else None

    def normal(self, value: str) -> Optional[str]:
        """Return the text without newlines at its end."""
        # Facts show bytes that are not UTF-8 as \x80, a reading keeps them.
        data = value.encode("utf-8", "surrogateescape")
        return data.decode("utf-8", "backslashreplace").rstrip("\n")

    def summary(self, value: Optional[str]) -> str:
        if value is None:
            return super().summary(value)
        lines = value.count("\n") + bool(value and not value.endswith("\n"))
        return f"a file of {lines} line{'' if lines == 1 else 's'}"

    def manual_fix(self, value: Optional[str]) -> str:
        target = shlex.quote(self.change.target)
        text = f"write the text that {JOURNAL} has for it to {target}"
        return f"rm {target}" if value is None else text

    def read(self, host: Host) -> Reading:
        target = self.change.target
        path = host.path(target)
        try:
            if path.is_symlink():
                return Reading(problem=f"{target} is a symbolic link, not our file")
            return Reading(read_file(path).decode("utf-8", "surrogateescape"))
        except (FileNotFoundError, NotADirectoryError):
            return Reading()
        except OSError as e:
            return Reading(problem=f"{target} cannot be read: {e.strerror}")

    def do(self, host: Host) -> None:
        """Write the file, or remove it if ``after`` is None. Raises EffectFailed if the
        present file is not ours, or the disk is full; the file is unchanged then.
        """
        self._put(host, self.change.after)

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Write the earlier text again, or remove the file if there was none."""
        present = self.read(host)
        if present.problem or present.value != before:
            self._put(host, before)
        else:
            # A write may have been killed before the rename.
            remove_unfinished(host.path(self.change.target).parent)

    def _foreign(self, text: str) -> str:
        """Return why a file with this ``text`` must not be written, or ""."""
        return foreign_reason(self.change.target, text)

    def _mode(self, path: Path) -> int:
        """Return the mode of the file that is written to ``path``."""
        return _MODE

    def _put(self, host: Host, text: Optional[str]) -> None:
        target = self.change.target
        path = host.path(target)
        present = self.read(host)
        if present.problem:
            raise EffectFailed("file-unreadable", present.problem, _FIX)
        foreign = "" if present.value is None else self._foreign(present.value)
        if foreign:
            raise EffectFailed("file-not-ours", foreign, self.fix_of_foreign)
        try:
            if text is not None:
                path.parent.mkdir(mode=0o755, exist_ok=True)
                mode = self._mode(path)
                write_atomically(path, text.encode("utf-8", "surrogateescape"), mode)
                return
            if present.value is not None:
                path.unlink()
                sync_directory(path.parent)
            remove_unfinished(path.parent)
        except OSError as e:
            raise EffectFailed(
                "file-not-written", f"{target} cannot be written: {e.strerror}"
            ) from None
