# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests that any change is refused that none of our rules makes."""

from dataclasses import replace

import pytest
from support.problems import problem

from ovirt_rdma.host.changes.kinds.kind import AtomicChange, EffectFailed
from ovirt_rdma.host.changes.kinds.netdev import child_name
from ovirt_rdma.host.changes.kinds.registry import HostEffects, kind_of
from ovirt_rdma.host.rules.base import (
    DCB,
    FILE,
    MODULE,
    OFFLOAD,
    OPENSM_FILE,
    OPENSM_SETTINGS,
    PROFILE,
    ROCE_TOS,
    SYSFS,
    UNIT,
    Change,
)

pytestmark = pytest.mark.hypervisor

UUID = "3c2ee5a2-1b1e-4c35-b2a5-6a56fd8f8f14"
NET = "/sys/class/net"
PCI = "/sys/bus/pci/devices"
MODPROBE = "/etc/modprobe.d/ovirt-rdma.conf"

GUID = "0x0002c90300fb1231"
ALLOWED = [
    Change(SYSFS, f"{NET}/ib0/mode", "datagram", "connected"),
    Change(SYSFS, f"{NET}/ib0.8001/mode", None, "datagram"),
    Change(SYSFS, f"{NET}/ib0/mtu", "2044", "65520"),
    Change(SYSFS, f"{NET}/storage-ib@0/mtu", "2044", "4092"),
    Change(SYSFS, f"{NET}/ib0/create_child", None, "0x8001"),
    Change(SYSFS, f"{PCI}/0000:04:00.0/mlx4_port2_mtu", "4096", "2048"),
    Change(PROFILE, UUID, None, "connected", "infiniband.transport-mode"),
    Change(PROFILE, UUID, "4092", None, "infiniband.mtu"),
    Change(PROFILE, UUID, None, "4200", "802-3-ethernet.mtu"),
    Change(PROFILE, UUID, "on", "off", "ethtool.feature-tso"),
    Change(PROFILE, "new:ib0.8001", None, "infiniband", "connection.type"),
    Change(PROFILE, "new:ib0.8001", None, "0x8001", "infiniband.p-key"),
    Change(PROFILE, "new:ib0.8001", None, "disabled", "ipv4.method"),
    Change(OFFLOAD, "ib0", "on", "off", "tx-tcp-segmentation"),
    Change(DCB, "ens1", "none", "3", "pfc"),
    Change(DCB, "ens1", "rx tx", "off", "pause"),
    Change(DCB, "ens1", "3,4", "0", "pfc"),
    Change(DCB, "ens1", "none", "7", "dscp-63"),
    Change(DCB, "ens1", "9:0,1,2,3,4,5,6,7 0:", "5:0,1,2,4,5,6,7 4:3", "buffers"),
    Change(ROCE_TOS, "ens1", "0", "106"),
    Change(SYSFS, f"{NET}/ens1/ecn/roce_np/enable/3", None, "1"),
    Change(FILE, MODPROBE, None, "options mlx4_core log_num_mtt=24\n"),
    Change(FILE, MODPROBE, "# mine\n\udcff", None),
    Change(OPENSM_FILE, "/etc/rdma/partitions.conf", "# by hand\n", "x=1;\n"),
    Change(OPENSM_FILE, "/etc/opensm/partitions.conf", None, "x=1;\n"),
    Change(OPENSM_FILE, "/etc/rdma/partitions.conf", "x=1;\n", None),
    Change(OPENSM_SETTINGS, f"/etc/ovirt-rdma/opensm-{GUID}.conf", None, "x\n"),
    Change(OPENSM_SETTINGS, f"/etc/ovirt-rdma/opensm-{GUID}.conf", "x\n", None),
    Change(UNIT, f"ovirt-rdma-opensm@{GUID}.service", "disabled", "enabled", "enabled"),
    Change(MODULE, "rpcrdma", None, "loaded"),
]
REFUSED = [
    Change(FILE, "/etc/passwd", None, "root::0:0::/:/bin/sh\n"),
    Change(FILE, f"{MODPROBE}/../../passwd", None, "x"),
    Change(FILE, MODPROBE, None, "x\0y"),
    Change(FILE, "/etc/rdma/partitions.conf", None, "x=1;\n"),
    Change(OPENSM_FILE, "/etc/rdma/opensm.conf", None, "x\n"),
    Change(OPENSM_FILE, MODPROBE, None, "x\n"),
    Change(OPENSM_FILE, "/etc/rdma/partitions.conf", None, "x\0y"),
    Change(OPENSM_SETTINGS, "/etc/ovirt-rdma/policy.yaml", None, "x\n"),
    Change(OPENSM_SETTINGS, "/etc/ovirt-rdma/opensm-0x5.conf", None, "x\n"),
    Change(OPENSM_SETTINGS, f"/etc/ovirt-rdma/opensm-{GUID}.conf\n", None, "x\n"),
    Change(FILE, f"/etc/ovirt-rdma/opensm-{GUID}.conf", None, "x\n"),
    # `enable` starts the daemon.
    Change(UNIT, "ovirt-rdmad.service", None, "enabled", "enabled"),
    Change(UNIT, "ovirt-rdma-opensm@ib0.service", None, "enabled", "enabled"),
    Change(UNIT, f"opensm@{GUID}.service", None, "enabled", "enabled"),
    Change(FILE, MODPROBE, None, "x", "name"),
    Change(SYSFS, "/etc/passwd", None, "x"),
    Change(SYSFS, f"{NET}/../mode", None, "connected"),
    Change(SYSFS, f"{NET}/./mode", None, "connected"),
    Change(SYSFS, f"{NET}/ib0/../../../etc/mtu", None, "1"),
    Change(SYSFS, f"{NET}/ib0/mode\n", None, "connected"),
    Change(SYSFS, f"{NET}/ib0/device/remove", None, "1"),
    Change(SYSFS, f"{NET}/ib0/delete_child", None, "0x8001"),
    Change(SYSFS, f"{NET}/{'x' * 16}/mtu", None, "1500"),
    Change(SYSFS, f"{NET}/ib 0/mtu", None, "1500"),
    Change(SYSFS, f"{NET}/ib0/mode", None, "bogus"),
    Change(SYSFS, f"{NET}/ib0/mode", None, None),
    Change(SYSFS, f"{NET}/ib0/mtu", None, "1500\n1"),
    Change(SYSFS, f"{NET}/ib0/mtu", None, "-1"),
    Change(SYSFS, f"{PCI}/0000:04:00.0/remove", None, "1"),
    Change(SYSFS, f"{PCI}/../mlx4_port1_mtu", None, "2048"),
    Change(PROFILE, UUID, None, "x", "connection.permissions"),
    Change(PROFILE, UUID, None, "x y", "connection.interface-name"),
    Change(PROFILE, UUID, None, "--help", "infiniband.mtu"),
    Change(PROFILE, "--all", None, "connected", "infiniband.transport-mode"),
    Change(PROFILE, "new:../../x", None, "infiniband", "connection.type"),
    Change(PROFILE, "new:", None, "infiniband", "connection.type"),
    Change(OFFLOAD, "ib0", "on", "off", "-s"),
    Change(OFFLOAD, "--help/x", "on", "off", "tx-tcp-segmentation"),
    Change(OFFLOAD, "ib0", "on", None, "tx-tcp-segmentation"),
    Change(DCB, "ens1", "none", "8", "pfc"),
    Change(DCB, "ens1", "none", "0,1,2,3,4,5,6,7", "pfc"),
    Change(DCB, "ens1", "3", "none", "dscp-26"),
    Change(DCB, "ens1", "off", "rx tx", "pause"),
    Change(DCB, "ens1", "9:0,1,2,3,4,5,6,7 0:", "0:0,1,2,3,4,5,6,7 9:", "buffers"),
    Change(DCB, "ens1", "9:0,1,2,3,4,5,6,7 0:", "5:0,1,2,4,5,6,7 4:3,3", "buffers"),
    Change(DCB, "ens1", "9:0,1,2,3,4,5,6,7 0:", "5:0,1,2,4,5,6,7 4:", "buffers"),
    Change(ROCE_TOS, "ens1", "0", "256"),
    Change(ROCE_TOS, "ens1", "0", "010"),
    Change(DCB, "ens1", "none", "3;reboot", "pfc"),
    Change(DCB, "-d/x", "none", "3", "pfc"),
    Change(DCB, "ens1", "none", "3", "dscp-64"),
    Change(DCB, "ens1", "none", "3", "ets"),
    Change(DCB, "ens1", "none", None, "pfc"),
    Change(DCB, "ens1", "off", "both", "pause"),
    Change(DCB, "ens1", "1:0", "1:8", "buffers"),
    Change(DCB, "ens1", "1:0", "1:0 --help", "buffers"),
    Change(ROCE_TOS, "../ens1", "0", "106"),
    Change(ROCE_TOS, "ens1", "0", "-1"),
    Change(ROCE_TOS, "ens1", "0", "106", "name"),
    Change(SYSFS, f"{NET}/ens1/ecn/roce_np/enable/8", None, "1"),
    Change(SYSFS, f"{NET}/ens1/ecn/roce_np/enable/3", None, "2"),
    Change(SYSFS, f"{NET}/../ecn/roce_np/enable/3", None, "1"),
    Change(MODULE, "--remove", None, "loaded"),
    Change(MODULE, "../evil", None, "loaded"),
    Change(MODULE, "rpcrdma", None, "gone"),
    Change(UNIT, "sshd.service", "enabled", "disabled", "enabled"),
    Change(UNIT, "ovirt-rdma-x/../sshd.service", None, "enabled", "enabled"),
    Change("shell", "rm", None, "-rf /"),
]


