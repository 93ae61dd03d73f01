# SPDX-License-Identifier: GPL-2.0-or-later
"""Both sessions keep the same promises: the one over HTTP, and the tests' own over a
world in memory, which stands for it in thousands of conversions.
"""

from __future__ import annotations

import inspect

import pytest
from engine_double import sample_world
from engine_double.faults import Status
from ovirtsdk4 import types
from support.engine.conversion_site import Site

from ovirt_rdma.engine_sdk_tools.api.request import (
    CONFLICT,
    MISSING,
    Call,
    EngineProblem,
    Read,
    TimeoutProblem,
    of_curl,
)
from ovirt_rdma.engine_sdk_tools.api.session import Session
from ovirt_rdma.engine_sdk_tools.reader import read_engine
from ovirt_rdma.host.errors import Problem

pytestmark = pytest.mark.engine

HOSTS = Read("hosts", "reading the hosts")
NOBODY = Read("hosts/00000000-0000-0000-0000-000000000000", "reading a host", "get")


@pytest.fixture(params=["over HTTP", "in memory"])
def either(request):
    """Return a session of each kind, with its world."""
    if request.param == "over HTTP":
        double = request.getfixturevalue("double")
        return request.getfixturevalue("session"), double.world
    site = Site(sample_world(hosts=3))
    return site, site.world


def moved(world, name="host02"):
    host = world.host(name)
    return Call(f"hosts/{host.id}", "deactivate", f"moving {name} to maintenance")


METHODS = ("read", "read_all", "perform", "report_progress", "wait_until")


@pytest.mark.parametrize("name", METHODS)
def test_the_one_of_tests_takes_the_same(name):
    taken = inspect.signature(getattr(Site, name)).parameters
    for parameter in inspect.signature(getattr(Session, name)).parameters.values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert taken[parameter.name].kind is parameter.KEYWORD_ONLY
        assert (taken[parameter.name].default is parameter.empty) == (
            parameter.default is parameter.empty
        ), parameter.name


def test_every_name_is_there_when_it_is_made(either):
    session, _ = either
    names = ("listener", "correlation_id", "performed", "clock", "sleep", *METHODS)
    assert [name for name in names if not hasattr(session, name)] == []
    assert session.url.startswith("http")


def test_a_missing_object_stands_in_its_place(either):
    session, world = either
    found, missing = session.read_all([HOSTS, NOBODY])
    assert [host.name for host in found] == [h.name for h in world.hosts.values()]
    assert isinstance(missing, EngineProblem)
    assert missing.kind == MISSING
    with pytest.raises(EngineProblem) as caught:
        session.read(NOBODY)
    assert caught.value.kind == MISSING


def test_a_change_is_made_after_the_question_before_it(either):
    session, world = either
    asked = []
    made = session.perform(moved(world), before=lambda: asked.append(1))
    assert (made, asked) == (None, [1])
    assert world.host("host02").status != "up"

    class Stop(Exception):
        pass

    def stop():
        raise Stop

    with pytest.raises(Stop):
        session.perform(moved(world, "host03"), before=stop)
    assert world.host("host03").status == "up"


def test_a_refusal_has_the_engines_kind(either):
    session, world = either
    for host in world.hosts.values():
        host.status = "down"
    activate = Call(f"hosts/{world.host('host02').id}", "activate", "activating host02")
    world.host("host02").status = "up"
    with pytest.raises(EngineProblem) as caught:
        session.perform(activate)
    assert caught.value.kind == CONFLICT


def test_a_job_is_made(either):
    session, _ = either
    job = types.Job(description="ovirt-rdma: a test", auto_cleared=True)
    made = session.report_progress(Call("jobs", "add", "adding a job", {"job": job}))
    assert made.description == "ovirt-rdma: a test"


def test_a_wait_ends_with_what_was_waited_for_or_with_its_limit(either):
    session, world = either
    session.perform(moved(world))
    read = Read(f"hosts/{world.host('host02').id}", "waiting", "get")

    def away(host):
        return host.name if host.status.value == "maintenance" else None

    assert session.wait_until(read, away, "waiting for host02", 600.0) == "host02"
    before = session.clock()
    with pytest.raises(TimeoutProblem, match="waiting for ever"):
        session.wait_until(read, lambda _: None, "waiting for ever", 600.0)
    assert session.clock() - before >= 600.0


def test_the_first_request_of_a_login_is_alone(double, session):
    """Engines answer some of parallel first requests with 500."""
    double.latency_s = 0.02
    for _ in range(2):
        assert read_engine(session).hosts
        double.expire_tokens()
    assert session.listener.notes == []


def test_a_500_of_the_engine_is_none_of_the_web_server(double, session):
    double.fail_next("GET", "/hosts", Status(500, html=True), times=99)
    with pytest.raises(Problem) as caught:
        read_engine(session)
    assert "has failed (HTTP 500)" in str(caught.value)
    assert "web server" not in str(caught.value)
    assert "server.log" in caught.value.fix


def test_a_user_who_may_not_log_in(double, session):
    double.sso.may_not_log_in |= set(double.world.passwords)
    with pytest.raises(Problem) as caught:
        read_engine(session)
    assert "is not authorized to perform login" in str(caught.value)
    assert "administrator" in caught.value.fix


def test_a_name_that_the_certificate_does_not_have():
    text = "SSL: no alternative certificate subject name matches target host name 'e'"
    said = of_curl(60, text, "reading the hosts", "the engine e")
    assert "engine's FQDN" in said.fix
    assert "--ca-file" not in said.fix
