# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``nfs paths``; and see what other verbs show of network paths."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.command_line import run_on_terminal
from support.fakes.fake_mounts import FakeMounts
from support.storage.sample_paths import FIRST, GONE, HALF, LEFT, SECOND, WHOLE, keep

from ovirt_rdma.host.paths import PATHS_JSON, POLICY_JSON, under
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.policy.store import store
from ovirt_rdma.storage.health.state import MountHealth
from ovirt_rdma.storage.paths.state import DOWN, UNPROVEN, PathsState, write_paths


def test_problems_come_first(host):
    keep(host.root, WHOLE, HALF)
    result = host("nfs", "paths")
    assert (result.code, result.err) == (3, "")
    assert result.out.splitlines() == [
        "SERVER  PATH       NETDEV  STATE  SINCE (UTC)       CONNECTIONS  BYTES",
        "nas1    10.98.0.1  ib0     down   1970-01-01 00:01  0            0%",
        "nas1    10.99.0.1  ib1     up     1970-01-01 00:00  2            100%",
        "nas2    10.96.0.1  ib2     up     1970-01-01 00:00  2            52%",
        "nas2    10.97.0.1  ib3     up     1970-01-01 00:00  2            -",
        "1 of 4 paths is not up.",
        "nas1: 10.98.0.1 is down: ib0 has no carrier.",
        "fix: check its cable",
        "nas1: connections on another path than their own: 1 of 2.",
        "",
        "nas1: nas1:/a, nas1:/b",
        "  moves  3 since the daemon began",
        "  last   1970-01-01 00:01:01 UTC, 10.98.0.1 to 10.99.0.1, in 0.8 s",
        "  why    ib0 lost its carrier",
        "",
        "nas2: nas2:/c",
        "  moves  0 since the daemon began",
    ]


def test_all_is_well(host):
    keep(host.root, WHOLE)
    result = host("nfs", "paths")
    assert result.code == 0
    assert "\nAll 2 paths are up, and all connections use their own.\n" in result.out


@pytest.mark.parametrize(
    ("server", "said"),
    [
        (replace(WHOLE, away=1), "All 2 paths are up, but not all is well.\n"),
        (
            replace(WHOLE, problem="the kernel has no dstaddr", fix="use Linux 5.15"),
            "nas2: connections cannot be moved: the kernel has no dstaddr.\n"
            "fix: use Linux 5.15\n",
        ),
        (
            replace(WHOLE, paths=(FIRST, replace(SECOND, state=UNPROVEN))),
            "1 of 2 paths is not up.\nnas2: 10.97.0.1 is unproven.\n",
        ),
        (
            replace(WHOLE, paths=(GONE, replace(SECOND, state=DOWN, netdev=None))),
            "2 of 2 paths are not up.\n",
        ),
        (replace(HALF, last=replace(HALF.last, seconds=None)), ", not connected\n"),
        (replace(HALF, exports=()), "10.99.0.1, 10.98.0.1: not mounted\n"),
    ],
)
def test_what_is_not_well_is_said(host, server, said):
    keep(host.root, server)
    result = host("nfs", "paths", "--allow-none")
    assert (result.code, said in result.out) == (3, True), result.out
    assert "all connections" not in result.out


def test_the_longest_names_have_room_on_80_columns(host):
    name, netdev = "storage-server-01.example.com", "enp129s0f0np0v1"
    path = replace(GONE, address="192.168.100.101", netdev=netdev, state=UNPROVEN)
    keep(host.root, WHOLE, replace(HALF, exports=(f"{name}:/a",), paths=(LEFT, path)))
    shown = run_on_terminal("nfs", "paths", "--root", str(host.root), NO_COLOR="1")
    assert max(map(len, shown.splitlines())) <= 80
    assert f"{name}:\n" in shown
    assert f"192.168.100.101  {netdev}  unproven" in shown


def test_one_export(host):
    keep(host.root, WHOLE, HALF)
    assert host("nfs", "paths", "nas2:/c").code == 0
    assert "nas1" not in host("nfs", "paths", "NAS2:/c/").out
    host("nfs", "paths", "nas2:/none").refused(1, "nas2:/none is not mounted with")


def test_the_document(host):
    keep(host.root, WHOLE, HALF)
    document = host("nfs", "paths", "nas1:/a", "-o", "json").document
    assert (document["schema_version"], document["kind"]) == (1, "nfs-paths")
    (server,) = document["servers"]
    assert (server["moves"], server["last"]["seconds"]) == (3, 0.83)
    assert [path["state"] for path in server["paths"]] == ["up", "down"]
    assert document["problems"] == []
    assert (document["reason"], document["taken_at"]) == ("", 70.0)


def follow(host, **rule):
    policy = Policy(nfs=NfsPolicy((NfsRule(1, "r", "nas2", **rule),)))
    store(policy, "p.yaml", under(host.root, POLICY_JSON))


