# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the double's hosts: coming up, SPM, and domains that some cannot mount."""

from __future__ import annotations

from typing import Any

import pytest
from engine_double import clusters, new_id
from engine_double.host_life import stop_responding
from ovirtsdk4 import types
from support.engine.double_engine import Engine, refused, row

pytestmark = [pytest.mark.selftest, pytest.mark.hypervisor]


def seen(engine: Engine, host: str, times: int) -> list[str]:
    """Read a host this many times."""
    return [engine.host(host).get().status.value for _ in range(times)]


def in_maintenance(engine: Engine, host: str = "host02") -> Any:
    """Return the world's host, in maintenance."""
    found = engine.world.host(host)
    found.status = "maintenance"
    found.mounts.clear()
    return found


def cannot_mount(engine: Engine, host: str, domain: str = "data2") -> Any:
    """Let ``host`` fail to mount ``domain`` from now on."""
    engine.by_itself(domain)
    engine.row(domain).update(row(mount_options="proto=rdma"), force=True)
    found = engine.world.host(host)
    found.rdma_ready = False
    return found


# -- coming up


@pytest.mark.engine_does("UP-01")
def test_a_host_is_shown_as_up_before_it_is_connected(engine: Engine) -> None:
    host = in_maintenance(engine)
    engine.host("host02").activate()
    assert seen(engine, "host02", 3) == ["unassigned", "initializing", "up"]
    assert (host.mounts, 13 in engine.world.log.codes()) == ({}, False)
    assert seen(engine, "host02", 1) == ["up"]
    assert sorted(engine.mounted("data1")) == ["host01", "host02", "host03"]
    assert engine.world.log.codes() == [16, 13]


@pytest.mark.engine_does("UP-01")
def test_a_host_goes_down_from_up_where_it_cannot_connect(engine: Engine) -> None:
    cannot_mount(engine, "host02")
    in_maintenance(engine)
    engine.host("host02").activate()
    shown = seen(engine, "host02", 6)
    assert shown[2:] == ["up", "up", "non_operational", "non_operational"]
    assert 13 not in engine.world.log.codes()


@pytest.mark.engine_does("UP-02")
def test_event_13_has_not_the_id_of_the_activation(engine: Engine) -> None:
    in_maintenance(engine)
    engine.host("host02").activate(query={"correlation_id": "mine"})
    engine.world.settle()
    ids = {e.code: e.correlation_id for e in engine.world.log.events}
    assert ids[16] == "mine"
    assert ids[13] not in ("mine", None)


@pytest.mark.engine_does("UP-03")
def test_a_domain_that_is_inactive_has_to_be_connected(engine: Engine) -> None:
    engine.world.domain("data2").status = "inactive"
    cannot_mount(engine, "host02")
    in_maintenance(engine)
    engine.host("host02").activate()
    engine.world.settle()
    assert engine.world.host("host02").status == "non_operational"


@pytest.mark.engine_does("UP-09")
@pytest.mark.parametrize("kind", ["iso", "export"])
def test_a_domain_without_disks_may_be_missing(engine: Engine, kind: str) -> None:
    engine.world.domain("data2").type = kind
    cannot_mount(engine, "host02")
    in_maintenance(engine)
    engine.host("host02").activate()
    engine.world.settle()
    assert engine.world.host("host02").status == "up"
    assert {13, 188, 996} <= set(engine.world.log.codes())


@pytest.mark.engine_does("EVENT-24")
def test_one_event_names_all_domains_that_are_missing(make: Any) -> None:
    engine = make(domains=("data1", "data2", "data3"))
    in_maintenance(engine)
    for name in ("data1", "data2", "data3"):
        engine.world.export(engine.world.connection_of(name).export).answers = False
    engine.host("host02").activate()
    engine.world.settle()
    told = [e.description for e in engine.world.log.events if e.code == 188]
    assert [text.rpartition("Domains ")[2] for text in told] == [
        "data1.",
        "data2,data3.",
    ]
    assert engine.world.log.codes().count(996) == 3


@pytest.mark.engine_does("UP-08")
def test_nothing_is_connected_of_a_data_center_in_maintenance(engine: Engine) -> None:
    engine.world.data_center("dc1").status = "maintenance"
    host = in_maintenance(engine)
    engine.host("host02").activate()
    engine.world.settle()
    assert (host.status, host.mounts) == ("up", {})


@pytest.mark.engine_does("UP-05")
def test_the_event_does_not_say_which_domain_it_was(engine: Engine) -> None:
    cannot_mount(engine, "host02")
    in_maintenance(engine)
    engine.host("host02").activate(query={"correlation_id": "mine"})
    engine.world.settle()
    last = engine.world.log.events[-1]
    assert (last.code, last.domain, "data2" in last.description) == (522, None, False)
    assert engine.world.log.codes()[-3:] == [994, 995, 522]


@pytest.mark.engine_does("UP-06")
def test_a_host_that_is_up_is_not_activated(engine: Engine) -> None:
    in_maintenance(engine)
    engine.host("host02").activate()
    assert seen(engine, "host02", 3)[-1] == "up"
    with refused(409, "Up status"):
        engine.host("host02").activate()


@pytest.mark.engine_does("UP-07")
def test_a_host_that_does_not_respond_is_not_activated(engine: Engine) -> None:
    engine.world.host("host02").status = "non_responsive"
    with refused(409, "non responsive"):
        engine.host("host02").activate()


@pytest.mark.engine_does("UP-04")
def test_activation_waits_for_the_disconnecting(engine: Engine) -> None:
    engine.by_itself("data2")
    engine.host("host02").deactivate()
    assert seen(engine, "host02", 2)[-1] == "maintenance"
    engine.row("data2").update(row(mount_options="proto=rdma"), force=True)
    engine.host("host02").activate()
    engine.world.settle()
    # It was mounted again: the old mount did not stay.
    assert engine.mounted("data2")["host02"] == "rdma"


