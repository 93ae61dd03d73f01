# SPDX-License-Identifier: GPL-2.0-or-later
"""Check VDSM's behaviour in connect and disconnect on which ovirt-rdma relies.

Run against the double and against a real source; a difference between the two
is a bug of the double, or a change in VDSM.
"""

from __future__ import annotations

import inspect
import logging
import threading
from pathlib import Path
from typing import Any

import pytest
from support.storage.fake_kernel import FakeKernel, UmountCall
from support.storage.vdsm_under_test import (
    EXPORT,
    POSIXFS_DOMAIN,
    VdsmUnderTest,
    definition,
)

pytestmark = pytest.mark.hypervisor

# Results


def test_a_failed_mount_is_100_for_nfs_and_477_for_posixfs(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    kernel.fail("nas.example")
    [(connection, nfs)] = vdsm.connect(definition())
    posix = definition(vfs_type="nfs", mnt_options="")
    [(_, posixfs)] = vdsm.connect(posix, dom_type=POSIXFS_DOMAIN)

    assert (nfs, posixfs) == (100, 477)
    assert not Path(connection._mountCon._getLocalPath()).exists()


def test_a_failed_mount_raises_what_mount_said(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    kernel.fail("nas.example", err=b"mount.nfs: Protocol error\n", rc=32)
    with pytest.raises(vdsm.mount.MountError) as caught:
        vdsm.create(definition()).connect()
    error = caught.value
    assert (error.rc, error.out, error.err) == (32, b"", b"mount.nfs: Protocol error\n")
    assert "rc=32" in str(error)
    assert "Protocol error" in str(error)


def test_results_keep_the_order_and_one_failure_stops_nothing(
    vdsm: VdsmUnderTest, kernel: FakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    kernel.fail("b")
    definitions = [{"id": name, "connection": f"{name}:/e"} for name in "cba"]
    with caplog.at_level(logging.ERROR):
        results = vdsm.connect(*definitions)

    assert [(con.id, status) for con, status in results] == [
        ("c", 0),
        ("b", 100),
        ("a", 0),
    ]
    assert [call.server for call in kernel.mounts] == ["c", "b", "a"]
    logged = [r for r in caplog.records if r.name == "storage.storageServer"]
    assert [r.getMessage() for r in logged] == ["Could not connect to storage server"]
    assert logged[0].exc_info


def test_permissions_are_469_and_the_mount_is_taken_back(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    kernel.deny_access(EXPORT)
    [(connection, status)] = vdsm.connect(definition())

    assert status == 469
    assert kernel.mounted() == []
    assert not Path(connection._mountCon._getLocalPath()).exists()


def test_any_other_error_of_the_access_check_leaves_the_mount(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    kernel.deny_access(EXPORT, TimeoutError("ioprocess"))
    [(_, first)] = vdsm.connect(definition())
    [(_, second)] = vdsm.connect(definition())

    assert (first, second) == (100, 0)
    assert len(kernel.mounts) == 1
    assert kernel.mounted() == [(EXPORT, "tcp")]


def test_a_standing_mount_is_enough_whatever_its_transport(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    keys = definition(mnt_options="proto=rdma,port=20049")
    local = vdsm.create(keys)._mountCon._getLocalPath()
    kernel.mount_before(EXPORT, local, "nfsvers=3,proto=tcp")
    [(_, status)] = vdsm.connect(keys)

    assert status == 0
    assert kernel.mounts == []
    assert kernel.mounted() == [(EXPORT, "tcp")]


def test_the_same_export_mounted_elsewhere_does_not_count(
    vdsm: VdsmUnderTest, kernel: FakeKernel, tmp_path: Path
) -> None:
    kernel.mount_before(EXPORT, str(tmp_path / "elsewhere"), "nfsvers=3")
    vdsm.connect(definition())
    assert len(kernel.mounts) == 1


def test_nothing_keeps_two_callers_from_mounting_twice(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    callers = [
        threading.Thread(target=vdsm.connect, args=(definition(),)) for _ in range(2)
    ]
    with kernel.hold("nas.example"):
        for caller in callers:
            caller.start()
        kernel.wait_for_mounts(2)
    for caller in callers:
        caller.join(10)
    assert kernel.mounted() == [(EXPORT, "tcp")] * 2


def test_disconnect_forces_a_lazy_umount_and_removes_the_folder(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    [(connection, _)] = vdsm.connect(definition())
    local = connection._mountCon._getLocalPath()
    assert Path(local).is_dir()
    [(_, status)] = vdsm.disconnect(definition())

    assert status == 0
    assert kernel.umounts == [UmountCall(local, force=True, lazy=True)]
    assert not Path(local).exists()


def test_disconnecting_what_is_not_mounted_is_an_error(
    vdsm: VdsmUnderTest, kernel: FakeKernel, caplog: pytest.LogCaptureFixture
) -> None:
    posix = definition(vfs_type="nfs", mnt_options="")
    [(_, nfs)] = vdsm.disconnect(definition())
    [(_, posixfs)] = vdsm.disconnect(posix, dom_type=POSIXFS_DOMAIN)

    assert (nfs, posixfs) == (100, 477)
    assert "Could not disconnect from storage server" in caplog.text


def test_disconnect_does_not_mind_a_folder_that_is_gone(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    [(connection, _)] = vdsm.connect(definition())
    Path(connection._mountCon._getLocalPath()).rmdir()
    assert [status for _, status in vdsm.disconnect(definition())] == [0]


def test_errors_are_translated_by_class(vdsm: VdsmUnderTest) -> None:
    server, se = vdsm.storage_server, vdsm.exception
    failed = vdsm.mount.MountError(["mount"], 32, b"", b"no")
    denied = se.StorageServerAccessPermissionError("/x")
    cases = [
        (None, 0, 0),
        (failed, 100, 477),
        (denied, 469, 469),
        (se.MountError(), 477, 477),
        (OSError("no"), 100, 100),
    ]
    for error, nfs, posixfs in cases:
        assert server.NFSConnection.translate_error(error)[0] == nfs
        assert server.MountConnection.translate_error(error)[0] == posixfs


# The registry


def test_a_registered_subclass_is_made_connects_and_translates(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    server = vdsm.storage_server

    class Sub(server.NFSConnection):  # type: ignore[name-defined,misc]
        @classmethod
        def connect_all(cls, connections: Any) -> Any:
            seen.append(len(connections))
            return super().connect_all(connections)

        @classmethod
        def translate_error(cls, e: Any) -> Any:
            return vdsm.exception.MountError.code, ""

    seen: list[int] = []
    registry = server.ConnectionFactory.registeredConnectionTypes
    assert registry["nfs"] is server.NFSConnection
    assert registry["posixfs"] is server.MountConnection
    registry["nfs"] = Sub
    kernel.fail("nas.example")
    [(connection, status)] = vdsm.connect(definition())

    assert type(connection) is Sub
    assert (seen, status) == ([1], 477)


def test_fixtures_put_the_registry_back(vdsm: VdsmUnderTest, tmp_path: Path) -> None:
    registry = vdsm.storage_server.ConnectionFactory.registeredConnectionTypes
    stock = dict(registry)
    with vdsm.fresh(tmp_path / "inner"):
        registry["nfs"] = object()
    assert registry == stock


# The trap of vdsm.conf's deprecated option


def test_the_deprecated_option_turns_nfs_into_posixfs_and_drops_engine_options(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    vdsm.config.set("irs", "nfs_mount_options", "soft, nosharecache, intr")
    [(connection, status)] = vdsm.connect(definition(mnt_options="proto=rdma"))

    assert status == 0
    assert type(connection) is vdsm.storage_server.MountConnection
    assert kernel.mounts[0].options == "soft,nosharecache,intr"


def test_changing_the_defaults_of_the_class_springs_the_same_trap(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    vdsm.storage_server.NFSConnection.DEFAULT_OPTIONS.append("proto=rdma")
    vdsm.connect(definition())
    assert kernel.mounts[0].options == "soft,nosharecache"


@pytest.mark.parametrize(
    "keys", [{"protocol_version": "auto"}, {"timeout": 100}, {"retrans": "3"}]
)
def test_any_tuning_by_the_engine_overrules_the_deprecated_option(
    vdsm: VdsmUnderTest, kernel: FakeKernel, keys: dict[str, Any]
) -> None:
    vdsm.config.set("irs", "nfs_mount_options", "soft")
    [(connection, _)] = vdsm.connect(definition(**keys))
    assert type(connection) is vdsm.storage_server.NFSConnection


def test_the_order_of_the_deprecated_option_does_not_matter(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    vdsm.config.set("irs", "nfs_mount_options", "nosharecache,soft")
    [(connection, _)] = vdsm.connect(definition())
    assert type(connection) is vdsm.storage_server.NFSConnection


def test_the_last_definition_decides_whose_codes_are_used(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    vdsm.config.set("irs", "nfs_mount_options", "soft")
    for name in "ab":
        kernel.fail(name)
    nfs = {"id": "1", "connection": "a:/e", "protocol_version": "3"}
    posixfs = {"id": "2", "connection": "b:/e"}

    assert [status for _, status in vdsm.connect(nfs, posixfs)] == [477, 477]
    assert [status for _, status in vdsm.connect(posixfs, nfs)] == [100, 100]


# Check the properties of VDSM's connections on which ovirt-rdma relies.


# Option strings

V3 = "soft,nosharecache,timeo=100,retrans=3,nfsvers=3"
AUTO = "soft,nosharecache,timeo=100,retrans=3"


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({}, V3 + ",nolock"),
        ({"protocol_version": "3"}, V3 + ",nolock"),
        ({"protocol_version": 3}, V3 + ",nolock"),
        ({"protocol_version": "auto"}, AUTO + ",nolock"),
        ({"protocol_version": "4"}, AUTO + ",nfsvers=4"),
        ({"protocol_version": "4.0"}, AUTO + ",nfsvers=4,minorversion=0"),
        ({"protocol_version": "4.2"}, AUTO + ",nfsvers=4,minorversion=2"),
        (
            {"protocol_version": "4.2", "mnt_options": "proto=rdma,port=20049"},
            AUTO + ",nfsvers=4,minorversion=2,proto=rdma,port=20049",
        ),
        ({"mnt_options": "rdma,port=20049"}, V3 + ",rdma,port=20049,nolock"),
        ({"mnt_options": ",rdma,,port=20049,"}, V3 + ",rdma,port=20049,nolock"),
        ({"mnt_options": ""}, V3 + ",nolock"),
        ({"mnt_options": None}, V3 + ",nolock"),
        ({"mnt_options": "lock"}, V3 + ",lock"),
        ({"mnt_options": "nolock,rsize=32768"}, V3 + ",nolock,rsize=32768"),
        ({"mnt_options": "local_lock=all"}, V3 + ",local_lock=all,nolock"),
        (
            {"protocol_version": "4.1", "mnt_options": "nolock"},
            AUTO + ",nfsvers=4,minorversion=1,nolock",
        ),
        (
            {"timeout": "600", "retrans": 6},
            "soft,nosharecache,timeo=600,retrans=6,nfsvers=3,nolock",
        ),
        ({"timeout": None, "retrans": None}, V3 + ",nolock"),
        (
            {"timeout": 0, "retrans": 0},
            "soft,nosharecache,timeo=0,retrans=0,nfsvers=3,nolock",
        ),
        ({"mnt_options": "soft"}, V3 + ",soft,nolock"),
    ],
)
def test_options_reach_mount_byte_for_byte(
    vdsm: VdsmUnderTest, kernel: FakeKernel, keys: dict[str, Any], expected: str
) -> None:
    [(_, status)] = vdsm.connect(definition(**keys))

    assert status == 0
    [call] = kernel.mounts
    assert (call.spec, call.vfstype, call.options) == (EXPORT, "nfs", expected)


def test_posixfs_options_are_passed_as_they_are(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    keys = definition(vfs_type="nfs", mnt_options="rdma,,port=20049")
    [(_, status)] = vdsm.connect(keys, dom_type=POSIXFS_DOMAIN)

    assert status == 0
    assert kernel.mounts[0].options == "rdma,,port=20049"


# The constructor


def test_constructor_takes_exactly_the_known_parameters(vdsm: VdsmUnderTest) -> None:
    found = inspect.signature(vdsm.storage_server.NFSConnection).parameters.values()
    expected = [("timeout", 100), ("retrans", 3), ("version", None)]
    assert [(p.name, p.default) for p in found] == [
        ("id", inspect.Parameter.empty),
        ("export", inspect.Parameter.empty),
        *expected,
        ("extraOptions", ""),
    ]
    with pytest.raises(TypeError):
        vdsm.storage_server.NFSConnection(id="1", export=EXPORT, transport="rdma")


@pytest.mark.parametrize("version", ["x", "4.x", "4.2.1", "4.", "None"])
def test_a_bad_version_escapes_connect_and_nothing_is_mounted(
    vdsm: VdsmUnderTest, kernel: FakeKernel, version: str
) -> None:
    bad = definition(connection="b:/b", protocol_version=version)
    with pytest.raises(ValueError, match="Invalid NFS version"):
        vdsm.connect(definition(), bad)
    assert kernel.mounts == []


@pytest.mark.parametrize("export", ["nas:", ":/export", "[fd00::1/export", "[]:/e"])
def test_a_bad_export_escapes_connect(
    vdsm: VdsmUnderTest, kernel: FakeKernel, export: str
) -> None:
    with pytest.raises(Exception, match="not a"):
        vdsm.connect(definition(connection=export))


@pytest.mark.parametrize("key", ["timeout", "retrans"])
def test_a_bad_number_escapes_connect_as_1000(vdsm: VdsmUnderTest, key: str) -> None:
    with pytest.raises(vdsm.exception.InvalidParameterException) as caught:
        vdsm.connect(definition(**{key: "soon"}))
    assert caught.value.code == 1000


def test_no_definitions_is_a_key_error(vdsm: VdsmUnderTest) -> None:
    with pytest.raises(KeyError):
        vdsm.connect()


# Names and places


@pytest.mark.parametrize(
    ("export", "spec", "folder"),
    [
        ("nas:/export/data", "nas:/export/data", "nas:_export_data"),
        ("nas:/a_b/c", "nas:/a_b/c", "nas:_a__b_c"),
        ("nas://export//data/", "nas:/export/data", "nas:_export_data"),
        ("nas:/", "nas:/", "nas:_"),
        ("nas:/a/../b/./c", "nas:/b/c", "nas:_b_c"),
        ("[fd00::1]:/export/", "[fd00::1]:/export", "[fd00::1]:_export"),
        ("nas:/with space", "nas:/with space", "nas:_with space"),
        ("nas:20049:/e//f", "nas:20049:/e/f", "nas:20049:_e_f"),
        ("nas:70000:/e", "nas:70000:/e", "nas:70000:_e"),
        ("nas:/colon:/x/", "nas:/colon:/x", "nas:_colon:_x"),
    ],
)
def test_the_local_path_is_the_escaped_export(
    vdsm: VdsmUnderTest, tmp_path: Path, export: str, spec: str, folder: str
) -> None:
    connection = vdsm.create(definition(connection=export))

    # hsm._prefetchDomains makes exactly this check.
    assert connection._mountCon._getLocalPath() == str(tmp_path / "mnt" / folder)
    assert connection._mountCon.remotePath == spec
    assert connection.id == "1"


@pytest.mark.parametrize("export", [EXPORT, "[fd00::1]:/e", "nas:/with space"])
def test_a_mount_is_found_again(
    vdsm: VdsmUnderTest, kernel: FakeKernel, export: str
) -> None:
    connection = vdsm.create(definition(connection=export))
    assert not connection.isConnected()
    connection.connect()
    assert connection.isConnected()
    connection.connect()
    assert len(kernel.mounts) == 1
    connection.disconnect()
    assert not connection.isConnected()


def test_doubled_slashes_of_the_kernel_do_not_hide_a_mount(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    connection = vdsm.create(definition())
    local = connection._mountCon._getLocalPath()
    kernel.mount_before("nas.example://export//data", local, "nfsvers=4.2")

    assert connection.isConnected()
