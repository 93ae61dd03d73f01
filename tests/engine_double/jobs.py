# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve external jobs and their steps: restapi/resource/BackendJobsResource.java,
BackendJobResource.java, BackendStepsResource.java and BackendStepResource.java; begin
and end them: ExecutionHandler.java, Job.java and job_sp.sql.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import API, Refusal, created, done, linked, listed
from engine_double.behaviours import behaviour
from engine_double.routing import Call, known, matching, route
from engine_double.views import with_href
from engine_double.world import World, new_id

FAILED_STEP = behaviour(
    "JOB-01",
    "A step that is ended as failed ends its whole job as failed, with the steps that "
    "were still started.",
    "bll/job/ExecutionHandler.java:129-160",
    "bll/EndExternalStepCommand.java:65-73",
)
ENDED_STAYS = behaviour(
    "JOB-02",
    "Ending a job that has ended, or is unknown, is answered with 200 and changes "
    "neither its status nor its end.",
    "common/job/Job.java:283-293",
    "bll/EndExternalJobCommand.java:58-65",
)
FORCE_CLEARS = behaviour(
    "JOB-03",
    "A job that is ended with force is deleted later, also one that was not to be.",
    "bll/EndExternalJobCommand.java:66-72",
)
DELETED = behaviour(
    "JOB-04",
    "Jobs that have ended and are cleared automatically are deleted later, unknown "
    "ones too: the API does not know them any more.",
    "bll/job/JobRepositoryCleanupManager.java:65-75",
    "dbscripts/job_sp.sql:627-650",
)
RESTART = behaviour(
    "JOB-05",
    "A restart of the engine makes jobs and steps that are started unknown, with an "
    "end time.",
    "bll/job/JobRepositoryImpl.java:226-233",
    "dbscripts/job_sp.sql:559-583",
)
TOUCHED = behaviour(
    "JOB-06",
    "Adding and ending a step moves the job's time of the last update.",
    "bll/job/JobRepositoryImpl.java:58-90",
)
STARTED = "started"


@dataclass
class SimStep:
    id: str
    type: str
    description: str
    number: int
    status: str = STARTED
    start_time: Optional[datetime.datetime] = None
    end_time: Optional[datetime.datetime] = None


@dataclass
class SimJob:
    """A job; only ``external`` ones can be ended over REST."""

    id: str
    description: str
    auto_cleared: bool = False
    external: bool = True
    status: str = STARTED
    correlation_id: Optional[str] = None
    steps: dict[str, SimStep] = field(default_factory=dict)
    start_time: Optional[datetime.datetime] = None
    end_time: Optional[datetime.datetime] = None
    last_updated: Optional[datetime.datetime] = None


def jobs_of(world: World) -> dict[str, SimJob]:
    """Return all jobs, in the order in which they began."""
    found: dict[str, SimJob] = world.more.setdefault("jobs", {})
    return found


def add(world: World, description: str, **words: Any) -> SimJob:
    """Begin a job, for tests: another console's, or the engine's own."""
    job = SimJob(new_id(), description, **words)
    job.start_time = job.start_time or world.time()
    job.last_updated = job.last_updated or job.start_time
    jobs_of(world)[job.id] = job
    return job


def begin_step(world: World, job: SimJob, kind: str, description: str) -> SimStep:
    """Add a step; a job that has ended accepts it too, and stays as it is."""
    step = SimStep(new_id(), kind, description, len(job.steps))
    step.start_time = world.time()
    job.steps[step.id] = step
    _touch(world, job)
    return step


def end_step(world: World, job: SimJob, step: SimStep, succeeded: bool) -> None:
    step.status = "finished" if succeeded else "failed"
    step.end_time = world.time()
    _touch(world, job)
    if not succeeded and world.does(FAILED_STEP):
        end(world, job, succeeded=False)


def end(world: World, job: SimJob, succeeded: bool, force: bool = False) -> None:
    """End ``job`` and the steps of it that are started."""
    if job.status == STARTED or not world.does(ENDED_STAYS):
        job.status = "finished" if succeeded else "failed"
        job.end_time = job.last_updated = world.time()
    for step in job.steps.values():
        if step.status == STARTED:
            step.status, step.end_time = job.status, job.end_time
    if force and world.does(FORCE_CLEARS):
        job.auto_cleared = True


def delete_completed(world: World) -> None:
    """Delete ended jobs, as the engine does 10 to 20 minutes later."""
    for job in list(jobs_of(world).values()):
        if job.auto_cleared and job.status != STARTED and world.does(DELETED):
            del jobs_of(world)[job.id]


