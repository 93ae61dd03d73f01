# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of changes to /sys, offloads, modules, units and our files on a fake host."""

import errno
from dataclasses import replace

import pytest
from support.fakes.fake_root import Pci

from ovirt_rdma.host.changes.kinds.kind import (
    AtomicChange,
    EffectFailed,
    Reading,
)
from ovirt_rdma.host.changes.kinds.netdev import Sysfs
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of
from ovirt_rdma.host.errors import Sentence
from ovirt_rdma.host.rules.base import FILE, MODULE, OFFLOAD, SYSFS, UNIT, Change
from ovirt_rdma.host.system import files
from ovirt_rdma.host.system.files import MODPROBE, MODULES_LOAD, own_text

pytestmark = pytest.mark.hypervisor

HCA = "0000:04:00.0"
PORT_MTU = f"/sys/bus/pci/devices/{HCA}/mlx4_port1_mtu"
TSO = "tx-tcp-segmentation"
UNIT_NAME = "ovirt-rdma-opensm@0x0002c90300fb1231.service"


def sysfs(file, before, after, name="ib0", clamped=False):
    target = f"/sys/class/net/{name}/{file}"
    return Change(SYSFS, target, before, after, clamped=clamped)


def act(change, host=None, before=None):
    place = kind_of(change).place(host.reader().facts()) if host else None
    change = replace(change, before=before or change.before)
    return AtomicChange("S/x", "live", (change,), place=place)


def fails(effect, *args):
    with pytest.raises(EffectFailed) as failed:
        effect(*args)
    assert "\n" not in str(failed.value)
    return Sentence(failed.value.id, str(failed.value))


# Mode and MTU


def test_mode_and_mtu_go_there_and_back(host):
    host.effects().do(act(sysfs("mode", "datagram", "connected")))
    assert host.state("ib0") == ("connected", "65520", "off [requested on]")
    host.effects().do(act(sysfs("mtu", "2044", "32000")))
    assert host.effects().read(sysfs("mtu", None, "32000")) == Reading("32000")
    for change in (sysfs("mtu", "2044", "32000"), sysfs("mode", "datagram", "x")):
        back = replace(change, after=change.after.replace("x", "connected"))
        for _ in range(2):  # the second time there is nothing to do
            host.effects().undo(act(back))
    assert host.state("ib0") == ("datagram", "2044", "on")
    assert host.written == [
        ("/sys/class/net/ib0/mode", "connected"),
        ("/sys/class/net/ib0/mtu", "32000"),
        ("/sys/class/net/ib0/mtu", "2044"),
        ("/sys/class/net/ib0/mode", "datagram"),
    ]


def test_a_clamped_mtu_is_read_as_the_kernel_has_it(host):
    host.effects().do(act(sysfs("mtu", "2044", "4092", clamped=True)))
    assert host.effects().read(sysfs("mtu", None, "4092")) == Reading("2044")


@pytest.mark.parametrize(
    ("file", "number", "words"),
    [
        ("mode", errno.EINVAL, "the adapter of ib0 has no connected mode"),
        ("mode", errno.EPERM, "/sys is read-only"),
        ("mode", errno.EROFS, "/sys is read-only"),
        ("mode", errno.EACCES, "/sys is read-only"),
        ("mode", errno.EBUSY, "the device is busy"),
        ("mode", errno.ENODEV, "the device no longer exists"),
        ("mtu", errno.EINVAL, "connected is not a valid value for ib0"),
        ("mtu", errno.ENOMEM, "Cannot allocate memory"),
    ],
)
def test_what_the_kernel_refuses_is_said(host, file, number, words):
    host.refusals[f"/sys/class/net/ib0/{file}"] = number
    change = sysfs("mode", None, "connected")
    if file == "mtu":
        change = sysfs("mtu", None, "4092")
        words = words.replace("connected", "4092")
    sentence = fails(host.effects().do, act(change))
    assert sentence.id == "sysfs-write-failed"
    assert words in sentence
    assert host.state("ib0")[0] == "datagram"


