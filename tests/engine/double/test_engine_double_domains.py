# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's domains: attach, activate, deactivate, detach."""

from __future__ import annotations

from typing import Any

import pytest
from ovirtsdk4 import types
from support.engine.double_engine import Engine, refused

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]
Status = types.StorageDomainStatus


def added(engine: Engine, **storage: Any) -> types.StorageDomain:
    """Return the id of a new domain that is in no data center."""
    return types.StorageDomain(id=engine.domains.add(engine.new(**storage)).id)


# -- attaching


@pytest.mark.engine_does("ATTACH-01", "ATTACH-12", "ATTACH-13")
def test_attaching_succeeds_where_the_activation_fails(engine: Engine) -> None:
    wanted = added(engine)
    engine.world.domain("new").activation_fails = True
    engine.centre().add(wanted, query={"correlation_id": "ours"})
    shown = [engine.attached("new").get().status for _ in range(3)]
    assert shown == [Status.MAINTENANCE] * 3
    told = engine.world.log.events[-2:]
    ours = [(one.code, one.correlation_id == "ours") for one in told]
    assert ours == [(967, False), (962, True)]


@pytest.mark.engine_does("ATTACH-02")
def test_attach_fails_without_a_word_where_every_host_fails(engine: Engine) -> None:
    wanted = added(engine)
    engine.world.host("host01").mounts.clear()
    engine.world.export("nfs1.example.com:/exports/new").answers = False
    with refused(400, r"detail is \"\[\]\""):
        engine.centre().add(wanted)
    assert engine.world.domain("new").data_center is None
    assert {963, 996} <= set(engine.world.log.codes())


@pytest.mark.engine_does("ATTACH-02")
def test_activation_fails_without_a_word_where_no_host_mounts(engine: Engine) -> None:
    engine.attached("data2").deactivate()
    engine.world.settle()
    engine.world.export("nfs1.example.com:/exports/data2").answers = False
    with refused(400, r"detail is \"\[\]\""):
        engine.attached("data2").activate()
    assert engine.attached("data2").get().status == Status.MAINTENANCE
    assert engine.world.log.codes()[-1] == 967


@pytest.mark.engine_does("ATTACH-11")
def test_a_host_that_cannot_mount_is_told_of_twice(engine: Engine) -> None:
    wanted = added(engine, mount_options="rdma")
    engine.world.host("host02").rdma_ready = False
    engine.centre().add(wanted)
    assert engine.world.log.codes().count(188) == 2


# -- what is refused

UNATTACHED = {"data2.data_center": None, "data2.status": "unattached"}
DOWN = {"data1.status": "inactive", "data2.status": "maintenance"}
NO_MASTER = "master Storage Domain is not active"
BUSY = "Related operation is currently in progress"


def check_refused(make: Any, changes: dict[str, Any], act: str, text: str) -> None:
    """Expect a refusal of "ACTION DOMAIN" in an engine with these changes."""
    engine = make()
    for where, value in changes.items():
        name, _, field = where.partition(".")
        setattr(engine.world.domain(name), field, value)
    action, name = act.split()
    with refused(409, text):
        if action == "attach":
            wanted = types.StorageDomain(id=engine.world.domain(name).id)
            engine.centre().add(wanted)
        else:
            getattr(engine.attached(name), action)()


@pytest.mark.engine_does("DOMAIN-04", "DOMAIN-05", "DOMAIN-07", "DOMAIN-08")
def test_refusals_to_attach_to_activate_and_to_detach(make: Any) -> None:
    for changes, act, text in (
        ({}, "attach data2", "in a data center already"),
        ({**UNATTACHED, "data1.status": "inactive"}, "attach data2", NO_MASTER),
        ({}, "activate data2", "status is active"),
        ({}, "remove data2", "status is active"),
        ({"data1.status": "maintenance"}, "remove data1", "master"),
        (DOWN, "activate data2", NO_MASTER),
        (DOWN, "remove data2", NO_MASTER),
    ):
        check_refused(make, changes, act, text)


