# SPDX-License-Identifier: GPL-2.0-or-later
from __future__ import annotations

import pytest
from support.engine.told_hosts import host, report, rules, status

from ovirt_rdma.engine_sdk_tools.api.request import Listener
from ovirt_rdma.engine_sdk_tools.fleet.policy_push import (
    compare,
    matrix_of,
    plan_policy_push,
    push_policy,
)
from ovirt_rdma.engine_sdk_tools.hosts.report import Pushed
from ovirt_rdma.engine_sdk_tools.model import FAIL, OK, UNKNOWN
from ovirt_rdma.host.policy.forms import PolicyProblem
from ovirt_rdma.host.policy.load import parse_policy

pytestmark = pytest.mark.engine

MINE = rules("require-rdma")
POLICY = parse_policy(MINE, "p.yaml").policy
DIGEST = status(MINE)["policy"]["digest"]
HOSTS = (host("hv1"), host("hv2"), host("hv3"))


class Told(Listener):
    """A listener that records its calls."""

    def __init__(self):
        self.said = []

    def begin(self, step, subject=None):
        self.said.append(("begin", subject))

    def end(self, step, subject=None, problem=""):
        self.said.append(("end", subject, problem))


class Door:
    """Access to hosts that answer a push as the test wants, by name."""

    def __init__(self, **answers):
        self.answers, self.texts = answers, []

    def reports(self, hosts, done=None):
        raise AssertionError("this must ask no host")

    def push_policy(self, hosts, text, done=None):
        self.texts.append(text)
        names = [one.name for one in hosts]
        return {n: self.answers[n] for n in names if n in self.answers}


def test_plan_says_what_changes_where():
    reports = {
        "hv1": report("hv1", status=status(MINE)),
        "hv2": report("hv2", status=status()),
        "hv3": report("hv3", problem="no answer"),
    }
    plan = plan_policy_push(HOSTS, MINE, "p.yaml", reports.values())
    assert [plan.change(one) for one in HOSTS] == ["same", "changed", "unknown"]
    assert plan.digest == DIGEST


def test_broken_policy_is_not_planned():
    with pytest.raises(PolicyProblem, match=r"p.yaml:2: nfs"):
        plan_policy_push(HOSTS, "version: 1\nnfs: 7\n", "p.yaml")


def test_digest_of_each_host_is_read_back():
    other = status(rules("tcp"))["policy"]["digest"]
    door = Door(
        hv1=Pushed("hv1", "sha256:with-drop-ins", DIGEST),
        hv2=Pushed("hv2", DIGEST, other),
        hv3=Pushed("hv3", problem="hv3 does not answer", fix="look"),
    )
    heard, job = Told(), Told()
    hosts = (*HOSTS, host("hv4"))
    plan = plan_policy_push(hosts, MINE, "p.yaml")
    result = push_policy(door, plan, heard, job)
    assert door.texts == [MINE]
    assert list(result.pushed) == ["hv1", "hv2", "hv3", "hv4"]
    assert [one.host for one in result.failed] == ["hv2", "hv3", "hv4"]
    assert f"hv2 has the policy {other} after" in result.failed[0].problem
    assert result.failed[1].fix == "look"
    assert result.failed[2].problem == "no answer from hv4"
    assert ("end", "hv1", "") in heard.said
    assert job.said == [("begin", None), ("end", None, "failed: hv2, hv3, hv4")]


@pytest.mark.parametrize(
    ("told", "verdict", "words"),
    [
        (report(status=status(MINE), policy_text=MINE), "same", "has the policy"),
        (
            report(status=status(MINE), policy_text=f"# mine\n{MINE}"),
            "same",
            "written differently",
        ),
        (
            report(status=status(rules("tcp")), policy_text=rules("tcp")),
            "drift",
            "its policy is sha256:",
        ),
        (
            report(status=status(rules("tcp")), policy_text=MINE),
            "drift",
            "its policy.yaml is the same, but not loaded",
        ),
        (report(status=status()), "drift", "no policy is loaded"),
        (
            report(status=status(MINE, problem="it is broken")),
            "drift",
            "it is broken",
        ),
        (report(problem="no answer"), "unknown", "no answer"),
        (report(), "unknown", "did not report its status"),
    ],
)
def test_drift(told, verdict, words):
    found = compare(host(), told, MINE, POLICY, "p.yaml")
    assert found.verdict == verdict
    assert words in found.sentence
    expected = {"same": OK, "drift": FAIL, "unknown": UNKNOWN}[verdict]
    assert matrix_of([found]).worst == expected


def test_diff_shows_the_lines():
    told = report(status=status(rules("tcp")), policy_text=rules("tcp"))
    lines = compare(host(), told, MINE, POLICY, "p.yaml").diff
    assert lines[1] == "+++ p.yaml"
    assert "-    transport: tcp" in lines
    assert "+    transport: require-rdma" in lines


def test_a_text_of_too_many_lines_is_not_compared():
    """The time would grow with the product of both lengths."""
    told = report(status=status(rules("tcp")), policy_text="\n" * 60_000)
    lines = compare(host(), told, MINE, POLICY, "p.yaml").diff
    assert lines == ("its policy.yaml has 60000 lines, which are not compared",)
