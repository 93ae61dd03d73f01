# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that hooks do the live steps, and report the rest, on a fake host."""

from __future__ import annotations

from dataclasses import replace

import pytest

from ovirt_rdma.host.changes.journal import (
    DONE,
    HOOK,
    Journal,
)
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import JOURNAL, POLICY_JSON, under
from ovirt_rdma.host.policy.store import StoredPolicyProblem
from ovirt_rdma.host.system.lock import one_run

pytestmark = pytest.mark.hypervisor

TSO_OFF = """\
  interfaces:
    - match: {port: 1}
      tso: off
    - match: {port: 2}
      tso: off
      transport_mode: connected
"""


def test_live_steps_are_done_and_others_told(site):
    site.policy(TSO_OFF)
    said = site.live()
    assert site.runs == [(HOOK, "before_vdsm_start", DONE)]
    assert site.held == ["IPOIB-TSO-02/ib0"]
    assert site.host.text("ib1", "mode") == "datagram"
    assert said[0] == "IPOIB-TSO-02/ib0: on -> off"
    (left,) = (line for line in said if line.startswith("left: "))
    assert "IPOIB-MODE-01/ib1" in left and "IPOIB-TSO-02/ib0" not in left
    assert left.endswith(" (ovirt-rdma-host check)")


def test_a_second_time_there_is_nothing_to_do(site):
    site.policy(TSO_OFF)
    site.live()
    journal = under(site.host.path, JOURNAL).read_bytes()
    assert not any(line.startswith("IPOIB-TSO-02/ib0") for line in site.live())
    assert under(site.host.path, JOURNAL).read_bytes() == journal


def test_live_steps_are_done_while_the_netdev_is_used(site):
    site.policy(TSO_OFF)
    site.host.nfs_mount("10.0.0.1:/vm", "/rhev/data-center/mnt/10.0.0.1:_vm", "rdma")
    site.live()
    assert site.held == ["IPOIB-TSO-02/ib0"]


@pytest.mark.parametrize("netdevs", [(), ("ib1",), ("eth0",)])
def test_other_netdevs_are_left_and_not_told(site, netdevs):
    site.policy(TSO_OFF)
    said = site.live(netdevs)
    assert site.runs == []
    assert all("ib0" not in line for line in said)


def test_without_a_policy_nothing_is_read_or_said(site):
    site.host.run = None
    assert site.live() == []


def test_a_policy_or_journal_that_cannot_be_used_is_our_trouble(site):
    site.policy(TSO_OFF)
    journal = under(site.host.path, JOURNAL)
    journal.write_text("{\n{\n")
    with pytest.raises(Problem):
        site.live()
    journal.unlink()
    under(site.host.path, POLICY_JSON).write_text("{")
    with pytest.raises(StoredPolicyProblem):
        site.live()
    assert site.host.written == []


def test_a_lock_that_is_held_is_not_waited_for(site):
    site.policy(TSO_OFF)
    with one_run(site.host.path, by="apply"):
        (said,) = site.live()
    assert said.startswith(
        "nothing was done: another run of ovirt-rdma-host is changing this host: apply "
    )
    assert site.runs == []


def test_a_step_that_fails_is_taken_back_and_said(site):
    site.policy(TSO_OFF)
    site.host.fail("ethtool -K", said="Cannot set device feature settings")
    said = site.live()
    assert any("Cannot set device feature settings" in line for line in said)
    assert site.held == []


def test_after_a_rollback_that_is_incomplete_nothing_is_done(site):
    site.policy(TSO_OFF)
    site.live()
    journal = Journal(site.host.path)
    (run,) = journal.ledger().runs
    killed = replace(run, outcome=None, ended=None, sentence="")
    journal.write(journal.ledger().with_run(killed))
    site.host.fail("ethtool -K", said="Cannot set device feature settings")
    said = site.live()
    assert said[-1].startswith(
        "nothing was done: run 1 was interrupted; not restored: "
    )
    assert "Cannot set device feature settings" in said[-1]
    assert (site.held, len(site.runs)) == (["IPOIB-TSO-02/ib0"], 1)
