# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's storage: connections, domains, and the mounts of hosts."""

from __future__ import annotations

from typing import Any

import pytest
from ovirtsdk4 import types
from support.engine.double_engine import Engine, refused, row

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]

Status = types.StorageDomainStatus
PUBLIC_KEY = types.Ssh(authentication_method=types.SshAuthenticationMethod.PUBLICKEY)
BY_KEY = {"ssh": PUBLIC_KEY, "activate": False, "reboot": True}


def allowed(call: Any, *arguments: Any, **words: Any) -> Any:
    """Return the result of ``call``; a refusal fails the test."""
    from ovirtsdk4 import Error

    try:
        return call(*arguments, **words)
    except Error as error:
        raise AssertionError(str(error)) from error


# -- rows


@pytest.mark.engine_does("CONN-03")
@pytest.mark.parametrize(
    ("options", "named"),
    [
        *[(f"{key}=1", key) for key in ("timeo", "retrans", "vfs_type", "nfsvers")],
        *[(f"{key}=1", key) for key in ("vers", "minorversion", "addr", "clientaddr")],
        ("protocol_version=4", "protocol_version"),
        ("proto=rdma,VERS=4.2,Timeo=9", "vers, timeo"),
    ],
)
def test_managed_options_are_refused(engine: Engine, options: str, named: str) -> None:
    text = f"duplicate managed options: {named}"
    with refused(400, text):
        engine.row("data1").update(row(mount_options=options), force=True)
    assert engine.world.connection_of("data1").mount_options is None


@pytest.mark.engine_does("CONN-04")
def test_five_hundred_characters_are_the_most(engine: Engine) -> None:
    engine.row("data1").update(row(mount_options="x" * 500), force=True)
    with refused(400, "Internal Engine Error"):
        engine.row("data1").update(row(mount_options="x" * 501), force=True)
    with refused(400, "Internal Engine Error"):
        engine.row("data1").update(row(path="/" + "x" * 234), force=True)


@pytest.mark.engine_does("CONN-11")
def test_a_row_needs_a_domain_in_maintenance_or_force(engine: Engine) -> None:
    with refused(400, "maintenance or unattached"):
        engine.row("data2").update(row(mount_options="rdma"))
    engine.world.domain("data2").status = "maintenance"
    assert engine.row("data2").update(row(mount_options="rdma")).mount_options == "rdma"


@pytest.mark.engine_does("CONN-12")
def test_a_forced_update_changes_the_row_and_nothing_else(engine: Engine) -> None:
    engine.row("data2").update(row(mount_options="proto=rdma"), force=True)
    assert set(engine.mounted("data2").values()) == {"tcp"}
    assert engine.attached("data2").get().status == Status.ACTIVE
    assert engine.world.connection_of("data2").nfs_version == "v4_2"


@pytest.mark.engine_does("CONN-10")
def test_two_domains_on_a_row_are_refused(engine: Engine) -> None:
    engine.world.domain("data1").connection = engine.world.domain("data2").connection
    with refused(409, "data1,data2"):
        engine.row("data2").update(row(mount_options="rdma"), force=True)


@pytest.mark.engine_does("CONN-16")
def test_a_row_of_ipv6_needs_address_and_path(engine: Engine) -> None:
    found = engine.world.connection_of("data2")
    found.address = "[fd00::1]"
    with refused(400):
        engine.row("data2").update(row(mount_options="rdma"), force=True)
    change = row(address="[fd00::1]", path=found.path, mount_options="rdma")
    shown = engine.row("data2").update(change, force=True)
    assert (shown.address, shown.path) == ("[fd00::1]", "/exports/data2")


@pytest.mark.engine_does("CONN-20")
def test_a_row_is_shown_cut_at_its_second_colon(engine: Engine) -> None:
    found = engine.world.connection_of("data2")
    found.path = "/exports/a:b"
    shown = next(one for one in engine.rows.list() if one.id == found.id)
    assert (shown.address, shown.path) == ("nfs1.example.com", "/exports/a")
    found.address = "[fd00::1]"
    shown = next(one for one in engine.rows.list() if one.id == found.id)
    assert (shown.address, shown.path) == ("[fd00::1]", "/exports/a:b")


@pytest.mark.engine_does("CONN-05")
def test_the_same_export_is_known_already(engine: Engine) -> None:
    change = row(
        type=types.StorageType.NFS,
        address="nfs1.example.com",
        path="/exports/data1",
        mount_options="proto=rdma",
    )
    with refused(409, "already exists"):
        engine.rows.add(change)
    with refused(409, "already exists"):
        engine.row("data2").update(row(path="/exports/data1"), force=True)


@pytest.mark.engine_does("CONN-17")
def test_a_row_in_use_cannot_be_removed(engine: Engine) -> None:
    with refused(409, "data1"):
        engine.row("data1").remove()


# -- adding a domain


