# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve external jobs and their steps: restapi/resource/BackendJobsResource.java,
BackendJobResource.java, BackendStepsResource.java and BackendStepResource.java.
"""

from __future__ import annotations

from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import API, Refusal, created, done, linked, listed
from engine_double.behaviours import behaviour
from engine_double.job_life import (
    SimJob,
    SimStep,
    add,
    begin_step,
    delete_completed,
    end,
    end_step,
    jobs_of,
)
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import with_href

__all__ = ["SimJob", "SimStep", "add", "delete_completed", "jobs_of"]

GONE = behaviour(
    "JOB-07",
    "Ending a job or a step that is gone, and adding a step to a job that is gone, is "
    "refused with 400; only reading it is 404.",
    "bll/EndExternalJobCommand.java:34-56",
    "bll/EndExternalStepCommand.java:40-62",
    "bll/AddStepCommand.java:33-50",
)
EXTERNAL_ONLY = behaviour(
    "JOB-08",
    "Jobs of the engine's own cannot be ended, cleared or given steps.",
    "bll/EndExternalJobCommand.java:42-45",
    "bll/AddExternalStepCommand.java:21-29",
)
CLEAR_LATER = behaviour(
    "JOB-09",
    "Clearing a job only marks it as one to be deleted when it has ended.",
    "bll/ClearExternalJobCommand.java:52-57",
)
DESCRIBED = behaviour(
    "JOB-10",
    "A job requires a description; a step requires one, and a type.",
    "restapi/resource/BackendJobsResource.java:37-42",
    "restapi/resource/BackendStepsResource.java:38-46",
)
OVERRIDES = behaviour(
    "JOB-11",
    "At the end of a job, a query word JobId goes before the id in the path.",
    "restapi/resource/BackendJobResource.java:28-41",
    "restapi/resource/BackendResource.java:268-277",
)
OLDEST_FIRST = behaviour(
    "JOB-12",
    "Lists of jobs begin with the oldest.",
    "search/SearchObjectAutoCompleter.java:564-570",
)
_ONLY = "External steps can be added only to external jobs or steps."


@route("GET", "/jobs", query=("search", "max", "case_sensitive"), follow=("steps",))
def list_jobs(call: Call) -> Any:
    """List jobs, which support only one search key."""
    found = list(jobs_of(call.world).values())
    if not call.world.does(OLDEST_FIRST):
        found.reverse()
    fields = {"correlation_id": lambda one: one.correlation_id}
    found = matching(call.query.get("search", ""), found, fields)
    return listed("jobs", [_shown(one, call) for one in call.first(found)])


@route("GET", "/jobs/{job}", follow=("steps",))
def get_job(call: Call) -> Any:
    return _shown(_job(call), call)


@route("POST", "/jobs", root="job", fields=("description", "auto_cleared"))
def add_job(call: Call) -> Any:
    if not call.body.description and call.world.does(DESCRIBED):
        raise Refusal(400, "Job [description] required for add", reason="Incomplete")
    job = add(
        call.world,
        call.body.description or "",
        auto_cleared=call.body.auto_cleared is True,
        correlation_id=call.correlation_id,
    )
    return created(_shown(job, call))


@route("POST", "/jobs/{job}/end", root="action", fields=("succeeded", "force"))
def end_job(call: Call) -> Any:
    job = _external(call)
    if job is not None:
        succeeded = call.body.succeeded is not False
        end(call.world, job, succeeded, force=call.body.force is True)
    return done()


@route("POST", "/jobs/{job}/clear", root="action")
def clear_job(call: Call) -> Any:
    job = _external(call)
    if job is not None:
        job.auto_cleared = True
        if not call.world.does(CLEAR_LATER):
            del jobs_of(call.world)[job.id]
    return done()


@route("GET", "/jobs/{job}/steps", query=("max",))
def list_steps(call: Call) -> Any:
    job = _job(call)
    return listed(
        "steps", call.first(_shown_step(job, one) for one in job.steps.values())
    )


@route("GET", "/jobs/{job}/steps/{step}")
def get_step(call: Call) -> Any:
    job = _job(call)
    return _shown_step(job, known(job.steps, call.ids["step"]))


@route(
    "POST",
    "/jobs/{job}/steps",
    root="step",
    fields=("type", "description", "parent_step.id"),
)
def add_step(call: Call) -> Any:
    sent, world = call.body, call.world
    for name in ("type", "description"):
        if getattr(sent, name) is None and world.does(DESCRIBED):
            raise Refusal(400, f"Step [{name}] required for add", reason="Incomplete")
    kind = sent.type.value if sent.type else "executing"
    if kind not in ("validating", "executing", "finalizing"):
        raise Refusal(400, f"An external step cannot be {kind}.")
    parent = sent.parent_step.id if sent.parent_step else None
    job = jobs_of(world).get(call.ids["job"])
    if job is None or (parent is not None and parent not in job.steps):
        if world.does(GONE):
            raise Refusal(400, "Step should be a child of the Job or other Step.")
        return created(types.Step(id=call.ids["job"]))
    _check_external(call, job)
    step = begin_step(world, job, kind, sent.description or "", parent)
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
    if world.does(EXTERNAL_ONLY) and not step.external:
        raise Refusal(400, _ONLY)
    end_step(world, job, step, succeeded=call.body.succeeded is not False)
    return done()


def _job(call: Call) -> SimJob:
    job: SimJob = known(jobs_of(call.world), call.ids["job"])
    return job


def _external(call: Call) -> Optional[SimJob]:
    """Return the job of an action; a missing one is 400, not 404."""
    world, name = call.world, call.ids["job"]
    if call.job_id and world.does(OVERRIDES):
        name = call.job_id
    job = jobs_of(world).get(name)
    if job is None:
        if world.does(GONE):
            raise Refusal(400, "Job not found.")
        return None
    _check_external(call, job)
    return job


def _check_external(call: Call, job: SimJob) -> None:
    if not job.external and call.world.does(EXTERNAL_ONLY):
        raise Refusal(400, _ONLY)


def _shown(job: SimJob, call: Call) -> types.Job:
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
    if "steps" in call.follow:
        shown.steps = [_shown_step(job, one) for one in job.steps.values()]
        return shown
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
            external=step.external,
            job=types.Job(id=job.id),
            parent_step=types.Step(id=step.parent) if step.parent else None,
        ),
        f"/jobs/{job.id}/steps/{step.id}",
    )