def test_no_memory_for_virtual_functions_is_the_firmwares(host):
    file = "/sys/bus/pci/devices/0000:3b:00.1/sriov_numvfs"
    error = OSError(errno.ENOMEM, "Cannot allocate memory")
    sentence, fix = Sysfs(Change(SYSFS, file, "0", "8"))._explain(file, "8", error)
    assert "too little address space for VFs (Cannot allocate memory)" in sentence
    assert "BIOS" in fix and "pci=realloc" in fix


def test_an_adapter_without_connected_mode(host):
    address = host.text("ib0", "address")
    host.write("/sys/class/net/ib0/address", "00" + address[2:])
    with pytest.raises(EffectFailed) as failed:
        host.effects().do(act(sysfs("mode", None, "connected")))
    assert "transport_mode: auto" in failed.value.fix


def test_a_netdev_that_is_gone(host):
    change = sysfs("mode", "datagram", "connected")
    one = act(change, host)
    assert not host.effects().gone(one)
    host.remove_netdev("ib0")
    assert host.effects().read(change) == Reading()
    assert host.effects().gone(one)
    sentence = fails(host.effects().do, one)
    assert (sentence.id, "ib0" in sentence) == ("netdev-gone", True)
    assert fails(host.effects().do, act(change)).id == "sysfs-write-failed"
    host.effects().undo(one)
    assert host.written == []


@pytest.mark.parametrize("kind", ["mode", "offload"])
def test_another_netdev_that_has_got_the_name_is_left_alone(host, kind):
    change = sysfs("mode", "datagram", "connected")
    if kind == "offload":
        change = tso("on", "off")
    one = act(change, host)
    host.effects().do(one)
    host.remove_netdev("ib0")  # the adapter was removed, and then
    host.rename_netdev("ib1", "ib0")
    was = host.state("ib0")
    assert host.effects().read(change, place=one.place) == Reading()
    assert host.effects().gone(one)
    assert fails(host.effects().do, one).id == "netdev-gone"
    host.effects().undo(one)
    assert host.state("ib0") == was


def test_a_file_that_cannot_be_read_is_a_problem(host):
    host.unreadable("/sys/class/net/ib0/mode")
    problem = host.effects().read(sysfs("mode", None, "connected")).problem
    assert "/sys/class/net/ib0/mode cannot be read" in problem


def test_a_renamed_netdev_is_found_by_its_place(host):
    one = act(sysfs("mode", "datagram", "connected"), host)
    host.effects().do(one)
    host.rename_netdev("ib0", "storage")
    assert host.effects().present(one).changes[0].target.endswith("/storage/mode")
    assert host.effects().read(one.changes[0], place=one.place).value == "connected"
    assert not host.effects().gone(one)
    host.effects().undo(one)
    assert host.state("storage")[0] == "datagram"


def test_a_value_of_a_netdev_that_was_not_there_before_needs_no_undo(host):
    one = AtomicChange("S/x", "live", (sysfs("mode", None, "connected"),))
    host.effects().undo(one)
    assert host.written == []


# P_Key children


def create(pkey="0x8001", parent="ib0"):
    return sysfs("create_child", None, pkey, parent)


def test_a_child_is_made_set_up_and_removed(host):
    effects = host.effects()
    one = act(create(), host)
    assert effects.read(create()) == Reading()
    effects.do(one)
    assert effects.read(create()) == Reading("0x8001")
    assert ("ip", "link", "set", "ib0.8001", "up") in host.runner.ran
    assert not effects.gone(one)
    effects.undo(one)
    assert effects.read(create()) == Reading()
    assert effects.gone(one)
    effects.undo(one)
    assert [file for file, _ in host.written] == [
        "/sys/class/net/ib0/create_child",
        "/sys/class/net/ib0/delete_child",
    ]


def test_a_child_is_removed_by_its_full_pkey_under_any_name(host):
    one = act(create("0x0001"), host)
    host.effects().do(one)
    host.rename_netdev("ib0.0001", "storage")
    host.rename_netdev("ib0", "base")
    assert host.effects().read(one.changes[0], place=one.place) == Reading("0x0001")
    host.effects().undo(one)
    assert host.written[-1] == ("/sys/class/net/base/delete_child", "0x8001")
    assert "storage" not in host.netdevs()


