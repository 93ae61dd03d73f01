# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``status`` with degraded mounts; test_enablement_verbs has the rest."""

from __future__ import annotations

import pytest
from support.fakes.fake_hosts import soft_roce

from ovirt_rdma.host.collect.storage import marks_to_json
from ovirt_rdma.host.facts.model import DegradedMark
from ovirt_rdma.host.paths import DEGRADED_JSON, POLICY_COPY, POLICY_JSON, under

MARK = DegradedMark(
    mountpoint="/mnt/a",
    export="10.0.0.1:/a",
    rule="storage",
    wanted="prefer-rdma",
    transport="tcp",
    reason="10.0.0.1 refuses RDMA connections",
    fix="start it",
    since="2023-11-14T23:13:18Z",
    mounted_s=3598.0,
)


@pytest.fixture
def degraded(host):
    """A host with a policy, one mount that fell back and one that is correct."""
    root = soft_roce(host.root)
    root.nfs_mount("10.0.0.1:/a", "/mnt/a", protocol="tcp")
    root.nfs_mount("10.0.0.1:/b", "/mnt/b", protocol="rdma")
    root.write(DEGRADED_JSON, marks_to_json([MARK]))
    policy = host.root / "p.yaml"
    policy.write_text(
        "version: 1\nnfs:\n  rules:\n"
        "    - {name: storage, server: 10.0.0.1, transport: prefer-rdma}\n"
    )
    host("policy", "load", str(policy))
    return host


def test_a_degraded_mount(degraded):
    result = degraded("status")
    assert (result.code, result.err) == (0, "")
    _, _, shown = result.out.partition("\ndegraded")
    assert shown == (
        "  1 mount\n"
        "10.0.0.1:/a runs over tcp, but rule 'storage' says prefer-rdma; since "
        "2023-11-14 23:13:18 UTC, because 10.0.0.1 refuses RDMA connections.\n"
        "fix: start it; then ovirt-rdma-host nfs check 10.0.0.1:/a; once it is ready, "
        "put the host into maintenance and activate it again\n"
    )


def test_document(degraded):
    (mount,) = degraded("status", "-o", "json").document["degraded"]
    assert (mount["export"], mount["mountpoint"]) == ("10.0.0.1:/a", "/mnt/a")
    assert (mount["rule"], mount["transport"]) == ("storage", "tcp")
    assert mount["since"] == "2023-11-14T23:13:18Z"
    assert mount["reason"] == "10.0.0.1 refuses RDMA connections"
    assert mount["fix"]


def test_no_degraded_mount(host):
    soft_roce(host.root).nfs_mount("10.0.0.1:/a", "/mnt/a", protocol="tcp")
    assert "\ndegraded  none\n" in host("status").out
    assert host("status", "-o", "json").document["degraded"] == []


def test_what_cannot_be_judged_is_not_called_good(degraded):
    under(degraded.root, POLICY_JSON).write_text("{")
    under(degraded.root, POLICY_COPY).write_text("{")
    shown = degraded("status")
    assert shown.code == 3
    assert "degraded  unknown: the stored policy cannot be used\n" in shown.out
    assert (
        "The stored policy cannot be used; a vdsmd that starts now mounts NFS as "
        "stock, even where the policy requires RDMA.\n"
        "fix: load the policy again: ovirt-rdma-host policy load\n"
    ) in " ".join(shown.out.split(" "))
    document = degraded("status", "-o", "json").document
    assert document["degraded"] is None
    assert not document["policy"]["loaded"]


def test_a_broken_policy_fails_and_its_copy_counts(degraded):
    good = degraded("status", "-o", "json")
    assert good.code == 0
    under(degraded.root, POLICY_JSON).write_text("{")
    shown = degraded("status")
    assert shown.code == 3
    assert "; its copy is used: 1 NFS rule from " in shown.out
    assert "The stored policy cannot be used; its copy is used for NFS mounts." in (
        shown.out
    )
    file = degraded.root / "p.yaml"
    again = f"fix: load the policy again: ovirt-rdma-host policy load {file}\n"
    assert again in shown.out
    result = degraded("status", "-o", "json")
    assert result.code == 3
    assert result.document["degraded"] == good.document["degraded"]
    policy = result.document["policy"]
    assert policy["digest"] == good.document["policy"]["digest"]
    assert policy["loaded"]
    assert "the stored policy is invalid" in policy["problem"]


def test_a_copy_that_is_missing_is_told_of(degraded):
    under(degraded.root, POLICY_COPY).unlink()
    shown = degraded("status")
    assert shown.code == 0
    assert f"{POLICY_COPY}, which replaces a damaged {POLICY_JSON}, is missing" in (
        " ".join(shown.out.split())
    )
    document = degraded("status", "-o", "json").document
    assert document["policy"]["copy_problem"] == "is missing"


def test_marks_that_cannot_be_read_are_said(degraded):
    under(degraded.root, DEGRADED_JSON).write_text("{")
    result = degraded("status")
    assert "degraded  1 mount" in result.out
    assert "for a reason that is not recorded" in result.out
    assert result.err.startswith("note: ")
    assert DEGRADED_JSON in result.err
    assert degraded("status", "-o", "json").document["problems"]


def test_no_mount_is_degraded_where_there_is_none(host):
    root = soft_roce(host.root)
    root.nfs_mount("10.0.0.1:/b", "/mnt/b", protocol="rdma")
    root.write(DEGRADED_JSON, b"{")
    assert "degraded  none" in host("status").out
