# SPDX-License-Identifier: GPL-2.0-or-later
"""A service ends as soon as it gets a signal, and never loses one."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path

import pytest

from ovirt_rdma.host.system.signals import StopSignal, delayed_signals

pytestmark = pytest.mark.hypervisor


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_wait(number):
    started = time.monotonic()
    with StopSignal() as stop:
        assert not stop.wait(0)
        timer = threading.Timer(0.1, os.kill, (os.getpid(), number))
        timer.start()
        assert stop.wait(600)
        timer.join()
        assert stop.wait(600)
    assert time.monotonic() - started < 300


def test_a_signal_that_a_run_took_is_not_lost():
    with StopSignal() as stop:
        with delayed_signals() as signals:
            os.kill(os.getpid(), signal.SIGTERM)
        assert signals.asked == "SIGTERM"
        assert stop.wait(600)


def test_other_signals_do_not_end_it():
    earlier = signal.signal(signal.SIGUSR1, lambda *_: None)
    try:
        with StopSignal() as stop:
            os.kill(os.getpid(), signal.SIGUSR1)
            assert not stop.wait(0.01)
    finally:
        signal.signal(signal.SIGUSR1, earlier)


def test_all_is_as_before_afterwards():
    before = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    open_files = len(list(Path("/proc/self/fd").iterdir()))
    with StopSignal():
        pass
    after = [signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)]
    assert after == before
    assert signal.set_wakeup_fd(-1) == -1
    assert len(list(Path("/proc/self/fd").iterdir())) == open_files
