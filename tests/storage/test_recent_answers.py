# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that calls in quick succession wait once for a silent server."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from support.storage.fake_network import FakeNetwork
from support.storage.vdsm_site import MOUNT_FAILED, Site

from ovirt_rdma.storage.readiness import (
    BURST_GAP_S,
    LONGEST_S,
    NOT_READY,
    READY,
    UNKNOWN,
    RecentAnswers,
)

NAS = ("10.0.0.1", 20049)


class Asking:
    """A network whose servers are dead at first, and a clock that tests advance."""

    def __init__(self) -> None:
        self.now = 100.0
        self.network = FakeNetwork()
        self.recent = RecentAnswers(self.network, lambda: self.now)

    def rdma(self, timeout_s: float = 2) -> str:
        return self.recent.rdma_listener(*NAS, timeout_s).verdict

    def tcp(self, timeout_s: float = 2) -> bool:
        return self.recent.tcp_answers("10.0.0.1", 2049, timeout_s)


class SilentNetwork(FakeNetwork):
    """No server answers; each question takes its whole timeout on the clock ``of``."""

    def __init__(self, of: Asking | Site) -> None:
        super().__init__()
        self._of = of

    def rdma_listener(self, address, port, timeout_s):
        self._of.now += timeout_s + 0.1
        return super().rdma_listener(address, port, timeout_s)

    def tcp_answers(self, address, port, timeout_s):
        self._of.now += timeout_s + 0.1
        return super().tcp_answers(address, port, timeout_s)


@pytest.fixture
def asking() -> Asking:
    return Asking()


def test_a_burst_of_calls_asks_a_dead_server_once(asking):
    for _ in range(20):
        assert asking.rdma() == NOT_READY
        assert asking.tcp() is False
        asking.now += 0.3
    assert len(asking.network.asked) == 2


def test_the_time_that_asking_itself_takes_is_no_pause(asking):
    network = SilentNetwork(asking)
    asking.recent = RecentAnswers(network, lambda: asking.now)
    # One caller's questions: two addresses and TCP, each silent as long as a pause.
    for _ in range(20):
        assert asking.rdma(BURST_GAP_S) == NOT_READY
        other = asking.recent.rdma_listener("fd00::1", 20049, BURST_GAP_S)
        assert other.verdict == NOT_READY
        assert asking.tcp(BURST_GAP_S) is False
    assert len(network.asked) == 3


def test_an_answer_that_is_used_again_says_how_old_it_is(asking):
    asking.recent.rdma_listener(*NAS, 2)
    asking.now += 1.2
    step = asking.recent.rdma_listener(*NAS, 2)
    assert step.detail == "10.0.0.1 refuses RDMA connections (asked 1 s ago)"


def test_after_a_pause_a_server_that_was_mended_is_seen(asking):
    assert asking.rdma() == NOT_READY
    assert asking.tcp() is False
    asking.network.rdma[NAS] = READY
    asking.network.tcp.add(("10.0.0.1", 2049))
    asking.now += BURST_GAP_S + 0.1
    assert asking.rdma() == READY
    assert asking.tcp() is True


def test_calls_without_a_pause_do_not_hide_for_ever_that_it_was_mended(asking):
    assert asking.rdma() == NOT_READY
    asking.network.rdma[NAS] = READY
    seen = []
    for _ in range(int(LONGEST_S) + 2):
        asking.now += 1
        seen.append(asking.rdma())
    assert seen[0] == NOT_READY
    assert seen[-1] == READY


@pytest.mark.parametrize("verdict", [READY, UNKNOWN])
def test_only_a_no_is_kept(asking, verdict):
    asking.network.rdma[NAS] = verdict
    assert asking.rdma() == verdict
    asking.network.rdma[NAS] = NOT_READY
    assert asking.rdma() == NOT_READY


def test_of_tcp_too_only_a_no_is_kept(asking):
    asking.network.tcp.add(("10.0.0.1", 2049))
    assert asking.tcp() is True
    asking.network.tcp.clear()
    assert asking.tcp() is False


def test_who_would_have_waited_longer_asks_for_themselves(asking):
    assert asking.rdma(timeout_s=0.5) == NOT_READY
    asking.network.rdma[NAS] = READY
    assert asking.rdma(timeout_s=10) == READY


def test_callers_at_the_same_time_wait_for_one_answer():
    class Slow(FakeNetwork):
        def tcp_answers(self, address, port, timeout_s):
            going.wait(30)
            return super().tcp_answers(address, port, timeout_s)

    going = threading.Event()
    network = Slow()
    recent = RecentAnswers(network, lambda: 100.0)
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(recent.tcp_answers, "10.0.0.1", 2049, 2) for _ in "8" * 8]
        going.set()
        assert [one.result() for one in asked] == [False] * 8
    assert len(network.asked) == 1


# Connect twenty exports of a silent server, in one call each.


READINESS_TIMEOUT_S = 2.0
LIMIT_S = 10.0


@pytest.mark.parametrize("transport", ["require-rdma", "prefer-rdma"])
def test_they_fail_in_seconds_in_all(site, transport):
    site.network = RecentAnswers(SilentNetwork(site), lambda: site.now)
    site.start_vdsmd()
    site.rule(transport, readiness_timeout=READINESS_TIMEOUT_S)
    for number in range(20):
        assert site.connect(f"10.99.0.2:/export{number}") == [MOUNT_FAILED]
        site.now += 0.05
    assert site.now < LIMIT_S
