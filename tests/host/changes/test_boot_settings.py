# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the boot settings: how they follow from applied changes, and their file."""

import json

import pytest
from support.problems import problem

from ovirt_rdma.host.changes.boot import (
    boot_settings,
    read_boot_settings,
    write_boot_settings,
)
from ovirt_rdma.host.changes.kinds.model import AtomicChange, Place
from ovirt_rdma.host.errors import Problem
from ovirt_rdma.host.paths import BOOT_JSON, under
from ovirt_rdma.host.rules.base import FILE, OFFLOAD, PROFILE, SYSFS, Change

pytestmark = pytest.mark.hypervisor

IB0 = Place("ib0", guid="00:02:c9:03:00:fb:12:31", pci="0000:04:00.0", port=1)
IB1 = Place("ib1", guid="00:02:c9:03:00:fb:12:32", pci="0000:04:00.0", port=2)
TSO = "tx-tcp-segmentation"


def held(file, after, place=IB0, lasting=False, name=None):
    target = f"/sys/class/net/{name or place.netdev}/{file}"
    change = Change(SYSFS, target, "datagram" if file == "mode" else "2044", after)
    return AtomicChange(
        "S/x", "live", "", (change,), (None,), place=place, lasting=lasting
    )


def offload(after, place=IB0):
    change = Change(OFFLOAD, place.netdev, "on", after, TSO)
    return AtomicChange(
        "S/x", "live", "", (change,), ("on",), place=place, lasting=False
    )


def values(acts):
    return [
        (one.place.netdev, one.change.target.rpartition("/")[2], one.change.after)
        for one in boot_settings(acts)
    ]


def test_only_what_nothing_else_keeps():
    profile = Change(PROFILE, "new:ib0", None, "datagram", "infiniband.transport-mode")
    file = Change(FILE, "/etc/modprobe.d/ovirt-rdma.conf", None, "x")
    acts = [
        held("mode", "connected"),
        held("mtu", "65520", lasting=True),
        AtomicChange("S/x", "live", "", (profile,), (None,), place=IB0, lasting=False),
        AtomicChange("S/x", "live", "", (file,), (None,), lasting=False),
    ]
    assert values(acts) == [("ib0", "mode", "connected")]
    assert boot_settings(acts)[0].change.before is None
    assert boot_settings([]) == ()


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


def test_a_netdev_that_was_renamed_between_is_one():
    renamed = Place("storage", guid=IB0.guid, pci=IB0.pci, port=1)
    acts = [held("mode", "connected"), held("mode", "datagram", renamed)]
    assert values(acts) == [("storage", "mode", "datagram")]


def test_children_are_each_one_setting():
    acts = [held("create_child", "0x8001"), held("create_child", "0x8002")]
    assert [one[2] for one in values(acts)] == ["0x8001", "0x8002"]


def test_an_act_without_a_place_is_kept_by_its_name():
    act = AtomicChange(
        "S/x", "live", "", held("mtu", "4092").changes, (None,), lasting=False
    )
    (found,) = boot_settings([act])
    assert found.place == Place("ib0")


def test_the_file_is_there_as_long_as_something_is_held(tmp_path):
    path = under(tmp_path, BOOT_JSON)
    acts = [held("mode", "connected"), offload("off")]
    assert write_boot_settings(tmp_path, []) is False
    assert not path.parent.exists()
    assert write_boot_settings(tmp_path, acts) is True
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o755
    assert read_boot_settings(tmp_path) == boot_settings(acts)
    before = path.stat().st_ino
    assert write_boot_settings(tmp_path, acts) is False
    assert path.stat().st_ino == before
    assert write_boot_settings(tmp_path, []) is True
    assert not path.exists()
    assert read_boot_settings(tmp_path) == ()


def test_a_file_that_cannot_be_written_is_said(tmp_path):
    (tmp_path / "var").write_text("a file in place of the folder")
    with problem("boot-settings-not-written", under(tmp_path, BOOT_JSON)):
        write_boot_settings(tmp_path, [held("mode", "connected")])


def damaged(tmp_path, change):
    write_boot_settings(tmp_path, [held("mode", "connected")])
    path = under(tmp_path, BOOT_JSON)
    data = json.loads(path.read_text())
    change(data)
    path.write_text(json.dumps(data))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda d: d.update(schema_version=2),
            "a newer version .*schema version 2; this one reads 1",
        ),
        (lambda d: d.pop("schema_version"), "schema_version is missing"),
        (lambda d: d.update(more=1), "more is not a key of the boot settings"),
        (lambda d: d["settings"][0].pop("place"), r"settings\[0\].place is missing"),
        (lambda d: d["settings"].append(3), r"settings\[1\] is a number"),
        (
            lambda d: d["settings"][0]["change"].update(target="/etc/passwd"),
            "/etc/passwd",
        ),
        (
            lambda d: d["settings"][0]["change"].update(after="x"),
            "'x' .* /sys/class/net/ib0/mode",
        ),
    ],
)
def test_a_damaged_file_is_said(tmp_path, change, words):
    damaged(tmp_path, change)
    with pytest.raises(Problem, match=words):
        read_boot_settings(tmp_path)


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b"\xff", b"7", b"[" * 99999])
def test_garbage_is_said(tmp_path, data):
    path = under(tmp_path, BOOT_JSON)
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    with pytest.raises(Problem):
        read_boot_settings(tmp_path)
    path.unlink()
    path.mkdir()
    with pytest.raises(Problem, match="cannot be read"):
        read_boot_settings(tmp_path)
