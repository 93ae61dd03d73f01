# SPDX-License-Identifier: GPL-2.0-or-later
"""Test the fabric and the NFS server with plain mount.nfs, without our code."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

import pytest

from lab import modules
from lab.command import Result
from lab.guest import Guest
from lab.topology import HYPERVISOR_ADDRESSES, NETDEV, Topology

pytestmark = pytest.mark.selftest

RDMA = "proto=rdma,port=20049"
RDMA6 = "proto=rdma6,port=20049"
TCP = "proto=tcp"


@pytest.fixture(params=["one_guest", "two_guests"])
def lab(request: pytest.FixtureRequest) -> Topology:
    found: Topology = request.getfixturevalue(request.param)
    return found


class Mount(Protocol):
    """Mount on /mnt/t of a guest; the output is its line of /proc/mounts."""

    def __call__(self, guest: Guest, export: str, options: str) -> Result: ...


@pytest.fixture
def mount() -> Iterator[Mount]:
    """Mount, and unmount at the end of the test."""
    guests = []

    def mount_it(guest: Guest, export: str, options: str) -> Result:
        guests.append(guest)
        line = f"mount -t nfs -o soft,retry=0,{options} {export} /mnt/t"
        return guest.run(f"mkdir -p /mnt/t; {line} && grep ' /mnt/t ' /proc/mounts")

    yield mount_it
    for guest in guests:
        if guest.running:
            guest.run("umount -a -t nfs,nfs4 -l")


@pytest.mark.parametrize("version", ["3", "4.2"])
@pytest.mark.parametrize("transport", [RDMA, TCP])
def test_an_export_mounts_and_holds_data(
    lab: Topology, version: str, transport: str, mount: Mount
) -> None:
    shown = mount(lab.hypervisor, lab.export, f"{transport},nfsvers={version}").stdout
    assert f"vers={version}," in shown
    assert f"{transport.partition(',')[0]}," in shown
    assert "rsize=1048576,wsize=1048576," in shown
    lab.hypervisor.run(
        "head -c 3000000 /dev/urandom > /tmp/data && cp /tmp/data /mnt/t/data"
        " && umount /mnt/t",
        check=True,
    )
    lab.server.run("test -s /nfsroot/srv/data/data", check=True)
    mount(lab.hypervisor, lab.export, f"{TCP},nfsvers=4.2")
    lab.hypervisor.run("cmp /tmp/data /mnt/t/data", check=True)


@pytest.mark.parametrize("version", ["3", "4.1"])
def test_an_ipv6_server_mounts_over_rdma(
    two_guests: Topology, version: str, mount: Mount
) -> None:
    options = f"{RDMA6},nfsvers={version}"
    shown = mount(two_guests.hypervisor, two_guests.export6, options).stdout
    assert "proto=rdma6," in shown


def test_the_mount_may_be_asked_for_without_a_port(
    one_guest: Topology, mount: Mount
) -> None:
    assert "port=20049" in mount(one_guest.hypervisor, one_guest.export, "rdma").stdout


def test_locks_work_over_nfs_3(two_guests: Topology, mount: Mount) -> None:
    mount(two_guests.hypervisor, two_guests.export, f"{RDMA},nfsvers=3")
    two_guests.hypervisor.run("flock -w 30 /mnt/t/lock true", check=True)


def test_a_server_without_listener_refuses(two_guests: Topology, mount: Mount) -> None:
    two_guests.nfs.restart(rdma_port=None)
    try:
        refused = mount(two_guests.hypervisor, two_guests.export, f"{RDMA},nfsvers=4.2")
        assert (refused.exit_code, "Connection refused" in refused.stderr) == (32, True)
        shown = mount(two_guests.hypervisor, two_guests.export, f"{TCP},nfsvers=4.2")
        assert "proto=tcp" in shown.stdout
        two_guests.hypervisor.run("umount /mnt/t", check=True)
    finally:
        two_guests.nfs.restart()
    shown = mount(two_guests.hypervisor, two_guests.export, f"{RDMA},nfsvers=4.2")
    assert "proto=rdma" in shown.stdout


def test_another_export_and_one_for_others_only(
    two_guests: Topology, mount: Mount
) -> None:
    two_guests.nfs.add_export("/srv/more")
    two_guests.nfs.add_export("/srv/others", clients="192.0.2.1")
    host = two_guests.hypervisor
    assert mount(host, f"{two_guests.address}:/srv/more", RDMA).exit_code == 0
    host.run("umount /mnt/t", check=True)
    refused = mount(host, f"{two_guests.address}:/srv/others", f"{RDMA},nfsvers=3")
    assert "access denied" in refused.stderr


def test_a_host_without_rdma_device_cannot_mount_over_rdma(
    two_guests: Topology, mount: Mount
) -> None:
    host = two_guests.hypervisor
    two_guests.fabric.take_down(host, NETDEV)
    try:
        assert "Protocol error" in mount(host, two_guests.export, RDMA).stderr
        assert mount(host, two_guests.export, TCP).exit_code == 0
        host.run("umount /mnt/t", check=True)
    finally:
        two_guests.fabric.bring_up(host, NETDEV, HYPERVISOR_ADDRESSES)
    assert mount(host, two_guests.export, RDMA).exit_code == 0


def test_a_host_without_the_module_cannot_mount_over_rdma(
    two_guests: Topology, mount: Mount
) -> None:
    host = two_guests.hypervisor
    with modules.hidden(host, "rpcrdma"):
        failed = mount(host, two_guests.export, RDMA)
        assert "incorrect mount option" in failed.stderr
    assert mount(host, two_guests.export, RDMA).exit_code == 0


def test_user_space_verbs_reach_the_other_guest(two_guests: Topology) -> None:
    waiting = two_guests.server.start("timeout 60 rping -s -C 3 -a 10.99.0.1")
    line = "until rping -c -C 3 -a 10.99.0.1; do sleep 0.5; done"
    two_guests.hypervisor.run(line, timeout=60, check=True)
    assert waiting.wait(60).exit_code == 0


def test_a_server_may_be_cut_off_and_come_back(
    two_guests: Topology, mount: Mount
) -> None:
    lab = two_guests
    assert mount(lab.hypervisor, lab.export, RDMA).exit_code == 0
    lab.hypervisor.run("umount /mnt/t", check=True)
    lab.server.kill()
    gone = lab.hypervisor.run("timeout 5 bash -c ': > /dev/tcp/10.99.0.1/2049'")
    assert gone.exit_code != 0
    lab.start_server()
    assert mount(lab.hypervisor, lab.export, RDMA).exit_code == 0
