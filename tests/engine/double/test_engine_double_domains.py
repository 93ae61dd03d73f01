# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's domains: attach, activate, deactivate, detach."""

from __future__ import annotations

from typing import Any

import pytest
from ovirtsdk4 import types
from support.engine.double_engine import Engine, made, refused

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

make = pytest.fixture(made)
Status = types.StorageDomainStatus


@pytest.fixture
def engine(make: Any) -> Engine:
    found: Engine = make()
    return found


def added(engine: Engine, **storage: Any) -> types.StorageDomain:
    """Return the id of a new domain that is in no data center."""
    return types.StorageDomain(id=engine.domains.add(engine.new(**storage)).id)


def unattached(engine: Engine, kind: str = "data") -> types.StorageDomain:
    """Return a domain of another kind that is in no data center."""
    found = added(engine)
    engine.world.domain("new").type = kind
    return found


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


@pytest.mark.engine_does("ATTACH-01")
def test_the_first_domain_is_inactive_then(make: Any) -> None:
    engine = make(domains=())
    engine.world.data_center("dc1").status = "uninitialized"
    wanted = added(engine)
    engine.world.domain("new").activation_fails = True
    engine.centre().add(wanted)
    shown = [engine.attached("new").get().status for _ in range(2)]
    assert shown == [Status.INACTIVE] * 2


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


@pytest.mark.engine_does("ATTACH-03")
def test_a_domain_is_named(engine: Engine) -> None:
    with refused(400, r"id\|name"):
        engine.centre().add(types.StorageDomain())


@pytest.mark.engine_does("DOMAIN-06")
def test_attaching_needs_a_host_that_is_up(engine: Engine) -> None:
    wanted = added(engine)
    for host in engine.world.hosts.values():
        host.status = "maintenance"
    with refused(409, "no active Host"):
        engine.centre().add(wanted)


@pytest.mark.engine_does("DOMAIN-05")
def test_attaching_needs_the_master(engine: Engine) -> None:
    wanted = added(engine)
    engine.world.domain("data1").status = "inactive"
    with refused(409, "master Storage Domain is not active"):
        engine.centre().add(wanted)


@pytest.mark.engine_does("DOMAIN-08")
def test_a_domain_is_attached_once(engine: Engine) -> None:
    with refused(409, "in a data center already"):
        engine.centre().add(types.StorageDomain(name="data2"))


@pytest.mark.engine_does("DOMAIN-09")
@pytest.mark.parametrize("kind", ["iso", "export"])
def test_a_data_center_has_one_of_these(make: Any, kind: str) -> None:
    engine = make(**{kind: True})
    with refused(409, f"more than one {kind}"):
        engine.centre().add(unattached(engine, kind))


@pytest.mark.engine_does("DOMAIN-10")
def test_the_first_domain_is_for_data(make: Any) -> None:
    engine = make(domains=())
    engine.world.data_center("dc1").status = "uninitialized"
    with refused(409, "must be a data domain"):
        engine.centre().add(unattached(engine, "iso"))


# -- activating and detaching


@pytest.mark.engine_does("DOMAIN-04")
@pytest.mark.parametrize("act", ["activate", "deactivate", "remove"])
def test_what_does_not_fit_the_status(engine: Engine, act: str) -> None:
    status = {"deactivate": "maintenance"}.get(act, "active")
    engine.world.domain("data2").status = status
    with refused(409, f"status is {status}"):
        getattr(engine.attached("data2"), act)()


@pytest.mark.engine_does("DOMAIN-03")
@pytest.mark.parametrize("status", ["locked", "preparing_for_maintenance"])
def test_a_domain_that_is_under_way(engine: Engine, status: str) -> None:
    engine.world.domain("data2").status = status
    with refused(409, "Related operation is currently in progress"):
        engine.attached("data2").deactivate()


@pytest.mark.engine_does("DOMAIN-07")
def test_the_master_is_detached_last(engine: Engine) -> None:
    engine.world.domain("data1").status = "maintenance"
    with refused(409, "master"):
        engine.attached("data1").remove()


@pytest.mark.engine_does("DOMAIN-05")
@pytest.mark.parametrize("act", ["activate", "remove"])
def test_these_need_the_master(engine: Engine, act: str) -> None:
    engine.world.domain("data1").status = "inactive"
    engine.world.domain("data2").status = "maintenance"
    with refused(409, "master Storage Domain is not active"):
        getattr(engine.attached("data2"), act)()


