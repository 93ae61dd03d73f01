# SPDX-License-Identifier: GPL-2.0-or-later
"""Signals while the host is changed, and in services.

Signals while the host is being changed: asked to end, a run first finishes the act
in hand; a lost terminal stops nothing.

What ends a loop that runs as a service: SIGTERM or SIGINT, also one that came while
a run held signals to finish what it had in hand.
"""

from __future__ import annotations

import os
import select
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Optional, Protocol

_NOTED = (signal.SIGINT, signal.SIGTERM)
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
        for number in _NOTED:
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


_ENDS = (signal.SIGTERM, signal.SIGINT)


class Stop(Protocol):
    """Says when a loop is to end."""

    def wait(self, seconds: float) -> bool:
        """Wait, at most ``seconds``; return whether to end, at once where that is so
        already.
        """


class StopSignal:
    """A Stop by signals, in a ``with`` in the main thread.

    Python writes each signal to a pipe, whichever handler is in force: so one that a
    run has taken for itself is not lost either.
    """

    def __init__(self) -> None:
        self._asked = False
        self._earlier: dict[signal.Signals, object] = {}
        self._earlier_pipe = -1
        self._read = self._write = -1

    def __enter__(self) -> StopSignal:
        self._read, self._write = os.pipe()
        for end in (self._read, self._write):
            os.set_blocking(end, False)
        self._earlier_pipe = signal.set_wakeup_fd(
            self._write, warn_on_full_buffer=False
        )
        for number in _ENDS:
            self._earlier[number] = signal.signal(number, _noted)
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler or signal.SIG_DFL)  # type: ignore[arg-type]
        signal.set_wakeup_fd(self._earlier_pipe)
        os.close(self._read)
        os.close(self._write)

    def wait(self, seconds: float) -> bool:
        """As :meth:`Stop.wait`."""
        if not self._asked and select.select([self._read], [], [], seconds)[0]:
            self._asked = any(number in _ENDS for number in os.read(self._read, 4096))
        return self._asked


def _noted(number: int, frame: Optional[FrameType]) -> None:
    """The pipe has it."""
