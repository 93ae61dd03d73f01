# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the session against the double: patience, lost answers, logins."""

from __future__ import annotations

import threading

import pytest
from engine_double.faults import (
    AnswerLost,
    Conflict,
    DropConnection,
    Locked,
    NoContentType,
    ServiceUnavailableHtml,
    Status,
    Timeout,
)
from support.engine.engine_command_line import Notes, open_session
from support.problems import problem

from ovirt_rdma.engine_sdk_tools.api.auth import Settings
from ovirt_rdma.engine_sdk_tools.api.request import (
    BROKEN,
    BUSY,
    CONFLICT,
    DENIED,
    INVALID,
    LOCKED,
    MISSING,
    TIMEOUT,
    UNAVAILABLE,
    UNREACHABLE,
    Call,
    EngineProblem,
    LostAnswer,
    Read,
    TimeoutProblem,
    of_curl,
)
from ovirt_rdma.engine_sdk_tools.api.session import AT_ONCE, Session

pytestmark = pytest.mark.hypervisor

HOSTS = Read("hosts", "reading the hosts")


def down(double, host="host02"):
    made = double.world.host(host)
    return Call(f"hosts/{made.id}", "deactivate", f"moving {host} to maintenance")


def refused(session, asked):
    act = session.read if isinstance(asked, Read) else session.perform
    with pytest.raises(EngineProblem) as caught:
        act(asked)
    return caught.value


def test_reads_an_engine(session):
    assert [one.name for one in session.read(HOSTS)] == ["host01", "host02", "host03"]


def test_reads_many_in_order_and_names_what_is_not_there(session, double):
    ids = [one.id for one in double.world.hosts.values()] * 5
    reads = [Read(f"hosts/{one}", "reading a host", "get") for one in [*ids, "none"]]
    *found, missing = session.read_all(reads)
    assert [one.id for one in found] == ids
    assert (missing.kind, missing.doing) == (MISSING, "reading a host")
    assert missing.id == "engine-object-missing"


def test_reads_many_at_a_time(double, session, monkeypatch):
    session.read(HOSTS)  # logged in
    # No request is answered before AT_ONCE have arrived.
    together = threading.Barrier(AT_ONCE)
    spring = double.traps.spring

    def meet(*request):
        together.wait(60)
        return spring(*request)

    with monkeypatch.context() as patched:
        patched.setattr(double.traps, "spring", meet)
        assert [len(found) for found in session.read_all([HOSTS] * 2 * AT_ONCE)] == (
            [3] * 2 * AT_ONCE
        )
    assert not together.broken


def test_an_error_of_one_of_many_is_raised(double, session):
    double.fail_next("GET", "/clusters$", Status(400, "Bad."))
    with problem("engine-refused", "reading clusters", "Bad"):
        session.read_all([HOSTS, Read("clusters", "reading clusters"), HOSTS])


@pytest.mark.parametrize(
    "fault",
    [
        ServiceUnavailableHtml,
        DropConnection,
        Status(503, html=True),
        # The engine's server starts: its API does not exist yet.
        Status(404, html=True),
    ],
)
def test_a_read_survives_an_engine_that_is_away(double, session, fault):
    session.read(HOSTS)
    double.fail_next("GET", "/hosts$", fault, times=3)
    assert len(session.read(HOSTS)) == 3
    (note,) = session.listener.notes
    assert note.startswith("reading the hosts failed: ")
    assert "300 s" in note


def test_reads_survive_a_restart_with_one_note(double, session):
    session.read(HOSTS)
    double.restart(down_for_requests=5)
    assert len(session.read_all([HOSTS] * 6)) == 6
    assert len(session.listener.notes) == 1


def test_an_answer_that_comes_late_is_no_second_trouble(session, monkeypatch):
    """Two requests fail by one restart, and one is seen to fail when the other, sent
    again, has succeeded.
    """
    session.read(HOSTS)
    send, failed, well = session._ask, threading.Barrier(2), threading.Event()
    late = Read("clusters", "reading the clusters")

    def restarting(asked, limit_s):
        if asked is late and not well.is_set():
            failed.wait(10)
            well.wait(10)
        elif asked is HOSTS and not session.listener.notes:
            failed.wait(10)
        else:
            return send(asked, limit_s)
        raise of_curl(7, "refused", asked.doing, "the engine e")

    monkeypatch.setattr(session, "_ask", restarting)
    reading = threading.Thread(target=session.read, args=(late,))
    reading.start()
    session.read(HOSTS)
    well.set()
    reading.join()
    assert len(session.listener.notes) == 1


def test_patience_ends(double, session, clock):
    session.read(HOSTS)
    double.fail_next("GET", "/hosts$", ServiceUnavailableHtml, times=1000)
    began = clock.now
    assert refused(session, HOSTS).kind == UNAVAILABLE
    assert 290 < clock.now - began < 320
    assert len(session.listener.notes) == 1


