# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.fakes.fake_hosts import soft_roce, without_rdma

from ovirt_rdma.host.collect.storage import marks_to_json
from ovirt_rdma.host.facts.model import DegradedMark
from ovirt_rdma.host.paths import DEGRADED_JSON
from ovirt_rdma.storage.readiness import READY


def test_without_rdma(host, network):
    network.site = without_rdma(host.root / "other")
    result = host("nfs", "check", "10.0.0.1:/e", "--nfs-version", "4.1")
    assert (result.code, result.err) == (3, "")
    assert (
        result.out
        == """\
10.0.0.1:/e: no rule names it, so VDSM mounts it as stock (no policy is loaded)
RESULT  STEP     DETAIL
PASS    address  10.0.0.1 is an IP address
PASS    module   rpcrdma loads with the first mount
PASS    route    10.0.0.1 by eth0 from 10.0.0.2
FAIL    port     this host has no RDMA device
PASS    others   no NFS 4 mount of 10.0.0.1 forces this export to TCP
10.0.0.1:/e is not ready for RDMA: this host has no RDMA device.
fix: ovirt-rdma-host check says what its adapters lack
"""
    )


RULE = "version: 1\nnfs: {rules: [{server: 10.0.0.1, transport: prefer-rdma}]}\n"
REMOUNT = (
    "put the host into maintenance in the engine and activate it again (its VMs "
    "migrate), or deactivate and activate only this storage domain (no running VM may "
    "use it); the hosted engine's own domain needs a reboot of the host in maintenance"
)


MARK = DegradedMark(
    *("/mnt/data", "10.0.0.1:/data", "rule 1", "prefer-rdma", "tcp"),
    reason="this host had no RDMA device",
    since="2023-11-14T23:13:18Z",
    mounted_s=3598.0,
)


@pytest.mark.parametrize(
    ("listener", "verdict", "before"),
    [
        (READY, "10.0.0.1:/data is ready for RDMA.\n", ""),
        (
            "not ready",
            "10.0.0.1:/data is not ready for RDMA: 10.0.0.1 refuses RDMA connections."
            "\n",
            "once it is ready, ",
        ),
    ],
)
@pytest.mark.parametrize(
    ("marks", "why"),
    [
        ([], "for a reason that is not recorded"),
        ([MARK], "because this host had no RDMA device"),
    ],
)
def test_mounted_degraded(host, network, listener, verdict, before, marks, why):
    network.site.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="tcp")
    network.site.nfs_mount("10.0.0.1:/other", "/mnt/other", protocol="tcp", version="3")
    network.site.write(DEGRADED_JSON, marks_to_json(marks))
    policy = host.root / "p.yaml"
    policy.write_text(RULE)
    network.rdma["10.0.0.1", 20049] = listener
    words = ("nfs", "check", "10.0.0.1:/data", "--policy", str(policy))
    result = host(*words)
    assert result.code == (3 if before else 0)
    first, *_ = result.out.splitlines()
    assert first.endswith("rule 1 says prefer-rdma: server is 10.0.0.1, any path")
    assert result.out.endswith(
        f"{verdict}10.0.0.1:/data runs over tcp, but rule 1 says prefer-rdma; since "
        f"2023-11-14 23:13:18 UTC, {why}.\nfix: {before}{REMOUNT}\n"
    )
    [mount] = host(*words, "-o", "json").document["degraded"]
    assert mount["since"] == "2023-11-14T23:13:18Z"
    assert mount["reason"] == (marks[0].reason if marks else None)
    assert mount["fix"] == f"{before}{REMOUNT}"
    policy.write_text(RULE.replace("prefer-rdma", "tcp"))
    assert host(*words).out.endswith(verdict)
    assert host(*words, "-o", "json").document["degraded"] == []


ONE_CONNECTION = (
    "10.0.0.1:/iso is mounted over {}, and the kernel uses one connection for all NFS "
    "4.2 mounts of a server"
)
AGREE = (
    "choose one transport for all NFS 4 exports of the server in the policy, or "
    "another NFS version for some of them (3, or 4.1 beside 4.2)"
)
ANEW = "then put the host into maintenance and activate it again"


@pytest.fixture
def with_iso(host, network):
    """Mount ``/iso`` of a ready server over a transport, and check ``/vm``, whose rule
    requires a transport.
    """
    network.rdma[("10.0.0.1", 20049)] = READY
    network.mountds.add("10.0.0.1")

    def checked(stands_over: str, rule: str, *words: str):
        root = soft_roce(host.root)
        place = "/rhev/data-center/mnt/10.0.0.1:_iso"
        root.nfs_mount("10.0.0.1:/iso", place, protocol=stands_over)
        policy = host.root / "p.yaml"
        policy.write_text(
            "version: 1\nnfs:\n  rules:\n"
            f"    - {{server: 10.0.0.1, path: /vm, transport: {rule}}}\n"
        )
        return host("nfs", "check", "10.0.0.1:/vm", "--policy", str(policy), *words)

    return checked