def test_a_child_that_is_there_already(host):
    host.pkey_child("ib0", "0x8001")
    assert "is there" not in host.effects().read(create()).problem
    sentence = fails(host.effects().do, act(create()))
    assert (sentence.id, "ib0.8001" in sentence) == ("netdev-exists", True)
    host.rename_netdev("ib0.8001", "other")
    words = fails(host.effects().do, act(create()))
    assert (words.id, "with that P_Key" in words) == ("sysfs-write-failed", True)


def test_a_child_that_never_comes(host):
    host.ignored.add("/sys/class/net/ib0/create_child")
    words = fails(host.effects().do, act(create()))
    assert words.id == "netdev-not-created"
    assert "ib0.8001" in words and "5 s" in words
    assert 4.9 < host.waited < 6


def test_a_child_that_does_not_go(host):
    host.effects().do(act(create()))
    host.ignored.add("/sys/class/net/ib0/delete_child")
    words = fails(host.effects().undo, act(create()))
    assert words.id == "netdev-not-removed"
    assert "ib0.8001" in words and "5 s" in words


def test_a_child_whose_parent_is_gone(host):
    host.effects().do(act(create()))
    host.remove_netdev("ib0")
    assert host.effects().gone(act(create()))
    host.effects().undo(act(create()))


def test_a_child_that_cannot_be_set_up_is_said(host):
    host.fail("ip link set", 2, "RTNETLINK answers: Operation not permitted")
    words = fails(host.effects().do, act(create()))
    assert "ib0.8001 cannot be set up: ip link set ib0.8001 up: RTNETLINK" in words
    host.effects().undo(act(create()))
    assert "ib0.8001" not in host.netdevs()


# The MTU of an mlx4 port


@pytest.fixture
def mlx4(host):
    hca = Pci(HCA, "0x15b3", "0x1003", "mlx4_core")
    host.adapter(hca)
    for port in (1, 2):
        host.mlx4_port(hca, port, "ib", mtu=4096)
    return host


def test_an_mlx4_port(mlx4):
    change = Change(SYSFS, PORT_MTU, "4096", "2048")
    mlx4.effects().do(act(change, mlx4))
    assert mlx4.effects().read(change) == Reading("2048")
    mlx4.effects().undo(act(change, mlx4))
    assert mlx4.effects().read(change) == Reading("4096")


def test_netdevs_of_an_mlx4_port_that_come_back_late_and_under_other_names(mlx4):
    change = Change(SYSFS, PORT_MTU, "4096", "2048")
    host = mlx4

    def write(path, data):
        host.rename_netdev("ib0", "late")
        host.write("/sys/class/net/ib1/dev_port", "7")

    def sleep(seconds):
        host.sleep(seconds)
        if host.waited > 3:
            host.write("/sys/class/net/ib1/dev_port", "1")

    HostEffects(host.path, host.run, sleep, write=write).do(act(change))
    assert 3 < host.waited < 4


def test_netdevs_of_an_mlx4_port_that_do_not_come_back(mlx4):
    change = Change(SYSFS, PORT_MTU, "4096", "2048")

    def write(path, data):
        mlx4.remove_netdev("ib1")

    effects = HostEffects(mlx4.path, mlx4.run, mlx4.sleep, write=write)
    words = fails(effects.do, act(change))
    assert words.id == "netdevs-not-back"
    assert f"ib0 and ib1 of the adapter {HCA}" in words and "30 s" in words


def test_an_adapter_that_is_gone(host):
    change = Change(SYSFS, PORT_MTU, "4096", "2048")
    assert host.effects().gone(act(change))
    assert host.effects().read(change) == Reading()
    sentence = fails(host.effects().do, act(change))
    assert sentence.id == "sysfs-write-failed"
    assert "the device no longer exists" in sentence
    host.effects().undo(act(change))


# Offloads


def tso(before, after, name="ib0"):
    return Change(OFFLOAD, name, before, after, TSO)


def test_an_offload_goes_there_and_back(host):
    host.effects().do(act(tso("on", "off")))
    assert host.effects().read(tso("on", "off")) == Reading("off")
    host.effects().undo(act(tso("on", "off")))
    assert host.effects().read(tso("on", "off")) == Reading("on")
    count = len(host.runner.ran)
    host.effects().undo(act(tso("on", "off")))
    assert ("ethtool", "-K", "ib0", TSO, "on") not in host.runner.ran[count:]


