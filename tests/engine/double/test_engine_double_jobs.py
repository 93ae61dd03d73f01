# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's jobs: who ends them, and what happens to ended ones."""

from __future__ import annotations

from typing import Any

import ovirtsdk4 as sdk
import pytest
import requests
from engine_double import jobs
from engine_double.actions import ACTIONS, NOT_MONITORED, OF_JOBS, WITH_CALLBACK
from engine_double.routing import ROUTES
from ovirtsdk4 import types
from support.engine.double_engine import Engine, made, refused, row

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

make = pytest.fixture(made)
Status = types.JobStatus


@pytest.fixture
def engine(make: Any) -> Engine:
    found: Engine = make()
    return found


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


def of(engine: Engine, job: Any) -> dict[str, str]:
    """Return the query parameter that makes a request belong to ``job``."""
    return {"JobId": id_of(job)}


def statuses(job: Any) -> set[str]:
    return {step.status.value for step in job.steps_service().list()}


# -- which requests may name a job


def test_each_route_that_changes_something_has_its_action() -> None:
    changing = {(r.method, r.path) for r in ROUTES if r.method != "GET"}
    assert changing == set(ACTIONS)
    assert set(ACTIVE_NAMES) >= NOT_MONITORED | WITH_CALLBACK | OF_JOBS
    assert not NOT_MONITORED & WITH_CALLBACK


ACTIVE_NAMES = set(ACTIONS.values())


@pytest.mark.engine_does("JOB-13")
@pytest.mark.parametrize("what", ["deactivate", "refresh", "step", "job", "cluster"])
def test_a_job_is_refused_where_the_action_is_not_monitored(
    engine: Engine, what: str
) -> None:
    job = begin(engine)
    words = of(engine, job)
    step = types.Step(type=types.StepEnum.EXECUTING, description="x")
    clusters = engine.system.clusters_service()
    cluster = clusters.cluster_service(engine.world.cluster("cl1").id)
    asks = {
        "deactivate": lambda: engine.host("host02").deactivate(query=words),
        "refresh": lambda: engine.host("host02").refresh(query=words),
        "step": lambda: job.steps_service().add(step, query=words),
        "job": lambda: engine.system.jobs_service().add(
            types.Job(description="x"), query=words
        ),
        "cluster": lambda: cluster.update(types.Cluster(name="cl2"), query=words),
    }
    with refused(400, "Non monitored command"):
        asks[what]()
    assert (job.get().status, engine.world.host("host02").status) == (
        Status.STARTED,
        "up",
    )
    assert statuses(job) == set()


@pytest.mark.engine_does("JOB-18")
def test_a_header_names_no_job(engine: Engine) -> None:
    token = engine.connection.authenticate()
    headers = {
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/xml",
        "JobId": id_of(begin(engine)),
    }
    host = engine.world.host("host02")
    url = f"{engine.double.url}/hosts/{host.id}/deactivate"
    reply = requests.post(url, data="<action/>", headers=headers, timeout=60)
    assert (reply.status_code, host.status) == (200, "preparing_for_maintenance")


# -- the end of the named job


@pytest.mark.engine_does("JOB-14")
def test_a_monitored_action_ends_the_job_and_its_steps(engine: Engine) -> None:
    engine.world.host("host02").status = "maintenance"
    job = begin(engine)
    step_of(job)
    engine.host("host02").activate(query=of(engine, job))
    assert job.get().status == Status.FINISHED
    assert statuses(job) == {"finished"}


@pytest.mark.engine_does("JOB-14")
def test_an_action_that_fails_fails_the_job(engine: Engine) -> None:
    engine.attached("data2").deactivate()
    engine.world.settle()
    engine.world.export("nfs1.example.com:/exports/data2").answers = False
    job = begin(engine)
    with refused(400):
        engine.attached("data2").activate(query=of(engine, job))
    assert job.get().status == Status.FAILED


@pytest.mark.engine_does("JOB-15")
def test_a_refusal_leaves_the_job(engine: Engine) -> None:
    job = begin(engine)
    with refused(409):
        engine.host("host02").activate(query=of(engine, job))
    assert job.get().status == Status.STARTED


