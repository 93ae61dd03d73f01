# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests which children the journal has, and for which open runs the follower waits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import child, host, netdev, policy

from ovirt_rdma.host.changes.journal import (
    APPLY,
    DONE,
    PARTITIONS,
    REVERT,
    ROLLED_BACK,
    Ledger,
    Run,
    refuse_while_open,
)
from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.daemon.partitions import is_own, made_by
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.paths import DAEMON_UNIT as UNIT
from ovirt_rdma.host.rules.base import LIVE, SYSFS, Change, View
from ovirt_rdma.host.rules.ipoib import new_profile

pytestmark = pytest.mark.hypervisor

STEP = "IPOIB-PKEY-01/ib0.8001"
AT = "2025-01-01T00:00:00Z"
BY_SYSFS = (Change(SYSFS, "/sys/class/net/ib0/create_child", None, "0x8001"),)
BY_PROFILE = new_profile("ib0.8001", "datagram", "ib0", "0x8001")
OTHER = (Change(SYSFS, "/sys/class/net/ib0/create_child", None, "0x8002"),)


def begun(verb=APPLY, number=1, by="apply's"):
    return Run(number, verb, AT, by)


def ended(run, outcome=DONE):
    return replace(run, outcome=outcome, ended=AT)


def made(changes, step=STEP, verb=APPLY):
    found = tuple(change.after for change in changes)
    act = AtomicChange(step, LIVE, changes, run=1, boot="boot", found=found)
    return ended(replace(begun(verb), acts=(act,)))


def undone(run):
    (change,) = run.acts
    return replace(run, acts=(replace(change, undone_by=2),))


def the_child(**parts):
    view = View(host(netdev(), child(**parts)), policy())
    (one,) = (i for i in view.ipoib if i.is_child)
    return one


@pytest.mark.parametrize("changes", [BY_SYSFS, BY_PROFILE])
@pytest.mark.parametrize("verb", [APPLY, PARTITIONS])
def test_a_child_that_a_run_of_ours_made_is_ours(changes, verb):
    ledger = Ledger((made(changes, verb=verb),))
    assert made_by(ledger, the_child()) == STEP
    assert made_by(ledger, the_child(pkey="0x0001")) == STEP


@pytest.mark.parametrize(
    "runs",
    [
        [],
        [undone(made(BY_SYSFS)), ended(begun(number=2))],
        [made(OTHER)],
        [made(BY_SYSFS, "IPOIB-PKEY-01/ib1.8001")],
        [made(BY_SYSFS, "IPOIB-MODE-01/ib0.8001")],
    ],
)
def test_any_other_is_not(runs):
    assert made_by(Ledger(tuple(runs)), the_child()) is None


@pytest.mark.parametrize("pkey", ["0x8002", None, "what"])
def test_one_that_somebody_made_anew_for_another_partition_is_not(pkey):
    assert made_by(Ledger((made(BY_SYSFS),)), the_child(pkey=pkey)) is None


WAITS = replace(made(OTHER), confirm_by=99)


@pytest.mark.parametrize(
    ("runs", "words"),
    [
        ([], ""),
        ([made(OTHER)], ""),
        ([replace(made(OTHER), outcome=None)], "run 1 (apply's) was interrupted"),
        ([begun(REVERT)], "run 1 (apply's) was interrupted"),
        ([begun(by="")], "run 1 (apply) was interrupted"),
        # The follower's own runs, of both verbs.
        ([begun(PARTITIONS, by=UNIT)], ""),
        ([begun(REVERT, by=UNIT)], ""),
        ([ended(begun(), ROLLED_BACK)], ""),
        ([WAITS], "run 1 awaits confirmation"),
        ([replace(WAITS, confirmed=AT)], ""),
    ],
)
def test_which_run_is_in_the_way(runs, words):
    said = ""
    try:
        refuse_while_open(Ledger(tuple(runs)), may_end=is_own)
    except Refused as refused:
        said = str(refused)
    assert said.startswith(words)
    assert bool(said) == bool(words)