@pytest.mark.parametrize("change", ALLOWED, ids=str)
def test_what_rules_give_is_allowed(change):
    assert kind_of(change).refusal() == ""


@pytest.mark.parametrize("change", REFUSED, ids=str)
def test_all_else_is_refused_before_anything_is_done(change, tmp_path):
    def run(argv):
        raise AssertionError(argv)

    def write(path, data):
        raise AssertionError(path)

    effects = HostEffects(tmp_path, run, write=write)
    assert effects.refusal(change)
    assert effects.read(change).problem == effects.refusal(change)
    act = AtomicChange("S/x", "live", (change,), uuid=UUID)
    for effect in (effects.do, effects.undo):
        with pytest.raises(EffectFailed) as failed:
            effect(act)
        assert "\n" not in str(failed.value)
    assert not effects.gone(act)
    assert list(tmp_path.iterdir()) == []


def test_a_value_from_before_that_no_rule_could_have_found_is_not_set(tmp_path):
    act = AtomicChange("S/x", "live", (replace(ALLOWED[0], before="bogus"),))
    with problem("change-not-allowed", "'bogus'"):
        HostEffects(tmp_path).undo(act)
    with problem("change-not-allowed", "0 changes"):
        HostEffects(tmp_path).undo(AtomicChange("S/x", "live", ()))


def test_netdev_of():
    assert kind_of(ALLOWED[0]).netdev == "ib0"
    assert kind_of(ALLOWED[5]).netdev is None
    assert kind_of(ALLOWED[6]).netdev is None
    assert kind_of(ALLOWED[10]).netdev == "ib0.8001"
    assert kind_of(ALLOWED[13]).netdev == "ib0"


def test_a_childs_name_is_cut_as_the_kernel_does():
    assert child_name("ib0", "0x8001") == "ib0.8001"
    assert child_name("ib0", "0xa") == "ib0.000a"
    assert child_name("ibp129s0f0d1", "0xFFF1") == "ibp129s0f0.fff1"
