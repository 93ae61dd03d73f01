# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's jobs, their ends, and what happens to ended ones."""

from __future__ import annotations

from typing import Any

import ovirtsdk4 as sdk
import pytest
from engine_double import jobs
from ovirtsdk4 import types
from support.engine.double_engine import Engine, refused

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]
Status = types.JobStatus


def begin(engine: Engine, **words: Any) -> Any:
    """Return the service of a new external job."""
    words = {"description": "convert", "auto_cleared": True, **words}
    job = engine.system.jobs_service().add(types.Job(**words))
    return engine.system.jobs_service().job_service(job.id)


def id_of(job: Any) -> str:
    name: str = job.get().id
    return name


def step_of(job: Any, description: str = "host02") -> Any:
    step = types.Step(type=types.StepEnum.EXECUTING, description=description)
    made = job.steps_service().add(step)
    return job.steps_service().step_service(made.id)


def statuses(job: Any) -> set[str]:
    return {step.status.value for step in job.steps_service().list()}


# -- ending jobs and steps


@pytest.mark.engine_does("JOB-01")
def test_a_failed_step_fails_the_whole_job(engine: Engine) -> None:
    job = begin(engine)
    first, _ = step_of(job, "host01"), step_of(job, "host02")
    first.end(succeeded=False)
    assert job.get().status == Status.FAILED
    assert statuses(job) == {"failed"}


@pytest.mark.engine_does("JOB-02")
@pytest.mark.parametrize("status", ["finished", "failed", "unknown"])
def test_a_job_that_has_ended_cannot_be_ended_otherwise(
    engine: Engine, status: str
) -> None:
    job = begin(engine)
    jobs.jobs_of(engine.world)[id_of(job)].status = status
    job.end(succeeded=status == "failed")
    assert job.get().status.value == status


@pytest.mark.engine_does("JOB-06")
def test_steps_move_the_time_of_the_last_update(engine: Engine) -> None:
    job = begin(engine)
    begun = job.get().last_updated
    engine.world.seconds += 60
    step = step_of(job)
    added = job.get().last_updated
    engine.world.seconds += 60
    step.end()
    assert [(t - begun).seconds for t in (added, job.get().last_updated)] == [60, 120]


# -- jobs that go


@pytest.mark.engine_does("JOB-04")
def test_ended_jobs_are_deleted_later(engine: Engine) -> None:
    job, kept, under_way = (
        begin(engine),
        begin(engine, auto_cleared=False),
        begin(engine),
    )
    job.end()
    kept.end()
    step = step_of(under_way)
    jobs.delete_completed(engine.world)
    shown = {one.id for one in engine.system.jobs_service().list()}
    assert shown == {id_of(kept), id_of(under_way)}
    with pytest.raises(sdk.NotFoundError):
        job.get()
    step.end()


@pytest.mark.engine_does("JOB-03")
def test_force_lets_a_job_be_deleted(engine: Engine) -> None:
    job = begin(engine, auto_cleared=False)
    job.end(force=True)
    assert job.get().auto_cleared
    jobs.delete_completed(engine.world)
    assert engine.system.jobs_service().list() == []


@pytest.mark.engine_does("JOB-05")
def test_a_restart_makes_what_is_started_unknown(engine: Engine) -> None:
    job, ended = begin(engine), begin(engine)
    step_of(job)
    ended.end()
    engine.double.restart(down_for_requests=0)
    shown = job.get()
    assert (shown.status, statuses(job)) == (Status.UNKNOWN, {"unknown"})
    assert shown.end_time is not None
    assert ended.get().status == Status.FINISHED
    job.end()
    assert job.get().status == Status.UNKNOWN
    job.end(force=True)
    jobs.delete_completed(engine.world)
    assert engine.system.jobs_service().list() == []


@pytest.mark.engine_does("JOB-07")
@pytest.mark.parametrize("what", ["end", "step", "end step"])
def test_a_job_that_is_gone(engine: Engine, what: str) -> None:
    job = begin(engine)
    step = step_of(job)
    del jobs.jobs_of(engine.world)[id_of(job)]
    asks = {
        "end": job.end,
        "step": lambda: step_of(job),
        "end step": step.end,
    }
    with refused(400, "not found|child of the Job"):
        asks[what]()


@pytest.mark.engine_does("JOB-12")
def test_the_oldest_job_comes_first(engine: Engine) -> None:
    found = [id_of(begin(engine)) for _ in range(3)]
    service = engine.system.jobs_service()
    assert [one.id for one in service.list()] == found
