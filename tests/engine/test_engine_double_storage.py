# SPDX-License-Identifier: GPL-2.0-or-later
"""The engine double's storage and hosts: rows, domains, and what hosts mount.

A test a rule of facts/engine.md, sections 1.2 to 1.6.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import ovirtsdk4 as sdk
import pytest
from engine_double import EngineDouble, World, sample_world
from ovirtsdk4 import types

pytestmark = pytest.mark.engine

Status = types.StorageDomainStatus
PUBLIC_KEY = types.Ssh(authentication_method=types.SshAuthenticationMethod.PUBLICKEY)
RULES = "version: 1\nnfs:\n  rules:\n  - {server: nfs1.example.com, transport: %s}\n"


class Engine:
    """The double over a world, and the SDK's services that tests use."""

    def __init__(self, **words: Any) -> None:
        self.world: World = sample_world(**{"hosts": 3, "export": False, **words})
        self.double = EngineDouble(self.world)
        self.double.__enter__()
        self.connection = sdk.Connection(
            url=self.double.url,
            username="admin@ovirt@internalsso",
            password="secret",
        )
        self.system = self.connection.system_service()
        self.domains = self.system.storage_domains_service()
        self.rows = self.system.storage_connections_service()

    def close(self) -> None:
        self.connection.close(logout=False)
        self.double.close()

    def attached(self, name: str) -> Any:
        return self.centre().storage_domain_service(self.world.domain(name).id)

    def centre(self, name: str = "dc1") -> Any:
        found = self.world.data_center(name).id
        service = self.system.data_centers_service().data_center_service(found)
        return service.storage_domains_service()

    def row(self, domain: str) -> Any:
        found = self.world.connection_of(domain).id
        return self.rows.storage_connection_service(found)

    def host(self, name: str) -> Any:
        found = self.world.host(name).id
        return self.system.hosts_service().host_service(found)

    def mounted(self, domain: str) -> dict[str, str]:
        export = self.world.connection_of(domain).export
        return {
            host.name: host.mounts[export]
            for host in self.world.hosts.values()
            if export in host.mounts
        }

    def by_itself(self, domain: str) -> None:
        """Let hosts mount it by a connection of its own, from the next mount on."""
        self.world.connection_of(domain).nfs_version = "v4_1"

    def new(self, name: str = "new", **storage: Any) -> types.StorageDomain:
        words = {
            "type": types.StorageType.NFS,
            "address": "nfs1.example.com",
            "path": f"/exports/{name}",
            "nfs_version": types.NfsVersion.V4_2,
            **storage,
        }
        return types.StorageDomain(
            name=name,
            type=types.StorageDomainType.DATA,
            host=types.Host(name="host01"),
            storage=types.HostStorage(**words),
        )


@pytest.fixture
def engine() -> Iterator[Engine]:
    made = Engine()
    yield made
    made.close()
    assert made.double.strict_errors == []


@pytest.fixture
def make() -> Iterator[Any]:
    made: list[Engine] = []

    def start(**words: Any) -> Engine:
        made.append(Engine(**words))
        return made[-1]

    yield start
    for one in made:
        one.close()
        assert one.double.strict_errors == []


def refused(code: int, text: str = "") -> Any:
    return pytest.raises(sdk.Error, match=f"{text}.*HTTP response code is {code}")


def row(**words: Any) -> types.StorageConnection:
    return types.StorageConnection(**words)


# -- rows


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


@pytest.mark.parametrize(
    "options",
    ["rdma", "proto=rdma,port=20049", "nconnect=4,hard", "vers=4=2", "typo", ""],
)
def test_everything_else_passes(engine: Engine, options: str) -> None:
    shown = engine.row("data1").update(row(mount_options=options), force=True)
    assert (shown.mount_options or "") == options
    assert engine.world.connection_of("data1").mount_options == options


def test_five_hundred_characters_are_the_most(engine: Engine) -> None:
    engine.row("data1").update(row(mount_options="x" * 500), force=True)
    with refused(500):
        engine.row("data1").update(row(mount_options="x" * 501), force=True)


