# SPDX-License-Identifier: GPL-2.0-or-later
"""Run ``policy push`` and ``policy diff``."""

from __future__ import annotations

import pytest
from engine_double import EngineDouble, sample_world
from support.engine.engine_command_line import run_engine
from support.engine.engine_door import DoubleDoor

pytestmark = pytest.mark.hypervisor

MINE = (
    "version: 1\nnfs:\n  rules:\n"
    "  - server: nfs1.example.com\n    transport: prefer-rdma\n"
)


@pytest.fixture
def site(capsys, tmp_path):
    """Three hosts with the add-on and an empty policy, and the command for them."""
    world = sample_world(hosts=3, addon=True)
    door = DoubleDoor(world)
    policy = tmp_path / "policy.yaml"
    policy.write_text(MINE)
    with EngineDouble(world) as double:

        def call(*words, door=door):
            words = [str(policy) if word == "FILE" else word for word in words]
            return run_engine(capsys, double, door, *words)

        call.world, call.double, call.door, call.policy = world, double, door, policy
        yield call
        assert double.strict_errors == []


PUSH = ("policy", "push", "FILE", "--hosts")


def changes(site):
    return [seen for seen in site.double.requests if seen.changes]


def test_push_puts_it_on_all_and_shows_it_in_the_engine(site):
    result = site(*PUSH, "host*", "-y")
    assert result.code == 0
    assert "loaded on 3 of 3 hosts" in result.out
    assert {one.policy_text for one in site.world.hosts.values()} == {MINE}
    assert [(seen.method, seen.path.rpartition("/")[2]) for seen in changes(site)] == [
        ("POST", "jobs"),
        ("POST", "steps"),
        ("POST", "end"),
        ("POST", "end"),
        ("POST", "events"),
    ]


def test_push_without_a_job(site):
    assert site(*PUSH, "host01", "-y", "--no-job").code == 0
    assert changes(site) == []
    assert [host for host, _ in site.door.pushes] == ["host01"]


def test_push_that_fails_on_some(site):
    site.door.fail_push["host02"] = "the disk is full"
    result = site(*PUSH, "host01,host02", "-y", "-o", "json")
    assert result.code == 5
    first, second = result.document["hosts"]
    assert (first["done"], first["digest"]) == (True, result.document["digest"])
    assert (second["done"], second["problem"]) == (False, "the disk is full")


def test_push_that_fails_on_all(site):
    site.world.host("host01").reachable = False
    result = site(*PUSH, "host01", "-y")
    assert result.code == 1
    assert "does not answer over SSH" in result.out


@pytest.mark.parametrize("form", ["table", "json"])
def test_dry_run_says_what_would_change(site, form):
    site.world.host("host02").policy_text = MINE
    site.world.host("host03").reachable = False
    result = site(*PUSH, "host*", "--dry-run", "-o", form)
    assert result.code == 0
    assert (site.door.pushes, changes(site)) == ([], [])
    if form == "json":
        listed = result.document["hosts"]
        assert [one["change"] for one in listed] == ["changed", "same", "unknown"]
    else:
        assert "1 host would get this policy: host01" in result.out
        assert result.out.endswith("\nNothing was changed.\n")


def test_push_names_the_domains_that_lose_their_rule(site):
    site.world.host("host02").policy_text = MINE.replace("prefer", "require")
    site.world.host("host03").reachable = False
    site.policy.write_text(MINE.replace("nfs1", "nfs2"))
    shown = site(*PUSH, "host*", "--dry-run").out
    assert (
        """\
host02:
  - nfs.rules: server nfs1.example.com, path *, transport require-rdma, port 20049, \
readiness_timeout 2.0, settle_timeout 30.0, failure_cache 60.0, server_kind auto, \
paths_return 10
  + nfs.rules: server nfs2.example.com, path *, transport prefer-rdma, port 20049, \
readiness_timeout 2.0, settle_timeout 30.0, failure_cache 60.0, server_kind auto, \
paths_return 10
  nfs1.example.com:/exports/data1 (storage domain data1): require-rdma by rule 1 -> \
no rule, stock VDSM mounts it
"""
        in shown
    )
    assert "host03:\n  what changes there is not known: " in shown
    [first, second, third] = site(*PUSH, "host*", "-n", "-o", "json").document[
        "effects"
    ]
    assert (first["changes"], third["changes"]) == ([], [])
    assert second["changes"][0]["before"]["transport"] == "require-rdma"
    assert third["unknown"]


@pytest.mark.parametrize(
    ("words", "code", "part"),
    [
        (("hst01", "-y"), 2, "did you mean host01"),
        (("host01", "-y", "--facts-dir", "."), 2, "--facts-dir needs --dry-run"),
    ],
)
def test_wrong_words(site, words, code, part):
    site(*PUSH, *words).refused(code, part)


def test_push_that_breaks_off_ends_the_job(site, monkeypatch):
    def cut(*words):
        raise KeyboardInterrupt

    monkeypatch.setattr(site.door, "push_policy", cut)
    result = site(*PUSH, "host01", "-y")
    assert result.code == 130
    assert "the others keep theirs" in result.err
    (end,) = [s.body for s in changes(site) if s.path.endswith("/end")]
    assert "<succeeded>false</succeeded>" in end


def test_diff_finds_drift(site):
    site.world.host("host02").policy_text = MINE
    result = site("policy", "diff", "FILE", "--diff")
    assert result.code == 3
    assert "FAIL host01, host03: its policy is sha256:" in result.out
    assert "+    transport: prefer-rdma" in result.out
    assert site("policy", "diff", "FILE", "--hosts", "host02").code == 0


def test_diff_as_a_document(site):
    site.world.host("host03").reachable = False
    result = site("policy", "diff", "FILE", "-o", "json")
    assert result.code == 3
    verdicts = {one["host"]: one["verdict"] for one in result.document["hosts"]}
    assert verdicts == {"host01": "drift", "host02": "drift", "host03": "unknown"}
