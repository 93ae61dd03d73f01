# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``nfs health``, with prepared looks at the mounts; and what ``status`` shows."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from support.command_line import run_on_terminal

from ovirt_rdma.host.system.tree import seconds_after_boot
from ovirt_rdma.storage.health.state import (
    OK,
    SERVER,
    STALLED,
    HealthState,
    MountHealth,
    write_state,
)

GOOD = MountHealth(
    "nas1:/a", "/mnt/a", "rdma", "4.2", OK, sentence="answered", answered_s=0.0123
)
HUNG = MountHealth(
    "nas2:/b",
    "/mnt/b",
    "rdma",
    "4.2",
    STALLED,
    SERVER,
    False,
    "server-silent",
    "nas2 answers nothing",
    "start it",
    ("lookup: no answer within 2 s",),
)


def test_all_are_ok(mounted):
    result = mounted(GOOD, replace(GOOD, export="nas1:/z"))("nfs", "health")
    assert (result.code, result.err) == (0, "")
    assert result.out.splitlines() == [
        "HEALTH  EXPORT   TRANSPORT  NFS  ANSWER   CAUSE",
        "ok      nas1:/a  rdma       4.2  12.3 ms  -",
        "ok      nas1:/z  rdma       4.2  12.3 ms  -",
        "All 2 mounts are ok.",
    ]


def test_what_is_wrong_is_said_once_for_the_mounts_of_a_server(mounted):
    other = replace(HUNG, export="nas2:/c")
    result = mounted(GOOD, HUNG, other)("nfs", "health")
    assert result.code == 3
    assert result.out.splitlines() == [
        "HEALTH   EXPORT   TRANSPORT  NFS  ANSWER   CAUSE",
        "ok       nas1:/a  rdma       4.2  12.3 ms  -",
        "stalled  nas2:/b  rdma       4.2  -        server, probably",
        "stalled  nas2:/c  rdma       4.2  -        server, probably",
        "2 of 3 mounts are not ok.",
        "nas2:/b and nas2:/c are stalled: nas2 answers nothing.",
        "fix: start it",
        "  - lookup: no answer within 2 s",
    ]


def test_causes_that_differ_are_all_said(mounted):
    late = replace(HUNG, state="slow", sentence="slow", fix="look")
    gone = replace(HUNG, export="nas2:/z", state="dead", sentence="gone", fix="repair")
    result = mounted(late, gone)("nfs", "health")
    assert "nas2:/b is slow: slow.\nfix: look\n" in result.out
    assert "nas2:/z is dead: gone.\nfix: repair\n" in result.out


def test_the_document(mounted):
    document = mounted(GOOD, HUNG)("nfs", "health", "-o", "json").document
    assert (document["kind"], document["worst"]) == ("nfs-health", "stalled")
    assert [mount["state"] for mount in document["mounts"]] == ["ok", "stalled"]
    assert document["mounts"][1]["cause"] == "server"
    assert document["mounts"][1]["evidence"] == ["lookup: no answer within 2 s"]


def test_one_export(mounted):
    host = mounted(GOOD)
    assert host("nfs", "health", "nas1:/a").code == 0
    assert host.asked == [("nas1:/a", True)]


def test_an_export_that_is_not_mounted(mounted):
    result = mounted()("nfs", "health", "nas1:/none")
    result.refused(1, "nas1:/none is not mounted on this host", "nfs list")


def test_no_mounts(mounted):
    result = mounted()("nfs", "health")
    assert (result.code, result.out) == (3, "This host has no NFS mount.\n")


def test_what_could_not_be_read_is_a_note(mounted):
    result = mounted(GOOD, problems=("/proc/x cannot be read",))("nfs", "health")
    assert result.err == "note: /proc/x cannot be read\n"


@pytest.mark.parametrize("words", [["--facts", "x.json"], ["not an export"]])
def test_refused_arguments(mounted, words):
    assert mounted(GOOD)("nfs", "health", *words).code == 2


def test_on_this_machine():
    """The real thing, in a process of its own: it ends, whatever is mounted here."""
    assert "mount" in run_on_terminal("nfs", "health", columns=120)


def test_status_shows_what_the_daemon_has_seen(host):
    now = seconds_after_boot()
    state = HealthState(1.0, now, 10.0, (GOOD, HUNG))
    write_state(host.root, state)
    shown = host("status").out
    assert "health    1 stalled, 1 ok\n" in shown
    assert "nas2:/b is stalled: nas2 answers nothing.\nfix: start it\n" in shown
    document = host("status", "-o", "json").document
    assert [mount["state"] for mount in document["health"]["mounts"]] == [
        "ok",
        "stalled",
    ]


def test_status_says_nothing_of_an_old_state(host):
    write_state(host.root, HealthState(1.0, 1.0, 10.0, (HUNG,)))
    result = host("status")
    assert "1 stalled" not in result.out
    assert "so the health is unknown" in result.err
    assert json.loads(host("status", "-o", "json").out)["health"] is None
