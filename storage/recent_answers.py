# SPDX-License-Identifier: GPL-2.0-or-later
"""Cache the negative answers of servers for a few seconds.

The engine may connect twenty exports of a dead server, one after the other or all at
the same time, in one call each. Without the cache every call would wait for the same
timeout.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, replace
from typing import Generic, Optional, TypeVar

from ovirt_rdma.storage.readiness import NOT_READY, Step
from ovirt_rdma.storage.server_readiness import Network

# Questions to any servers with shorter gaps belong together: in such a gap nobody can
# fix a server and activate the host again.
BURST_GAP_S = 2.0
# After this time a server is asked again, even without a gap.
LONGEST_S = 10.0

T = TypeVar("T")


@dataclass(frozen=True)
class _Negative(Generic[T]):
    """An answer, and when it was given."""

    answer: T
    at: float


class RecentAnswers:
    """A Network that remembers negative answers for calls in quick succession.

    Positive answers are not kept: they cost little and may change at any moment. Safe
    for several threads; those that ask the same question wait for one answer.
    """

    def __init__(
        self, network: Network, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._network = network
        self._clock = clock
        self._guard = threading.Lock()
        self._locks: dict[Hashable, threading.Lock] = {}
        self._silent: dict[Hashable, _Negative[bool]] = {}
        self._refused: dict[Hashable, _Negative[Step]] = {}
        # When a question last began or ended; a caller asks several in sequence.
        self._last = clock()

    def resolve(self, server: str, timeout_s: float) -> tuple[str, ...]:
        """Return the addresses of a server; never from the cache."""
        return self._network.resolve(server, timeout_s)

    def tcp_answers(self, address: str, port: int, timeout_s: float) -> bool:
        """Whether a TCP port accepts a connection, or did not a moment ago."""
        key = ("tcp", address, port, timeout_s)
        with self._lock(key):
            kept = self._recall(self._silent, key)
            if kept is not None:
                return kept.answer
            answers = self._network.tcp_answers(address, port, timeout_s)
            self._ended(self._silent, key, None if answers else answers)
            return answers

    def rdma_listener(self, address: str, port: int, timeout_s: float) -> Step:
        """Check whether an RDMA port accepts a connection, or did not a moment ago."""
        key = ("rdma", address, port, timeout_s)
        with self._lock(key):
            kept = self._recall(self._refused, key)
            if kept is not None:
                age = self._clock() - kept.at
                detail = f"{kept.answer.detail} (asked {age:.0f} s ago)"
                return replace(kept.answer, detail=detail)
            step = self._network.rdma_listener(address, port, timeout_s)
            self._ended(self._refused, key, step if step.verdict == NOT_READY else None)
            return step

    def _lock(self, key: Hashable) -> threading.Lock:
        with self._guard:
            return self._locks.setdefault(key, threading.Lock())

    def _recall(
        self, kept: dict[Hashable, _Negative[T]], key: Hashable
    ) -> Optional[_Negative[T]]:
        with self._guard:
            now = self._clock()
            if now - self._last > BURST_GAP_S:
                self._silent.clear()
                self._refused.clear()
            self._last = now
            no = kept.get(key)
            return no if no is not None and now - no.at <= LONGEST_S else None

    def _ended(
        self, kept: dict[Hashable, _Negative[T]], key: Hashable, no: Optional[T]
    ) -> None:
        with self._guard:
            self._last = now = self._clock()
            if no is None:
                kept.pop(key, None)
            else:
                kept[key] = _Negative(no, now)
