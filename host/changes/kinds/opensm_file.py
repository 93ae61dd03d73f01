# SPDX-License-Identifier: GPL-2.0-or-later
"""The kind OPENSM_FILE: write opensm's partitions.conf, and let opensm read it again.

The file may be the operator's: its text is in the journal, and is there again after an
undo. opensm reads the file at each heavy sweep, and SIGHUP makes it sweep (opensm(8)).
"""

from __future__ import annotations

import stat
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.changes.kinds.base import Host
from ovirt_rdma.host.changes.kinds.file import File
from ovirt_rdma.host.opensm.processes import running_opensm
from ovirt_rdma.host.paths import PARTITIONS_FILES
from ovirt_rdma.host.rules.base import OPENSM_FILE
from ovirt_rdma.host.system.own_files import kept_reason
from ovirt_rdma.host.system.tree import FileTree


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