def test_another_mount_of_the_server_keeps_it_off_rdma(with_iso):
    result = with_iso("tcp", "require-rdma", "--nfs-version", "4.2")
    assert result.code == 3
    told = f"{ONE_CONNECTION.format('TCP')}: this export would be mounted over TCP too"
    assert f"FAIL    others    {told}\n" in result.out
    assert result.out.endswith(
        f"10.0.0.1:/vm is not ready for RDMA: {told}.\nfix: {AGREE}; {ANEW}\n"
    )


def test_another_mount_of_the_server_may_keep_it_off_rdma(with_iso):
    result = with_iso("tcp", "require-rdma")
    assert result.code == 3
    told = f"{ONE_CONNECTION.format('TCP')}: this export may be mounted over TCP too"
    assert f"UNKNOWN  others    {told}\n" in result.out
    assert f"It is unknown if 10.0.0.1:/vm is ready: {told}.\n" in result.out


@pytest.mark.parametrize(
    "stands_over, version, seen",
    [
        ("tcp", "3", "NFS 3 mounts share no connection"),
        ("tcp", "4.1", "no NFS 4 mount of 10.0.0.1 forces this export to TCP"),
        ("rdma", "4.2", "no NFS 4 mount of 10.0.0.1 forces this export to TCP"),
    ],
)
def test_other_mounts_that_are_not_in_the_way(with_iso, stands_over, version, seen):
    result = with_iso(stands_over, "require-rdma", "--nfs-version", version)
    assert result.code == 0
    assert f"PASS    others    {seen}\n" in result.out


def test_a_tcp_rule_that_would_come_up_over_rdma(with_iso):
    result = with_iso("rdma", "tcp", "--nfs-version", "4.2")
    assert result.code == 0
    told = (
        f"{ONE_CONNECTION.format('RDMA')}: 10.0.0.1:/vm will use RDMA, although "
        "rule 1 says tcp"
    )
    assert result.out.endswith(
        f"10.0.0.1:/vm is ready for RDMA.\n{told}.\nfix: {AGREE}; {ANEW}\n"
    )
    [warning] = with_iso("rdma", "tcp", "-o", "json").document["warnings"]
    assert "may use RDMA" in warning["sentence"]


def test_healing_a_mount_whose_connection_others_use(host, with_iso):
    with_iso("tcp", "prefer-rdma")
    root = soft_roce(host.root)
    root.nfs_mount("10.0.0.1:/vm", "/mnt/vm", protocol="tcp", port=20049)
    root.nfs_mount("10.0.0.1:/iso", "/mnt/iso", protocol="tcp")
    words = ("nfs", "check", "10.0.0.1:/vm", "--policy", str(host.root / "p.yaml"))
    [found] = host(*words, "-o", "json").document["degraded"]
    assert found["reason"] == ONE_CONNECTION.format("TCP")
    # Not "once it is ready": it is never ready as long as the others are mounted.
    assert found["fix"].startswith("umount /mnt/iso; then put the host into")
    assert "on its connection together (this one and 10.0.0.1:/iso;" in found["fix"]


def test_mounts_that_cannot_be_read_are_not_taken_for_none(host, network):
    network.rdma[("10.0.0.1", 20049)] = READY
    (host.root / "proc/self/mountinfo").unlink()
    result = host("nfs", "check", "10.0.0.1:/e")
    assert result.code == 3
    assert "UNKNOWN  others    the mounts are unknown: /proc/self/m" in result.out


def test_ready(host, network):
    network.rdma[("10.0.0.1", 20049)] = READY
    result = host("nfs", "check", "10.0.0.1:/e")
    assert result.code == 0
    assert result.out.endswith("10.0.0.1:/e is ready for RDMA.\n")
    assert ("mountd", "10.0.0.1") not in network.asked
    with_nfs3 = host("nfs", "check", "10.0.0.1:/e", "--nfs-version", "3")
    assert with_nfs3.code == 3
    assert with_nfs3.out.endswith("not ready for RDMA: dead.\nfix: go\n")


def test_the_port_and_the_rule_come_from_the_policy(host, network):
    policy = host.root / "p.yaml"
    policy.write_text(
        "version: 1\nnfs:\n  rules:\n"
        "    - {server: 10.0.0.0/24, transport: require-rdma, port: 20050}\n"
    )
    network.rdma[("10.0.0.1", 20050)] = READY
    result = host("nfs", "check", "10.0.0.1:/e", "--policy", str(policy))
    assert result.code == 0
    assert result.out.startswith("10.0.0.1:/e: rule 1 says require-rdma: ")
    assert ("rdma", "10.0.0.1", "20050") in network.asked


def test_without_a_rule_the_policys_own_defaults_do_not_count(host, network):
    policy = host.root / "p.yaml"
    policy.write_text(
        "version: 1\nnfs:\n  defaults: {port: 20050}\n"
        "  rules: [{server: nas, transport: prefer-rdma}]\n"
    )
    network.rdma[("10.0.0.1", 20049)] = READY
    words = ("nfs", "check", "10.0.0.1:/e", "--policy", str(policy))
    assert host(*words).code == 0
    assert host(*words, "-o", "json").document["port"] == 20049
