# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests how steps become atomic changes: their parts, the value before, whether a value
survives a boot, and the command that restores it.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import OTHERS, host, netdev, policy, port, profile
from support.host.ipoib_plans import HARDWARE
from support.host.memory_host import FakeHost

from ovirt_rdma.host.changes.kinds.kind import AtomicChange
from ovirt_rdma.host.changes.kinds.registry import kind_of_act
from ovirt_rdma.host.changes.run import atomic_changes_of
from ovirt_rdma.host.rules.base import LIVE, Change, Step
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

PORTS = (port(pkeys=("0xffff", "0x8001")),)
WANTED = policy(transport_mode="connected", mtu=9000, pkey_children=("0x8001",))


def _acts(facts, wanted=WANTED):
    steps = decide(facts, wanted, OTHERS).steps
    return atomic_changes_of(FakeHost(facts), steps, facts)


def test_a_new_profile_is_one_act_and_what_is_set_in_it_later_another():
    acts = _acts(host(netdev("ib0", 2044), ports=PORTS, profiles=()))
    by_step = {}
    for act in acts:
        by_step.setdefault(act.step, []).append(act)
    (made,) = by_step["IPOIB-PROFILE-01/ib0"]
    (child,) = by_step["IPOIB-PKEY-01/ib0.8001"]
    assert (made.uuid, child.uuid) == ("ours-ib0", "ours-ib0.8001")
    assert len(made.changes) == 6
    assert len(child.changes) == 8
    later, *_ = by_step["IPOIB-MODE-01/ib0"]
    assert (later.uuid, len(later.changes)) == ("ours-ib0", 1)
    assert all(len(a.changes) == 1 for a in acts if a not in (made, child))
    assert all(a.lasting for a in acts)


def test_a_profile_that_is_there_has_its_own_uuid():
    acts = _acts(host(netdev("ib0", 2044), profiles=[profile()]))
    assert {a.changes[0].target for a in acts} >= {"uuid-ib0"}
    assert all(a.uuid is None and a.lasting for a in acts)


def test_what_no_profile_keeps_is_not_lasting():
    facts = host(netdev("ib0", 2044), ports=PORTS, profiles=None)
    acts = _acts(facts)
    assert acts
    assert not any(a.lasting for a in acts)
    steps = [_step(Change("file", "/etc/f", None, "x"))]
    (kept,) = atomic_changes_of(FakeHost(facts), steps, facts)
    assert kept.lasting


def test_acts_know_their_place():
    assert _acts(host(netdev("ib0", 2044), ports=PORTS, profiles=None))[0].place.guid


def _step(*changes):
    words = ("sentence", "before", "after", LIVE, "reason", "undo")
    return Step("IPOIB-MTU-01", "ib0", *words, changes)


def test_what_a_run_sets_twice_had_the_first_value_before_the_second():
    target = "/sys/class/net/ib0/mtu"
    steps = [
        _step(Change("sysfs", target, "2044", "1500")),
        _step(Change("sysfs", target, "1500", "1280")),
    ]
    facts = host(netdev("ib0", 2044))
    acts = atomic_changes_of(FakeHost(facts), steps, facts)
    assert [act.before for act in acts] == [("2044",), ("1500",)]


def test_what_a_run_makes_had_nothing_before():
    for profiles in ((), None):
        facts = host(netdev("ib0", 2044), ports=PORTS, profiles=profiles)
        for act in _acts(facts):
            new = act.step == "IPOIB-PROFILE-01/ib0" or "PKEY" in act.step
            if new or act.changes[0].target.startswith("/sys/class/net/ib0.8001/"):
                assert act.before == (None,) * len(act.changes)


def test_a_new_port_mtu_gives_the_netdevs_the_mtu_that_the_plan_says():
    facts = host(netdev("ib0", 1500), profiles=None, **HARDWARE["port-mtu"])
    wanted = policy(port_mtu=2048, mtu=1280)
    planned = [c.before for s in decide(facts, wanted, OTHERS).steps for c in s.changes]
    assert planned == ["4096", "2044"]
    acts = _acts(facts, wanted)
    assert [act.before for act in acts] == [("4096",), ("1500",)]


MAKER = tuple(
    Change("profile", "new:ib0", None, after, name)
    for name, after in (("connection.type", "infiniband"), ("connection.id", "ib0"))
)


@pytest.mark.parametrize(
    ("change", "value", "words", "command"),
    [
        (
            Change("sysfs", "/sys/class/net/ib0/mtu", None, "1"),
            "2044",
            "mtu of ib0",
            "echo 2044 > /sys/class/net/ib0/mtu",
        ),
        (
            Change("sysfs", "/sys/class/net/ib0/create_child", None, "0x8001"),
            None,
            "the netdev ib0.8001",
            "echo 0x8001 > /sys/class/net/ib0/delete_child",
        ),
        (
            Change("offload", "ib0", None, "off", "tx-tcp-segmentation"),
            "on",
            "tx-tcp-segmentation of ib0",
            "ethtool -K ib0 tx-tcp-segmentation on",
        ),
        (
            Change("profile", "u-1", None, "9000", "infiniband.mtu"),
            None,
            "infiniband.mtu of the profile u-1",
            "nmcli connection modify u-1 infiniband.mtu ''",
        ),
        (
            Change("profile", "u 1", None, "a", "connection.id"),
            "two words; rm",
            "connection.id of the profile u 1",
            "nmcli connection modify 'u 1' connection.id 'two words; rm'",
        ),
        (Change("file", "/etc/f", None, "x"), None, "/etc/f", "rm /etc/f"),
        (
            Change("file", "/etc/f", "old", "x"),
            "old",
            "/etc/f",
            "write the text that /var/lib/ovirt-rdma/journal.json has for it to /etc/f",
        ),
        (
            Change("unit", "a.service", "disabled", "enabled", "enabled"),
            "disabled",
            "a.service",
            "systemctl disable --now a.service",
        ),
    ],
)
def test_how_to_set_it_back_by_hand(change, value, words, command):
    act = AtomicChange("step", LIVE, (change,))
    assert kind_of_act(act).manual_fix(value) == command
    assert kind_of_act(act).describe() == words


def test_how_to_delete_a_profile_by_hand():
    act = replace(AtomicChange("IPOIB-PROFILE-01/ib0", LIVE, MAKER), uuid="u-1")
    assert kind_of_act(act).manual_fix(None) == "nmcli connection delete u-1"
    assert kind_of_act(act).describe() == "the profile of ib0"
