# SPDX-License-Identifier: GPL-2.0-or-later
"""Signals while the host is being changed: asked to end, a run first finishes the act
in hand; a lost terminal stops nothing.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType
from typing import Optional

_ENDS = (signal.SIGINT, signal.SIGTERM)
# The tools that a run starts inherit this, and so outlive the terminal too.
_IGNORED = (signal.SIGHUP, signal.SIGPIPE)


@dataclass
class Signals:
    """``asked`` is the name of the signal that asked the run to end, or ""."""

    asked: str = ""

    def note(self, number: int, frame: Optional[FrameType]) -> None:
        """Take a signal."""
        self.asked = signal.Signals(number).name


@contextmanager
def held_signals(*, end_after: bool = False) -> Iterator[Signals]:
    """Note SIGINT and SIGTERM instead of ending, and ignore SIGHUP and SIGPIPE; all is
    as before afterwards. ``end_after``: what was noted is then sent again, for what
    was held up and not stopped. Outside the main thread signals are not ours to take.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    earlier = {}
    try:
        for number in _ENDS:
            earlier[number] = signal.signal(number, signals.note)
        for number in _IGNORED:
            earlier[number] = signal.signal(number, signal.SIG_IGN)
        yield signals
    finally:
        for number, handler in earlier.items():
            # None: a handler that was not set from Python, and cannot be.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if end_after and signals.asked:
        signal.raise_signal(signal.Signals[signals.asked])
