# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the properties of VDSM's connections on which ovirt-rdma relies.

Run against the double and against a real source; a difference between the two
is a bug of the double, or a change in VDSM.
"""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Any

import pytest
from support.storage.fake_kernel import FakeKernel
from support.storage.vdsm_under_test import (
    EXPORT,
    POSIXFS_DOMAIN,
    VdsmUnderTest,
    definition,
)

pytestmark = pytest.mark.hypervisor

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


@pytest.mark.parametrize(
    ("asked", "kernel_options", "expected"),
    [
        ("auto", None, -1),
        ("auto", "nfsvers=4.2", 4),
        ("auto", "nfsvers=3", 3),
        ("4.1", None, "4.1"),
        ("3", "nfsvers=4.2", "3"),
    ],
)
def test_version_is_what_was_asked_for_or_what_is_mounted(
    vdsm: VdsmUnderTest,
    kernel: FakeKernel,
    asked: str,
    kernel_options: str,
    expected: object,
) -> None:
    connection = vdsm.create(definition(protocol_version=asked))
    if kernel_options:
        local = connection._mountCon._getLocalPath()
        kernel.mount_before(EXPORT, local, kernel_options)
    assert connection.version == expected


# Equality


def test_connections_are_equal_by_id_export_and_options(vdsm: VdsmUnderTest) -> None:
    one = vdsm.create(definition())
    assert one == vdsm.create(definition())
    assert hash(one) == hash(vdsm.create(definition()))
    assert one != vdsm.create(definition(id="2"))
    assert one != vdsm.create(definition(mnt_options="rdma"))
    assert one != vdsm.create(definition(connection="other:/e"))
    assert one != EXPORT
    assert one._mountCon != one


def test_a_subclass_is_equal_but_hashes_differently(vdsm: VdsmUnderTest) -> None:
    stock = vdsm.storage_server.NFSConnection
    sub = type("Sub", (stock,), {})
    assert stock("1", EXPORT) == sub("1", EXPORT)
    assert hash(stock("1", EXPORT)) != hash(sub("1", EXPORT))


def test_mounts_are_equal_by_spec_and_place_only(vdsm: VdsmUnderTest) -> None:
    first = vdsm.create(definition())._mountCon.getMountObj()
    second = vdsm.create(definition(mnt_options="rdma"))._mountCon.getMountObj()
    other = vdsm.create(definition(connection="o:/e"))._mountCon.getMountObj()
    assert first == second
    assert hash(first) == hash(second)
    assert first != other
