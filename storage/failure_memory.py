# SPDX-License-Identifier: GPL-2.0-or-later
"""Servers whose RDMA mounts failed lately, so that one failure decides for all."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Failure:
    """An RDMA mount failed ``at`` a time of the memory's clock, for a ``reason``;
    ``fix`` is what to do about it, empty where nobody knows.
    """

    at: float
    reason: str
    fix: str = ""


class FailureMemory:
    """The last failure of each server, by any key. Safe for several threads."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._failures: dict[Hashable, tuple[Failure, float]] = {}

    def remember(self, key: Hashable, reason: str, fix: str, seconds: float) -> None:
        """Keep ``reason`` and ``fix`` for ``seconds``."""
        now = self._clock()
        with self._lock:
            self._failures[key] = (Failure(now, reason, fix), now + seconds)

    def recall(self, key: Hashable) -> Optional[Failure]:
        """Return the failure, or None when there is none or it is too old."""
        now = self._clock()
        with self._lock:
            failure, until = self._failures.get(key, (None, now))
            if now >= until:
                self._failures.pop(key, None)
                return None
            return failure
