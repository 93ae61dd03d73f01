# SPDX-License-Identifier: GPL-2.0-or-later
"""Test events from clients: which the double accepts, and which it drops."""

from __future__ import annotations

from typing import Any

import pytest
from ovirtsdk4 import types
from support.engine.double_engine import Engine, refused

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]
SILENT = r"detail is \"\[\]\""


def event(custom_id: int = 7, **words: Any) -> types.Event:
    base = {
        "origin": "ovirt-rdma",
        "severity": types.LogSeverity.WARNING,
        "description": "something",
    }
    return types.Event(custom_id=custom_id, **{**base, **words})


def add(engine: Engine, *words: Any, **more: Any) -> types.Event:
    found: types.Event = engine.system.events_service().add(event(*words, **more))
    return found


@pytest.mark.engine_does("EVENT-06")
def test_the_newest_event_comes_first(engine: Engine) -> None:
    first, second = add(engine, 1), add(engine, 2)
    events = engine.system.events_service()
    assert [one.id for one in events.list()] == [second.id, first.id]
    assert [one.id for one in events.list(from_=int(first.id))] == [second.id]
    assert [one.id for one in events.list(max=1)] == [second.id]


@pytest.mark.engine_does("EVENT-03")
def test_an_id_is_used_once(engine: Engine) -> None:
    add(engine)
    add(engine, origin="another")
    with refused(400, "custom id already exists"):
        add(engine)


@pytest.mark.engine_does("EVENT-04")
def test_the_correlation_id_is_that_of_the_body(engine: Engine) -> None:
    events = engine.system.events_service()
    events.add(event(), query={"correlation_id": "request"})
    events.add(event(8, correlation_id="body"), query={"correlation_id": "request"})
    assert [one.correlation_id for one in events.list()] == ["body", None]
    assert [e.custom_id for e in events.list(search="correlation_id=body")] == [8]


# -- how often


@pytest.mark.engine_does("EVENT-05")
def test_a_flood_rate_of_zero_drops_what_comes_too_soon(engine: Engine) -> None:
    add(engine, 1, flood_rate=0)
    engine.world.seconds += 29
    with refused(400, SILENT):
        add(engine, 2, flood_rate=0)
    assert len(engine.world.log.events) == 1
    engine.world.seconds += 1
    add(engine, 2, flood_rate=0)