@pytest.mark.parametrize(
    "words",
    [
        {"nfs_timeo": 0},
        {"nfs_timeo": 6001},
        {"nfs_retrans": 32768},
        {"path": "exports"},
        {"path": "/a b"},
        {"address": ""},
        {"address": "fd00::1"},
    ],
)
def test_values_out_of_range_are_refused(engine: Engine, words: dict[str, Any]) -> None:
    with refused(400):
        engine.row("data1").update(row(**words), force=True)


def test_the_type_of_a_row_cannot_change(engine: Engine) -> None:
    change = row(type=types.StorageType.POSIXFS, vfs_type="nfs", path="a:/b")
    with refused(400):
        engine.row("data1").update(change, force=True)


def test_a_row_needs_a_domain_in_maintenance_or_force(engine: Engine) -> None:
    with refused(400, "maintenance or unattached"):
        engine.row("data2").update(row(mount_options="rdma"))
    engine.world.domain("data2").status = "maintenance"
    assert engine.row("data2").update(row(mount_options="rdma")).mount_options == "rdma"


def test_a_forced_update_changes_the_row_and_nothing_else(engine: Engine) -> None:
    engine.row("data2").update(row(mount_options="proto=rdma"), force=True)
    assert set(engine.mounted("data2").values()) == {"tcp"}
    assert engine.attached("data2").get().status == Status.ACTIVE
    assert engine.row("data2").get().nfs_version == types.NfsVersion.V4_2


def test_with_host_and_force_a_live_domain_falls_into_maintenance(
    engine: Engine,
) -> None:
    change = row(mount_options="proto=rdma", host=types.Host(name="host02"))
    engine.row("data2").update(change, force=True)
    assert engine.attached("data2").get().status == Status.MAINTENANCE
    assert sorted(engine.mounted("data2")) == ["host01", "host03"]


def test_a_failed_mount_at_an_update_is_in_the_events_only(engine: Engine) -> None:
    engine.world.domain("data2").status = "maintenance"
    host = engine.world.host("host02")
    host.mounts.clear()
    host.rdma_ready = False
    change = row(mount_options="proto=rdma", host=types.Host(id=host.id))
    shown = engine.row("data2").update(change, query={"correlation_id": "c1"})
    assert shown.mount_options == "proto=rdma"
    found = [(e.code, e.host, e.correlation_id) for e in engine.world.log.events]
    assert found == [(996, host.id, "c1"), (188, host.id, "c1")]


def test_an_update_on_a_host_leaves_no_mount(engine: Engine) -> None:
    engine.world.domain("data2").status = "maintenance"
    host = engine.world.host("host02")
    host.mounts.clear()
    change = row(mount_options="proto=rdma", host=types.Host(name="host02"))
    engine.row("data2").update(change)
    assert (host.mounts, engine.world.log.codes()) == ({}, [])


def test_two_domains_on_a_row_are_refused(engine: Engine) -> None:
    engine.world.domain("data1").connection = engine.world.domain("data2").connection
    with refused(409, "data1,data2"):
        engine.row("data2").update(row(mount_options="rdma"), force=True)


def test_a_row_of_ipv6_needs_address_and_path(engine: Engine) -> None:
    found = engine.world.connection_of("data2")
    found.address = "[fd00::1]"
    with refused(400):
        engine.row("data2").update(row(mount_options="rdma"), force=True)
    change = row(address="[fd00::1]", path=found.path, mount_options="rdma")
    shown = engine.row("data2").update(change, force=True)
    assert (shown.address, shown.path) == ("[fd00::1]", "/exports/data2")


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


def test_a_row_can_be_added_without_a_host_and_removed(engine: Engine) -> None:
    words = {"type": types.StorageType.NFS, "address": "nfs1.example.com"}
    with refused(400, "path"):
        engine.rows.add(row(**words))
    made = engine.rows.add(row(path="/exports/new", **words))
    assert all(len(h.mounts) == 2 for h in engine.world.hosts.values())
    assert len(engine.rows.list()) == 3
    engine.rows.storage_connection_service(made.id).remove()
    assert len(engine.rows.list()) == 2


def test_a_row_in_use_cannot_be_removed(engine: Engine) -> None:
    with refused(409, "data1"):
        engine.row("data1").remove()