@pytest.mark.engine_does(
    "DOMAIN-03", "DOMAIN-04", "DOMAIN-12", "DOMAIN-13", "DOMAIN-14"
)
def test_refusals_to_deactivate(make: Any) -> None:
    for changes, act, text in (
        ({"data2.status": "maintenance"}, "deactivate data2", "status is maintenance"),
        ({"data2.status": "locked"}, "deactivate data2", BUSY),
        ({"data2.status": "preparing_for_maintenance"}, "deactivate data2", BUSY),
        ({"data2.hosted_engine": True}, "deactivate data2", "hosted engine"),
        ({"data2.type": "iso"}, "deactivate data1", "without data"),
        ({"data2.status": "locked"}, "deactivate data1", "domains are locked"),
        ({"data2.leases": ["vm1"]}, "deactivate data2", "Running"),
        ({"data2.running_vms": ["vm1"]}, "deactivate data2", "running"),
    ):
        check_refused(make, changes, act, text)


@pytest.mark.engine_does("DOMAIN-06")
def test_attaching_needs_a_host_that_is_up(engine: Engine) -> None:
    wanted = added(engine)
    for host in engine.world.hosts.values():
        host.status = "maintenance"
    with refused(409, "no active Host"):
        engine.centre().add(wanted)


# -- the way to maintenance


def shown(engine: Engine, domain: str, times: int) -> list[str]:
    """Read a domain in its data center this many times."""
    return [engine.attached(domain).get().status.value for _ in range(times)]


@pytest.mark.engine_does("ATTACH-04")
def test_two_steps_to_maintenance(engine: Engine) -> None:
    engine.attached("data2").deactivate(query={"correlation_id": "c2"})
    assert shown(engine, "data2", 4) == [
        "locked",
        "preparing_for_maintenance",
        "maintenance",
        "maintenance",
    ]
    assert engine.mounted("data2") == {}


@pytest.mark.engine_does("ATTACH-06")
def test_another_data_domain_becomes_master(engine: Engine) -> None:
    engine.attached("data1").deactivate()
    engine.world.settle()
    assert engine.attached("data2").get().master
    assert engine.world.data_center("dc1").status == "up"


@pytest.mark.engine_does("ATTACH-07")
def test_the_last_master_leaves_a_mount_on_the_spm_host(make: Any) -> None:
    engine = make(domains=("data1",))
    engine.attached("data1").deactivate()
    engine.world.settle()
    assert engine.mounted("data1") == {"host01": "tcp"}
    assert engine.world.data_center("dc1").status == "maintenance"


@pytest.mark.engine_does("ATTACH-10")
def test_a_master_comes_back_from_locked(make: Any) -> None:
    engine = make(domains=("data1",))
    engine.attached("data1").deactivate()
    engine.world.settle()
    seen = engine.seen_by_others("data1")
    engine.attached("data1").activate()
    assert (seen, shown(engine, "data1", 1)) == (["locked"], ["active"])
    assert engine.world.data_center("dc1").status == "up"


@pytest.mark.engine_does("ATTACH-14")
def test_who_activates_a_domain_waits_until_it_is_active(engine: Engine) -> None:
    engine.attached("data2").deactivate()
    engine.world.settle()
    seen = engine.seen_by_others("data2")
    engine.attached("data2").activate()
    assert (seen, shown(engine, "data2", 1)) == (["activating"], ["active"])


@pytest.mark.engine_does("ATTACH-12", "ATTACH-14")
def test_who_attaches_a_domain_waits_until_it_is_active(engine: Engine) -> None:
    wanted = added(engine)
    seen = engine.seen_by_others("new")
    answered = engine.centre().add(wanted).status
    assert (seen, answered) == (["locked", "activating"], Status.ACTIVE)


@pytest.mark.engine_does("ATTACH-08")
def test_the_last_event_is_the_engines_own(make: Any) -> None:
    engine = make()
    for name in ("data2", "data1"):
        engine.attached(name).deactivate(query={"correlation_id": "mine"})
        engine.world.settle()
    found = [(e.code, e.correlation_id) for e in engine.world.log.events]
    assert found == [(968, "mine"), (1029, None), (968, "mine")]


@pytest.mark.engine_does("ATTACH-09")
def test_a_restart_leaves_a_domain_unknown_for_a_while(engine: Engine) -> None:
    engine.attached("data2").deactivate()
    engine.double.restart(down_for_requests=0)
    assert engine.world.log.codes() == [1009]
    assert shown(engine, "data2", 3) == ["unknown", "active", "active"]
