# SPDX-License-Identifier: GPL-2.0-or-later
"""Our work among the engine's tasks and events."""

from __future__ import annotations

import pytest
from engine_double.faults import AnswerLost, ServiceUnavailableHtml, Status
from engine_double.jobs import add, jobs_of

from ovirt_rdma.engine_sdk_tools.call import Call, Read
from ovirt_rdma.engine_sdk_tools.engine_job import (
    EngineJob,
    Listeners,
    find_open_jobs,
)

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
    assert steps == {
        "moving host01 to maintenance": "finished",
        "moving host02 to maintenance": "failed",
    }
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
        "data1 was not converted",
        "error",
    )


def test_changes_belong_to_the_job_and_its_own_do_not(double, session):
    job = EngineJob(session, TITLE)
    host = double.world.host("host02")
    call = Call(f"hosts/{host.id}", "deactivate", "x")
    session.perform(call)
    job.finish("done", succeeded=True)
    ids = [one.query.get("JobId") for one in double.changes()]
    assert ids == [None, job.id, None, None]
    assert (session.job, session.performed) == (None, [call])


@pytest.mark.parametrize("fault", [Status(403, "No."), Status(500)])
def test_an_engine_that_takes_no_job_is_one_note(double, session, fault):
    double.fail_next("POST", "/jobs|/events", fault, times=9)
    job = EngineJob(session, TITLE)
    job.begin("x")
    job.end("x")
    job.finish("done", succeeded=True)
    (note,) = session.listener.notes
    assert note.endswith("the work goes on")
    assert session.job is None


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


def test_a_job_that_was_left_open_goes_on(double, session):
    left = add(double.world, TITLE)
    job = EngineJob(session, TITLE, adopt=left.id)
    job.begin("x")
    job.end("x")
    job.finish("done", succeeded=True)
    assert list(jobs_of(double.world)) == [left.id]
    assert left.status == "finished"


def test_open_jobs_are_those_of_ours_that_go_on(double, session):
    add(double.world, "Adding a host", external=False)
    add(double.world, TITLE, status="finished")
    add(double.world, TITLE, external=False)
    assert find_open_jobs(session, "ovirt-rdma:") == []
    add(double.world, TITLE)
    (found,) = find_open_jobs(session, "ovirt-rdma:")
    assert found.description == TITLE
