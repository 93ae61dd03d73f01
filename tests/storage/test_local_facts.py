# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that facts for many servers are read once for all, and are never old, and how
long questions wait for ports that are down.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.storage.fake_network import FakeNetwork

from ovirt_rdma.host.collect.collector import HostReader
from ovirt_rdma.host.facts.devices import RdmaDevice, RdmaPort
from ovirt_rdma.host.facts.model import Route
from ovirt_rdma.host.policy.model import MAX_SETTLE_S, NfsRule
from ovirt_rdma.storage.readiness import (
    SETTLE_POLL_S,
    LocalFacts,
    ProbeContext,
    ServerReadiness,
)


class SlowReader(HostReader):
    """Counts readings; each waits until the test ends it."""

    def __init__(self, root: Path, during: Callable[[], None]) -> None:
        super().__init__(root)
        self.readings = 0
        self._during = during

    def rdma_devices(self, problems=None, most_gids=None):
        self.readings += 1
        number = self.readings
        self._during()
        return (RdmaDevice(f"mlx5_{number}", "CA", ""),)


def number_of(facts):
    """Return which reading the facts are of."""
    return int(facts.rdma_devices[0].name[-1])


def test_each_asks_anew_when_nobody_else_does(tmp_path):
    reader = SlowReader(tmp_path, lambda: None)
    facts = LocalFacts(reader, lambda: 0.0)
    assert [number_of(facts.read()) for _ in range(3)] == [1, 2, 3]


def test_twenty_at_once_cost_two_readings_and_none_is_older_than_its_question(tmp_path):
    asking = threading.Semaphore(0)
    begun = threading.Event()

    def wait_for_all():
        begun.set()
        if reader.readings == 1:
            for _ in range(20):
                asking.acquire(timeout=30)

    reader = SlowReader(tmp_path, wait_for_all)
    facts = LocalFacts(reader, lambda: 0.0)

    def ask_late():
        asking.release()
        return number_of(facts.read())

    with ThreadPoolExecutor(21) as pool:
        first = pool.submit(facts.read)
        begun.wait(30)
        late = [pool.submit(ask_late) for _ in range(20)]
        assert number_of(first.result()) == 1
        answers = {one.result() for one in late}
    assert 1 not in answers
    # A thread may be so late that the second reading has begun.
    assert reader.readings <= 3


def test_a_reading_that_fails_is_no_answer_for_the_next(tmp_path):
    def fail_once():
        if reader.readings == 2:
            raise OSError("gone")

    reader = SlowReader(tmp_path, fail_once)
    facts = LocalFacts(reader, lambda: 0.0)
    facts.read()
    with pytest.raises(OSError, match="gone"):
        facts.read()
    assert number_of(facts.read()) == 3


SERVER, WAIT_S = "10.99.0.2", 30.0


class DownHost(HostReader):
    """A host with two ports and no route to the server, on a clock of its own."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self.now = 0.0
        self.up = (False, False)
        self.around = ProbeContext(self, FakeNetwork(), self.sleep, lambda: self.now)

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def route(self, destination, problems=None):
        return Route(destination, problem="Network is unreachable")

    def rdma_devices(self, problems=None, most_gids=None):
        states = ("ACTIVE" if up else "INIT" for up in self.up)
        ports = (
            RdmaPort(number, state, "LinkUp", "InfiniBand")
            for number, state in enumerate(states, 1)
        )
        return (RdmaDevice("mlx5_0", "CA", "0002:c903:00fb:1230", ports=(*ports,)),)

    def ask(self) -> float:
        """Ask again; return for how long that waited."""
        began = self.now
        rule = NfsRule(1, "r", SERVER, "*", "prefer-rdma", settle_timeout=WAIT_S)
        assert ServerReadiness(SERVER, rule, self.around).readiness().steps
        return self.now - began


_QUESTION = st.tuples(
    st.one_of(st.floats(0, 40), st.floats(0, 10**6)), st.booleans(), st.booleans()
)


@given(st.lists(_QUESTION, max_size=20))
def test_a_port_that_is_down_costs_all_questions_one_wait(tmp_path_factory, questions):
    host = DownHost(tmp_path_factory.getbasetemp())
    waited, down = 0.0, 0
    before = (True, True)
    for pause, *up in questions:
        host.now += pause
        host.up = tuple(up)
        seconds = host.ask()
        assert seconds < WAIT_S + SETTLE_POLL_S
        waited += seconds
        down += sum(was and not now for was, now in zip(before, host.up))
        before = host.up
    assert waited <= down * (WAIT_S + SETTLE_POLL_S)


@pytest.mark.parametrize(
    ("since", "waits"),
    [
        # Whatever the time since boot or since vdsmd's start, the first question waits.
        ([], True),
        ([(0, False)], False),
        ([(0, False), (10**6, False)], False),
        ([(0, False), (300, True)], True),
        # It goes up and down all the time.
        ([(0, False), (MAX_SETTLE_S / 2, True)], False),
    ],
)
def test_what_a_port_that_is_down_was_before(tmp_path, since, waits):
    host = DownHost(tmp_path)
    host.now = 5000.0
    for seconds, up in since:
        host.now += seconds
        host.up = (up, True)
        host.ask()
    host.up = (False, True)
    assert host.ask() == (WAIT_S if waits else 0.0)
