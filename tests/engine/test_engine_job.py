# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the display of a run among the engine's tasks and events."""

from __future__ import annotations

import pytest
from engine_double.faults import AnswerLost, ServiceUnavailableHtml, Status
from engine_double.jobs import add, delete_completed, jobs_of

from ovirt_rdma.engine_sdk_tools.api.request import Call, Read
from ovirt_rdma.engine_sdk_tools.job import (
    EngineJob,
    Listeners,
    end_job,
    find_open_jobs,
    is_open,
    task,
)
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.engine

TITLE = "ovirt-rdma: convert domain data1 to rdma (7)"


def test_a_job_with_steps_and_an_event(double, session):
    job = EngineJob(session, TITLE)
    both = Listeners(job)
    both.plan(("host01",), 2)
    both.begin("moving host01 to maintenance", "host01")
    both.begin("moving host02 to maintenance", "host02")
    both.end("moving host02 to maintenance", "host02", "it failed")
    both.end("moving host01 to maintenance", "host01")
    both.note("n")
    (shown,) = jobs_of(double.world).values()
    assert shown.description == TITLE
    assert shown.auto_cleared
    steps = {one.description: one.status for one in shown.steps.values()}
    # The engine would end the whole job with a step that is ended as failed.
    assert steps == {
        "moving host01 to maintenance": "finished",
        "moving host02 to maintenance": "started",
        "n": "finished",
    }
    assert shown.status == "started"
    assert [one.id for one in find_open_jobs(session, "ovirt-rdma: convert")] == [
        job.id
    ]
    both.begin("more", "host02")
    job.finish("data1 was not converted", succeeded=False)
    assert shown.status == "failed"
    assert {one.status for one in shown.steps.values()} == {"finished", "failed"}
    assert find_open_jobs(session, "ovirt-rdma: convert") == []
    events = session.read(Read("events", "reading events"))
    (event,) = [one for one in events if one.origin == "ovirt-rdma"]
    assert (event.description, str(event.severity)) == (
        "ovirt-rdma: data1 was not converted",
        "error",
    )


def test_the_event_is_found_with_the_others_of_the_run(double, session):
    EngineJob(session, TITLE).finish("done", succeeded=True)
    job = EngineJob(session, TITLE, lasting=True)
    job.leave_open("half done")
    words = {"search": f"correlation_id={session.correlation_id}"}
    found = session.read(Read("events", "reading events", arguments=words))
    ours = [one.description for one in found if one.origin == "ovirt-rdma"]
    assert ours == ["ovirt-rdma: half done", "ovirt-rdma: done"]


def test_no_change_belongs_to_the_job(double, session):
    """The engine refuses JobId for some actions, and ends the job with others."""
    job = EngineJob(session, TITLE)
    host = double.world.host("host02")
    down, up = (
        Call(f"hosts/{host.id}", word, "x") for word in ("deactivate", "activate")
    )
    session.perform(down)
    double.world.settle()
    session.perform(up)
    assert is_open(session, job.id)
    job.finish("done", succeeded=True)
    assert not any("JobId" in one.query for one in double.changes())
    assert session.performed == [down, up]


def test_a_lasting_job_outlives_the_engine(double, session):
    lasting = EngineJob(session, TITLE, lasting=True)
    other = EngineJob(session, "ovirt-rdma: create domain data2")
    double.restart(down_for_requests=0)
    delete_completed(double.world)
    assert is_open(session, lasting.id)
    assert not is_open(session, other.id)
    (found,) = find_open_jobs(session, "ovirt-rdma:")
    assert found.id == lasting.id
    lasting.begin("x")
    lasting.end("x")
    end_job(session, lasting.id, succeeded=True)
    assert not is_open(session, lasting.id)
    double.world.seconds += 7200
    delete_completed(double.world)
    assert not jobs_of(double.world)
    assert not is_open(session, lasting.id)


def test_a_job_is_heard_of_while_its_run_is_alive(double, session):
    job = EngineJob(session, TITLE, lasting=True)
    (before,) = find_open_jobs(session, TITLE)
    double.world.seconds += 300
    job.note("still waiting for host01 to be in maintenance, for 5 minutes")
    (after,) = find_open_jobs(session, TITLE)
    assert after.start_time == before.start_time
    assert after.last_updated > before.last_updated


