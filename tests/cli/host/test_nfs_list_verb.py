# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.command_line import NO_RDMA, RXE
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.host.facts import model


@pytest.fixture
def policy(tmp_path):
    def write(transport, server="10.0.0.1", name="vm-store"):
        path = tmp_path / "p.yaml"
        path.write_text(
            "version: 1\nnfs:\n  rules:\n"
            f"    - {{name: {name}, server: {server}, transport: {transport}}}\n"
        )
        return str(path)

    return write


def test_as_the_rule_says(call, policy):
    path = policy("require-rdma")
    result = call("nfs", "list", "--facts", RXE, "--policy", path, "-v")
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == f"""\
EXPORT          TRANSPORT  NFS  RULE      VERDICT  SINCE (UTC)
10.0.0.1:/data  rdma       4.2  vm-store  ok       2023-11-14 23:13
The mount named by a rule is as the rule says ({path}).

10.0.0.1:/data
  mounted at   /rhev/data-center/mnt/10.0.0.1:_data
  mountinfo    proto=rdma
  mountstats   xprt: rdma
  rdma cm_id   rxe0 to 10.0.0.1:20049
  connections  1
  rsize        1048576
  wsize        1048576
"""
    )


def test_degraded(call, policy):
    path = policy("prefer-rdma", name='"rule 1"')
    words = ["nfs", "list", "--facts", NO_RDMA, "--policy", path]
    result = call(*words)
    assert (result.code, result.err) == (0, "")
    assert (
        result.out
        == f"""\
EXPORT          TRANSPORT  NFS  RULE    VERDICT   SINCE (UTC)
10.0.0.1:/data  tcp        4.2  rule 1  degraded  2023-11-14 23:13
1 of 1 mount named by a rule is not as the rule says ({path}).
10.0.0.1:/data runs over tcp, but rule 1 says prefer-rdma; since 2023-11-14 23:13:18 \
UTC, because this host has no RDMA device.
fix: ovirt-rdma-host check says what its adapters lack; then ovirt-rdma-host nfs \
check 10.0.0.1:/data; once it is ready, put the host into maintenance and activate it \
again
"""
    )
    assert call(*words, "--exit-code").code == 3
    assert call(*words, "--exit-code", "-o", "json").code == 3


def test_no_rule(call, policy):
    words = ["nfs", "list", "--facts", RXE, "--exit-code", "--policy"]
    result = call(*words, policy("tcp", server="10.0.0.9"))
    assert result.code == 0
    assert "not named" in result.out
    assert "No rule names this mount (" in result.out


def test_document(call, policy):
    path = policy("tcp")
    words = ["nfs", "list", "--facts", RXE, "--policy", path, "-o", "json"]
    document = call(*words).document
    assert (document["schema_version"], document["kind"]) == (1, "nfs-mounts")
    assert document["policy"] == path
    [mount] = document["mounts"]
    assert mount["export"] == "10.0.0.1:/data"
    assert (mount["connections"], mount["rsize"]) == (1, 1048576)
    assert (mount["transport"], mount["verdict"]) == ("rdma", "degraded")
    assert mount["rule"] == "vm-store"
    assert (mount["since"], mount["reason"]) == ("2023-11-14T23:13:18Z", None)
    assert {signal["transport"] for signal in mount["signals"]} == {"rdma"}


def test_document_says_since_when_and_why(call, policy):
    words = ["nfs", "list", "--facts", NO_RDMA, "--policy", policy("prefer-rdma")]
    [mount] = call(*words, "-o", "json").document["mounts"]
    assert mount["since"] == "2023-11-14T23:13:18Z"
    assert mount["reason"] == "this host has no RDMA device"


def test_marks_that_cannot_be_read_are_no_secret(host, policy):
    root = soft_roce(host.root)
    root.nfs_mount("10.0.0.1:/a", "/mnt/a", protocol="tcp")
    root.write("/run/ovirt-rdma/mounts/degraded.json", "{")
    result = host("nfs", "list", "--policy", policy("prefer-rdma"))
    assert "note: /run/ovirt-rdma/mounts/degraded.json " in result.err
    assert "since 2023-11-14 23:13:18 UTC, for a reason that is not" in result.out


def test_a_host_that_cannot_be_read_is_not_one_without_mounts(host):
    (host.root / "proc/self/mountinfo").unlink()
    result = host("nfs", "list", "--exit-code")
    assert result.code == 3
    assert result.out == "The NFS mounts of this host are not known.\n"
    assert "note: /proc/self/mountinfo cannot be read" in result.err
    assert "mountinfo" in host("nfs", "list", "-o", "json").document["problems"][0]


def test_several_mounts_of_this_host(host, policy):
    root = soft_roce(host.root)
    root.nfs_mount("10.0.0.1:/a", "/mnt/a", protocol="rdma")
    root.nfs_mount("10.0.0.1:/b c", "/mnt/b", protocol="rdma")
    root.nfs_mount("10.0.0.7:/c\udcff", "/mnt/c\udcff", protocol="tcp")
    right = host("nfs", "list", "--policy", policy("prefer-rdma"))
    assert "All 2 mounts named by a rule are as the rule says" in right.out
    assert "10.0.0.7:/c\\udcff" in right.out
    wrong = host("nfs", "list", "--policy", policy("tcp"))
    assert "2 of 2 mounts named by a rule are not as the rule says" in wrong.out


def test_a_posixfs_domain_is_not_covered(host, policy):
    # VDSM mounts it with another class, and only the storage connection's options.
    root = soft_roce(host.root)
    root.mount(
        "10.0.0.1:/a",
        "/rhev/data-center/mnt/10.0.0.1:_a",
        "nfs4",
        "rw,vers=4.2,hard,proto=tcp,timeo=600,retrans=2,addr=10.0.0.1",
    )
    words = ("--policy", policy("require-rdma"))
    result = host("nfs", "list", "--exit-code", *words)
    assert result.code == 3
    assert "not covered" in result.out
    assert "no rule covers a PosixFS domain.\nfix: add proto=rdma" in result.out
    assert "nfs check" not in result.out
    checked = host("nfs", "check", "10.0.0.1:/a", *words).out
    assert "no rule covers a PosixFS domain" in checked
    assert "VMs migrate" not in checked


def test_the_fix_can_be_pasted(call, policy, tmp_path):
    root = soft_roce(tmp_path)
    root.nfs_mount("10.0.0.1:/b c", "/mnt/b", protocol="tcp")
    facts = tmp_path / "f.json"
    facts.write_text(model.to_json(root.reader().facts()))
    path = policy("require-rdma")
    result = call("nfs", "list", "--facts", str(facts), "--policy", path)
    assert "nfs check '10.0.0.1:/b c'" in result.out
