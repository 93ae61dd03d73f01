# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the lossless class of RoCE: planned, applied, proven, restored at boot, and
reverted, on mlx5's data center bridging and RDMA CM's configfs as the kernel has them.
"""

from __future__ import annotations

import errno
import shutil

import pytest
from support.fakes import fake_hosts
from support.fakes.fake_changes import changing
from support.fakes.fake_hosts import connectx5_roce, soft_roce
from support.fakes.fake_root import Pci
from support.host.effects_host import Told, apply_steps, revert
from support.host.rule_cases import host_policy
from support.problems import problem

from ovirt_rdma.host.changes.boot import restore_netdev
from ovirt_rdma.host.changes.journal import DONE, ROLLED_BACK, Journal
from ovirt_rdma.host.changes.kinds.registry import kind_of
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.changes.run import change_status
from ovirt_rdma.host.policy.model import InterfaceRule, RoceClass
from ovirt_rdma.host.rules.base import ROCE_TOS, Change
from ovirt_rdma.host.rules.registry import decide

pytestmark = pytest.mark.hypervisor

PORTS = ("ens1f0np0", "ens1f1np1")
CM = "/sys/kernel/config/rdma_cm/mlx5_bond_0"
TOS = f"{CM}/ports/1/default_roce_tos"


def wanted(**more):
    rule = InterfaceRule(1, "storage", link_layer="ethernet", roce=RoceClass(3, **more))
    return host_policy(interfaces=(rule,))


@pytest.fixture
def host(tmp_path):
    host = changing(connectx5_roce, tmp_path)
    host.runner.answer("ip -j route get 10.0.0.1", "[]")
    for name in PORTS:
        host.dcb(name)
        host.pause(name, rx=True, tx=False)
    for name in ("storage", "bond0", "bond0.100"):
        # Nobody uses it, so that links may go down.
        host._links[name]["addr_info"] = []
    return host


def steps(host, policy):
    found = decide(host.reader().facts(), policy).steps
    return [step for step in found if step.rule.startswith("ROCE-")]


def applied(host, policy):
    plan = gate(steps(host, policy), allow_link_down=True)
    facts, journal = host.reader().facts(), Journal(host.path)
    return apply_steps(host.effects(), journal, plan.steps, Told(), facts)


def state(host):
    """All that the class has changed."""
    facts = {netdev.name: netdev.dcb for netdev in host.reader().facts().netdevs}
    return (
        [
            (facts[name].value("pause"), port.pfc, port.entries, port.trust)
            for name, port in host.dcb_ports.items()
        ],
        [(port.buffer_of, port.sizes) for port in host.dcb_ports.values()],
        host.roce_tos.get(TOS, "0"),
    )


def test_the_class_is_planned_applied_proven_and_reverted(host):
    before, policy = state(host), wanted()
    planned = steps(host, policy)
    assert [(step.id, step.effect) for step in planned] == [
        ("ROCE-CLASS-01/ens1f0np0", "link-down"),
        ("ROCE-CLASS-01/ens1f1np1", "link-down"),
        ("ROCE-TOS-01/mlx5_bond_0/1", "live"),
    ]
    assert planned[0].after == "pause off, pfc 3, dscp-26 3"
    result = applied(host, policy)
    assert result.outcome == DONE, result.sentence
    ports, _, tos = state(host)
    assert ports == [("off", {3}, {26: 3}, "dscp")] * 2
    assert tos == "106"
    assert [port.flaps for port in host.dcb_ports.values()] == [1, 1]
    # Once more: nothing.
    assert steps(host, policy) == []
    verdicts = {
        (f.rule, f.subject): f.verdict
        for f in decide(host.reader().facts(), policy).findings
        if f.rule in ("ROCE-CLASS-01", "ROCE-TOS-01", "ROCE-PFC-01", "ROCE-ECN-01")
    }
    assert verdicts == {
        ("ROCE-CLASS-01", "ens1f0np0"): "PASS",
        ("ROCE-CLASS-01", "ens1f1np1"): "PASS",
        ("ROCE-TOS-01", "mlx5_bond_0/1"): "PASS",
        **{(f"ROCE-{r}-01", n): "SKIP" for r in ("PFC", "ECN") for n in PORTS},
    }
    result = revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    assert (result.outcome, result.left) == (DONE, ())
    assert state(host) == before


def restored(host, name):
    said = []
    code = restore_netdev(host.path, host.run, name, said.append, host.effects())
    assert code == 0, said
    return said


def test_what_a_boot_forgets_is_set_again_by_the_unit(host):
    """The bond's RDMA device comes after its netdevs, and after those of its ports."""
    applied(host, wanted(buffer=100_000))
    after = state(host)
    host.reboot()
    device = host.path / "sys/class/infiniband/mlx5_bond_0"
    away = device.rename(host.path / "away")
    assert [port.pfc for port in host.dcb_ports.values()] == [set(), set()]
    for name in PORTS:
        assert len(restored(host, name)) == 3
    assert [(port.pfc, port.entries) for port in host.dcb_ports.values()] == [
        ({3}, {26: 3})
    ] * 2
    away.rename(device)
    assert steps(host, wanted(buffer=100_000))
    assert restored(host, "mlx5_bond_0") == [
        "default_roce_tos of ens1f0np0 was None, is 106"
    ]
    assert steps(host, wanted(buffer=100_000)) == []
    # Global pause is a setting of the driver, which has what it had.
    assert state(host) == after
    assert restored(host, "mlx5_bond_0") == []


