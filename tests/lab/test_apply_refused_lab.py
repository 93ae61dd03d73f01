# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``apply`` in cases that it must refuse, or that the kernel refuses.

The netdev is in use, the plan is outdated, /sys is read-only, or the group's MTU is
smaller. Also test the first ConnectX, whose TSO must be off.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from prepared_host import JOURNAL, REQUESTED, PreparedHost, outcomes

from lab.command import Result
from lab.ib_pair import IbPair, ib_pair
from lab.infiniband import InfiniBand, PciFunction
from ovirt_rdma.host.facts.infiniband import CONNECTED_MTU, HEADER

# Boots and waits too long for make check.
pytestmark = pytest.mark.faults

# ConnectX-2: like the first ConnectX, except for that one's revision a0.
FABRIC = InfiniBand(hcas=4, pci=PciFunction(revision=0xB0, driver="mlx4_core"))
CONNECTX_A0 = InfiniBand(hcas=2, pci=PciFunction(revision=0xA0, driver="mlx4_core"))
NETDEVS = ("ib0", "ib2", "ib3")
UD_2K, UD_4K = 2048 - HEADER, 4096 - HEADER
UNTOUCHED = ("datagram", UD_4K, "on")
CONNECTED = ("connected", CONNECTED_MTU, REQUESTED)
MOUNTS = {
    "rdma": "vers=4.2,proto=rdma,port=20049",
    "tcp": "vers=3,proto=tcp,nolock",
}
# Writes the file $1 repeatedly; one line in $2 per write: 0 if the server has it.
WRITE = """
while [ -e /run/write ]; do
    dd if=/dev/zero of=$1 bs=64k count=1 conv=fsync 2>/dev/null
    echo $? >> $2
    sleep 0.3
done
"""


@pytest.fixture(scope="module")
def pair() -> Iterator[IbPair]:
    with ib_pair(FABRIC) as booted:
        yield booted


@pytest.fixture(scope="module")
def host(pair: IbPair) -> PreparedHost:
    return PreparedHost(pair.hypervisor, NETDEVS)


def rules(*words: str, more: str = "") -> str:
    lines = "\n".join(f"    - {{{one}}}" for one in words)
    return f"  interfaces:\n{lines}\n{more}"


def journal(host: PreparedHost) -> str:
    return host.guest.run(f"cat {JOURNAL}").stdout


def refused(host: PreparedHost, *words: str) -> str:
    """Check that a command is refused as unsafe, without a change or a record."""
    shapes, noted = host.shapes(), journal(host)
    result = host.command(*words)
    assert (result.exit_code, result.stdout) == (4, ""), result
    assert (host.shapes(), journal(host)) == (shapes, noted)
    return result.stderr


def rolled_back(host: PreparedHost, *words: str) -> Result:
    """Check that a command fails, and that the state is as before."""
    shapes, kept = host.shapes(), host.kept()
    result = host.command(*words)
    assert result.exit_code == 6, result
    assert "all is as before" in result.stdout
    assert (host.shapes(), host.kept()) == (shapes, kept)
    return result


def writes_go_on(host: PreparedHost) -> None:
    """Check that all writes so far have reached the server, and that more follow."""
    more = """
for log in /run/writes-*; do
    lines=$(wc -l < $log)
    until (( $(wc -l < $log) > lines + 1 )); do sleep 0.1; done
done
sort -u /run/writes-*
"""
    assert host.said(more) == "0"


