# SPDX-License-Identifier: GPL-2.0-or-later
"""Keep vdsmd's marks of degraded mounts, in memory and in a file that all can read.

The file is below /run: a mark ends with its mount, at a reboot at the latest. It
survives a restart of vdsmd, so that no mount is reported twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.collect.parsers.mounts import marks_from_json, marks_to_json
from ovirt_rdma.host.facts.model import DegradedMark, NfsMount
from ovirt_rdma.host.system.files import remove_unfinished, write_atomically
from ovirt_rdma.host.system.safe_file import MOST_BYTES_OF_OTHERS, read_file
from ovirt_rdma.storage.proof import is_about, mark_of

FILE_MODE = 0o644

log = logging.getLogger("storage.ovirt_rdma")


class DegradedMarks:
    """Marks of degraded mounts, one per mount point. Safe for several threads.

    ``path`` is the file, read once and replaced as a whole at each change; None keeps
    the marks in memory only. No error of the file is raised: if it cannot be read, the
    list starts empty; if it cannot be written, the marks stay in memory and the log
    gets one line.
    """

    def __init__(self, path: Optional[Path] = None) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._marks: Optional[dict[str, DegradedMark]] = None
        self._failed_to_write = False

    def of(self, mount: NfsMount, uptime_s: float) -> Optional[DegradedMark]:
        """Return the mark that is about ``mount``, if there is one."""
        with self._lock:
            if self._failed_to_write:
                # The folder may exist by now.
                self._keep(self._loaded())
            return mark_of(mount, self._loaded().values(), uptime_s)

    def put(
        self,
        mark: DegradedMark,
        read_mounts: Callable[[], Sequence[NfsMount]],
        uptime_s: float,
    ) -> None:
        """Set ``mark``; it replaces any other mark at its mount point.

        Marks whose mount is not among those of ``read_mounts`` are dropped.
        """
        with self._lock:
            # Read under the lock, or a mark that was set meanwhile would be dropped.
            mounts = read_mounts()
            marks = {
                old.mountpoint: old
                for old in self._loaded().values()
                if any(is_about(old, mount, uptime_s) for mount in mounts)
            }
            marks[mark.mountpoint] = mark
            self._keep(marks)

    def drop(self, mountpoint: str) -> None:
        """Drop the mark at ``mountpoint``, if there is one."""
        with self._lock:
            if mountpoint in self._loaded():
                rest = dict(self._loaded())
                del rest[mountpoint]
                self._keep(rest)

    def _loaded(self) -> dict[str, DegradedMark]:
        if self._marks is None:
            self._marks = {mark.mountpoint: mark for mark in self._read()}
        return self._marks

    def _read(self) -> tuple[DegradedMark, ...]:
        if self._path is None:
            return ()
        remove_unfinished(self._path.parent)  # of a vdsmd that was killed
        try:
            return marks_from_json(read_file(self._path, MOST_BYTES_OF_OTHERS))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            log.warning(
                "%s is invalid and is ignored, the list of degraded mounts starts "
                "empty: %s",
                self._path,
                getattr(error, "strerror", None) or error,
            )
            return ()

    def _keep(self, marks: dict[str, DegradedMark]) -> None:
        self._marks = marks
        if self._path is None:
            return
        try:
            write_atomically(self._path, marks_to_json(marks.values()), FILE_MODE)
        except OSError as error:
            if not self._failed_to_write:
                log.warning(
                    "%s cannot be written (%s), so nfs list and status do not show "
                    "why a mount is degraded; "
                    "fix: systemd-tmpfiles --create ovirt-rdma.conf",
                    self._path,
                    error.strerror or error,
                )
            self._failed_to_write = True
        else:
            self._failed_to_write = False