def test_a_row_with_a_host_is_mounted_there(engine: Engine) -> None:
    change = row(
        type=types.StorageType.NFS,
        address="nfs1.example.com",
        path="/exports/new",
        host=types.Host(name="host02"),
    )
    engine.world.host("host02").status = "maintenance"
    with refused(409, "must be Up"):
        engine.rows.add(change)
    engine.world.host("host02").status = "up"
    engine.rows.add(change)
    assert "nfs1.example.com:/exports/new" in engine.world.host("host02").mounts


# -- adding a domain


def test_create_attach_and_the_way_to_active(engine: Engine) -> None:
    rdma = {"address": "nfs2.example.com", "mount_options": "proto=rdma,port=20049"}
    made = engine.domains.add(engine.new(**rdma))
    assert made.status == Status.UNATTACHED
    assert engine.mounted("new") == {"host01": "rdma"}
    engine.centre().add(types.StorageDomain(id=made.id))
    assert set(engine.mounted("new").values()) == {"rdma"}
    assert engine.domains.storage_domain_service(made.id).get().status is None
    seen = [engine.attached("new").get().status for _ in range(2)]
    assert seen == [Status.LOCKED, Status.ACTIVE]
    assert engine.world.log.codes() == [956, 962, 966]


@pytest.mark.parametrize(
    ("host", "code"), [("maintenance", 409), ("non_operational", 409), ("down", 409)]
)
def test_the_host_of_an_add_must_be_up(engine: Engine, host: str, code: int) -> None:
    engine.world.host("host01").status = host
    with refused(code, "must be Up"):
        engine.domains.add(engine.new())
    assert len(engine.world.connections) == 2


@pytest.mark.parametrize("missing", ["host", "type", "storage"])
def test_an_add_has_mandatory_fields(engine: Engine, missing: str) -> None:
    wanted = engine.new()
    setattr(wanted, missing, None)
    with refused(400, missing):
        engine.domains.add(wanted)


def test_a_failed_mount_refuses_the_add_with_vdsms_words(engine: Engine) -> None:
    engine.world.host("host01").rdma_ready = False
    with refused(400, "Problem while trying to mount target"):
        engine.domains.add(engine.new(mount_options="rdma"))
    assert set(engine.world.log.codes()) >= {996, 188}
    assert len(engine.world.connections) == len(engine.world.domains) == 2


def test_an_export_without_permission(engine: Engine) -> None:
    engine.world.export("nfs1.example.com:/exports/new").denied = True
    with refused(400, "Permission"):
        engine.domains.add(engine.new())


def test_an_add_where_a_domain_lies_is_an_import(engine: Engine) -> None:
    there = "11111111-2222-3333-4444-555555555555"
    engine.world.export("nfs1.example.com:/exports/new").domain = there
    assert engine.domains.add(engine.new()).id == there


def test_a_name_is_used_once_and_a_late_refusal_leaves_nothing(engine: Engine) -> None:
    wanted = engine.new()
    wanted.name = "data1"
    with refused(409, "name"):
        engine.domains.add(wanted)
    assert len(engine.world.connections) == 2
    assert "nfs1.example.com:/exports/new" not in engine.world.host("host01").mounts
    assert 957 in engine.world.log.codes()


def test_attach_needs_one_host_that_mounts(engine: Engine) -> None:
    made = engine.domains.add(engine.new(mount_options="rdma"))
    engine.world.host("host02").rdma_ready = False
    engine.centre().add(types.StorageDomain(id=made.id))
    engine.world.settle()
    states = {h.name: h.status for h in engine.world.hosts.values()}
    assert states == {"host01": "up", "host02": "non_operational", "host03": "up"}
    assert engine.world.log.codes()[-1] == 522


def test_attach_fails_when_every_host_fails(engine: Engine) -> None:
    made = engine.domains.add(engine.new())
    engine.world.host("host01").mounts.clear()
    engine.world.export("nfs1.example.com:/exports/new").answers = False
    with refused(400, "mount"):
        engine.centre().add(types.StorageDomain(id=made.id))
    assert engine.world.domain("new").data_center is None
    assert 963 in engine.world.log.codes()


def test_the_first_domain_of_a_data_center_is_its_master(make: Any) -> None:
    engine = make(domains=())
    engine.world.data_center("dc1").status = "uninitialized"
    made = engine.domains.add(engine.new())
    engine.centre().add(types.StorageDomain(id=made.id))
    engine.world.settle()
    assert engine.attached("new").get().master
    assert engine.world.data_center("dc1").status == "up"


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
    engine.domains.storage_domain_service(named).remove(host="host01", format=True)
    assert [d.name for d in engine.domains.list()] == ["data1"]
    assert len(engine.rows.list()) == 1


