# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests how children are compared with the P_Key table, which may be removed, and how
few files are read for that.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.golden import golden_mlx4 as mlx4
from support.host.ipoib_host import bond, child, host, netdev, network, policy, port

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
from ovirt_rdma.host.daemon.partitions import (
    Difference,
    difference,
    in_use_because,
    is_own,
    made_by,
)
from ovirt_rdma.host.errors import Refused
from ovirt_rdma.host.facts.devices import NetdevUse
from ovirt_rdma.host.paths import DAEMON_UNIT as UNIT
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy
from ovirt_rdma.host.rules.base import LIVE, SYSFS, Change, View
from ovirt_rdma.host.rules.ipoib import new_profile
from ovirt_rdma.host.system.commands import CommandFailed

FOLLOW = policy(partitions="follow")


def differs(*netdevs, wanted=FOLLOW, **parts):
    return difference(View(host(*netdevs, **parts), wanted))


@pytest.mark.parametrize(
    ("keys", "state", "missing", "gone"),
    [
        (("0xffff", "0x8001"), "ACTIVE", (), ()),
        (("0xffff", "0x0001"), "ACTIVE", (), ()),
        (("0xffff", "0x8001", "0x8002"), "ACTIVE", ("ib0.8002",), ()),
        (("0xffff",), "ACTIVE", (), ("ib0.8001",)),
        (("0xffff", "0x8002"), "ACTIVE", ("ib0.8002",), ("ib0.8001",)),
        # The port has no table from a subnet manager yet, or it could not be read.
        (("0xffff",), "INIT", (), ()),
        (("0xffff",), "DOWN", (), ()),
        ((), "ACTIVE", (), ()),
    ],
)
def test_what_differs(keys, state, missing, gone):
    ports = (port(pkeys=keys, state=state),)
    assert differs(netdev(), child(), ports=ports) == Difference(missing, gone)


def test_nothing_differs_where_the_policy_does_not_follow():
    parts = {"ports": (port(pkeys=("0xffff", "0x8002")),)}
    for wanted in (Policy(), policy(mtu=2044), policy(pkey_children=("0x8002",))):
        assert differs(netdev(), child(), wanted=wanted, **parts) == Difference()


def test_each_port_follows_its_own_table():
    rules = (
        InterfaceRule(1, "a", port=1, partitions="follow"),
        InterfaceRule(2, "b", port=2, pkey_children=("0x8003",)),
    )
    found = differs(
        netdev(),
        netdev("ib1", port=2),
        child("ib0.8004", "0x8004"),
        child("ib1.8004", "0x8004", parent="ib1", port=2),
        ports=(
            port(1, pkeys=("0xffff", "0x8001")),
            port(2, pkeys=("0xffff", "0x8003")),
        ),
        wanted=Policy(host=HostPolicy(rules)),
    )
    assert found == Difference(("ib0.8001",), ("ib0.8004",))


def test_a_child_without_a_p_key_is_not_gone():
    assert differs(netdev(), child(pkey=None)) == Difference()
    assert differs(netdev(), child(pkey="what")) == Difference()


@pytest.mark.parametrize(
    ("there", "more", "parts", "why"),
    [
        ({}, (), {}, None),
        # The kernel has set the address by itself.
        ({"addresses": ("fe80::1/64",)}, (), {}, None),
        ({"addresses": ("10.0.0.2/24",)}, (), {}, "it has the address 10.0.0.2/24"),
        ({}, (), {"uses": ("ib0.8001",)}, "it is in use by nfs: nas:/ib0.8001"),
        (
            {},
            (),
            {"networks": (network("store", "ib0.8001"),)},
            "it is in the logical network 'store'",
        ),
        (
            {"uppers": ("bond0",)},
            (bond(members=("ib0.8001",)),),
            {},
            "it is a member of bond0",
        ),
        ({"uppers": ("x0",)}, (), {}, "x0 is built on it"),
        # The parent's users do not use the child.
        ({}, (), {"uses": ("ib0",), "networks": (network(),)}, None),
    ],
)
def test_who_uses_a_child(there, more, parts, why):
    view = View(host(netdev(), child(**there), *more, **parts), FOLLOW)
    (one,) = (i for i in view.ipoib if i.name == "ib0.8001")
    assert in_use_because(view, one) == why


def test_a_user_above_a_child_counts():
    facts = host(
        netdev(), child(uppers=("bond0",)), bond(members=("ib0.8001",)), uses=("bond0",)
    )
    view = View(facts, FOLLOW)
    (one,) = (i for i in view.ipoib if i.name == "ib0.8001")
    assert facts.netdev_uses == (NetdevUse("bond0", "nfs", "nas:/bond0"),)
    assert in_use_because(view, one) == "it is in use by nfs: nas:/bond0"


# Reading


def seen(facts):
    """Return the facts that a poll needs."""
    ports = {(d.name, p.number): p for d in facts.rdma_devices for p in d.ports}
    return (
        {key: (port.state, port.guid, port.pkeys) for key, port in ports.items()},
        {n.name: (n.ipoib, n.rdma_device, n.rdma_port) for n in facts.netdevs},
    )


@pytest.mark.parametrize("build", [mlx4.partitions, mlx4.connectx_3_vpi, mlx4.pkeys])
def test_a_look_sees_what_the_whole_host_shows(build, tmp_path):
    fake = build(tmp_path)
    reader = fake.reader()
    whole, fake.runner.ran = reader.facts(), []
    look = reader.partitions()
    ran = {argv[:2] for argv in fake.runner.ran}
    wanted = policy(partitions="follow")
    assert difference(View(look, wanted)).gone == difference(View(whole, wanted)).gone
    assert seen(look) == seen(whole)
    # A child made with ip link has no files.
    assert ran == ({("ip", "-j")} if build is mlx4.pkeys else set())


def test_a_look_sees_what_is_missing(tmp_path):
    look = mlx4.partitions(tmp_path).reader().partitions()
    assert difference(View(look, FOLLOW)) == Difference(
        ("ib0.8004", "ib0.8005", "ib0.8002"), ("ib0.8003",)
    )


def test_a_look_at_odd_files_says_so(tmp_path):
    fake = mlx4.partitions(tmp_path)
    fake.write("/sys/class/infiniband/mlx4_0/ports/1/pkeys/2", "garbage")
    fake.unreadable("/sys/class/net/ib0.8003/pkey")
    fake.runner.answer("ip -j -d link show type ipoib", CommandFailed("no", 1))
    look = fake.reader().partitions()
    assert any("garbage" in text for text in look.problems)
    assert difference(View(look, FOLLOW)).gone == ("ib0.8001",)


def test_a_host_without_rdma(tmp_path):
    look = mlx4.connectx_2_on_el9(tmp_path).reader().partitions()
    assert (look.rdma_devices, look.problems) == ((), ())
    assert difference(View(look, FOLLOW)) == Difference()


# Which children the journal has, and for which open runs the follower waits

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
