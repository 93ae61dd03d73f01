# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds FILE, OPENSM_FILE and OPENSM_SETTINGS: write configuration files.

A file is written atomically, and only if there is none or it is ours.

OPENSM_FILE is partitions.conf. It may be the operator's: its text is in the journal,
and is there again after an undo. opensm reads the file at each heavy sweep, and SIGHUP
makes it sweep (opensm(8)). OPENSM_SETTINGS are the settings of our opensm at one port.
It reads the GUID only when it starts, and one on standby does not sweep
(opensm/osm_state_mgr.c, do_sweep), so it is started again.
"""

from __future__ import annotations

import re
import shlex
import stat
from pathlib import Path
from typing import ClassVar, Optional

from ovirt_rdma.host.changes.kinds.base import EffectFailed, Host, Reading
from ovirt_rdma.host.changes.kinds.kind import Kind
from ovirt_rdma.host.fabric.subnet import running_opensm
from ovirt_rdma.host.paths import (
    JOURNAL,
    OPENSM_SETTINGS_FILE,
    OPENSM_UNIT,
    PARTITIONS_FILES,
    SYSTEMD_BOOTED,
)
from ovirt_rdma.host.rules.base import FILE, OPENSM_FILE, OPENSM_SETTINGS
from ovirt_rdma.host.system.files import (
    remove_unfinished,
    sync_directory,
    write_atomically,
)
from ovirt_rdma.host.system.own_files import OWN_FILES, foreign_reason, kept_reason
from ovirt_rdma.host.system.safe_file import read_file
from ovirt_rdma.host.system.tree import FileTree

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
        self._use(host)

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Write the earlier text again, or remove the file if there was none."""
        present = self.read(host)
        if present.problem or present.value != before:
            self._put(host, before)
        else:
            # A write may have been killed before the rename.
            remove_unfinished(host.path(self.change.target).parent)
        # Also if the text is there: the run may have been killed before this.
        self._use(host)

    def _use(self, host: Host) -> None:
        """Let the program that the file is for read it. Raises EffectFailed."""

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


_SETTINGS = re.compile(OPENSM_SETTINGS_FILE.format("(0x[0-9a-f]{16})"))


class OpensmFile(File):
    """The text of partitions.conf; ``after`` is None if it is removed."""

    name = OPENSM_FILE
    fix_of_foreign = "remove that line, if the file may be replaced"

    def values(self) -> Optional[str]:
        return r"[^\0]*" if self.change.target in PARTITIONS_FILES else None

    def _foreign(self, text: str) -> str:
        return kept_reason(self.change.target, text)

    def _mode(self, path: Path) -> int:
        try:
            return stat.S_IMODE(path.stat().st_mode)
        except OSError:
            return super()._mode(path)

    def _use(self, host: Host) -> None:
        """Signal each opensm."""
        for process in running_opensm(FileTree(host.root)):
            host.run_or_fail(
                f"opensm (process {process.pid}) could not be signalled to read "
                f"{self.change.target} again",
                ("kill", "-HUP", str(process.pid)),
                f"kill -HUP {process.pid}",
            )


class OpensmSettings(File):
    """The text of the settings of our opensm; ``after`` is None if it is removed."""

    name = OPENSM_SETTINGS
    fix_of_foreign = "move the file away, if ovirt-rdma may write it"

    def values(self) -> Optional[str]:
        return r"[^\0]*" if _SETTINGS.fullmatch(self.change.target) else None

    def _use(self, host: Host) -> None:
        """Start opensm again if it is running."""
        match = _SETTINGS.fullmatch(self.change.target)
        if match is None or not host.path(SYSTEMD_BOOTED).is_dir():
            return
        command = ("systemctl", "try-restart", OPENSM_UNIT.format(match[1]))
        failure = f"opensm could not be started again with {self.change.target}"
        host.run_or_fail(failure, command, " ".join(command))