@pytest.mark.parametrize(
    ("fault", "id", "kind", "text"),
    [
        (Conflict("Something."), "engine-refused", CONFLICT, "says: Something"),
        (Locked, "engine-refused", LOCKED, "currently in progress"),
        (Status(400, "No good."), "engine-refused", INVALID, "says: No good"),
        (Status(403, "No."), "engine-permission-denied", DENIED, "says: No"),
        (Status(404, empty=True), "engine-object-missing", MISSING, ""),
        (Status(500, "Oh."), "engine-refused", BROKEN, "says: Oh (HTTP 500)"),
        (Status(200, html=True), "not-an-engine", BROKEN, "HTTP 200 with text/html"),
        (NoContentType, "not-an-engine", BROKEN, "HTTP 200 with no Content-Type"),
    ],
)
def test_what_a_read_is_told_at_once(double, session, fault, id, kind, text):
    double.fail_next("GET", "/hosts$", fault)
    problem = refused(session, HOSTS)
    assert (problem.id, problem.kind) == (id, kind)
    assert str(problem).startswith("reading the hosts failed: ")
    assert text in str(problem)
    assert session.listener.notes == []


@pytest.mark.parametrize(
    "fault",
    [
        AnswerLost,
        DropConnection,
        ServiceUnavailableHtml(applied=True),
        NoContentType(applied=True),
    ],
)
def test_a_change_whose_answer_is_lost_is_sent_once(double, session, fault):
    session.read(HOSTS)
    double.fail_next("POST", "/deactivate$", fault)
    with problem("engine-answer-lost", "moving host02 to maintenance"):
        session.perform(down(double))
    assert len(double.changes()) == 1
    assert session.performed == []


def test_a_change_waits_for_a_lock_to_go(double, session):
    double.fail_next("POST", "/deactivate$", Locked, times=2)
    session.perform(down(double))
    assert len(double.changes()) == 3
    assert session.performed == [down(double)]
    assert len(session.listener.notes) == 1


@pytest.mark.parametrize(
    "text",
    [
        "Cannot switch Host to Maintenance mode. Host has asynchronous running tasks,\n"
        "wait for operation to complete and retry.",
        "Another Setup Networks or Host Refresh process in progress on the host.",
        "VDS_CANNOT_MAINTENANCE_HOST_WITH_RUNNING_OPERATIONS",
    ],
)
def test_a_change_waits_for_tasks_to_end(double, session, clock, text):
    double.fail_next("POST", "/deactivate$", Conflict(text), times=9)
    session.perform(down(double))
    assert len(double.changes()) == 10
    (note,) = session.listener.notes
    assert text.split("\n")[0].rstrip(".") in note
    assert "1800 s" in note


def test_tasks_that_do_not_end(double, session, clock):
    text = (
        "Host has asynchronous running tasks, wait for operation to complete and retry"
    )
    double.fail_next("POST", "/deactivate$", Conflict(text), times=10_000)
    before = clock()
    problem = refused(session, down(double))
    assert (problem.kind, text in str(problem)) == (BUSY, True)
    assert 1800 <= clock() - before < 1900


def test_a_refusal_without_a_reason_gets_it_from_the_events(double, session):
    host = double.world.host("host02")
    host.vms, host.unscheduled_vms = ["vm1", "vm2"], ["vm1"]
    problem = refused(session, down(double))
    assert problem.code == 400
    (said,) = {
        event.description
        for event in double.world.log.events
        if event.severity != "normal" and event.host == host.id
    }
    assert said.rstrip(".") in str(problem)
    assert "HTTP 400" not in str(problem)


def test_a_refusal_without_any_reason_says_where_to_look(double, session):
    double.fail_next("POST", "/deactivate$", Status(400, ""))
    problem = refused(session, down(double))
    assert problem.id == "engine-refused"
    assert "(HTTP 400)" in str(problem)
    assert "engine.log" in problem.fix


def test_a_change_without_patience_is_refused_at_once(double, session):
    double.fail_next("POST", "/deactivate$", Locked)
    with pytest.raises(EngineProblem) as caught:
        session.perform(down(double), patience_s=0)
    assert caught.value.kind == LOCKED


@pytest.mark.parametrize(
    ("fault", "kind"), [(Status(500), BROKEN), (Status(400), INVALID)]
)
def test_a_change_that_is_refused_is_not_lost(double, session, fault, kind):
    double.fail_next("POST", "/deactivate$", fault)
    problem = refused(session, down(double))
    assert (problem.kind, isinstance(problem, LostAnswer)) == (kind, False)


def test_a_change_has_our_mark(double, session):
    session.perform(down(double))
    (seen,) = double.changes()
    assert seen.query == {"correlation_id": session.correlation_id}
    assert len(session.correlation_id) <= 36  # the engine keeps no more


def test_a_token_that_expired_is_renewed(double, session):
    session.read(HOSTS)
    double.expire_tokens()
    session.read_all([HOSTS] * 4)
    session.perform(down(double))
    assert double.sso.logins == 2


