# SPDX-License-Identifier: GPL-2.0-or-later
"""Check that the fake kernel behaves as the lab's kernel and mount.nfs do."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.storage.fake_kernel import REFUSED, WRONG_OPTION, FakeKernel
from support.storage.vdsm_under_test import VdsmUnderTest, definition

from ovirt_rdma.host.collect.collector import HostReader

pytestmark = pytest.mark.selftest

FAMILY = b"Address family for hostname not supported"


@pytest.fixture
def target(tmp_path: Path) -> str:
    (tmp_path / "target").mkdir()
    return str(tmp_path / "target")


@pytest.mark.parametrize(
    ("options", "protocol"),
    [
        ("", "tcp"),
        ("rdma,port=20049", "rdma"),
        ("rdma", "rdma"),
        ("rdma,proto=tcp", "tcp"),
        ("proto=tcp,rdma", "rdma"),
        ("proto=rdma,tcp", "tcp"),
        ("port=2049,rdma,port=20049", "rdma"),
        ("mountproto=tcp,proto=rdma", "rdma"),
    ],
)
def test_the_last_transport_wins(
    kernel: FakeKernel, target: str, options: str, protocol: str
) -> None:
    kernel.mount("10.0.0.1:/e", target, mntOpts=options, vfstype="nfs")
    assert kernel.mounted() == [("10.0.0.1:/e", protocol)]


@pytest.mark.parametrize(
    ("spec", "options", "expected"),
    [
        ("10.0.0.1:/e", "proto=tcp,port=20049", REFUSED),
        ("10.0.0.1:/e", "rdma,port=2049", REFUSED),
        ("10.0.0.1:/e", "rdma,port=20050", REFUSED),
        ("10.0.0.1:/e", "proto=rdma6", FAMILY),
        ("[fd00::1]:/e", "rdma", FAMILY),
        ("[fd00::1]:/e", "proto=rdma,port=20049", FAMILY),
        ("[fd00::1]:/e", "tcp", FAMILY),
        ("six:/e", "proto=tcp", FAMILY),
        ("10.0.0.1:/e", "proto=verbs", WRONG_OPTION),
        ("[fd00::1]:/e", "rdma6", WRONG_OPTION),
    ],
)
def test_what_mount_nfs_refuses(
    vdsm: VdsmUnderTest,
    kernel: FakeKernel,
    target: str,
    spec: str,
    options: str,
    expected: bytes,
) -> None:
    kernel.addresses["six"] = "fd00::6"
    with pytest.raises(vdsm.mount.MountError) as caught:
        kernel.mount(spec, target, mntOpts=options, vfstype="nfs")
    assert caught.value.rc == 32
    assert expected in caught.value.err
    assert kernel.mounted() == []


def test_a_moved_listener_answers_on_its_port_only(
    vdsm: VdsmUnderTest, kernel: FakeKernel, target: str
) -> None:
    kernel.listen("10.0.0.1", "rdma", 20050)
    with pytest.raises(vdsm.mount.MountError):
        kernel.mount("10.0.0.1:/e", target, mntOpts="rdma,port=20049")
    kernel.mount("10.0.0.1:/e", target, mntOpts="rdma,port=20050")


def test_failures_are_per_protocol_and_can_end(
    vdsm: VdsmUnderTest, kernel: FakeKernel
) -> None:
    kernel.fail("nas.example", "rdma", times=1)
    rdma = definition(mnt_options="rdma,port=20049")
    assert [status for _, status in vdsm.connect(rdma)] == [100]
    assert [status for _, status in vdsm.connect(rdma)] == [0]


@pytest.mark.parametrize(
    ("spec", "options", "expected"),
    [
        ("10.0.0.1:/e", "nfsvers=3,nolock", ("3", "tcp", None, ["tcp"])),
        (
            "10.0.0.1:/e",
            "soft,nfsvers=4,minorversion=2,proto=rdma,port=20049",
            ("4.2", "rdma", 20049, ["rdma"]),
        ),
        (
            "[fd00::1]:/a b",
            "nfsvers=4.1,proto=rdma6,port=20049",
            ("4.1", "rdma6", 20049, ["rdma"]),
        ),
        ("[fd00::1]:/e", "nfsvers=3", ("3", "tcp6", None, ["tcp"])),
    ],
)
def test_our_reader_sees_the_mounts(
    kernel: FakeKernel, target: str, spec: str, options: str, expected: object
) -> None:
    kernel.mount(spec, target, mntOpts=options, vfstype="nfs")
    [found] = HostReader(kernel.root).nfs_mounts()

    assert (found.source, found.mountpoint) == (spec, target)
    transports = list(found.protocols)
    shown = (found.version, found.protocol, found.port, transports)
    assert shown == expected
    assert found.address == ("fd00::1" if spec.startswith("[") else "10.0.0.1")