def test_in_connected_mode_the_wish_counts(host):
    host.set_mode("ib0", "connected")
    assert host.effects().read(tso("on", "off")) == Reading("on")
    host.effects().do(act(tso("on", "off")))
    assert host.effects().read(tso("on", "off")) == Reading("off")
    host.effects().undo(act(tso("on", "off")))  # ethtool complains, and remembers
    assert host.state("ib0")[2] == "off [requested on]"
    host.set_mode("ib0", "datagram")
    assert host.state("ib0")[2] == "on"


def test_an_offload_that_stays_off_is_a_failure(host):
    host.set_feature("ib0", TSO, False)
    host.set_mode("ib0", "connected")
    words = fails(host.effects().do, act(tso("off", "on")))
    assert f"{TSO} of ib0 cannot be turned on" in words
    host.effects().undo(act(tso("off", "on")))
    assert host.effects().read(tso("off", "on")) == Reading("off")


def test_a_fixed_offload(host):
    host.offloads("ib0", {TSO: "off [fixed]"})
    words = fails(host.effects().do, act(tso("off", "on")))
    assert words.endswith("Could not change any device features")


def test_an_offload_of_a_netdev_that_is_gone(host):
    one = act(tso("on", "off"), host)
    host.remove_netdev("ib0")
    assert host.effects().read(tso("on", "off")) == Reading()
    assert host.effects().gone(one)
    assert fails(host.effects().do, one).id == "netdev-gone"
    host.effects().undo(one)


def test_without_ethtool(host):
    host.fail("ethtool -k", 127, "No such file or directory")
    host.fail("ethtool -K", 127, "No such file or directory")
    assert "ethtool -k ib0 failed" in host.effects().read(tso("on", "off")).problem
    assert "cannot be turned off" in fails(host.effects().do, act(tso("on", "off")))
    assert "cannot be turned on" in fails(host.effects().undo, act(tso("on", "off")))


# Modules and units


def test_a_module_is_loaded_and_stays(host):
    host.modules(loaded=("sunrpc",), available=("rpcrdma",))
    change = Change(MODULE, "rpcrdma", None, "loaded")
    assert host.effects().read(change) == Reading()
    host.effects().do(act(change))
    assert host.effects().read(change) == Reading("loaded")
    host.effects().undo(act(change))
    assert host.effects().read(change) == Reading("loaded")


def test_a_module_that_cannot_be_loaded(host):
    change = Change(MODULE, "ib-isert", None, "loaded")
    words = fails(host.effects().do, act(change))
    assert words.id == "command-failed"
    assert "ib-isert cannot be loaded: modprobe ib-isert: modprobe:" in words


def test_a_module_is_read_under_the_kernels_name(host):
    host.modules(loaded=("ib_isert",))
    assert host.effects().read(Change(MODULE, "ib-isert", None, "loaded")).value


UNIT_CHANGE = Change(UNIT, UNIT_NAME, "disabled", "enabled", "enabled")


def test_a_unit_goes_there_and_back(host):
    host.systemd()
    host.effects().do(act(UNIT_CHANGE))
    assert host.units[UNIT_NAME] == "enabled"
    assert host.effects().read(UNIT_CHANGE) == Reading("enabled")
    host.effects().undo(act(UNIT_CHANGE))
    assert set(host.units.values()) == {"disabled"}
    # Again: the first may have failed to stop it.
    host.effects().undo(act(UNIT_CHANGE))
    assert host.runner.ran.count(("systemctl", "disable", "--now", UNIT_NAME)) == 2


def test_a_unit_that_is_not_installed(host):
    host.systemd()
    host.units.clear()
    assert host.effects().read(UNIT_CHANGE) == Reading()
    assert host.effects().gone(act(UNIT_CHANGE))
    assert "cannot be enabled" in fails(host.effects().do, act(UNIT_CHANGE))
    host.effects().undo(act(UNIT_CHANGE))


def test_units_without_systemd(host):
    assert "systemd" in host.effects().read(UNIT_CHANGE).problem
    assert not host.effects().gone(act(UNIT_CHANGE))
    words = fails(host.effects().do, act(UNIT_CHANGE))
    assert (words.id, UNIT_NAME in words) == ("systemd-not-running", True)


# Files of ours

TEXT = own_text(["options mlx4_core log_num_mtt=24"])
EARLIER = own_text(["options mlx4_core log_num_mtt=20"])


