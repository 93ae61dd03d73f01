# SPDX-License-Identifier: GPL-2.0-or-later
"""Work that is interrupted or fails is reported here and in the engine."""

from __future__ import annotations

import contextlib
from argparse import Namespace

import pytest
from engine_double import EngineDouble, sample_world
from engine_double.faults import ServiceUnavailableHtml
from engine_double.jobs import jobs_of
from support.engine.engine_command_line import Clock
from support.engine.engine_sessions import open_session

from ovirt_rdma.cli.context import Context
from ovirt_rdma.cli.engine.session import work
from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.hypervisor


@pytest.fixture
def double():
    with EngineDouble(sample_world(hosts=1)) as made:
        yield made


def broke_off(double, error):
    """Raise ``error`` within work; return the clock."""
    clock = Clock()
    with open_session(double, clock) as session, contextlib.ExitStack() as at_end:
        args, output = Namespace(no_job=False), Output()
        session.listener.note = output.message
        context = Context(output, at_end)
        with (
            pytest.raises(type(error)),
            work(args, context, session, "make it", resume="run it again"),
        ):
            raise error
    return clock


@pytest.mark.parametrize(
    ("error", "said", "event"),
    [
        (
            KeyboardInterrupt(),
            "make it was interrupted; run it again",
            "was interrupted",
        ),
        (
            ZeroDivisionError(),
            "make it stopped by an error; run it again",
            "stopped by an error",
        ),
        (Problem("some-id", "no space"), "", "make it failed: no space"),
    ],
)
def test_what_breaks_off_is_said_and_its_job_ends(double, capsys, error, said, event):
    broke_off(double, error)
    assert said in capsys.readouterr().err
    (job,) = jobs_of(double.world).values()
    assert job.status == "failed"
    (told,) = [one for one in double.world.log.events if one.origin == "ovirt-rdma"]
    assert event in told.description


def test_ctrl_c_does_not_wait_for_an_engine_that_is_away(double, capsys):
    double.fail_next("POST", "/jobs/[^/]*/end|/events", ServiceUnavailableHtml, times=9)
    clock = broke_off(double, KeyboardInterrupt())
    assert clock.slept == []
    err = capsys.readouterr().err
    assert err.index("was interrupted; run it again") < err.index("stays open")


def test_the_end_of_work_waits_for_an_engine_that_is_away(double):
    double.fail_next("POST", "/jobs/[^/]*/end", ServiceUnavailableHtml, times=3)
    clock = broke_off(double, Problem("some-id", "no space"))
    assert clock.slept
    (job,) = jobs_of(double.world).values()
    assert job.status == "failed"