@pytest.mark.engine_does("DOMAIN-39")
def test_create_attach_and_the_way_to_active(engine: Engine) -> None:
    rdma = {"address": "nfs2.example.com", "mount_options": "proto=rdma,port=20049"}
    made = engine.domains.add(engine.new(**rdma))
    assert made.status == Status.UNKNOWN
    assert engine.domains.storage_domain_service(made.id).get().status == (
        Status.UNATTACHED
    )
    assert engine.mounted("new") == {"host01": "rdma"}
    engine.centre().add(types.StorageDomain(id=made.id))
    assert set(engine.mounted("new").values()) == {"rdma"}
    assert engine.domains.storage_domain_service(made.id).get().status is None
    assert engine.attached("new").get().status == Status.ACTIVE
    assert engine.world.log.codes() == [956, 966, 962]


@pytest.mark.engine_does("DOMAIN-25", "DOMAIN-30", "EVENT-21", "EVENT-22", "EVENT-23")
def test_a_failed_mount_refuses_the_add_without_a_word(engine: Engine) -> None:
    wanted = engine.new(mount_options="rdma")
    engine.world.host("host01").rdma_ready = False
    with refused(400, r'Fault detail is "\[\]"'):
        engine.domains.add(wanted, query={"correlation_id": "c1"})
    found = [(e.code, e.host, e.correlation_id) for e in engine.world.log.events]
    host = engine.world.host("host01").id
    assert found == [(188, host, None), (996, None, None), (957, host, "c1")]
    assert "new" in engine.world.log.events[0].description
    assert wanted.storage.id in engine.world.connections


@pytest.mark.engine_does("DOMAIN-24")
def test_a_host_in_maintenance_makes_a_domain(engine: Engine) -> None:
    engine.world.host("host01").status = "maintenance"
    assert allowed(engine.domains.add, engine.new())
    engine.world.host("host01").reachable = False
    with refused(400, "Network error"):
        engine.domains.add(engine.new("other"))


@pytest.mark.engine_does("DOMAIN-27")
def test_a_domain_that_the_host_has_not_mounted_is_in_the_way(engine: Engine) -> None:
    there = "11111111-2222-3333-4444-555555555555"
    engine.world.export("nfs1.example.com:/exports/new").domain = there
    wanted = engine.new()
    with refused(400, "path is not empty"):
        engine.domains.add(wanted)
    # It is mounted now, so that the next add finds it.
    assert engine.domains.add(wanted).id == there


@pytest.mark.engine_does("DOMAIN-22")
def test_a_row_has_one_domain(engine: Engine) -> None:
    wanted = engine.new()
    wanted.storage = types.HostStorage(id=engine.world.connection_of("data1").id)
    with refused(409, "has a domain"):
        engine.domains.add(wanted)


@pytest.mark.engine_does("DOMAIN-37")
@pytest.mark.parametrize("name", ["data.1", "data 1", "dåta", "x" * 51])
def test_names_that_a_domain_cannot_have(engine: Engine, name: str) -> None:
    wanted = engine.new()
    wanted.name = name
    with refused(400, "name"):
        engine.domains.add(wanted)


@pytest.mark.engine_does("DOMAIN-28")
def test_the_id_of_an_add_counts_for_an_import_only(engine: Engine) -> None:
    mine = "99999999-2222-3333-4444-555555555555"
    there = "11111111-2222-3333-4444-555555555555"
    wanted = engine.new()
    wanted.id = mine
    assert engine.domains.add(wanted).id != mine
    lies_there(engine, "nfs1.example.com:/exports/other", there)
    wanted = engine.new("other")
    wanted.id = mine
    with refused(500, "validation failure"):
        engine.domains.add(wanted)


def lies_there(engine: Engine, export: str, domain: str) -> None:
    """Let a domain be on an export that host01 has mounted."""
    engine.world.export(export).domain = domain
    engine.world.host("host01").mounts[export] = "tcp"


@pytest.mark.engine_does("DOMAIN-26")
def test_an_add_where_a_domain_lies_is_an_import(engine: Engine) -> None:
    there = "11111111-2222-3333-4444-555555555555"
    lies_there(engine, "nfs1.example.com:/exports/new", there)
    assert engine.domains.add(engine.new()).id == there


@pytest.mark.engine_does("DOMAIN-23")
def test_a_name_is_used_once(engine: Engine) -> None:
    wanted = engine.new()
    wanted.name = "data1"
    with refused(409, "name"):
        engine.domains.add(wanted)
    assert "nfs1.example.com:/exports/new" not in engine.world.host("host01").mounts
    assert engine.world.log.codes() == []