@pytest.mark.engine_does("JOB-16")
def test_a_domains_deactivation_ends_the_job_with_itself(engine: Engine) -> None:
    job = begin(engine)
    engine.attached("data2").deactivate(query=of(engine, job))
    assert job.get().status == Status.STARTED
    engine.world.settle()
    assert job.get().status == Status.FINISHED


@pytest.mark.engine_does("JOB-17")
def test_a_job_that_there_is_not_is_ignored(engine: Engine) -> None:
    gone = {"JobId": "11111111-2222-3333-4444-555555555555"}
    change = row(mount_options="proto=rdma")
    try:
        shown = engine.row("data1").update(change, force=True, query=gone)
    except sdk.Error as error:
        raise AssertionError("it was refused") from error
    assert shown.mount_options == "proto=rdma"


# -- ending jobs and steps


def test_a_job_with_steps_ends(engine: Engine) -> None:
    job = begin(engine)
    shown = job.get()
    assert (shown.external, shown.status, shown.end_time) == (
        True,
        Status.STARTED,
        None,
    )
    first, second = step_of(job, "host01"), step_of(job, "host02")
    first.end()
    engine.world.seconds += 60
    job.end(succeeded=False)
    ended = [one.get() for one in (first, second)]
    assert [one.status.value for one in ended] == ["finished", "failed"]
    shown = job.get()
    assert (shown.status, (shown.end_time - shown.start_time).seconds) == (
        Status.FAILED,
        60,
    )


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


def test_a_job_that_has_ended_takes_steps(engine: Engine) -> None:
    job = begin(engine)
    job.end()
    step_of(job)
    assert (job.get().status, statuses(job)) == (Status.FINISHED, {"started"})


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


@pytest.mark.engine_does("JOB-11")
def test_the_query_word_goes_before_the_path(engine: Engine) -> None:
    asked, other = begin(engine), begin(engine)
    asked.end(query=of(engine, other))
    assert (asked.get().status, other.get().status) == (
        Status.STARTED,
        Status.FINISHED,
    )


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


@pytest.mark.engine_does("JOB-09")
def test_a_cleared_job_stays_until_it_has_ended(engine: Engine) -> None:
    job = begin(engine, auto_cleared=False)
    job.clear()
    jobs.delete_completed(engine.world)
    assert [one.auto_cleared for one in engine.system.jobs_service().list()] == [True]


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
@pytest.mark.parametrize("what", ["end", "step", "end step", "clear"])
def test_a_job_that_is_gone(engine: Engine, what: str) -> None:
    job = begin(engine)
    step = step_of(job)
    del jobs.jobs_of(engine.world)[id_of(job)]
    asks = {
        "end": job.end,
        "step": lambda: step_of(job),
        "end step": step.end,
        "clear": job.clear,
    }
    with refused(400, "not found|child of the Job"):
        asks[what]()


@pytest.mark.engine_does("JOB-08")
@pytest.mark.parametrize("what", ["end", "step", "clear"])
def test_a_job_of_the_engines_own(engine: Engine, what: str) -> None:
    own = jobs.add(engine.world, "Adding a host", external=False)
    job = engine.system.jobs_service().job_service(own.id)
    asks = {"end": job.end, "step": lambda: step_of(job), "clear": job.clear}
    with refused(400, "only to external jobs"):
        asks[what]()


@pytest.mark.engine_does("JOB-10")
@pytest.mark.parametrize("missing", ["job", "type", "description"])
def test_what_jobs_and_steps_want(engine: Engine, missing: str) -> None:
    if missing == "job":
        with refused(400, "description"):
            engine.system.jobs_service().add(types.Job())
        return
    words: dict[str, Any] = {"type": types.StepEnum.EXECUTING, "description": "x"}
    del words[missing]
    with refused(400, missing):
        begin(engine).steps_service().add(types.Step(**words))


@pytest.mark.engine_does("JOB-12")
def test_the_oldest_job_comes_first(engine: Engine) -> None:
    found = [id_of(begin(engine)) for _ in range(3)]
    service = engine.system.jobs_service()
    assert [one.id for one in service.list()] == found
    assert [one.id for one in service.list(max=1)] == found[:1]