def test_the_operators_own_values_come_back(host):
    host.dcb("ens1f0np0", pfc=(4,), dscp=((26, 4), (46, 6)))
    host.run(["modprobe", "rdma_cm"])
    host.effects().make_folder(CM)
    host.kernel_write(host.path / TOS.lstrip("/"), b"130\n")
    before = state(host)
    assert applied(host, wanted()).outcome == DONE
    port = host.dcb_ports["ens1f0np0"]
    assert (port.pfc, port.entries) == ({3}, {26: 3, 46: 6})
    revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    assert state(host) == before


def test_a_buffer_of_its_own(host):
    before, policy = state(host), wanted(buffer=100_000)
    assert applied(host, policy).outcome == DONE
    port = host.dcb_ports["ens1f0np0"]
    assert port.buffer_of == [0, 0, 0, 1, 0, 0, 0, 0]
    # The driver rounds both to cells.
    assert port.sizes[:2] == [262016 - 100_000 - 32 & ~127, 99_968]
    assert steps(host, policy) == []
    revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    after = state(host)
    assert after == before


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (250_000, "buffer 0 has 262016, so that it can have at most 244016"),
        (4096, "Cannot allocate memory"),
    ],
)
def test_a_buffer_that_does_not_fit(host, size, words):
    """Too large is seen before; too small for a lossless one, the driver says."""
    before = state(host)
    planned = steps(host, wanted(buffer=size))
    if planned[0].refused:
        assert words in planned[0].refused
        return
    result = applied(host, wanted(buffer=size))
    assert result.outcome == ROLLED_BACK
    assert words in result.sentence
    assert state(host) == before


def test_a_driver_that_refuses_takes_all_back(host):
    """ice and mlx5 with an agent in the firmware, for example."""
    before = state(host)
    host.dcb_ports["ens1f1np1"].refused = "Operation not supported"
    result = applied(host, wanted())
    assert result.outcome == ROLLED_BACK
    assert "pfc of ens1f1np1 cannot be set to 3" in result.sentence
    host.dcb_ports["ens1f1np1"].refused = ""
    assert state(host) == before


def test_what_somebody_else_has_set_since_is_left(host):
    applied(host, wanted())
    port = host.dcb_ports["ens1f0np0"]
    port.command(["pfc", "set", "dev", PORTS[0], "prio-pfc", "5:on"])
    (why,) = change_status(host.effects(), Journal(host.path)).kept
    assert "pfc of ens1f0np0 was changed since" in why
    revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    assert host.dcb_ports["ens1f0np0"].pfc == {3, 5}
    assert host.dcb_ports["ens1f1np1"].pfc == set()


@pytest.mark.parametrize("hidden", ["96", "106"])
def test_a_type_of_service_that_its_folder_hid_comes_back(host, hidden):
    """RDMA CM keeps the value when the folder is removed (cma.c:224)."""
    host.roce_tos[TOS] = hidden
    (step,) = (s for s in steps(host, wanted()) if s.rule == "ROCE-TOS-01")
    assert step.before == "unknown"
    assert applied(host, wanted()).outcome == DONE
    assert host.roce_tos[TOS] == "106"
    revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    assert host.roce_tos[TOS] == hidden


def test_a_folder_that_somebody_removed_does_not_hide_what_is_ours(host):
    applied(host, wanted())
    shutil.rmtree(host.path / CM.lstrip("/"))
    assert [step.rule for step in steps(host, wanted())] == ["ROCE-TOS-01"]
    revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    assert host.roce_tos[TOS] == "0"


