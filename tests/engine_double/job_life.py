# SPDX-License-Identifier: GPL-2.0-or-later
"""Begin and end jobs and their steps.

ExecutionHandler.java, Job.java and job_sp.sql of ovirt-engine 4.5.7.
"""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Optional

from engine_double.behaviours import behaviour
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
    parent: Optional[str] = None
    status: str = STARTED
    start_time: Optional[datetime.datetime] = None
    end_time: Optional[datetime.datetime] = None
    external: bool = True


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


def begin_step(
    world: World,
    job: SimJob,
    kind: str,
    description: str,
    parent: Optional[str] = None,
    external: bool = True,
) -> SimStep:
    """Add a step; a job that has ended accepts it too, and stays as it is."""
    beside = [one for one in job.steps.values() if one.parent == parent]
    step = SimStep(new_id(), kind, description, len(beside), parent)
    step.start_time, step.external = world.time(), external
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
