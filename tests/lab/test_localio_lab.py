# SPDX-License-Identifier: GPL-2.0-or-later
"""LOCALIO on a real kernel: a host that is its own server, and what is said of it.

With LOCALIO the kernel moves the data without a request; as soon as it is disabled,
with requests, also for the same mount.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from measured_host import MeasuredHost

from lab.localio_kernel import guests_with_localio
from lab.topology import Topology, one_guest
from ovirt_rdma.host.collect.statistics import parse_mount_statistics
from ovirt_rdma.host.facts.statistics import MountStatistics

pytestmark = pytest.mark.faults

EXPORT_PATH = "/srv/local"
MIB = 24
SIZE = MIB << 20
RDMA = "rdma,port=20049"
# Twice the size of the direct reads and writes: with the 1 MiB that a server takes by
# default since Linux 6.12.100 or so, the totals no longer show what went past them.
SIZES = "rsize=131072,wsize=131072"
_BIN = Path(sys.executable).parent
_ENABLED = "/sys/module/nfs/parameters/localio_enabled"


class Host:
    """A guest whose kernel has LOCALIO, and that is its own server."""

    def __init__(self, lab: Topology) -> None:
        self.lab = lab
        lab.nfs.add_export(EXPORT_PATH)
        self.said(
            f"head -c {SIZE} /dev/urandom > /nfsroot{EXPORT_PATH}/file; mkdir -p /mnt"
        )

    def said(self, line: str) -> str:
        """Run a shell line and return its output."""
        return self.lab.hypervisor.run(line, check=True, timeout=300).stdout

    def enable(self, localio: bool) -> None:
        """Let the kernel use LOCALIO, or not."""
        self.said(f"echo {'Y' if localio else 'N'} > {_ENABLED}")

    def mount(self, version: str, how: str) -> None:
        """Mount the export again."""
        self.said(
            "! mountpoint -q /mnt || umount /mnt;"
            f"mount -t nfs -o vers={version},nosharecache,{SIZES},{how}"
            f" {self.lab.address}:{EXPORT_PATH} /mnt"
        )

    def move(self) -> None:
        """Read the file twice and write it once, with and without the page cache."""
        self.said(
            "dd if=/mnt/file of=/dev/null bs=1M;"
            "dd if=/mnt/file of=/dev/null bs=64k iflag=direct;"
            f"head -c {SIZE // 2} /dev/zero | dd of=/mnt/new bs=1M conv=fsync;"
            f"dd if=/dev/zero of=/mnt/new bs=64k count={MIB * 8} oflag=direct"
            " conv=notrunc"
        )

    def counted(self) -> MountStatistics:
        """Return what the kernel has counted for the mount."""
        text = self.said("cat /proc/self/mountstats")
        mounts, _ = parse_mount_statistics(text.encode())
        (mount,) = (one for one in mounts if one.mountpoint == "/mnt")
        return mount

    def found(self) -> Any:
        """Return what ``check`` finds with NFS-LOCALIO-01."""
        check = f"{_BIN}/ovirt-rdma-host check -o json"
        found = json.loads(self.said(f"{check} || [ $? = 3 ]"))["findings"]
        (one,) = (one for one in found if one["rule"] == "NFS-LOCALIO-01")
        return one


def requests(mount: MountStatistics) -> int:
    """Return the number of requests that carry data, or complete it."""
    names = ("READ", "READ_PLUS", "WRITE", "COMMIT")
    return sum(one.operations for one in mount.operations if one.name in names)


@pytest.fixture(scope="module")
def host() -> Iterator[Host]:
    with guests_with_localio(), one_guest() as lab:
        yield Host(lab)


@pytest.mark.parametrize("version, how", [("4.2", RDMA), ("3", RDMA), ("4.2", "tcp")])
def test_what_is_said_of_data_that_goes_past_the_connection(
    host: Host, version: str, how: str
) -> None:
    host.enable(True)
    host.mount(version, how)
    host.move()
    local = host.counted()
    assert requests(local) == 0
    assert (local.server_read, local.server_written) == (2 * SIZE, SIZE)
    if how == RDMA:
        found = host.found()
        assert (found["verdict"], "(LOCALIO)" in found["sentence"]) == ("WARN", True)

    # The same mount: it takes effect at once.
    host.enable(False)
    host.move()
    assert requests(host.counted()) > 0
    if how == RDMA:
        found = host.found()
        assert (found["verdict"], "disabled" in found["sentence"]) == ("PASS", True)

    host.mount(version, how)
    host.move()
    if how == RDMA:
        found = host.found()
        assert found["sentence"] == "its data uses its connection"


def test_bench_compares_nothing_that_does_not_leave_the_host(host: Host) -> None:
    host.enable(True)
    host.said("! mountpoint -q /mnt || umount /mnt")
    found = MeasuredHost(host.lab).measured()["verdict"]
    assert found["better"] == "unknown"
    assert found["limits"] == []
    assert "did not leave this host" in found["sentence"]
