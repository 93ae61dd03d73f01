# SPDX-License-Identifier: GPL-2.0-or-later
"""One connect at a time for each local path, so that two do not mount twice."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator

from ovirt_rdma.storage.refusal import ConnectRefused


class PathLocks:
    """One lock a local path. Safe for several threads."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._locks: dict[str, threading.Lock] = {}

    @contextlib.contextmanager
    def hold(self, path: str, timeout_s: float) -> Iterator[None]:
        """Hold the lock of ``path``; raises ConnectRefused after ``timeout_s``."""
        with self._guard:
            lock = self._locks.setdefault(path, threading.Lock())
        if not lock.acquire(timeout=timeout_s):
            raise ConnectRefused(
                f"another connect of {path} is still running after {timeout_s:g} s"
            )
        try:
            yield
        finally:
            lock.release()