# -- SPM


@pytest.mark.engine_does("SPM-01", "SPM-02")
def test_the_data_center_is_not_up_while_spm_moves(engine: Engine) -> None:
    engine.host("host01").deactivate()
    centers = engine.system.data_centers_service()
    seen = []
    for _ in range(4):
        status = centers.list()[0].status.value
        seen.append((status, {one.status.value for one in engine.centre().list()}))
    assert seen == [
        ("up", {"unknown"}),
        ("problematic", {"unknown"}),
        ("contend", {"active"}),
        ("up", {"active"}),
    ]
    assert [h.name for h in engine.world.hosts.values() if h.spm] == ["host02"]


@pytest.mark.engine_does("SPM-01")
def test_the_next_host_contends_for_spm(engine: Engine) -> None:
    engine.host("host01").deactivate()
    shown = [engine.host("host02").get().spm.status.value for _ in range(4)]
    assert shown == ["none", "none", "contending", "spm"]


def seen_of_all(engine: Engine) -> tuple[str, set[str]]:
    """Return the status of the data center, and those of its domains."""
    center = engine.system.data_centers_service().list()[0].status.value
    return center, {domain.status for domain in engine.world.domains.values()}


@pytest.mark.engine_does("SPM-03")
def test_an_spm_that_does_not_respond_has_no_successor(engine: Engine) -> None:
    host = engine.world.host("host01")
    stop_responding(engine.world, host)
    in_maintenance(engine, "host03")
    engine.host("host03").activate()
    engine.world.settle()
    assert seen_of_all(engine) == ("problematic", {"unknown"})
    assert host.spm


# -- a domain that some hosts cannot mount


# -- what is shown beside


@pytest.mark.engine_does("HOST-01")
def test_the_summary_counts_what_is_up_as_active(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.vms, host.inactive_vms = ["vm1", "vm2", "vm3"], ["vm3"]
    found = engine.host("host02").get().summary
    assert (found.active, found.migrating, found.total) == (2, 0, 3)
    engine.host("host02").deactivate()
    found = engine.host("host02").get().summary
    assert (found.active, found.migrating, found.total) == (0, 3, 3)


def upgrade(engine: Engine, action: str, **words: str) -> None:
    service = engine.system.clusters_service().cluster_service(new_id("cl1"))
    service.upgrade(upgrade_action=types.ClusterUpgradeAction(action), **words)


def flag(engine: Engine) -> tuple[bool, str]:
    shown = engine.system.clusters_service().list()[0]
    return shown.upgrade_in_progress, shown.upgrade_correlation_id


@pytest.mark.engine_does("CLUSTER-01")
def test_an_upgrade_is_not_begun_twice(engine: Engine) -> None:
    upgrade(engine, "start", query={"correlation_id": "request"})
    assert flag(engine) == (True, "request")
    with refused(400, "Failed to set upgrade running flag on cluster"):
        upgrade(engine, "start", correlation_id="body")
    assert flag(engine) == (True, "request")
    upgrade(engine, "finish")
    upgrade(engine, "start", correlation_id="body", query={"correlation_id": "request"})
    assert flag(engine) == (True, "body")
    assert engine.world.log.codes() == [892, 893, 894, 892]


@pytest.mark.engine_does("CLUSTER-02")
def test_the_end_of_an_upgrade_asks_nobody(engine: Engine) -> None:
    upgrade(engine, "start", correlation_id="one")
    upgrade(engine, "finish", correlation_id="other")
    assert not flag(engine)[0]
    upgrade(engine, "finish")


@pytest.mark.engine_does("CLUSTER-03")
def test_the_id_of_an_upgrade_is_shown_after_its_end(engine: Engine) -> None:
    upgrade(engine, "start", correlation_id="one")
    upgrade(engine, "finish")
    assert flag(engine) == (False, "one")


@pytest.mark.engine_does("CLUSTER-04")
def test_a_restart_clears_the_flag(engine: Engine) -> None:
    upgrade(engine, "start", correlation_id="one")
    clusters.restart(engine.world)
    assert not flag(engine)[0]


def permits(engine: Engine) -> dict[str, bool]:
    """Return what the user of the connection may do, and whether as administrator."""
    user = engine.system.get().authenticated_user
    service = engine.system.users_service().user_service(user.id).permissions_service()
    found = {}
    for permission in service.list():
        assert permission.role.name is None
        role = engine.system.roles_service().role_service(permission.role.id)
        for permit in role.permits_service().list():
            found[permit.name] = permit.administrative
    return found


@pytest.mark.engine_does("SSO-06")
def test_a_user_sees_what_the_user_may_do(engine: Engine) -> None:
    everyones = {"assign_cpu_profile": True}
    edits = {"edit_cluster_configuration": True}
    assert permits(engine) == {"login": False, **edits, **everyones}
    engine.world.roles["admin@ovirt@internalsso"] = "ReadOnlyAdmin"
    assert permits(engine) == {"login": False, **everyones}


@pytest.mark.engine_does("SSO-08")
def test_everyone_may_something_as_an_administrator(engine: Engine) -> None:
    assert permits(engine).get("assign_cpu_profile")


@pytest.mark.engine_does("SSO-07")
def test_a_user_who_may_only_read_changes_nothing(engine: Engine) -> None:
    engine.world.roles["admin@ovirt@internalsso"] = "ReadOnlyAdmin"
    with refused(403, "User is not authorized to perform this action."):
        engine.host("host02").deactivate()
    assert engine.world.host("host02").status == "up"
