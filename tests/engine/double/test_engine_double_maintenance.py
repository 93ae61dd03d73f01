# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's maintenance: virtual machines, refusals, SPM, storage."""

from __future__ import annotations

from typing import Any

import pytest
from engine_double.mounts import disconnect_all
from support.engine.double_engine import Engine, refused

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]
MINE = {"correlation_id": "mine"}


def shown(engine: Engine, host: str) -> str:
    status: str = engine.host(host).get().status.value
    return status


def told(engine: Engine, code: int) -> list[tuple[Any, Any]]:
    """Return host and correlation id of each event with this code."""
    events = engine.world.log.events
    return [(e.host, e.correlation_id) for e in events if e.code == code]


# -- refusals


def check_refused(
    make: Any, changes: dict[str, Any], text: str, hosts: int = 3
) -> None:
    """Expect a refusal to deactivate the last host, with these changes of it."""
    engine = make(hosts=hosts)
    host = engine.world.host(f"host0{hosts}")
    for name, value in changes.items():
        setattr(host, name, value)
    before = host.status
    with refused(409, text):
        engine.host(host.name).deactivate()
    assert host.status == before


@pytest.mark.engine_does("MAINT-11", "MAINT-13", "MAINT-14", "MAINT-15")
def test_hosts_in_a_status_that_are_not_deactivated(make: Any) -> None:
    silent = {"status": "non_responsive"}
    retry = "contending.*wait for operation to complete and retry"
    for changes, text in (
        ({"status": "unassigned"}, "not operational"),
        ({"status": "installing"}, "not operational"),
        ({"status": "reboot"}, "not operational"),
        ({"status": "maintenance"}, "already in Maintenance"),
        ({"spm_contending": True}, retry),
        ({**silent, "vms": ["vm1"]}, "does not respond"),
        ({**silent, "spm": True}, "does not respond"),
    ):
        check_refused(make, changes, text)


@pytest.mark.engine_does("MAINT-12", "MAINT-17", "MAINT-18")
def test_machines_and_operations_that_keep_a_host(make: Any) -> None:
    pinned = {"vms": ["vm1", "vm2"], "pinned_vms": ["vm2"]}
    check_refused(make, pinned, "non-migratable VMs are: vm2")
    busy = {"running_operations": ["Copying disk d1"]}
    check_refused(make, busy, "Copying disk d1.*wait for the operations to complete")
    alone = {"vms": ["vm1"]}
    check_refused(make, alone, "no other host of its cluster", hosts=1)


@pytest.mark.engine_does("MAINT-19")
def test_a_refusal_is_an_event_without_a_host(engine: Engine) -> None:
    engine.world.host("host02").running_operations = ["Copying disk d1"]
    with refused(409):
        engine.host("host02").deactivate(query=MINE)
    assert told(engine, 14001) == [(None, "mine")]


# -- virtual machines that go, and that do not


