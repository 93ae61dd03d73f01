# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that facts for many servers are read once for all, and are never old."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.storage.server_readiness import LocalFacts


class SlowReader(HostReader):
    """Counts readings; each waits until the test ends it."""

    def __init__(self, root: Path, during: Callable[[], None]) -> None:
        super().__init__(root)
        self.readings = 0
        self._during = during

    def uptime(self, problems=None):
        self.readings += 1
        number = self.readings
        self._during()
        return float(number)


def test_each_asks_anew_when_nobody_else_does(tmp_path):
    reader = SlowReader(tmp_path, lambda: None)
    facts = LocalFacts(reader)
    assert [facts.read().uptime_s for _ in range(3)] == [1, 2, 3]


def test_twenty_at_once_cost_two_readings_and_none_is_older_than_its_question(tmp_path):
    asking = threading.Semaphore(0)
    begun = threading.Event()

    def wait_for_all():
        begun.set()
        if reader.readings == 1:
            for _ in range(20):
                asking.acquire(timeout=30)

    reader = SlowReader(tmp_path, wait_for_all)
    facts = LocalFacts(reader)

    def ask_late():
        asking.release()
        return facts.read().uptime_s

    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(facts.read)
        begun.wait(30)
        late = [pool.submit(ask_late) for _ in range(20)]
        assert first.result().uptime_s == 1
        answers = {one.result() for one in late}
    assert 1 not in answers
    # A thread may be so late that the second reading has begun.
    assert reader.readings <= 3


def test_a_reading_that_fails_is_no_answer_for_the_next(tmp_path):
    def fail_once():
        if reader.readings == 2:
            raise OSError("gone")

    reader = SlowReader(tmp_path, fail_once)
    facts = LocalFacts(reader)
    facts.read()
    with pytest.raises(OSError, match="gone"):
        facts.read()
    assert facts.read().uptime_s == 3