@pytest.mark.parametrize("fault", [ServiceUnavailableHtml, DropConnection])
def test_a_change_whose_login_failed_was_not_made_and_is_repeated(
    double, session, fault
):
    session.read(HOSTS)
    double.expire_tokens()
    double.fail_next("POST", "sso/oauth/token", fault)
    session.perform(down(double))
    assert double.world.host("host02").status != "up"
    double.expire_tokens()
    double.fail_next("POST", "sso/oauth/token", fault, times=1000)
    problem = refused(session, down(double, "host03"))
    assert not isinstance(problem, LostAnswer)
    assert double.world.host("host03").status == "up"


def test_a_token_that_was_given_is_neither_renewed_nor_revoked(double, clock):
    token = double.sso.new_token()
    with Session(Settings(double.url, token=token), clock=clock) as session:
        assert len(session.read(HOSTS)) == 3
    assert (double.sso.logins, double.sso.logouts) == (0, 0)
    double.expire_tokens()
    with Session(Settings(double.url, token=token), clock=clock) as session:
        problem = refused(session, HOSTS)
    assert (problem.kind, problem.code) == (DENIED, 401)
    assert problem.id == "engine-token-refused"


def test_logs_out_once(double, session):
    session.read_all([HOSTS] * 3)
    session.close()
    session.close()
    assert (double.sso.logins, double.sso.logouts) == (1, 1)


def test_nothing_is_sent_after_it_is_closed(double, session):
    """A thread of an interrupted run must neither make a change nor log in again."""
    session.read(HOSTS)
    session.close()
    asked = len(double.requests)
    with problem("session-closed") as caught:
        session.perform(Call("hosts/7", "deactivate", "x"))
    assert not isinstance(caught.value, LostAnswer)
    assert (len(double.requests), double.sso.logins) == (asked, 1)


def test_a_wrong_password_is_said(double, clock):
    settings = Settings(double.url, "admin", "no")
    with Session(settings, clock=clock) as session:
        problem = refused(session, HOSTS)
    assert (problem.id, problem.kind) == ("engine-login-refused", DENIED)
    assert "logging in as admin failed" in str(problem)
    assert "password is wrong" in str(problem)
    assert "admin@internal" in problem.fix


@pytest.mark.parametrize(
    ("fault", "kind"),
    [
        (ServiceUnavailableHtml, UNAVAILABLE),
        (DropConnection, TIMEOUT),
        (Status(200, html=True), BROKEN),
    ],
)
def test_a_login_that_fails_is_a_sentence(double, session, fault, kind):
    double.fail_next("POST", "sso/oauth/token", fault)
    problem = refused(session, HOSTS)
    assert problem.kind == kind
    assert str(problem).startswith("logging in as admin@")


def test_an_engine_that_is_not_there_is_said_at_once(clock):
    settings = Settings("http://127.0.0.1:1/ovirt-engine/api", "a@internal", "x")
    listener = Notes()
    for one in (settings, Settings(settings.url, token="t")):
        session = Session(one, clock=clock, sleep=clock.sleep)
        session.listener = listener
        problem = refused(session, HOSTS)
        assert (problem.id, problem.kind) == ("engine-unreachable", UNREACHABLE)
        assert "onnect" in str(problem)
    assert (listener.notes, clock.slept) == ([], [])


def test_waiting_ends_and_says_what_was_seen(double, session, clock):
    read = Read(f"hosts/{double.world.host('host02').id}", "reading host02", "get")
    with pytest.raises(TimeoutProblem) as caught:
        session.wait_until(read, lambda host: None, "maintenance of host02", 60.0)
    assert (caught.value.id, caught.value.kind) == ("engine-wait-timeout", TIMEOUT)
    assert str(caught.value).endswith("last seen: up")
    for text in ("maintenance of host02", "60 s", "up"):
        assert text in str(caught.value)
    assert sum(clock.slept) >= 60


@pytest.mark.parametrize(
    "asked",
    [
        Read("hosts", "x", arguments={"serch": "name=a"}),
        Read("hosts", "x", arguments={"search": 7}),
        Call("hosts", "remove", "x"),
    ],
)
def test_words_that_the_sdk_does_not_know_are_a_bug(session, asked):
    """The SDK itself accepts and ignores them."""
    with pytest.raises(TypeError):
        session.read(asked) if isinstance(asked, Read) else session.perform(asked)


def test_an_answer_that_does_not_come_in_time(double, clock):
    """The SDK has no timeout for a login."""
    with open_session(double, clock, timeout_s=0.03) as session:
        double.fail_next("POST", "sso/oauth/token", Timeout)
        assert refused(session, HOSTS).kind == TIMEOUT
        session.wait_until(HOSTS, len, "logging in", 60.0)
        double.fail_next("GET", "/hosts$", Timeout)
        session.read(HOSTS)
        double.fail_next("POST", "/deactivate$", Timeout(applied=True))
        with problem("engine-answer-lost") as caught:
            session.perform(down(double))
        assert caught.value.kind == TIMEOUT
    assert len(double.changes()) == 1


def test_an_unreachable_engine_is_said_once():
    text = (
        "Failed to connect to engine port 443 after 0 ms: Could not connect to server"
    )
    problem = of_curl(7, text, "logging in", "the engine engine:443")
    assert str(problem) == (
        "logging in failed: the engine engine:443 cannot be reached: Could not connect "
        "to server"
    )