# -- activating and deactivating


def test_two_steps_to_maintenance(engine: Engine) -> None:
    engine.attached("data2").deactivate(query={"correlation_id": "c2"})
    seen = [engine.attached("data2").get().status for _ in range(4)]
    assert seen == [
        Status.LOCKED,
        Status.PREPARING_FOR_MAINTENANCE,
        Status.MAINTENANCE,
        Status.MAINTENANCE,
    ]
    assert engine.mounted("data2") == {}
    found = [(e.code, e.correlation_id) for e in engine.world.log.events]
    assert found == [(968, "c2"), (1029, "c2")]


def test_stages_can_take_more_reads(make: Any) -> None:
    engine = make(reads_per_stage=2)
    engine.attached("data2").deactivate()
    seen = [engine.attached("data2").get().status for _ in range(4)]
    assert seen == [Status.LOCKED] * 2 + [Status.PREPARING_FOR_MAINTENANCE] * 2


def test_no_status_outside_of_the_data_center(engine: Engine) -> None:
    assert {d.status for d in engine.domains.list()} == {None}
    assert {d.status for d in engine.centre().list()} == {Status.ACTIVE}


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ({"running_vms": ["vm1"]}, "running virtual machines"),
        ({"leases": ["vm1"]}, "leases"),
        ({"cds_in_use": ["vm1"]}, "CD"),
        ({"image_transfers": ["t1"]}, "uploaded"),
        ({"tasks": ["t1"]}, "tasks"),
        ({"hosted_engine": True}, "hosted engine"),
        ({"status": "maintenance"}, "maintenance"),
        ({"status": "locked"}, "locked"),
    ],
)
def test_a_deactivation_is_refused(
    engine: Engine, words: dict[str, Any], text: str
) -> None:
    for name, value in words.items():
        setattr(engine.world.domain("data2"), name, value)
    with refused(409, text):
        engine.attached("data2").deactivate()


def test_a_failed_ovf_update_needs_force(engine: Engine) -> None:
    engine.world.domain("data2").ovf_update_fails = True
    engine.attached("data2").deactivate()
    engine.world.settle()
    assert engine.attached("data2").get().status == Status.ACTIVE
    assert engine.world.log.codes() == [969]
    engine.attached("data2").deactivate(force=True)
    engine.world.settle()
    assert engine.attached("data2").get().status == Status.MAINTENANCE


def test_another_data_domain_becomes_master(engine: Engine) -> None:
    engine.attached("data1").deactivate()
    engine.world.settle()
    assert engine.attached("data2").get().master
    assert engine.mounted("data1") == {}
    assert engine.world.data_center("dc1").status == "up"


def test_a_master_cannot_leave_an_iso_domain_alone(make: Any) -> None:
    engine = make(domains=("data1",), iso=True)
    with refused(409, "without data"):
        engine.attached("data1").deactivate()


def test_a_master_waits_for_locked_domains(engine: Engine) -> None:
    engine.world.domain("data2").status = "locked"
    with refused(409, "locked"):
        engine.attached("data1").deactivate()


def test_the_last_master_leaves_a_stale_mount_on_the_spm_host(make: Any) -> None:
    engine = make(domains=("data1",))
    engine.attached("data1").deactivate()
    engine.world.settle()
    assert engine.mounted("data1") == {"host01": "tcp"}
    centre = engine.world.data_center("dc1")
    assert centre.status == "maintenance"
    engine.row("data1").update(row(mount_options="proto=rdma"))
    engine.attached("data1").activate()
    seen = [engine.attached("data1").get().status for _ in range(2)]
    assert seen == [Status.LOCKED, Status.ACTIVE]
    assert engine.mounted("data1") == {
        "host01": "tcp",
        "host02": "rdma",
        "host03": "rdma",
    }
    assert centre.status == "up"


