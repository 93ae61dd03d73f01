# SPDX-License-Identifier: GPL-2.0-or-later
"""What ends a loop that runs as a service: SIGTERM or SIGINT, also one that came while
a run held signals to finish what it had in hand.
"""

from __future__ import annotations

import os
import select
import signal
from types import FrameType, TracebackType
from typing import Optional, Protocol

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
