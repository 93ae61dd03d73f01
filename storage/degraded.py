# SPDX-License-Identifier: GPL-2.0-or-later
"""vdsmd's marks of degraded mounts: in memory, and in /run for everybody to read.

/run, because a mark ends with its mount, at a reboot at the latest, and outlives a
restart of vdsmd, so that nothing is told twice.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Optional

from ovirt_rdma.host.collect.parsers import degraded_marks
from ovirt_rdma.host.facts.model import DegradedMark, NfsMount
from ovirt_rdma.host.system.files import remove_unfinished, write_atomically
from ovirt_rdma.host.system.safe_file import MOST_BYTES_OF_OTHERS, read_file
from ovirt_rdma.storage.proof import is_about, mark_of

FILE_MODE = 0o644

log = logging.getLogger("storage.ovirt_rdma")


class DegradedMarks:
    """One mark a mount point. Safe for several threads; never raises for its file.

    ``path`` is the file, read once and replaced whole at each change; None keeps
    the marks in memory. A file that cannot be read is taken for empty, and one that
    cannot be written leaves the marks in memory, with one line in the log.
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
                # The folder may be there by now.
                self._keep(self._loaded())
            return mark_of(mount, self._loaded().values(), uptime_s)

    def put(
        self,
        mark: DegradedMark,
        read_mounts: Callable[[], Sequence[NfsMount]],
        uptime_s: float,
    ) -> None:
        """Set ``mark`` in place of any at its mount point.

        Marks on none of the mounts that ``read_mounts`` gives are dropped.
        """
        with self._lock:
            # Read only now, or a mark that was set meanwhile would be dropped.
            mounts = read_mounts()
            kept = {
                old.mountpoint: old
                for old in self._loaded().values()
                if any(is_about(old, mount, uptime_s) for mount in mounts)
            }
            kept[mark.mountpoint] = mark
            self._keep(kept)

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
            return degraded_marks.from_json(read_file(self._path, MOST_BYTES_OF_OTHERS))
        except FileNotFoundError:
            return ()
        except (OSError, ValueError) as error:
            log.warning(
                "%s is of no use, the marks of degraded mounts begin anew: %s",
                self._path,
                getattr(error, "strerror", None) or error,
            )
            return ()

    def _keep(self, marks: dict[str, DegradedMark]) -> None:
        self._marks = marks
        if self._path is None:
            return
        try:
            write_atomically(
                self._path, degraded_marks.to_json(marks.values()), FILE_MODE
            )
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
