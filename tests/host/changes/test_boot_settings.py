# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the boot settings: how they follow from applied changes."""

from dataclasses import replace

import pytest

from ovirt_rdma.host.changes.boot import boot_settings
from ovirt_rdma.host.changes.journal import Ledger, Run
from ovirt_rdma.host.changes.kinds.kind import AtomicChange, Place
from ovirt_rdma.host.rules.base import FILE, OFFLOAD, PROFILE, SYSFS, VF, Change

pytestmark = pytest.mark.hypervisor

IB0 = Place("ib0", guid="00:02:c9:03:00:fb:12:31", pci="0000:04:00.0", port=1)
IB1 = Place("ib1", guid="00:02:c9:03:00:fb:12:32", pci="0000:04:00.0", port=2)


def held(file, after, place=IB0, lasting=False, name=None):
    target = f"/sys/class/net/{name or place.netdev}/{file}"
    change = Change(SYSFS, target, "datagram" if file == "mode" else "2044", after)
    return AtomicChange("S/x", "live", (change,), place=place, lasting=lasting)


def offload(after, place=IB0):
    change = Change(OFFLOAD, place.netdev, "on", after, "tx-tcp-segmentation")
    return AtomicChange("S/x", "live", (change,), place=place, lasting=False)


def driver(after, before=None):
    change = Change(VF, IB0.pci, before or after, after, "drivers")
    return AtomicChange("S/x", "live", (change,), place=IB0, lasting=False)


def settings_of(acts, **parts):
    """Return the boot settings after a run that has made ``acts``."""
    changes = tuple(
        replace(act, run=1, number=n, boot="boot") for n, act in enumerate(acts)
    )
    run = Run(1, "apply", "", acts=changes, **{"outcome": "done", **parts})
    return boot_settings(Ledger((run,)))


def values(acts):
    return [
        (one.place.netdev, change.target.rpartition("/")[2], change.after)
        for one in settings_of(acts)
        for change in one.changes
    ]


def test_only_what_nothing_else_keeps():
    profile = Change(PROFILE, "new:ib0", None, "datagram", "infiniband.transport-mode")
    file = Change(FILE, "/etc/modprobe.d/ovirt-rdma.conf", None, "x")
    acts = [
        held("mode", "connected"),
        held("mtu", "65520", lasting=True),
        AtomicChange("S/x", "live", (profile,), place=IB0, lasting=False),
        AtomicChange("S/x", "live", (file,), lasting=False),
    ]
    assert values(acts) == [("ib0", "mode", "connected")]
    assert settings_of(acts)[0].changes[0].before is None
    assert settings_of([]) == ()


def test_the_last_value_of_each_property_in_the_order_of_setting():
    acts = [
        held("mode", "connected"),
        held("mtu", "65520"),
        held("mode", "connected", IB1),
        offload("off"),
        held("mtu", "32000"),
        held("mtu", "4092"),
        held("mode", "datagram"),
    ]
    assert values(acts) == [
        ("ib1", "mode", "connected"),
        ("ib0", "ib0", "off"),
        ("ib0", "mtu", "4092"),
        ("ib0", "mode", "datagram"),
    ]


def test_what_was_so_already_is_none_unless_a_run_has_set_it_before():
    """A VF's driver, which VF-02 binds again, is that of whoever made the VF."""
    same, other = driver("1=mlx5_core"), held("mode", "connected")
    assert values([same, other]) == [("ib0", "mode", "connected")]
    set_before = driver("1=mlx5_core", "1=-"), other, same
    assert values(set_before) == [
        ("ib0", "mode", "connected"),
        ("ib0", IB0.pci, "1=mlx5_core"),
    ]


def test_an_mtu_that_stays_is_one_for_the_kernel_sets_another_with_the_mode():
    acts = [held("mode", "connected"), held("mtu", "2044")]
    assert values(acts) == [("ib0", "mode", "connected"), ("ib0", "mtu", "2044")]


def test_a_netdev_that_was_renamed_between_is_one():
    renamed = Place("storage", guid=IB0.guid, pci=IB0.pci, port=1)
    acts = [held("mode", "connected"), held("mode", "datagram", renamed)]
    assert values(acts) == [("storage", "mode", "datagram")]


def test_children_are_each_one_setting():
    acts = [held("create_child", "0x8001"), held("create_child", "0x8002")]
    assert [one[2] for one in values(acts)] == ["0x8001", "0x8002"]


def test_a_run_that_was_interrupted_sets_nothing_again():
    """It is rolled back first."""
    assert settings_of([held("mode", "connected")], outcome=None) == ()
