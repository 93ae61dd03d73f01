# SPDX-License-Identifier: GPL-2.0-or-later
"""Test which NFS 4 mounts share a connection, as measured on kernel 6.1."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ovirt_rdma.host.export import Export
from ovirt_rdma.host.facts.model import NfsMount
from ovirt_rdma.storage.mounts import (
    conflict_clause,
    conflict_fix,
    conflicting_mounts,
    others_step,
    sharers,
    uses_earlier_connection,
)
from ovirt_rdma.storage.readiness import NOT_READY, READY, UNKNOWN

NAS = "10.0.0.1"


def mount(
    source=f"{NAS}:/iso", protocol="tcp", version="4.2", address=NAS, port=None, at=None
):
    server, _, path = source.rpartition(":")
    return NfsMount(
        source=source,
        mountpoint=at or f"/rhev/data-center/mnt/{server}:{path.replace('/', '_')}",
        options="rw",
        version=version,
        protocol=protocol,
        port=port,
        address=address,
        protocols=(protocol.rstrip("6"),),
    )


VM = mount(f"{NAS}:/vm", port=20049)


@pytest.mark.parametrize(
    "other, shares",
    [
        (mount(), True),
        # Whatever the names: the kernel shows the address of the connection.
        (mount("[fd00::1]:/iso"), True),
        (mount("nas:/iso"), True),
        (mount(version="4.1"), False),
        (mount(version="4.0"), False),
        (mount(version="3"), False),
        (mount(protocol="rdma"), False),
        (mount(address="10.0.0.9"), False),
        (mount(address=None), False),
        (mount(version=None), False),
        (VM, False),  # the mount itself
    ],
)
def test_who_shares_the_connection_of_a_mount(other, shares):
    assert sharers(VM, [VM, other]) == ((other,) if shares else ())


@pytest.mark.parametrize(
    "known", [{"version": "3"}, {"version": None}, {"address": None}], ids=str
)
def test_mounts_that_are_no_nfs_4_or_have_no_address_share_with_none(known):
    both = [replace(VM, **known), mount(**known)]
    assert sharers(both[0], both) == ()


@pytest.mark.parametrize(
    "found, rdma_port, took",
    [
        # The kernel shows the requested port, but not 2049.
        (mount(port=20049), 20049, True),
        (mount(), 20049, False),
        (mount(port=20049), 20050, False),
        (mount(protocol="rdma"), 20049, True),
        (mount(protocol="rdma", port=20049), 20049, False),
        (mount(port=20049, version="3"), 20049, False),
        (mount(port=2049), 2049, None),
        (mount(protocol="udp", port=20049), 20049, False),
    ],
)
def test_the_port_tells_whether_a_connection_was_taken_over(found, rdma_port, took):
    if found.protocol == "udp":
        found = replace(found, protocols=("rdma",))
    assert uses_earlier_connection(found, rdma_port) is took


@pytest.mark.parametrize(
    "standing, version, verdict",
    [
        ([mount()], "4.2", NOT_READY),
        ([mount(version="4.0")], "4.0", NOT_READY),
        ([mount(protocol="tcp6")], "4.2", NOT_READY),
        ([mount()], "3", READY),
        ([mount()], "4.1", READY),
        ([mount(version="3")], "4.2", READY),
        ([mount(version="3")], "auto", READY),
        ([mount(protocol="rdma", port=20049)], "4.2", READY),
        ([mount("10.0.0.9:/iso", address="10.0.0.9")], "4.2", READY),
        ([mount("odd", address="10.0.0.9")], "4.2", READY),
        ([], "auto", READY),
        # The version is only known after mounting.
        ([mount()], "auto", UNKNOWN),
        ([mount()], "4", UNKNOWN),
        ([mount(version="4.0")], None, UNKNOWN),
        # The same name, with another of its addresses.
        ([mount("nas:/iso", address="10.0.0.9")], "4.2", UNKNOWN),
        ([mount("NAS:/iso", address="10.0.0.9")], "4.2", UNKNOWN),
        # Its own mount does not exist when it is remounted.
        ([mount("nas:/vm")], "4.2", READY),
        # There is an RDMA connection too, and the kernel uses that.
        ([mount(), mount("nas:/b", protocol="rdma", port=20049)], "4.2", READY),
        ([mount(), mount("nas:/b", "rdma", "4.1", port=20049)], "4.2", NOT_READY),
    ],
)
def test_what_keeps_a_new_mount_off_rdma(standing, version, verdict):
    step = others_step(standing, Export("nas", "/vm"), {NAS}, version)
    assert step.verdict == verdict
    assert bool(step.fix) is (verdict != READY)


def test_what_is_certain_is_told_alone():
    standing = [mount(), mount("nas:/b", address="10.0.0.9")]
    found = conflicting_mounts(standing, Export("nas", "/vm"), {NAS}, "4.2", "rdma")
    assert found is not None
    assert (found.certain, found.mounts) == (True, (standing[0],))


def test_a_tcp_mount_may_be_kept_off_tcp():
    over_rdma = mount(protocol="rdma", port=20049)
    found = conflicting_mounts(
        [over_rdma, VM], Export("nas", "/x"), {NAS}, "4.1", "tcp"
    )
    assert found is None
    found = conflicting_mounts([over_rdma], Export("nas", "/x"), {NAS}, "4.2", "tcp")
    assert found is not None
    assert conflict_clause(found.mounts).startswith(
        "10.0.0.1:/iso is mounted over RDMA, and"
    )


@pytest.mark.parametrize(
    "paths, words",
    [
        ("a", "nas:/a is mounted over TCP, and the kernel uses one connection for all "
              "NFS 4.2 mounts of a server"),
        ("ab", "nas:/a and nas:/b are mounted over TCP, and"),
        ("abc", "nas:/a, nas:/b and nas:/c are mounted over TCP"),
        ("abcde", "nas:/a, nas:/b and 3 more are mounted over TCP"),
    ],
)  # fmt: skip
def test_in_words(paths, words):
    assert conflict_clause([mount(f"nas:/{path}") for path in paths]).startswith(words)


def test_the_remedy_depends_on_who_mounted():
    by_hand = mount(at="/mnt/my iso")
    assert conflict_fix([by_hand]) == "umount '/mnt/my iso'"
    assert conflict_fix([VM]).startswith("choose one transport for all NFS 4")
    assert conflict_fix([VM, by_hand]).startswith("umount '/mnt/my iso'; choose one")
