# SPDX-License-Identifier: GPL-2.0-or-later
"""Test DAEMON-01: the daemon is running if the policy wants something of it."""

from __future__ import annotations

import pytest
from support.host.ipoib_host import host, policy

from ovirt_rdma.host.facts.model import Facts, Software, Unit
from ovirt_rdma.host.paths import DAEMON_UNIT
from ovirt_rdma.host.policy.model import HostPolicy, NfsPolicy, Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, View
from ovirt_rdma.host.rules.host import DAEMON

HEALTH = Policy(nfs=NfsPolicy((), 10))
METRICS = Policy(host=HostPolicy(metrics_folder="/var/lib/node_exporter/textfiles"))


def finding(policy, *units):
    facts = Facts("hv1", "5.14.0", 1.0, software=Software(units=units))
    (found,) = DAEMON.decide(View(facts, policy))
    return found


def unit(active="inactive", load="loaded"):
    return Unit(DAEMON_UNIT, load, active, "static")


@pytest.mark.parametrize(
    ("policy", "units", "verdict", "words"),
    [
        (Policy(), (), SKIP, "the policy has no health_interval, metrics_folder"),
        (Policy(), (unit("active"),), SKIP, "the policy has no health_interval"),
        (HEALTH, (), SKIP, "it is unknown"),
        (HEALTH, (unit("active"),), PASS, "looked at every 10 s"),
        (METRICS, (unit("active"),), PASS, "into /var/lib/node_exporter/textfiles"),
        # The role of Ansible checks right after `enable`.
        (METRICS, (unit("activating"),), PASS, "is running"),
        (HEALTH, (unit(),), FAIL, "is not running, but the mounts should"),
        (HEALTH, (unit("failed"),), FAIL, "has failed, but the mounts should"),
        (METRICS, (unit(load="not-found"),), FAIL, "is not installed"),
    ],
)
def test_the_finding(policy, units, verdict, words):
    found = finding(policy, *units)
    assert (found.verdict, found.subject) == (verdict, "host")
    assert words in found.sentence
    assert bool(found.fix) == (verdict == FAIL)


@pytest.mark.parametrize(
    ("active", "fix"),
    [("inactive", "ovirt-rdma-host enable; "), ("failed", "journalctl -b -u ")],
)
def test_the_fix(active, fix):
    assert finding(HEALTH, unit(active)).fix.startswith(fix)


def test_children_follow_by_the_daemon_too():
    follows = policy(partitions="follow")
    software = Software(units=(unit(),))
    (found,) = DAEMON.decide(View(host(software=software), follows))
    assert found.verdict == FAIL
    assert "the children of ib0 should follow the P_Key table" in found.sentence


def test_a_host_whose_netdevs_no_rule_with_follow_names_needs_no_daemon():
    follows = policy(partitions="follow")
    bare = Facts("hv1", "5.14.0", 1.0, software=Software(units=(unit(),)))
    (found,) = DAEMON.decide(View(bare, follows))
    assert found.verdict == SKIP
