# SPDX-License-Identifier: GPL-2.0-or-later
"""External jobs and their steps (facts/engine.md, section 6)."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import API, Refusal, created, done, linked, listed
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.views import with_href
from engine_double.world import World, new_id

STARTED = "started"


@dataclass
class SimStep:
    id: str
    type: str
    description: str
    number: int
    parent: Optional[str] = None
    status: str = STARTED


@dataclass
class SimJob:
    """A job; only ``external`` ones can be ended over REST."""

    id: str
    description: str
    auto_cleared: bool = False
    external: bool = True
    status: str = STARTED
    cleared: bool = False
    correlation_id: Optional[str] = None
    steps: dict[str, SimStep] = field(default_factory=dict)


def jobs_of(world: World) -> dict[str, SimJob]:
    """All jobs, in the order in which they began."""
    found: dict[str, SimJob] = world.more.setdefault("jobs", {})
    return found


def add(world: World, description: str, **words: Any) -> SimJob:
    """Begin a job, for tests: another console's, or the engine's own."""
    job = SimJob(new_id(), description, **words)
    jobs_of(world)[job.id] = job
    return job


@route("GET", "/jobs", query=("search", "max", "case_sensitive"), follow=("steps",))
def list_jobs(call: Call) -> Any:
    """As the real engine, the newest first; jobs know one search word only."""
    found = [one for one in jobs_of(call.world).values() if not one.cleared][::-1]
    fields = {"correlation_id": lambda one: one.correlation_id}
    found = matching(call.query.get("search", ""), found, fields)
    return listed("jobs", [_shown(one, call) for one in call.first(found)])


@route("GET", "/jobs/{job}", follow=("steps",))
def get_job(call: Call) -> Any:
    return _shown(_job(call), call)


@route("POST", "/jobs", root="job", fields=("description", "auto_cleared"))
def add_job(call: Call) -> Any:
    if not call.body.description:
        raise Refusal(400, "Job [description] required for add", reason="Incomplete")
    job = add(
        call.world,
        call.body.description,
        auto_cleared=call.body.auto_cleared is True,
        correlation_id=call.correlation_id,
    )
    return created(_shown(job, call))


@route("POST", "/jobs/{job}/end", root="action", fields=("succeeded", "force"))
def end_job(call: Call) -> Any:
    job = _external(call)
    succeeded = call.body.succeeded is not False
    job.status = "finished" if succeeded else "failed"
    for step in job.steps.values():
        if step.status == STARTED:
            step.status = job.status
    return done()


@route("POST", "/jobs/{job}/clear", root="action")
def clear_job(call: Call) -> Any:
    _external(call).cleared = True
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
    sent = call.body
    for name in ("type", "description"):
        if getattr(sent, name) is None:
            raise Refusal(400, f"Step [{name}] required for add", reason="Incomplete")
    if sent.type.value not in ("validating", "executing", "finalizing"):
        raise Refusal(400, f"An external step cannot be {sent.type.value}.")
    job = _external(call)
    parent = sent.parent_step.id if sent.parent_step else None
    if parent is not None and parent not in job.steps:
        raise Refusal(400, "Step should be a child of the Job or other Step.")
    step = SimStep(
        new_id(), sent.type.value, sent.description, len(job.steps) + 1, parent
    )
    job.steps[step.id] = step
    return created(_shown_step(job, step))


@route("POST", "/jobs/{job}/steps/{step}/end", root="action", fields=("succeeded",))
def end_step(call: Call) -> Any:
    step = _external(call).steps.get(call.ids["step"])
    if step is None:
        raise Refusal(400, "Cannot end External Step. Step not found.")
    step.status = "failed" if call.body.succeeded is False else "finished"
    return done()


def _job(call: Call) -> SimJob:
    job: SimJob = known(jobs_of(call.world), call.ids["job"])
    return job


def _external(call: Call) -> SimJob:
    """The job of an action; that it is not there is 400, not 404."""
    job = jobs_of(call.world).get(call.ids["job"])
    if job is None:
        raise Refusal(400, "Job not found.")
    if not job.external:
        raise Refusal(
            400, "External steps can be added only to external jobs or steps."
        )
    return job


def _shown(job: SimJob, call: Call) -> types.Job:
    where = f"/jobs/{job.id}"
    shown = with_href(
        types.Job(
            id=job.id,
            description=job.description,
            auto_cleared=job.auto_cleared,
            external=job.external,
            status=types.JobStatus(job.status),
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
            external=True,
            job=types.Job(id=job.id),
            parent_step=types.Step(id=step.parent) if step.parent else None,
        ),
        f"/jobs/{job.id}/steps/{step.id}",
    )