def test_nobody_keeps_the_state_of_paths_that_the_policy_has(host):
    follow(host, paths=("10.96.0.1", "10.97.0.1"))
    for words in ((), ("--allow-none",)):
        result = host("nfs", "paths", *words)
        assert (result.code, result.out) == (
            3,
            "The paths are unknown: nobody keeps their state.\n"
            "fix: ovirt-rdma-host daemon status shows why\n",
        )
    document = host("nfs", "paths", "-o", "json").document
    assert (document["servers"], document["taken_at"]) == ([], None)
    assert document["fix"] == "ovirt-rdma-host daemon status shows why"


def test_the_policy_has_no_paths(host):
    follow(host)
    result = host("nfs", "paths")
    assert (result.code, result.err) == (3, "")
    assert result.out.startswith("No rule of the policy has paths.\nfix: add paths ")
    assert host("nfs", "paths", "--allow-none").code == 0


def test_no_mount_has_paths(host):
    follow(host, paths=("10.96.0.1", "10.97.0.1"))
    keep(host.root)
    result = host("nfs", "paths")
    assert (result.code, result.out) == (3, "No mount on this host has paths.\n")
    assert host("nfs", "paths", "--allow-none").code == 0


def test_a_stale_state_says_nothing(host):
    follow(host, paths=("10.96.0.1", "10.97.0.1"))
    write_paths(host.root, PathsState(1.0, 1.0, (WHOLE,)))
    result = host("nfs", "paths")
    assert (result.code, "nas2" in result.out) == (3, False)
    assert f"note: {PATHS_JSON} is stale" in result.err
    assert "nobody keeps their state" in result.out


def test_nfs_health_has_a_column_if_a_mount_has_paths(mounted):
    exports = ("nas1:/a", "nas1:/b", "nas3:/d")
    host = mounted(*(MountHealth(e, f"/mnt{e}", "rdma", "4.2", "ok") for e in exports))
    without = host("nfs", "health").out
    assert "PATHS" not in without
    keep(host.root, WHOLE)
    assert host("nfs", "health").out == without
    keep(host.root, WHOLE, HALF)
    result = host("nfs", "health")
    assert result.code == 0
    assert result.out.splitlines() == [
        "HEALTH  EXPORT   TRANSPORT  NFS  PATHS  ANSWER  CAUSE",
        "ok      nas1:/a  rdma       4.2  1/2    -       -",
        "ok      nas1:/b  rdma       4.2  1/2    -       -",
        "ok      nas3:/d  rdma       4.2  -      -       -",
        "All 3 mounts are ok.",
        "nas1: 10.98.0.1 is down: ib0 has no carrier.",
        "fix: check its cable",
        "nas1: connections on another path than their own: 1 of 2.",
    ]
    document = host("nfs", "health", "-o", "json").document
    assert document["paths"]["servers"][1]["away"] == 1
    write_paths(host.root, PathsState(1.0, 1.0, (WHOLE,)))
    document = host("nfs", "health", "-o", "json").document
    assert document["paths"] is None
    assert "so the state of the paths is unknown" in document["problems"][0]


def test_watch_has_a_column_if_a_mount_has_paths(host):
    mounts = FakeMounts(host.root)
    for export in ("nas1:/a", "nas3:/d"):
        mounts.nfs_mount(export, f"/mnt/{export[-1]}")
    once = ("watch", "--count", "1", "--interval", "0.1")
    assert "PATHS" not in host(*once).out
    keep(host.root, HALF)
    lines = [line.split() for line in host(*once).out.splitlines()]
    assert lines[1][:3] == ["HEALTH", "XPRT", "PATHS"]
    assert [line[2] for line in lines[2:4]] == ["1/2", "-"]
    with_paths, without = host(*once, "-o", "json").document["mounts"]
    assert (with_paths["paths"], with_paths["in_use"]) == ("1/2", ["10.99.0.1"])
    assert (without["paths"], without["in_use"]) == (None, None)
    write_paths(host.root, PathsState(1.0, 1.0, (HALF,)))
    assert "so the state of the paths is unknown" in host(*once).out


def test_status(host):
    assert "paths " not in host("status").out
    keep(host.root, WHOLE, HALF)
    result = host("status")
    assert (
        "paths     nas1: 1 of 2 paths (10.98.0.1 down since 1970-01-01 00:01:00 UTC)\n"
        "paths     nas2: 2 of 2 paths\n"
        "nas1: 10.98.0.1 is down: ib0 has no carrier.\nfix: check its cable\n"
    ) in result.out
    document = host("status", "-o", "json").document
    assert document["paths"]["servers"][1]["paths"][1]["state"] == DOWN
    write_paths(host.root, PathsState(1.0, 1.0, (WHOLE,)))
    result = host("status", "-o", "json")
    assert result.document["paths"] is None
    assert any(
        "so the state of the paths" in one for one in result.document["problems"]
    )