def test_activation_takes_down_hosts_that_do_not_mount(engine: Engine) -> None:
    engine.attached("data2").deactivate()
    engine.world.settle()
    engine.row("data2").update(row(mount_options="proto=rdma"))
    engine.world.host("host03").rdma_ready = False
    engine.attached("data2").activate()
    seen = [engine.attached("data2").get().status for _ in range(2)]
    assert seen == [Status.ACTIVATING, Status.ACTIVE]
    assert engine.host("host03").get().status == types.HostStatus.NON_OPERATIONAL
    assert engine.world.log.codes()[2:] == [996, 188, 966, 522]


def test_activation_fails_when_no_host_mounts(engine: Engine) -> None:
    engine.attached("data2").deactivate()
    engine.world.settle()
    engine.world.export("nfs1.example.com:/exports/data2").answers = False
    with refused(400, "mount"):
        engine.attached("data2").activate()
    assert engine.attached("data2").get().status == Status.MAINTENANCE
    assert engine.world.log.codes()[-1] == 967


def test_an_active_domain_is_not_activated(engine: Engine) -> None:
    with refused(409, "active"):
        engine.attached("data2").activate()


# -- hosts and what they mount


def test_maintenance_unmounts_and_activation_mounts_anew(engine: Engine) -> None:
    engine.by_itself("data2")
    engine.row("data2").update(row(mount_options="proto=rdma"), force=True)
    engine.host("host02").deactivate(reason="because")
    seen = [engine.host("host02").get().status for _ in range(2)]
    assert seen == [
        types.HostStatus.PREPARING_FOR_MAINTENANCE,
        types.HostStatus.MAINTENANCE,
    ]
    assert engine.world.host("host02").mounts == {}
    engine.host("host02").activate()
    seen = [engine.host("host02").get().status for _ in range(3)]
    assert seen == [
        types.HostStatus.UNASSIGNED,
        types.HostStatus.INITIALIZING,
        types.HostStatus.UP,
    ]
    assert engine.mounted("data2")["host02"] == "rdma"
    assert engine.mounted("data1")["host02"] == "tcp"
    assert engine.world.log.codes() == [600, 15, 16, 13]


def test_the_hosted_engines_domain_stays_mounted(make: Any) -> None:
    engine = make(hosted_engine=True)
    engine.host("host02").deactivate()
    engine.world.settle()
    kept = ["nfs1.example.com:/exports/hosted_storage"]
    assert list(engine.world.host("host02").mounts) == kept
    assert engine.world.log.codes() == [620, 15]


def test_the_spm_role_goes_to_another_host(engine: Engine) -> None:
    engine.host("host01").deactivate()
    engine.world.settle()
    assert [h.name for h in engine.world.hosts.values() if h.spm] == ["host02"]