# -- deactivating


@pytest.mark.engine_does("DOMAIN-11")
def test_image_transfers(engine: Engine) -> None:
    engine.world.domain("data2").image_transfers = ["t1"]
    with refused(409, "uploaded"):
        engine.attached("data2").deactivate()


@pytest.mark.engine_does("DOMAIN-12")
def test_the_hosted_engines_domain(engine: Engine) -> None:
    engine.world.domain("data2").hosted_engine = True
    with refused(409, "hosted engine"):
        engine.attached("data2").deactivate()


@pytest.mark.engine_does("DOMAIN-13")
@pytest.mark.parametrize("why", ["iso", "locked"])
def test_the_master_that_cannot_hand_over(make: Any, why: str) -> None:
    if why == "iso":
        engine = make(domains=("data1",), iso=True)
    else:
        engine = make()
        engine.world.domain("data2").status = "locked"
    with refused(409, {"iso": "without data", "locked": "locked"}[why]):
        engine.attached("data1").deactivate()


@pytest.mark.engine_does("DOMAIN-14")
@pytest.mark.parametrize("what", ["leases", "cds_in_use", "running_vms"])
def test_virtual_machines_that_use_it(engine: Engine, what: str) -> None:
    setattr(engine.world.domain("data2"), what, ["vm1"])
    with refused(409, "[Rr]unning"):
        engine.attached("data2").deactivate()


@pytest.mark.engine_does("DOMAIN-15")
@pytest.mark.parametrize("domain", ["data1", "data2"])
def test_tasks(engine: Engine, domain: str) -> None:
    """The master, data1, waits for tasks of every domain."""
    engine.world.domain("data2").tasks = ["copy"]
    with refused(409, "running tasks: copy"):
        engine.attached(domain).deactivate()


# -- disks


def contents(engine: Engine, domain: str) -> list[str]:
    """Return the content types of a domain's disks."""
    found = engine.world.domain(domain).id
    service = engine.domains.storage_domain_service(found).disks_service()
    return [disk.content_type.value for disk in service.list()]


@pytest.mark.engine_does("DOMAIN-16")
@pytest.mark.parametrize("name", ["hosted_storage", "he_store"])
def test_the_hosted_engines_domain_is_known_by_its_disks(make: Any, name: str) -> None:
    engine = make(hosted_engine=True, hosted_engine_name=name)
    engine.world.domain("data1").disks = ["vm1_disk1"]
    found = contents(engine, name)
    assert set(found) - {"ovf_store"} == {
        "hosted_engine",
        "hosted_engine_sanlock",
        "hosted_engine_metadata",
        "hosted_engine_configuration",
    }
    assert contents(engine, "data1") == ["ovf_store", "ovf_store", "data"]


def test_disks_can_be_followed(make: Any) -> None:
    engine = make(hosted_engine=True)
    shown = {d.name: d.disks for d in engine.domains.list(follow="disks")}
    kinds = {d.content_type.value for d in shown["hosted_storage"]}
    assert "hosted_engine" in kinds
    assert len(shown["data1"]) == 2


@pytest.mark.engine_does("DOMAIN-17")
@pytest.mark.parametrize("words", [{"iso": True}, {"image": True}])
def test_a_domain_without_the_link_fails_the_whole_list(
    make: Any, words: dict[str, bool]
) -> None:
    engine = make(**words)
    with refused(500):
        engine.domains.list(follow="disks")


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


@pytest.mark.engine_does("ATTACH-05")
def test_a_failed_ovf_update_needs_force(engine: Engine) -> None:
    engine.world.domain("data2").ovf_update_fails = True
    engine.attached("data2").deactivate()
    assert shown(engine, "data2", 3) == ["locked", "active", "active"]
    assert engine.world.log.codes() == [969]
    engine.attached("data2").deactivate(force=True)
    engine.world.settle()
    assert shown(engine, "data2", 1) == ["maintenance"]


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


def test_a_domain_that_nobody_mounts_is_seen_activating_and_is_as_before(
    engine: Engine,
) -> None:
    engine.attached("data2").deactivate()
    engine.world.settle()
    engine.world.export("nfs1.example.com:/exports/data2").answers = False
    seen = engine.seen_by_others("data2")
    with refused(400):
        engine.attached("data2").activate()
    assert (seen, shown(engine, "data2", 1)) == (["activating"], ["maintenance"])


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