def file(before, after, path=MODPROBE):
    return Change(FILE, path, before, after)


def put(host, text, path=MODPROBE):
    place = host.path / path[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(text.encode("utf-8", "surrogateescape"))
    return place


@pytest.mark.parametrize("path", [MODPROBE, MODULES_LOAD])
def test_a_file_goes_there_and_back(host, path):
    place = host.path / path[1:]
    effects = host.effects()
    (host.path / "etc").mkdir(exist_ok=True)  # and not the folder in it
    effects.do(act(file(None, TEXT, path)))
    assert place.read_text() == TEXT
    assert place.stat().st_mode & 0o777 == 0o644
    assert effects.read(file(None, TEXT, path)) == Reading(TEXT)
    effects.undo(act(file(None, TEXT, path)))
    assert not place.exists()
    assert effects.read(file(None, TEXT, path)) == Reading()
    effects.undo(act(file(None, TEXT, path)))


def test_an_earlier_text_comes_back_byte_for_byte(host):
    earlier = EARLIER + "# \udcff\n"
    place = put(host, earlier)
    assert host.effects().read(file(None, TEXT)) == Reading(earlier)
    host.effects().do(act(file(earlier, TEXT)))
    host.effects().undo(act(file(earlier, TEXT), before=earlier))
    assert place.read_bytes().endswith(b"# \xff\n")


def test_a_file_is_removed_and_comes_back(host):
    place = put(host, EARLIER)
    host.effects().do(act(file(EARLIER, None)))
    assert not place.exists()
    host.effects().undo(act(file(EARLIER, None)))
    assert place.read_text() == EARLIER


@pytest.mark.parametrize(
    ("there", "words"),
    [
        ("options mlx4_core x=1\n", "is not from ovirt-rdma"),
        ("", "is not from ovirt-rdma"),
        (TEXT + "# mine\n", "'# mine': it is left alone"),
    ],
)
def test_a_foreign_file_is_never_written_or_removed(host, there, words):
    place = put(host, there)
    for effect, change in (
        (host.effects().do, file(None, TEXT)),
        (host.effects().do, file(TEXT, None)),
        (host.effects().undo, file(None, TEXT)),
    ):
        assert words in fails(effect, act(change))
        assert place.read_text() == there


def test_a_symbolic_link_is_not_our_file(host):
    other = put(host, EARLIER, "/etc/other")
    place = host.path / MODPROBE[1:]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(other)
    assert "symbolic link" in host.effects().read(file(None, TEXT)).problem
    assert "symbolic link" in fails(host.effects().do, act(file(None, TEXT)))
    assert "symbolic link" in fails(host.effects().undo, act(file(None, TEXT)))
    assert other.read_text() == EARLIER


def test_a_full_disk_leaves_the_old_file(host, monkeypatch):
    place = put(host, EARLIER)

    def full(descriptor):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    words = fails(host.effects().do, act(file(EARLIER, TEXT)))
    assert words == f"{MODPROBE} cannot be written: No space left on device"
    assert place.read_text() == EARLIER
    assert [path.name for path in place.parent.iterdir()] == [place.name]


def test_what_a_killed_write_left_is_taken_away(host):
    rest = put(host, "half", "/etc/modprobe.d/.ovirt-rdma.conf.abcd1234.ovirt-rdma")
    host.effects().undo(act(file(None, TEXT)))
    assert not rest.exists()
    rest.write_text("half")
    host.effects().do(act(file(None, TEXT)))
    assert not rest.exists()


def test_an_unreadable_file_is_a_problem(host):
    host.unreadable(MODPROBE)
    assert "cannot be read" in host.effects().read(file(None, TEXT)).problem
    assert "cannot be read" in fails(host.effects().do, act(file(None, TEXT)))


def test_boot_id_and_time(host):
    effects = host.effects()
    first = effects.boot_id()
    assert len(first) == 36
    host.reboot()
    assert effects.boot_id() not in ("", first)
    assert effects.now() == host.time


def test_below_another_root_no_tool_is_run(host):
    effects = HostEffects(host.path)
    words = fails(effects.do, act(Change(MODULE, "rpcrdma", None, "loaded")))
    assert "is not this host's root" in words