def restart(world: World) -> None:
    """End jobs as the engine does when it starts."""
    for job in jobs_of(world).values():
        if job.status != STARTED or not world.does(RESTART):
            continue
        job.status = "unknown"
        job.end_time = job.last_updated = world.time()
        for step in job.steps.values():
            if step.status == STARTED:
                step.status, step.end_time = "unknown", job.end_time


def _touch(world: World, job: SimJob) -> None:
    if world.does(TOUCHED):
        job.last_updated = world.time()


# -- the API

GONE = behaviour(
    "JOB-07",
    "Ending a job or a step that is gone, and adding a step to a job that is gone, is "
    "refused with 400; only reading it is 404.",
    "bll/EndExternalJobCommand.java:34-56",
    "bll/EndExternalStepCommand.java:40-62",
    "bll/AddStepCommand.java:33-50",
)
OLDEST_FIRST = behaviour(
    "JOB-12",
    "Lists of jobs begin with the oldest.",
    "search/SearchObjectAutoCompleter.java:564-570",
)


@route("GET", "/jobs", query=("search",))
def list_jobs(call: Call) -> Any:
    """List jobs, which support only one search key."""
    found = list(jobs_of(call.world).values())
    if not call.world.does(OLDEST_FIRST):
        found.reverse()
    fields = {"correlation_id": lambda one: one.correlation_id}
    found = matching(call.query.get("search", ""), found, fields)
    return listed("jobs", [_shown(one) for one in found])


@route("GET", "/jobs/{job}")
def get_job(call: Call) -> Any:
    return _shown(known(jobs_of(call.world), call.ids["job"]))


@route("POST", "/jobs", root="job", fields=("auto_cleared",), wants=("description",))
def add_job(call: Call) -> Any:
    job = add(
        call.world,
        call.body.description,
        auto_cleared=call.body.auto_cleared is True,
        correlation_id=call.correlation_id,
    )
    return created(_shown(job))


@route("POST", "/jobs/{job}/end", root="action", fields=("succeeded", "force"))
def end_job(call: Call) -> Any:
    """End a job; a missing one is 400, not 404."""
    world = call.world
    job = jobs_of(world).get(call.ids["job"])
    if job is not None:
        succeeded = call.body.succeeded is not False
        end(world, job, succeeded, force=call.body.force is True)
    elif world.does(GONE):
        raise Refusal(400, "Job not found.")
    return done()


@route("GET", "/jobs/{job}/steps")
def list_steps(call: Call) -> Any:
    job = known(jobs_of(call.world), call.ids["job"])
    return listed("steps", [_shown_step(job, one) for one in job.steps.values()])


@route("POST", "/jobs/{job}/steps", root="step", wants=("type", "description"))
def add_step(call: Call) -> Any:
    sent, world = call.body, call.world
    kind = sent.type.value
    if kind not in ("validating", "executing", "finalizing"):
        raise Refusal(400, f"An external step cannot be {kind}.")
    job = jobs_of(world).get(call.ids["job"])
    if job is None:
        if world.does(GONE):
            raise Refusal(400, "Step should be a child of the Job or other Step.")
        return created(types.Step(id=call.ids["job"]))
    step = begin_step(world, job, kind, sent.description)
    return created(_shown_step(job, step))


@route("POST", "/jobs/{job}/steps/{step}/end", root="action", fields=("succeeded",))
def end_step_of_job(call: Call) -> Any:
    world = call.world
    job = jobs_of(world).get(call.ids["job"])
    step = job.steps.get(call.ids["step"]) if job else None
    if job is None or step is None:
        if world.does(GONE):
            raise Refusal(400, "Cannot end External Step. Step not found.")
        return done()
    end_step(world, job, step, succeeded=call.body.succeeded is not False)
    return done()


def _shown(job: SimJob) -> types.Job:
    where = f"/jobs/{job.id}"
    shown = with_href(
        types.Job(
            id=job.id,
            description=job.description,
            auto_cleared=job.auto_cleared,
            external=job.external,
            status=types.JobStatus(job.status),
            start_time=job.start_time,
            end_time=job.end_time,
            last_updated=job.last_updated,
        ),
        where,
    )
    return linked(shown, steps=f"{API}{where}/steps")


def _shown_step(job: SimJob, step: SimStep) -> types.Step:
    return with_href(
        types.Step(
            id=step.id,
            description=step.description,
            type=types.StepEnum(step.type),
            status=types.StepStatus(step.status),
            number=step.number,
            start_time=step.start_time,
            end_time=step.end_time,
            external=True,
            job=types.Job(id=job.id),
        ),
        f"/jobs/{job.id}/steps/{step.id}",
    )