def test_two_ports_of_one_device_have_each_its_own(tmp_path):
    """ConnectX-3: the folder in configfs is the device's."""
    host = changing(connectx3_roce, tmp_path)
    host.run(["modprobe", "rdma_cm"])
    host.effects().make_folder("/sys/kernel/config/rdma_cm/mlx4_0")
    file = "/sys/kernel/config/rdma_cm/mlx4_0/ports/{}/default_roce_tos"
    host.kernel_write(host.path / file.format(2).lstrip("/"), b"96\n")
    assert applied(host, wanted()).outcome == DONE
    assert [host.roce_tos[file.format(n)] for n in (1, 2)] == ["106", "106"]
    revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    assert [host.roce_tos[file.format(n)] for n in (1, 2)] == ["0", "96"]


def connectx3_roce(path):
    """Return a ConnectX-3 with two Ethernet ports."""
    host = fake_hosts.FakeRoot(path)
    host.modules(loaded=("mlx4_core", "mlx4_ib"))
    function = Pci("0000:04:00.0", "0x15b3", "0x1003", "mlx4_core")
    host.rdma_device("mlx4_0", pci=function)
    for port in (1, 2):
        name = f"ens2d{port}"
        host.netdev(name, mtu=9000, pci=function, address=f"b8:59:9f:00:00:0{port}")
        host.write(f"/sys/class/net/{name}/dev_port", str(port - 1))
        host.rdma_port("mlx4_0", port, link_layer="Ethernet")
    return host


def test_congestion_notification_comes_back_at_both_ends(host):
    """MLNX_OFED's files."""
    for name in PORTS:
        host.ecn(name, rp=(), np=())
    applied(host, wanted())
    host.reboot()
    for name in PORTS:
        host.ecn(name, rp=(), np=())
        restored(host, name)
    ecn = [
        n.dcb.ecn_priorities for n in host.reader().facts().netdevs if n.name in PORTS
    ]
    assert ecn == [(3,), (3,)]


def test_a_netdev_in_use_keeps_its_link_and_gets_the_rest(host):
    """After its driver was loaded again."""
    applied(host, wanted())
    host.dcb("ens1f0np0")
    host._links["storage"]["addr_info"] = [{"local": "10.0.0.2", "prefixlen": 24}]
    host.nfs_mount("10.0.0.1:/data", "/mnt/data")
    host.route("10.0.0.1", "storage", "10.0.0.2")
    said = []
    code = restore_netdev(host.path, host.run, "ens1f0np0", said.append, host.effects())
    assert code == 1
    assert any("pfc of ens1f0np0 stays none: in use" in line for line in said)
    port = host.dcb_ports["ens1f0np0"]
    assert (port.pfc, port.entries, port.flaps) == (set(), {26: 3}, 0)


def test_soft_roce_has_a_type_of_service_only(tmp_path):
    host = changing(soft_roce, tmp_path)
    (step,) = steps(host, wanted(ecn="off"))
    assert (step.rule, step.after, step.effect) == ("ROCE-TOS-01", "104", "live")
    assert applied(host, wanted(ecn="off")).outcome == DONE
    assert set(host.roce_tos.values()) == {"104"}


def test_the_kernel_that_refuses_the_type_of_service(tmp_path):
    host = changing(soft_roce, tmp_path)
    (name,) = [d.name for d in host.reader().facts().rdma_devices]
    file = f"/sys/kernel/config/rdma_cm/{name}/ports/1/default_roce_tos"
    host.refusals[file] = errno.EACCES
    result = applied(host, wanted())
    assert result.outcome == ROLLED_BACK
    assert f"{file}: the kernel does not accept 106" in result.sentence
    tos = Change(ROCE_TOS, "eth0", "0", "106")
    with problem(
        "sysfs-write-failed", f"{file}: the kernel does not accept 106"
    ) as caught:
        kind_of(tos).put(host.effects(), "106")
    fix = "run this as root, on the host itself and not in a container"
    assert caught.value.fix == fix


def test_a_type_of_service_that_has_no_file(tmp_path):
    """rdma_cm cannot be loaded, at a boot too: the device is there."""
    host = changing(soft_roce, tmp_path)
    host.runner.program("modprobe", lambda argv: "")
    host.run = host.runner
    tos = Change(ROCE_TOS, "eth0", "0", "106")
    with problem("sysfs-write-failed", "default_roce_tos is not there: ") as caught:
        kind_of(tos).put(host.effects(), "106")
    assert caught.value.fix == "modprobe rdma_cm, and run this as root"


def test_configfs_is_mounted_where_it_is_not(host):
    """rdma_cm alone does not show its folder then."""
    host.runner.program("modprobe", lambda argv: "")
    host.run = with_mount(host)
    assert applied(host, wanted()).outcome == DONE
    assert host.roce_tos[TOS] == "106"


def with_mount(host):
    run = host.run

    def runs(argv):
        if argv[:3] == ("mount", "-t", "configfs"):
            (host.path / CM.lstrip("/")).parent.mkdir(parents=True)
            return ""
        return run(argv)

    return runs
