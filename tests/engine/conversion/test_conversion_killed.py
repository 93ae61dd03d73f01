# SPDX-License-Identifier: GPL-2.0-or-later
"""Test a conversion in its own process: killed, interrupted, with a second console, and
with an engine that restarts; the next run resumes it.

The double is in this process and survives; it kills the command at a request for a
change, before or after making it. test_conversion_work.py tries kills between all other
steps, without processes.
"""

from __future__ import annotations

import signal
import subprocess
import threading

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.jobs import jobs_of
from support.engine.conversion_process import (
    LIMIT_S,
    OFFLINE,
    REVERT,
    ROLLING,
    ROLLING_ACTS,
    Site,
)

pytestmark = pytest.mark.engine


@pytest.fixture
def site(capsys, tmp_path):
    world = sample_world(hosts=2, domains=("data1",), addon=True)
    with EngineDouble(world) as double:
        yield Site(capsys, double, tmp_path / "states")


def test_how_many_changes_there_are(site):
    """The tests below kill the command at each of them."""
    pushes_here = 2  # these do not go over HTTP here
    assert site.count(*ROLLING) == ROLLING_ACTS - pushes_here
    site.is_converted()


@pytest.mark.engine
@pytest.mark.parametrize(
    ("number", "applied"),
    [
        *((number, True) for number in range(ROLLING_ACTS)),
        *((number, False) for number in (0, ROLLING_ACTS - 1)),
    ],
)
def test_killed_at_a_change_and_run_again(site, number, applied):
    site.killed(number, *ROLLING, applied=applied)
    again = site.here(*ROLLING)
    assert again.code == 0, again
    site.is_converted()
    assert not site.here(
        *ROLLING, "--no-job", "-o", "json"
    ).events  # nothing remains to be done


@pytest.mark.engine
def test_killed_and_reverted(site):
    site.killed(4, *ROLLING, applied=True)
    back = site.here(*REVERT)
    assert back.code == 0, back
    site.is_all("tcp")
    assert not site.world.connection_of("data1").mount_options
    assert {host.policy_text for host in site.world.hosts.values()} == {""}


@pytest.mark.engine
def test_an_offline_conversion_that_is_killed(site):
    site.killed(4, *OFFLINE, applied=True)
    again = site.here(*OFFLINE)
    assert again.code == 0, again
    site.is_converted()


@pytest.mark.engine
def test_killed_time_and_again(site):
    """Each run gets one change further."""
    for number in (1, 3, 5):
        site.killed(number, *ROLLING, applied=True)
    assert site.here(*ROLLING).code == 0
    site.is_converted()


@pytest.mark.engine
def test_a_second_console_meets_the_first(site, tmp_path):
    reached, go_on = threading.Event(), threading.Event()

    def hold():
        reached.set()
        go_on.wait(LIMIT_S)

    site.at(1, hold, applied=True)
    first = site.start(*ROLLING)
    try:
        assert reached.wait(LIMIT_S)
        before = len(site.acts)
        # On the same machine, the lock refuses it.
        site.here(*ROLLING).refused(75, "another run of ovirt-rdma", "wait until")
        site.here(*REVERT).refused(75, "another run of ovirt-rdma")
        # On another machine, the engine's task does.
        site.folder = tmp_path / "elsewhere"
        found = site.here(*ROLLING)
        found.refused(
            75, "open task 'ovirt-rdma: convert to RDMA: data1", "--take-over"
        )
        assert len(site.acts) == before
    finally:
        go_on.set()
        out, err = first.communicate(timeout=LIMIT_S)
    assert first.returncode == 0, (out, err)
    site.is_converted()


@pytest.mark.engine
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_interrupted(site, number):
    """By Ctrl-C, by the end of a service, by a lost SSH session."""
    running: list[subprocess.Popen[str]] = []
    started = threading.Event()

    def interrupt():
        started.wait(LIMIT_S)
        running[0].send_signal(number)

    site.at(2, interrupt, applied=True)
    running.append(site.start(*ROLLING))
    started.set()
    out, err = running[0].communicate(timeout=LIMIT_S)
    assert (running[0].returncode, out) == (128 + number, ""), err
    # The lock is free, the task is open, and the state records the progress.
    assert any(one.status == "started" for one in jobs_of(site.world).values())
    said = " ".join(line for line in err.splitlines() if line[:1] != "{")
    assert "Traceback" not in said
    assert "resume it with 'ovirt-rdma domain convert" in said
    assert "revert it with 'ovirt-rdma domain revert data1'" in said
    assert site.here(*ROLLING).code == 0
    site.is_converted()


@pytest.mark.engine
@pytest.mark.parametrize("number", range(ROLLING_ACTS - 2))
def test_an_engine_that_restarts_in_the_middle(site, number):
    """Sessions and the answer are lost, and some requests get a page of HTML."""
    site.at(number, lambda: site.double.restart(down_for_requests=9), applied=True)
    done = site.here(*ROLLING)
    assert done.code == 0, done
    site.is_converted()
