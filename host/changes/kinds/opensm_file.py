# SPDX-License-Identifier: GPL-2.0-or-later
"""The kinds OPENSM_FILE and OPENSM_SETTINGS: write files of opensm, and let it read
them.

OPENSM_FILE is partitions.conf. It may be the operator's: its text is in the journal,
and is there again after an undo. opensm reads the file at each heavy sweep, and SIGHUP
makes it sweep (opensm(8)). OPENSM_SETTINGS are the settings of our opensm at one port.
It reads the GUID only when it starts, and one on standby does not sweep
(opensm/osm_state_mgr.c, do_sweep), so it is started again.
"""

from __future__ import annotations

import re
import stat
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.changes.kinds.base import Host
from ovirt_rdma.host.changes.kinds.file import File
from ovirt_rdma.host.fabric.subnet import running_opensm
from ovirt_rdma.host.paths import (
    OPENSM_SETTINGS_FILE,
    OPENSM_UNIT,
    PARTITIONS_FILES,
    SYSTEMD_BOOTED,
)
from ovirt_rdma.host.rules.base import OPENSM_FILE, OPENSM_SETTINGS
from ovirt_rdma.host.system.own_files import kept_reason
from ovirt_rdma.host.system.tree import FileTree

_SETTINGS = re.compile(OPENSM_SETTINGS_FILE.format("(0x[0-9a-f]{16})"))


class OpensmFile(File):
    """The text of partitions.conf; ``after`` is None if it is removed."""

    name = OPENSM_FILE
    fix_of_foreign = "remove that line, if the file may be replaced"

    def values(self) -> Optional[str]:
        return r"[^\0]*" if self.change.target in PARTITIONS_FILES else None

    def do(self, host: Host) -> None:
        """Write the file as File does, then signal each opensm.

        Raises EffectFailed, also if the file has a line ``# mine``.
        """
        super().do(host)
        self._read_again(host)

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Write the earlier text again, or remove the file if there was none."""
        super().undo(host, before)
        # Also if the text is there: the run may have been killed before the signal.
        self._read_again(host)

    def _foreign(self, text: str) -> str:
        return kept_reason(self.change.target, text)

    def _mode(self, path: Path) -> int:
        try:
            return stat.S_IMODE(path.stat().st_mode)
        except OSError:
            return super()._mode(path)

    def _read_again(self, host: Host) -> None:
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

    def do(self, host: Host) -> None:
        """Write the file as File does, then start opensm again if it is running."""
        super().do(host)
        self._start_again(host)

    def undo(self, host: Host, before: Optional[str]) -> None:
        """Write the earlier text again, or remove the file if there was none."""
        super().undo(host, before)
        # Also if the text is there: the run may have been killed before the start.
        self._start_again(host)

    def _start_again(self, host: Host) -> None:
        match = _SETTINGS.fullmatch(self.change.target)
        if match is None or not host.path(SYSTEMD_BOOTED).is_dir():
            return
        command = ("systemctl", "try-restart", OPENSM_UNIT.format(match[1]))
        failure = f"opensm could not be started again with {self.change.target}"
        host.run_or_fail(failure, command, " ".join(command))