def test_a_mount_is_not_cut_off_unasked(pair: IbPair, host: PreparedHost) -> None:
    for name, options in MOUNTS.items():
        words = f"-t nfs -o {options},retry=0 {pair.export} /mnt/{name}"
        host.said(f"mkdir /mnt/{name}; mount {words}")
    host.said("touch /run/write")
    for name in MOUNTS:
        words = [f"/mnt/{name}/{name}", f"/run/writes-{name}"]
        host.guest.start(["bash", "-c", WRITE, "write", *words])
    host.load_policy(
        rules(
            "match: {device: mlx4_0}, transport_mode: connected, mtu: auto",
            "match: {device: mlx4_2}, tso: off",
        )
    )
    said = refused(host, "apply")
    assert "are in use" in said
    for name in MOUNTS:
        assert f"nfs: {pair.export} at /mnt/{name}" in said
    assert "--allow-link-down" in said
    writes_go_on(host)
    live = host.command("apply", "--live-only")
    assert live.exit_code == 0, live
    assert outcomes(live) == {"IPOIB-MODE-01/ib0": "left", "IPOIB-TSO-02/ib2": "done"}
    assert host.shapes()["ib0"] == UNTOUCHED
    applied = host.command("apply", "--allow-link-down")
    assert applied.exit_code == 0, applied
    assert host.shapes()["ib0"] == CONNECTED
    writes_go_on(host)
    assert "are in use" in refused(host, "revert")
    host.done("revert", "--allow-link-down")
    assert host.shapes()["ib0"] == UNTOUCHED
    writes_go_on(host)
    host.said("rm /run/write")
    for name in MOUNTS:
        host.said(f"until umount /mnt/{name} 2>/dev/null; do sleep 0.2; done")


def test_a_saved_plan_that_does_not_hold(host: PreparedHost) -> None:
    host.load_policy(
        rules(
            "match: {device: mlx4_2}, mtu: 2044",
            "match: {device: mlx4_3}, transport_mode: connected, mtu: auto",
        )
    )
    host.done("plan", "--out", "/tmp/plan.json")
    host.said("ip link set ib2 mtu 1500")
    said = refused(host, "apply", "/tmp/plan.json")
    assert "would make other changes than the plan says" in said
    host.said("ip link set ib2 mtu 4092")
    FABRIC.unbind(host.guest, 3)
    # The server has an ib1, and that would be the next name on this host.
    host.said("ip link add ib1 type dummy")
    said = refused(host, "apply", "/tmp/plan.json")
    assert "/ib3 is no longer planned" in said
    FABRIC.bind(host.guest, 3)
    host.said("until ip link set ib3 up; do sleep 0.1; done; ip link delete ib1")


def test_sys_that_cannot_be_written(host: PreparedHost) -> None:
    host.load_policy(
        rules("match: {device: mlx4_2}, mtu: 2044", more="  modules: [nvme_rdma]")
    )
    host.said("mount -o remount,ro /sys")
    try:
        result = rolled_back(host, "apply")
    finally:
        host.said("mount -o remount,rw /sys")
    assert outcomes(result)["MODULE-02/boot"] == "done"
    assert "/sys is read-only" in result.stdout


def test_a_group_that_allows_less(host: PreparedHost) -> None:
    FABRIC.set_group_mtu(host.guest, 2048)
    smaller = ("datagram", UD_2K, "on")
    host.becomes(dict.fromkeys(NETDEVS, smaller))
    host.load_policy(rules("match: {device: mlx4_2}, mtu: 4092"))
    result = rolled_back(host, "apply")
    assert "mtu of ib2 was set to 4092, and is 2044" in result.stdout
    host.load_policy(
        rules(
            "match: {device: mlx4_2}, mtu: auto",
            "match: {device: mlx4_3}, mtu: auto",
        )
    )
    host.said("ip link set ib3 mtu 1500")
    applied = host.command("apply")
    assert applied.exit_code == 0, applied
    assert outcomes(applied) == {"IPOIB-MTU-01/ib3": "done"}
    host.becomes({"ib2": smaller, "ib3": smaller})
    assert host.done("apply").startswith("Nothing to do")
    host.done("revert")
    host.becomes({"ib2": smaller, "ib3": ("datagram", 1500, "on")})


def test_tso_of_the_first_connectx(pair: IbPair, host: PreparedHost) -> None:
    pair.reload(CONNECTX_A0)
    host.load_policy(
        rules("match: {device: mlx4_0}, transport_mode: datagram, tso: auto")
    )
    applied = host.command("apply")
    assert applied.exit_code == 0, applied
    assert outcomes(applied) == {"IPOIB-TSO-01/ib0": "done"}
    assert host.shapes()["ib0"] == ("datagram", UD_4K, "off")
    host.done("revert")
    assert host.shapes()["ib0"] == UNTOUCHED
