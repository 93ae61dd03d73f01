# SPDX-License-Identifier: GPL-2.0-or-later
"""Handle signals during runs and in services.

A run that is asked to end first finishes its present change; the loss of its terminal
does not stop it. A service ends its loop at SIGTERM or SIGINT, even if a run delayed
the signal.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import threading
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import FrameType, TracebackType
from typing import Optional, Protocol

_DELAYED = (signal.SIGINT, signal.SIGTERM)
# The tools that a run starts inherit this, so the loss of the terminal does not end
# them either.
_IGNORED = (signal.SIGHUP, signal.SIGPIPE)


@dataclass
class Signals:
    """``asked`` is the name of the signal that asks the run to end, or ""."""

    asked: str = ""

    def note(self, number: int, frame: Optional[FrameType]) -> None:
        """Record a signal."""
        self.asked = signal.Signals(number).name


@contextlib.contextmanager
def delayed_signals(*, end_after: bool = False) -> Iterator[Signals]:
    """Record SIGINT and SIGTERM, and ignore SIGHUP and SIGPIPE, until the end of the
    block; then the earlier handlers are set again.

    ``end_after``: a recorded signal is then sent again, so that it ends the process.
    Does nothing outside the main thread, which alone can handle signals.
    """
    signals = Signals()
    if threading.current_thread() is not threading.main_thread():
        yield signals
        return
    earlier = {}
    try:
        for number in _DELAYED:
            earlier[number] = signal.signal(number, signals.note)
        for number in _IGNORED:
            earlier[number] = signal.signal(number, signal.SIG_IGN)
        yield signals
    finally:
        for number, handler in earlier.items():
            # None: a handler that was not set by Python and cannot be restored.
            signal.signal(number, signal.SIG_DFL if handler is None else handler)
    if end_after and signals.asked:
        signal.raise_signal(signal.Signals[signals.asked])


_ENDS = (signal.SIGTERM, signal.SIGINT)


class Stop(Protocol):
    """Decides when a loop ends."""

    def wait(self, seconds: float, files: Sequence[int] = ()) -> bool:
        """Wait for ``seconds`` at most, and until one of ``files`` can be read; return
        True as soon as the loop must end.
        """


def default_signals() -> None:
    """Let signals end this process, which is a fork, as they end others: they were not
    sent to its parent.
    """
    # In this order: none must be written to the parent's pipe meanwhile.
    signal.set_wakeup_fd(-1)
    for number in (*_ENDS, signal.SIGHUP):
        signal.signal(number, signal.SIG_DFL)


def close_files(kept: int) -> None:
    """Close all files of this process, which is a fork, but ``kept``; 0 to 2 are
    /dev/null then.
    """
    for name in os.listdir("/proc/self/fd"):  # noqa: PTH208
        descriptor = int(name)
        if descriptor != kept and descriptor > 2:
            with contextlib.suppress(OSError):
                os.close(descriptor)
    null = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        if standard != kept:
            os.dup2(null, standard)
    if null > 2:
        os.close(null)


class StopSignal:
    """A Stop for SIGTERM and SIGINT, used with ``with`` in the main thread. SIGHUP
    ends a wait, and :meth:`take_hangup` reports it.

    Python writes each signal to a pipe whatever its handler, so a signal that a run has
    delayed is not lost.
    """

    def __init__(self) -> None:
        self._asked = self._hung_up = False
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
        for number in (*_ENDS, signal.SIGHUP):
            self._earlier[number] = signal.signal(number, _ignored)
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

    def wait(self, seconds: float, files: Sequence[int] = ()) -> bool:
        """As :meth:`Stop.wait`."""
        if not self._asked:
            ready = select.select([self._read, *files], [], [], seconds)[0]
            got = os.read(self._read, 4096) if self._read in ready else b""
            self._asked = any(number in _ENDS for number in got)
            self._hung_up = self._hung_up or signal.SIGHUP in got
        return self._asked

    def take_hangup(self) -> bool:
        """Return whether there was a SIGHUP since the last call."""
        hung_up, self._hung_up = self._hung_up, False
        return hung_up


def _ignored(number: int, frame: Optional[FrameType]) -> None:
    """Do nothing; the signal is in the pipe."""