@pytest.mark.engine_does("MAINT-02")
def test_one_machine_that_cannot_go_fails_the_call(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.vms, host.unscheduled_vms = ["vm1", "vm2"], ["vm2"]
    with refused(400, r"detail is \"\[\]\""):
        engine.host("host02").deactivate(query=MINE)
    assert told(engine, 602) == [(host.id, "mine")]
    assert told(engine, 620) == []
    assert shown(engine, "host02") == "preparing_for_maintenance"
    assert host.vms == ["vm2"]


@pytest.mark.engine_does("MAINT-03")
def test_where_no_machine_can_go_the_schedulers_words_are_there(
    engine: Engine,
) -> None:
    host = engine.world.host("host02")
    host.vms = host.unscheduled_vms = ["vm1"]
    with refused(409, "scheduling constraints"):
        engine.host("host02").deactivate(query=MINE)
    assert told(engine, 602) == [(host.id, "mine")]
    assert shown(engine, "host02") == "preparing_for_maintenance"


@pytest.mark.engine_does("MAINT-04")
def test_the_engine_tries_again_with_an_id_of_its_own(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.vms, host.unscheduled_vms = ["vm1", "vm2"], ["vm2"]
    with refused(400):
        engine.host("host02").deactivate(query=MINE)
    for _ in range(2 * engine.world.retry_reads + 1):
        assert shown(engine, "host02") == "preparing_for_maintenance"
    events = told(engine, 17)
    assert [host for host, _ in events] == [host.id] * 2
    assert "mine" not in dict(events).values()
    host.unscheduled_vms = []
    engine.world.settle()
    assert host.status == "maintenance"


@pytest.mark.engine_does("MAINT-05")
def test_a_machine_that_people_migrate_holds_up_the_retries(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.vms = host.manual_vms = ["vm1"]
    host.stuck_vms = ["vm1"]
    engine.host("host02").deactivate(query=MINE)
    engine.world.advance(2)
    assert (told(engine, 17), told(engine, 15)) == ([], [])
    (host_named, made_id) = told(engine, 14001)[0]
    assert (host_named, made_id == "mine") == (None, False)


@pytest.mark.engine_does("MAINT-06")
def test_a_migration_that_fails_is_told_by_the_machine_only(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.vms, host.stuck_vms = ["vm1", "vm2"], ["vm2"]
    engine.host("host02").deactivate(query=MINE)
    engine.world.advance(2)
    assert (host.status, host.vms) == ("preparing_for_maintenance", ["vm2"])
    assert engine.world.log.codes() == [620, 140, 15, 140]
    host.stuck_vms = []
    engine.world.settle()
    assert host.status == "maintenance"


# -- SPM and storage


@pytest.mark.engine_does("MAINT-09")
def test_an_spm_that_does_not_stop_leaves_the_host_up(engine: Engine) -> None:
    engine.world.host("host01").spm_stop_fails = 1
    engine.host("host01").deactivate(query=MINE)
    assert (shown(engine, "host01"), engine.world.host("host01").spm) == ("up", True)
    assert told(engine, 27) == [(engine.world.host("host01").id, None)]
    engine.host("host01").deactivate(query=MINE)
    assert not engine.world.host("host01").spm
    assert shown(engine, "host01") == "preparing_for_maintenance"


@pytest.mark.engine_does("MAINT-01")
def test_a_host_is_in_maintenance_before_it_is_disconnected(engine: Engine) -> None:
    engine.host("host02").deactivate()
    shown(engine, "host02")
    assert shown(engine, "host02") == "maintenance"
    assert "host02" in engine.mounted("data1")
    assert shown(engine, "host02") == "maintenance"
    assert "host02" not in engine.mounted("data1")


@pytest.mark.engine_does("MAINT-07")
def test_no_event_says_that_it_is_there(engine: Engine) -> None:
    engine.host("host02").deactivate(reason="because")
    engine.world.settle()
    assert engine.world.host("host02").status == "maintenance"
    assert engine.world.log.codes() == [600]


@pytest.mark.engine_does("MAINT-08")
@pytest.mark.parametrize("status", ["down", "non_responsive"])
def test_a_host_that_is_away_is_in_maintenance_at_once(
    engine: Engine, status: str
) -> None:
    engine.world.host("host02").status = status
    engine.host("host02").deactivate()
    assert shown(engine, "host02") == "maintenance"
    engine.world.settle()
    assert "host02" in engine.mounted("data1")


@pytest.mark.engine_does("MAINT-10")
def test_a_host_that_is_being_connected_is_connected_first(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.status = "maintenance"
    host.mounts.clear()
    engine.host("host02").activate()
    while shown(engine, "host02") != "up":
        pass
    engine.host("host02").deactivate()
    assert shown(engine, "host02") == "preparing_for_maintenance"
    assert 13 in engine.world.log.codes()
    engine.world.settle()
    assert (host.status, host.mounts) == ("maintenance", {})


@pytest.mark.engine_does("HOST-21")
def test_a_host_keeps_the_mount_of_the_hosted_engine(make: Any) -> None:
    world = make(hosts=2, hosted_engine=True).world
    host = world.host("host02")
    disconnect_all(world, host)
    assert list(host.mounts) == ["nfs1.example.com:/exports/hosted_storage"]
