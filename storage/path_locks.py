# SPDX-License-Identifier: GPL-2.0-or-later
"""One call at a time for each local path: two do not mount twice, nor does one unmount
what another is mounting.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Optional


class StillUnderWay(Exception):
    """Another call for the path has not ended in time."""


@dataclass
class _Call:
    """A call under way; ``error`` is what it raised, once it is ``over``."""

    tries: Hashable
    error: Optional[Exception] = None
    over: bool = False


class PathLocks:
    """The calls under way, by local path. Safe for several threads.

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
        """Call ``do`` once no other call for ``path`` is under way.

        ``tries`` says what is tried: where a call that was waited for tried the same
        and failed, its error is raised, and ``do`` is not called. Raises StillUnderWay
        after ``timeout_s``, and what ``do`` raises.
        """
        until = time.monotonic() + timeout_s
        mine = _Call(tries)
        with self._changed:
            while path in self._calls:
                other = self._calls[path]
                while not other.over:
                    left_s = until - time.monotonic()
                    if left_s <= 0:
                        raise StillUnderWay
                    self._changed.wait(left_s)
                if other.error and tries is not None and other.tries == tries:
                    raise other.error
            self._calls[path] = mine
        try:
            do()
        except Exception as error:
            mine.error = error
            raise
        finally:
            with self._changed:
                mine.over = True
                del self._calls[path]
                self._changed.notify_all()