def test_two_events_within_seconds_are_both_written(double, session):
    for number in range(2):
        EngineJob(session, TITLE).finish(f"done {number}", succeeded=True)
    said = [e.description for e in double.world.log.events if e.origin == "ovirt-rdma"]
    assert said == ["ovirt-rdma: done 0", "ovirt-rdma: done 1"]
    assert session.listener.notes == []


@pytest.mark.parametrize("fault", [Status(403, "No."), Status(500)])
def test_an_engine_that_takes_no_job_is_one_note(double, session, fault):
    double.fail_next("POST", "/jobs|/events", fault, times=9)
    job = EngineJob(session, TITLE)
    job.begin("x")
    job.end("x")
    job.finish("done", succeeded=True)
    (note,) = session.listener.notes
    assert "engine's tasks failed: " in note
    assert job.id is None


def test_a_job_whose_answer_is_lost_is_found(double, session):
    double.fail_next("POST", "/jobs", AnswerLost)
    job = EngineJob(session, TITLE)
    job.finish("done", succeeded=True)
    (shown,) = jobs_of(double.world).values()
    assert (shown.id, shown.status) == (job.id, "finished")
    assert session.listener.notes == []


@pytest.mark.parametrize("fault", [ServiceUnavailableHtml, AnswerLost])
def test_a_job_ends_although_the_engine_is_away(double, session, fault):
    job = EngineJob(session, TITLE)
    double.fail_next("POST", "/jobs/[^/]*/end", fault, times=3)
    job.finish("done", succeeded=True)
    (shown,) = jobs_of(double.world).values()
    assert shown.status == "finished"


@pytest.mark.parametrize("patience_s", [60.0, 0.0])
def test_a_job_that_stays_open_is_said(double, session, patience_s):
    job = EngineJob(session, TITLE)
    double.fail_next("POST", "/jobs/[^/]*/steps", Status(500))
    job.begin("x")
    double.fail_next("POST", "/jobs/[^/]*/end", ServiceUnavailableHtml, times=99)
    job.finish("done", succeeded=True, patience_s=patience_s)
    said = [note for note in session.listener.notes if "stays open" in note]
    assert len(said) == 1
    assert TITLE in said[0]
    assert f"jobs/{job.id}/end" in said[0]


def test_open_jobs_are_those_of_ours_that_go_on(double, session):
    add(double.world, "Adding a host", external=False)
    add(double.world, TITLE, status="finished")
    add(double.world, TITLE, external=False)
    assert find_open_jobs(session, "ovirt-rdma:") == []
    add(double.world, TITLE)
    (found,) = find_open_jobs(session, "ovirt-rdma:")
    assert found.description == TITLE


def broke_off(session, error):
    """Raise ``error`` within a task; return the notes."""
    with pytest.raises(type(error)), task(session, "make it", resume="run it again"):
        raise error
    return session.listener.notes


@pytest.mark.parametrize(
    ("error", "said", "event"),
    [
        (
            KeyboardInterrupt(),
            ["make it was interrupted; run it again"],
            "was interrupted",
        ),
        (
            ZeroDivisionError(),
            ["make it stopped by an error; run it again"],
            "stopped by an error",
        ),
        (Problem("some-id", "no space"), [], "make it failed: no space"),
    ],
)
def test_what_breaks_off_is_said_and_its_job_ends(double, session, error, said, event):
    assert broke_off(session, error) == said
    (job,) = jobs_of(double.world).values()
    assert job.status == "failed"
    (told,) = [one for one in double.world.log.events if one.origin == "ovirt-rdma"]
    assert event in told.description


def test_ctrl_c_says_first_how_to_continue(double, session, clock):
    double.fail_next("POST", "/jobs/[^/]*/end|/events", ServiceUnavailableHtml, times=9)
    notes = broke_off(session, KeyboardInterrupt())
    assert clock.slept == []
    assert "was interrupted; run it again" in notes[0]
    assert "stays open" in notes[1]


def test_the_end_of_a_task_waits_for_an_engine_that_is_away(double, session, clock):
    double.fail_next("POST", "/jobs/[^/]*/end", ServiceUnavailableHtml, times=3)
    broke_off(session, Problem("some-id", "no space"))
    assert clock.slept
    (job,) = jobs_of(double.world).values()
    assert job.status == "failed"
