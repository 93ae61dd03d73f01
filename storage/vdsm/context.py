# SPDX-License-Identifier: GPL-2.0-or-later
"""Hold the state that all connections of one vdsmd share.

It remembers recent failures of RDMA mounts per server, so that one failure decides for
all exports of the server. It lets one call at a time mount or unmount a local path.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Optional

from ovirt_rdma.host.export import Export
from ovirt_rdma.storage.degraded import DegradedMarks
from ovirt_rdma.storage.server_readiness import ProbeContext


@dataclass(frozen=True)
class Failure:
    """An RDMA mount that failed ``at`` a time of the memory's clock, for a ``reason``.

    ``fix`` is what to do about it; empty if unknown.
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
        """Return the failure; None if there is none or it has expired."""
        now = self._clock()
        with self._lock:
            failure, until = self._failures.get(key, (None, now))
            if now >= until:
                self._failures.pop(key, None)
                return None
            return failure


class StillRunning(Exception):
    """Another call for the path did not end before the deadline."""


@dataclass
class _Call:
    """A running call; ``error`` is what it raised, once it is ``over``."""

    tries: Hashable
    error: Optional[Exception] = None
    over: bool = False


class PathLocks:
    """The running calls, by local path. Safe for several threads.

    ``changed`` is notified when a call ends.
    """

    def __init__(self, changed: Optional[threading.Condition] = None) -> None:
        self._changed = changed or threading.Condition()
        self._calls: dict[str, _Call] = {}

    def run(
        self,
        path: str,
        do: Callable[[], None],
        timeout_s: float,
        tries: Hashable = None,
    ) -> None:
        """Call ``do`` once no other call for ``path`` is running.

        ``tries`` identifies the attempt: if a call that this one waited for made the
        same attempt and failed, its error is raised and ``do`` is not called. Raises
        StillRunning after ``timeout_s``, and the errors of ``do``.
        """
        deadline = time.monotonic() + timeout_s
        call = _Call(tries)
        with self._changed:
            while path in self._calls:
                other = self._calls[path]
                while not other.over:
                    left_s = deadline - time.monotonic()
                    if left_s <= 0:
                        raise StillRunning
                    self._changed.wait(left_s)
                if other.error and tries is not None and other.tries == tries:
                    raise other.error
            self._calls[path] = call
        try:
            do()
        except Exception as error:
            call.error = error
            raise
        finally:
            with self._changed:
                call.over = True
                del self._calls[path]
                self._changed.notify_all()


class ConnectRefused(Exception):
    """The export is not mounted; the text has the reason and the fix."""


def refused(export: Export, sentence: str, fix: str) -> ConnectRefused:
    """Return the error that refuses ``export`` for the reason ``sentence``."""
    return ConnectRefused(f"{export}: {sentence}{hint(fix)}")


def hint(fix: str) -> str:
    """Return ``fix`` as the end of a sentence; empty if there is none."""
    return f"; fix: {fix}" if fix else ""


# How long a second call for one local path waits for the first. The first may take 260
# s: mount.nfs begins its last try after two minutes at most (nfs(5), retry=), a try on
# a server that hangs is two calls of 40 s (VDSM's timeo=100,retrans=3; measured), and
# VDSM's access check ends after 60 s (irs/process_pool_timeout). The engine itself
# waits for 180 s (vdsTimeout).
WAIT_FOR_OTHER_S = 300.0


@dataclass(frozen=True)
class Shared:
    """The shared state, one per process; safe for several threads.

    ``not_unmounted`` are local paths of mounts that are not over RDMA, although their
    rule requires it, and that could not be unmounted. ``marks`` are the marks of
    degraded mounts.
    """

    surroundings: ProbeContext
    failures: FailureMemory = field(default_factory=FailureMemory)
    locks: PathLocks = field(default_factory=PathLocks)
    wait_for_other_s: float = WAIT_FOR_OTHER_S
    marks: DegradedMarks = field(default_factory=DegradedMarks)
    not_unmounted: set[str] = field(default_factory=set)
