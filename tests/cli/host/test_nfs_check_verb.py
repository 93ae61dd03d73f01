# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import json
from pathlib import Path

import pytest
from support.command_line import NO_RDMA, RXE
from support.fakes.fake_hosts import soft_roce
from support.storage.fake_network import FakeNetwork

from ovirt_rdma.cli.host import nfs
from ovirt_rdma.storage import probe
from ovirt_rdma.storage.readiness import READY, ProbeContext, Step


def test_without_rdma(host, no_network):
    words = ("nfs", "check", "10.0.0.1:/e", "--facts", NO_RDMA)
    result = host(*words, "--nfs-version", "4.1")
    assert (result.code, result.err) == (3, "")
    assert (
        result.out
        == """\
10.0.0.1:/e: no rule names it, so VDSM mounts it as stock (no policy is loaded)
RESULT   STEP      DETAIL
PASS     address   10.0.0.1 is an IP address
PASS     module    rpcrdma loads with the first mount
PASS     route     10.0.0.1 by eth0 from 10.0.0.2
FAIL     port      this host has no RDMA device
UNKNOWN  listener  a facts file does not show whether the server listens
PASS     others    no NFS 4 mount of 10.0.0.1 forces this export to TCP
10.0.0.1:/e is not ready for RDMA: this host has no RDMA device.
fix: ovirt-rdma-host check says what its adapters lack
"""
    )


def test_the_rule_that_names_an_export_and_why(host, no_network):
    policy = host.root / "p.yaml"
    policy.write_text(RULE)
    words = ("nfs", "check", "10.0.0.1:/e", "--facts", NO_RDMA, "--policy", str(policy))
    first = host(*words).out.splitlines()[0]
    assert first.endswith("rule 1 says prefer-rdma: server is 10.0.0.1, any path")


RULE = "version: 1\nnfs: {rules: [{server: 10.0.0.1, transport: prefer-rdma}]}\n"
REMOUNT = (
    "put the host into maintenance in the engine and activate it again (its VMs "
    "migrate), or deactivate and activate only this storage domain (no running VM may "
    "use it); the hosted engine's own domain needs a reboot of the host"
)


def test_mounted_degraded_and_not_ready_yet(host, no_network):
    policy = host.root / "p.yaml"
    policy.write_text(RULE)
    words = ("nfs", "check", "10.0.0.1:/data", "--facts", NO_RDMA, "--policy")
    assert host(*words, str(policy)).out.endswith(
        "fix: ovirt-rdma-host check says what its adapters lack\n"
        "10.0.0.1:/data runs over tcp, but rule 1 says prefer-rdma; since 2023-11-14 "
        "23:13:18 UTC, because this host has no RDMA device.\n"
        f"fix: once it is ready, {REMOUNT}\n"
    )
    [mount] = host(*words, str(policy), "-o", "json").document["degraded"]
    assert mount["since"] == "2023-11-14T23:13:18Z"
    assert mount["reason"] == "this host has no RDMA device"
    assert mount["fix"] == f"once it is ready, {REMOUNT}"


def test_mounted_degraded_and_ready_again(host, network):
    root = soft_roce(host.root)
    root.nfs_mount("10.0.0.1:/data", "/mnt/data", protocol="tcp")
    root.nfs_mount("10.0.0.1:/other", "/mnt/other", protocol="tcp", version="3")
    policy = host.root / "p.yaml"
    policy.write_text(RULE)
    network.rdma[("10.0.0.1", 20049)] = READY
    words = ("nfs", "check", "10.0.0.1:/data", "--policy", str(policy))
    result = host(*words)
    assert result.code == 0
    assert result.out.endswith(
        "10.0.0.1:/data is ready for RDMA.\n"
        "10.0.0.1:/data runs over tcp, but rule 1 says prefer-rdma; since 2023-11-14 "
        "23:13:18 UTC, for a reason that is not recorded.\n"
        f"fix: {REMOUNT}\n"
    )
    policy.write_text(RULE.replace("prefer-rdma", "tcp"))
    assert host(*words).out.endswith("is ready for RDMA.\n")
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


def test_mounts_that_cannot_be_read_are_not_taken_for_none(host, network):
    network.rdma[("10.0.0.1", 20049)] = READY
    (host.root / "proc/self/mountinfo").unlink()
    result = host("nfs", "check", "10.0.0.1:/e")
    assert result.code == 3
    assert "UNKNOWN  others    the mounts are unknown: /proc/self/m" in result.out


def test_facts_do_not_tell_of_the_server(host, no_network):
    words = ("nfs", "check", "10.0.0.1:/e", "--facts", RXE)
    result = host(*words)
    assert result.code == 3
    assert result.out.endswith(
        "It is unknown if 10.0.0.1:/e is ready: a facts file does not show whether "
        "the server listens.\n"
    )
    document = host(*words, "-o", "json").document
    assert (document["kind"], document["verdict"]) == ("nfs-check", "unknown")
    results = {step["name"]: step["result"] for step in document["steps"]}
    assert results["port"] == "PASS"
    assert results["listener"] == "UNKNOWN"


@pytest.mark.parametrize("key", ["source", "destination"])
def test_a_route_in_the_facts_that_has_no_address(host, no_network, key):
    facts = json.loads(Path(RXE).read_text())
    facts["routes"][0][key] = "nas1"
    file = host.root / "f.json"
    file.write_text(json.dumps(facts))
    host("nfs", "check", "10.0.0.1:/e", "--facts", str(file)).refused(
        1, f"facts file {file}: routes[0].{key} is 'nas1', not an IP address"
    )


@pytest.fixture
def network(monkeypatch, tmp_path):
    """A fake network for ``nfs check`` on a Soft-RoCE host."""
    fake = FakeNetwork()
    reader = soft_roce(tmp_path).reader()
    around = ProbeContext(reader, fake)
    monkeypatch.setattr(nfs, "ProbeContext", lambda *_: around)
    return fake


def test_ready(host, network, monkeypatch):
    network.rdma[("10.0.0.1", 20049)] = READY
    result = host("nfs", "check", "10.0.0.1:/e")
    assert result.code == 0
    assert result.out.endswith("10.0.0.1:/e is ready for RDMA.\n")
    monkeypatch.setattr(
        probe, "mountd", lambda *_: Step("mountd", "not ready", "dead", "go")
    )
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
