# SPDX-License-Identifier: GPL-2.0-or-later
"""Test behaviours of the double that recordings of a real engine have corrected."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest
import requests
from ovirtsdk4 import types
from support.engine.double_engine import Engine, made

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

make = pytest.fixture(made)
Status = types.StorageDomainStatus


@pytest.fixture
def engine(make: Any) -> Engine:
    found: Engine = make()
    return found


def sent(engine: Engine, method: str, path: str, body: str = "") -> Any:
    """Return an answer as sent."""
    headers = {"Authorization": f"Bearer {engine.connection.authenticate()}"}
    where = f"{engine.double.url}/{path}"
    return requests.request(method, where, data=body, headers=headers, timeout=60)


def tree(reply: Any) -> ElementTree.Element:
    return ElementTree.fromstring(reply.content)


@pytest.mark.engine_does("REST-04")
def test_what_refuses_an_action_is_inside_of_an_action(engine: Engine) -> None:
    host = engine.world.host("host01").id
    reply = sent(engine, "POST", f"hosts/{host}/activate", "<action/>")
    action = tree(reply)
    assert (reply.status_code, action.tag) == (409, "action")
    assert action.findtext("status") == "failed"
    assert "Up status" in (action.findtext("fault/detail") or "")


def test_a_refused_set_up_of_networks_is_a_fault_alone(engine: Engine) -> None:
    host = engine.world.host("host01").id
    gone = '<network_attachment id="nope"/>'
    inside = f"<removed_network_attachments>{gone}</removed_network_attachments>"
    body = f"<action>{inside}</action>"
    reply = sent(engine, "POST", f"hosts/{host}/setupnetworks", body)
    assert (reply.status_code, tree(reply).tag) == (400, "fault")


@pytest.mark.engine_does("REST-05")
def test_what_is_removed_is_answered_with_an_action(engine: Engine) -> None:
    network = engine.system.networks_service().add(
        types.Network(
            name="new",
            data_center=types.DataCenter(id=engine.world.data_center("dc1").id),
        )
    )
    reply = sent(engine, "DELETE", f"networks/{network.id}")
    assert reply.status_code == 200
    assert reply.headers.get("Content-Type") == "application/xml;charset=UTF-8"
    assert tree(reply).findtext("status") == "complete"


@pytest.mark.engine_does("DOMAIN-39")
def test_a_new_domain_is_unknown_in_the_answer_and_unattached_after_it(
    engine: Engine,
) -> None:
    made = engine.domains.add(engine.new())
    assert made.status == Status.UNKNOWN
    again = engine.domains.storage_domain_service(made.id).get()
    assert again.status == Status.UNATTACHED


@pytest.mark.engine_does("ATTACH-12")
def test_an_attached_domain_is_active_in_the_answer(engine: Engine) -> None:
    made = engine.domains.add(engine.new())
    shown = engine.centre().add(types.StorageDomain(id=made.id))
    assert shown.status == Status.ACTIVE
    assert engine.world.log.codes()[-2:] == [966, 962]


@pytest.mark.engine_does("SPM-02")
def test_active_domains_are_unknown_while_spm_moves(engine: Engine) -> None:
    engine.host("host01").deactivate()
    centers = engine.system.data_centers_service()
    seen = []
    for _ in range(4):
        status = centers.list()[0].status.value
        found = {one.status.value for one in engine.centre().list()}
        seen.append((status, found))
    assert seen == [
        ("up", {"unknown"}),
        ("problematic", {"unknown"}),
        ("contend", {"active"}),
        ("up", {"active"}),
    ]


def test_a_nic_without_a_network_says_nothing_of_being_in_sync(engine: Engine) -> None:
    nics = {one.name: one for one in engine.host("host01").nics_service().list()}
    assert nics["ib0"].custom_configuration is None
    assert nics["eth0"].custom_configuration is False


def test_the_health_page_has_the_charset_of_servlets(engine: Engine) -> None:
    address = engine.double.url.replace("/api", "/services/health")
    reply = requests.get(address, timeout=60)
    assert reply.headers["Content-Type"] == "text/html;charset=ISO-8859-1"