def test_virtual_machines_migrate_or_hold_the_host(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.vms, host.stuck_vms = ["vm1", "vm2"], ["vm2"]
    engine.host("host02").deactivate()
    engine.world.settle()
    assert (host.status, host.vms) == ("preparing_for_maintenance", ["vm2"])
    assert 602 in engine.world.log.codes()
    host.stuck_vms, host.vms = [], []
    engine.world.settle()
    assert host.status == "maintenance"


@pytest.mark.parametrize(
    ("status", "act"),
    [
        ("up", "activate"),
        ("non_responsive", "activate"),
        ("maintenance", "deactivate"),
        ("unassigned", "deactivate"),
    ],
)
def test_host_actions_that_do_not_fit(engine: Engine, status: str, act: str) -> None:
    engine.world.host("host02").status = status
    with refused(409):
        getattr(engine.host("host02"), act)()


def test_a_failed_mount_makes_a_host_non_operational_until_it_is_mended(
    engine: Engine,
) -> None:
    engine.by_itself("data2")
    engine.row("data2").update(row(mount_options="proto=rdma"), force=True)
    host = engine.world.host("host02")
    host.rdma_ready = False
    host.reboot()
    engine.world.settle()
    assert (host.status, engine.world.log.codes()) == (
        "non_operational",
        [996, 188, 522],
    )
    host.rdma_ready = True
    engine.world.recover()
    engine.world.settle()
    assert (host.status, engine.mounted("data2")["host02"]) == ("up", "rdma")


@pytest.mark.parametrize("kind", ["iso", "export"])
def test_a_failed_mount_of_iso_and_export_domains_is_ignored(
    make: Any, kind: str
) -> None:
    engine = make(**{kind: True})
    engine.row(kind).update(row(mount_options="proto=rdma"), force=True)
    host = engine.world.host("host02")
    host.rdma_ready = False
    host.reboot()
    engine.world.settle()
    assert host.status == "up"
    assert "host02" not in engine.mounted(kind)


@pytest.mark.parametrize(
    ("addon", "rule", "options", "ready", "mounted"),
    [
        (True, "require-rdma", "", True, "rdma"),
        (True, "require-rdma", "", False, None),
        (True, "prefer-rdma", "", True, "rdma"),
        (True, "prefer-rdma", "proto=rdma", False, "tcp"),
        (True, "tcp", "proto=rdma", True, "tcp"),
        # No add-on, or no policy: the engine's row decides.
        (False, "require-rdma", "", True, "tcp"),
        (False, "tcp", "rdma", True, "rdma"),
        (True, None, "hard,proto=rdma", True, "rdma"),
        (True, None, "proto=rdma", False, None),
        (True, None, "", True, "tcp"),
    ],
)
def test_a_host_mounts_by_its_policy_else_by_the_row(
    engine: Engine, addon: bool, rule: Any, options: str, ready: bool, mounted: Any
) -> None:
    host = engine.world.host("host02")
    host.addon, host.rdma_ready = addon, ready
    host.policy_text = RULES % rule if rule else None
    engine.by_itself("data2")
    engine.row("data2").update(row(mount_options=options), force=True)
    host.reboot()
    engine.world.settle()
    assert engine.mounted("data2").get("host02") == mounted
    assert host.status == ("up" if mounted else "non_operational")


def test_an_export_that_no_rule_names_is_stock(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.addon = True
    host.policy_text = RULES.replace("nfs1", "other") % "require-rdma"
    host.reboot()
    engine.world.settle()
    assert engine.mounted("data2")["host02"] == "tcp"


def test_a_server_that_does_not_listen_for_rdma(engine: Engine) -> None:
    engine.world.export("nfs1.example.com:/exports/data2").rdma = False
    engine.row("data2").update(row(mount_options="proto=rdma"), force=True)
    engine.world.host("host02").reboot()
    engine.world.settle()
    assert engine.world.host("host02").status == "non_operational"


# -- virtual machines in the way


def test_virtual_machines_by_domain_and_host(engine: Engine) -> None:
    engine.world.host("host02").vms = ["vm1", "vm2"]
    engine.world.domain("data2").running_vms = ["vm2"]
    vms = engine.system.vms_service()
    assert [vm.name for vm in vms.list(search="host=host02")] == ["vm1", "vm2"]
    assert [vm.name for vm in vms.list(search="storage=data2")] == ["vm2"]
    domain = engine.domains.storage_domain_service(engine.world.domain("data2").id)
    found = domain.vms_service().list()
    assert [vm.name for vm in found] == ["vm2"]
    assert vms.vm_service(found[0].id).get().host.id == engine.world.host("host02").id


# -- installing a host


def test_reinstall_wants_a_password_or_the_key(engine: Engine) -> None:
    with refused(409):
        engine.host("host02").install(ssh=PUBLIC_KEY)
    engine.world.host("host02").status = "maintenance"
    with refused(400, "password"):
        engine.host("host02").install()
    engine.host("host02").install(root_password="secret")


@pytest.mark.parametrize(
    ("words", "statuses"),
    [
        ({}, ["installing", "reboot", "maintenance"]),
        ({"reboot": False}, ["installing", "installing", "maintenance"]),
        ({"activate": True}, ["installing", "reboot", "unassigned"]),
    ],
)
def test_reinstall_reboots_and_does_not_activate(
    engine: Engine, words: dict[str, bool], statuses: list[str]
) -> None:
    engine.world.host("host02").status = "maintenance"
    engine.host("host02").install(ssh=PUBLIC_KEY, **words)
    seen = [engine.host("host02").get().status.value for _ in range(3)]
    assert seen == statuses


def test_a_failed_reinstall(engine: Engine) -> None:
    host = engine.world.host("host02")
    host.status = "maintenance"
    host.more = {"install_tasks": ["one"], "install_fails": "A task failed"}
    engine.host("host02").install(ssh=PUBLIC_KEY)
    engine.world.settle()
    assert host.status == "install_failed"
    assert engine.world.log.codes() == [560, 559, 505]