@pytest.mark.engine_does("DOMAIN-31", "DOMAIN-32", "DOMAIN-35")
def test_detach_and_remove(engine: Engine) -> None:
    named = engine.world.domain("data2").id
    with refused(409, "active"):
        engine.attached("data2").remove()
    engine.attached("data2").deactivate()
    engine.world.settle()
    with refused(409, "attached"):
        engine.domains.storage_domain_service(named).remove(host="host01")
    engine.attached("data2").remove()
    with refused(400):
        engine.domains.storage_domain_service(named).remove()
    engine.world.host("host01").status = "maintenance"
    with refused(409):
        engine.domains.storage_domain_service(named).remove(host="host01")
    engine.world.host("host01").status = "up"
    engine.domains.storage_domain_service(named).remove(host="host01", format=True)
    assert [d.name for d in engine.domains.list()] == ["data1"]
    assert len(engine.rows.list()) == 1


@pytest.mark.engine_does("DOMAIN-33", "DOMAIN-34")
def test_a_removal_mounts_to_format_and_else_leaves_the_mounts(engine: Engine) -> None:
    made = engine.domains.add(engine.new())
    export = "nfs1.example.com:/exports/new"
    host = engine.world.host("host02")
    service = engine.domains.storage_domain_service(made.id)
    engine.world.export(export).answers = False
    with refused(400, r'Fault detail is "\[\]"'):
        service.remove(host="host02", format=True)
    engine.world.export(export).answers = True
    service.remove(host="host02")
    assert engine.world.host("host01").mounts.get(export) == "tcp"
    assert engine.domains.add(engine.new()).id == made.id
    service.remove(host="host01", format=True)
    assert export not in {**host.mounts, **engine.world.host("host01").mounts}
    assert engine.domains.add(engine.new()).id != made.id


# -- activating and deactivating


@pytest.mark.engine_does("DOMAIN-40")
def test_no_status_outside_of_the_data_center(engine: Engine) -> None:
    assert {d.status for d in engine.domains.list()} == {None}
    assert {d.status for d in engine.centre().list()} == {Status.ACTIVE}


# -- installing a host


def reinstalled(engine: Engine, *tasks: str, **more: Any) -> Any:
    """Return host02 after its reinstallation, which goes as ``more`` says; ``tasks``
    are the names of those that succeed.
    """
    engine.world.more["post_tasks"] = lambda host: tasks
    host = engine.world.host("host02")
    host.status = "maintenance"
    host.more.update(more)
    engine.host("host02").install(**BY_KEY)
    engine.world.settle()
    return host


@pytest.mark.engine_does("HOST-27")
def test_a_failed_reinstall(engine: Engine) -> None:
    host = reinstalled(engine, "one", install_fails="A task failed")
    assert host.status == "install_failed"
    assert engine.world.log.codes() == [560, 559, 505]


@pytest.mark.engine_does("HOST-23", "HOST-29")
def test_a_reinstall_begins_after_its_answer(engine: Engine) -> None:
    with refused(409):
        engine.host("host02").install(**BY_KEY)
    engine.world.host("host02").status = "maintenance"
    engine.host("host02").install(**BY_KEY)
    assert engine.world.log.codes() == []
    assert engine.host("host02").get().status.value == "maintenance"


@pytest.mark.engine_does("HOST-30")
def test_the_name_of_a_task_has_the_severity_of_its_event(engine: Engine) -> None:
    reinstalled(engine, "one", "ours: [ERROR] it is bad", "a [WARNING] b")
    assert engine.world.log.codes() == [560, 559, 553, 554, 561, 504]
    texts = [event.description for event in engine.world.log.events]
    assert "Installing Host host02. ours: it is bad." in texts


@pytest.mark.engine_does("HOST-31")
def test_a_playbook_that_ends_with_an_error_has_succeeded(engine: Engine) -> None:
    host = reinstalled(engine, "one", "two", install_error=1)
    assert host.status == "maintenance"
    assert engine.world.log.codes() == [560, 559, 561, 504]


@pytest.mark.engine_does("HOST-32")
def test_a_host_that_ansible_does_not_reach(engine: Engine) -> None:
    engine.world.host("host02").reachable = False
    host = reinstalled(engine)
    assert (host.status, engine.world.log.codes()) == ("install_failed", [560, 505])


@pytest.mark.engine_does("HOST-33")
def test_a_host_that_cannot_be_restarted(engine: Engine) -> None:
    host = reinstalled(engine, reboot_fails=True)
    assert (host.status, engine.world.log.codes()) == (
        "install_failed",
        [560, 561, 505],
    )


@pytest.mark.engine_does("HOST-34")
def test_an_engine_that_is_restarted_forgets_the_installation(engine: Engine) -> None:
    host = reinstalled(engine, engine_restarts=True)
    assert host.status == "up"
    assert not {504, 505, 561} & set(engine.world.log.codes())


@pytest.mark.engine_does("HOST-35")
def test_a_host_whose_vdsm_is_silent_after_the_playbook(engine: Engine) -> None:
    host = reinstalled(engine, vdsm_silent=True)
    assert (host.status, engine.world.log.codes()) == (
        "non_responsive",
        [560, 561, 505],
    )
