# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the HTTP side of the double: login, strictness, faults, and reads."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from xml.etree import ElementTree

import ovirtsdk4 as sdk
import pytest
import requests
from engine_double import (
    AnswerLost,
    Conflict,
    DropConnection,
    EngineDouble,
    Locked,
    ServiceUnavailableHtml,
    SimNetwork,
    Status,
    World,
    sample_world,
)

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

USER, PASSWORD = "admin@ovirt@internalsso", "secret"


@pytest.fixture
def world() -> World:
    return sample_world(hosts=3)


@pytest.fixture
def double(world: World) -> Iterator[EngineDouble]:
    with EngineDouble(world) as started:
        yield started


def connect(double: EngineDouble, **words: Any) -> Any:
    words = {"username": USER, "password": PASSWORD, **words}
    return sdk.Connection(url=double.url, **words)


def ask(
    double: EngineDouble,
    token: str = "",
    path: str = "",
    method: str = "GET",
    **more: Any,
) -> requests.Response:
    """Send a request with a token, or without one."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    headers.update(more.pop("headers", {}))
    url = f"{double.url}{path}"
    return requests.request(method, url, headers=headers, timeout=60, **more)


@pytest.fixture
def system(double: EngineDouble) -> Iterator[Any]:
    connection = connect(double)
    yield connection.system_service()
    connection.close(logout=False)


# -- logging in


@pytest.mark.engine_does("SSO-03")
def test_login_and_logout_revoke_the_token(double: EngineDouble) -> None:
    connection = connect(double)
    token = connection.authenticate()
    assert connection.system_service().get().product_info.name == "oVirt Engine"
    connection.close()
    assert (double.sso.logins, double.sso.logouts) == (1, 1)
    assert ask(double, token).status_code == 401


@pytest.mark.engine_does("SSO-01")
def test_a_wrong_password_is_an_auth_error(double: EngineDouble) -> None:
    with pytest.raises(sdk.AuthError, match="access_denied"):
        connect(double, password="wrong").authenticate()


@pytest.mark.engine_does("REST-32")
def test_without_a_token_a_page_of_html_says_401(double: EngineDouble) -> None:
    reply = ask(double)
    assert (reply.status_code, "html" in reply.headers["Content-Type"]) == (401, True)
    assert "Correlation-Id" not in reply.headers


@pytest.mark.engine_does("SSO-04")
def test_a_user_who_may_not_log_in(double: EngineDouble, world: World) -> None:
    (user,) = world.passwords
    double.sso.may_not_log_in.add(user)
    reply = ask(double, connect(double).authenticate())
    assert reply.status_code == 401
    assert "is not authorized to perform login" in reply.text


@pytest.mark.engine_does("SSO-05")
def test_a_second_request_before_the_first_is_answered(double: EngineDouble) -> None:
    token = double.sso.new_token()
    codes = []

    def another(method: str, path: str) -> None:
        double.traps.spring = spring
        codes.append(ask(double, token).status_code)
        codes.append(ask(double, token).status_code)

    spring = double.traps.spring
    double.traps.spring = another
    first, then = ask(double, token), ask(double, token)
    assert ([first.status_code, then.status_code], codes) == ([200, 200], [500, 500])


@pytest.mark.engine_does("REST-23")
def test_the_certificate(double: EngineDouble, world: World) -> None:
    world.ca_pem = "-----BEGIN CERTIFICATE-----\n"
    top = double.url[: -len("/api")]
    words = {"resource": "ca-certificate", "format": "X509-PEM-CA"}
    reply = requests.get(f"{top}/services/pki-resource", params=words, timeout=60)
    assert reply.text == world.ca_pem
    assert double.requests == []


def sent(double: EngineDouble, method: str, path: str, body: str = "") -> Any:
    """Return an answer as sent, and its XML."""
    reply = ask(double, connect(double).authenticate(), f"/{path}", method, data=body)
    return reply, ElementTree.fromstring(reply.content or b"<nothing/>")


@pytest.mark.engine_does("REST-04")
def test_what_refuses_an_action_is_inside_of_an_action(
    double: EngineDouble, world: World
) -> None:
    host = f"hosts/{world.host('host01').id}"
    reply, action = sent(double, "POST", f"{host}/activate", "<action/>")
    assert (reply.status_code, action.tag) == (409, "action")
    assert action.findtext("status") == "failed"
    assert "Up status" in (action.findtext("fault/detail") or "")
    # For a set-up of networks it is a fault alone.
    gone = '<network_attachment id="nope"/>'
    inside = f"<removed_network_attachments>{gone}</removed_network_attachments>"
    body = f"<action>{inside}</action>"
    reply, found = sent(double, "POST", f"{host}/setupnetworks", body)
    assert (reply.status_code, found.tag) == (400, "fault")


@pytest.mark.engine_does("REST-05")
def test_what_is_removed_is_answered_with_an_action(
    double: EngineDouble, world: World
) -> None:
    network = SimNetwork("n1", "new", world.data_center("dc1").id)
    world.networks[network.id] = network
    reply, found = sent(double, "DELETE", f"networks/{network.id}")
    assert reply.status_code == 200
    assert reply.headers.get("Content-Type") == "application/xml;charset=UTF-8"
    assert found.findtext("status") == "complete"


# -- strictness

PUT_ROW = "/storageconnections/{row}"


@pytest.mark.parametrize(
    ("method", "path", "body", "named"),
    [
        ("GET", "/zork", "", "no GET /zork"),
        ("PATCH", "/hosts", "", ""),
        ("GET", "/hosts?zork=1", "", "query word zork"),
        ("GET", "/hosts?follow=zork", "", "cannot follow zork"),
        ("GET", "/hosts?search=name%3Da", "", "query word search"),
        ("GET", "/events?search=zork%3D1", "", "cannot search"),
        ("PUT", f"{PUT_ROW}?force=yes", "<storage_connection/>", "force"),
        (
            "PUT",
            PUT_ROW,
            "<storage_connection><zork/></storage_connection>",
            "no element zork",
        ),
        (
            "POST",
            "/storageconnections",
            "<storage_connection><nfs_version>v5</nfs_version></storage_connection>",
            "nfs_version='v5'",
        ),
        ("PUT", PUT_ROW, "<host/>", "is <host>, not <storage_connection>"),
        ("PUT", PUT_ROW, "", "wants a body"),
        ("POST", "/jobs", "<job/>", "wants an element description"),
        ("PUT", PUT_ROW, "<storage_conn", "not XML"),
    ],
)
def test_what_the_engine_does_not_know_is_a_mistake(
    double: EngineDouble, world: World, method: str, path: str, body: str, named: str
) -> None:
    token = connect(double).authenticate()
    path = path.format(row=world.connection_of("data1").id)
    sent_as = {"Content-Type": "application/xml"}
    reply = ask(double, token, path, method, data=body, headers=sent_as)
    if not named:
        assert reply.status_code == 501
        return
    assert reply.status_code == 500
    assert len(double.strict_errors) == 1
    assert named in double.strict_errors[0]
    assert named in reply.text.replace("&lt;", "<").replace("&gt;", ">")


def test_what_is_right_leaves_no_mistake(double: EngineDouble, system: Any) -> None:
    links = "nics,network_attachments,hooks"
    assert len(system.hosts_service().list(follow=links, all_content=True)) == 3
    assert double.strict_errors == []
    assert double.requests[0].query == {"all_content": "true", "follow": links}


def echoed(double: EngineDouble, **query: str) -> str:
    """The correlation id of an answer."""
    reply = ask(double, connect(double).authenticate(), params=query)
    found: str = reply.headers.get("Correlation-Id", "")
    return found


@pytest.mark.engine_does("REST-01")
def test_correlation_id_is_cleaned_and_echoed(double: EngineDouble) -> None:
    found = echoed(double, correlation_id="a b/c-_" + "x" * 40)
    assert found == ("abc-_" + "x" * 40)[:36]
    assert len(echoed(double)) == 36


@pytest.mark.engine_does("REST-03")
def test_a_missing_object_is_404_without_a_body(double: EngineDouble) -> None:
    reply = ask(double, connect(double).authenticate(), "/hosts/nope")
    assert (reply.status_code, reply.content) == (404, b"")
    assert "Content-Type" not in reply.headers
    assert double.strict_errors == []


# -- faults


@pytest.mark.parametrize(
    ("fault", "code", "text"),
    [
        (Conflict, 409, "Cannot do that"),
        (Locked, 409, "Related operation"),
        (Status(500), 500, "Internal"),
        (Status(403), 403, "403"),
        (Status(502, html=True), None, "text/html"),
        (ServiceUnavailableHtml, None, "text/html"),
        (DropConnection, None, "Failed to read response"),
    ],
)
def test_a_fault_happens_once_and_nothing_is_done(
    double: EngineDouble, system: Any, world: World, fault: Any, code: Any, text: str
) -> None:
    host = system.hosts_service().host_service(world.host("host02").id)
    double.fail_next("POST", "/deactivate", fault)
    with pytest.raises(sdk.Error, match=text) as caught:
        host.deactivate()
    assert caught.value.code == code
    assert world.host("host02").status == "up"
    assert double.traps.left() == []
    host.deactivate()
    assert world.host("host02").status == "preparing_for_maintenance"


def test_a_lost_answer_leaves_the_change(
    double: EngineDouble, system: Any, world: World
) -> None:
    host = system.hosts_service().host_service(world.host("host02").id)
    double.fail_next("POST", "/deactivate", AnswerLost)
    with pytest.raises(sdk.Error, match="Failed to read response"):
        host.deactivate()
    assert world.host("host02").status == "preparing_for_maintenance"


def test_faults_can_wait_and_come_again(double: EngineDouble, system: Any) -> None:
    double.fail_next("GET", "^/hosts$", Conflict, times=2, after=1)
    seen = []
    for _ in range(4):
        try:
            system.hosts_service().list()
            seen.append(200)
        except sdk.Error as error:
            seen.append(error.code)
    assert seen == [200, 409, 409, 200]


# -- reads


def test_changes_are_seen_before_they_are_answered(
    double: EngineDouble, system: Any, world: World
) -> None:
    seen = []
    double.on_change = seen.append
    host = system.hosts_service().host_service(world.host("host02").id)
    host.deactivate(reason="test")
    host.get()
    assert [(one.method, one.path.split("/")[-1]) for one in seen] == [
        ("POST", "deactivate")
    ]
    assert double.changes() == seen
    assert "<reason>test</reason>" in seen[0].body
