# SPDX-License-Identifier: GPL-2.0-or-later
"""Tests of the lossless class of RoCE: planned, applied, proven, restored at boot, and
reverted, on mlx5's data center bridging and RDMA CM's configfs as the kernel has them.
"""

from __future__ import annotations

import errno

import pytest
from support.fakes.fake_changes import changing
from support.fakes.fake_hosts import connectx5_roce, soft_roce
from support.host.effects_host import Told
from support.host.rule_cases import host_policy

from ovirt_rdma.host.changes.boot import restore_netdev
from ovirt_rdma.host.changes.journal import DONE, ROLLED_BACK, Journal
from ovirt_rdma.host.changes.plan import gate
from ovirt_rdma.host.changes.run import RunRequest, apply_steps, change_status, revert
from ovirt_rdma.host.policy.model import InterfaceRule, RoceClass
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
    (host.path / "sys/kernel/config/rdma_cm").mkdir(parents=True)
    for name in PORTS:
        host.dcb(name)
        host.pause(name, rx=True, tx=False)
    for name in ("storage", "bond0", "bond0.100"):
        without_address(host, name)
    return host


def without_address(host, name):
    """Nobody uses it, so that links may go down."""
    host._links[name]["addr_info"] = []


def steps(host, policy):
    found = decide(host.reader().facts(), policy).steps
    return [step for step in found if step.rule.startswith("ROCE-")]


def applied(host, policy):
    plan = gate(steps(host, policy), allow_link_down=True)
    request = RunRequest(facts=host.reader().facts())
    return apply_steps(host.effects(), Journal(host.path), plan.steps, request, Told())


def state(host):
    """All that the class has changed, and how often links went down."""
    facts = {netdev.name: netdev.dcb for netdev in host.reader().facts().netdevs}
    folder = host.path / CM.lstrip("/")
    return (
        [
            (facts[name].value("pause"), port.pfc, port.entries, port.trust)
            for name, port in host.dcb_ports.items()
        ],
        [(port.buffer_of, port.sizes) for port in host.dcb_ports.values()],
        host.roce_tos.get(TOS, "0"),
        folder.is_dir(),
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
    ports, _, tos, _ = state(host)
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


def test_what_a_boot_forgets_is_set_again_by_the_unit(host):
    applied(host, wanted())
    after = state(host)
    host.reboot()
    assert [port.pfc for port in host.dcb_ports.values()] == [set(), set()]
    assert steps(host, wanted())
    said = []
    for name in PORTS:
        code = restore_netdev(host.path, host.run, name, said.append, host.effects())
        assert code == 0, said
    assert steps(host, wanted()) == []
    # Global pause is a setting of the driver, which has what it had.
    assert state(host) == after


def test_the_operators_own_values_come_back(host):
    host.dcb("ens1f0np0", pfc=(4,), dscp=((26, 4), (46, 6)))
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
    assert (after[0], after[2:]) == (before[0], before[2:])
    for (of, sizes), (was_of, was) in zip(after[1], before[1]):
        assert of == was_of
        assert sizes == was


@pytest.mark.parametrize(
    ("size", "words"),
    [
        (250_000, "buffer 0 has 262016, so at most 244016 are free"),
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
    host.dcb_ports["ens1f0np0"].set(["pfc", "set", "dev", PORTS[0], "prio-pfc", "5:on"])
    (why,) = change_status(host.effects(), Journal(host.path)).kept
    assert "pfc of ens1f0np0 was changed since" in why
    revert(host.effects(), Journal(host.path), host.reader().facts(), Told())
    assert host.dcb_ports["ens1f0np0"].pfc == {3, 5}
    assert host.dcb_ports["ens1f1np1"].pfc == set()


def test_a_type_of_service_that_its_folder_hid_is_not_lost(host):
    """RDMA CM keeps the value when the folder is removed (cma.c:224)."""
    host.roce_tos[TOS] = "96"
    result = applied(host, wanted())
    assert result.outcome == ROLLED_BACK
    assert "default_roce_tos has 96, which nobody sees without its folder" in str(
        result.sentence
    )
    assert (host.roce_tos[TOS], state(host)[3]) == ("96", False)


def test_an_rdma_device_that_comes_after_its_netdev_is_waited_for(host):
    applied(host, wanted())
    host.reboot()
    ports = host.path / "sys/class/infiniband/mlx5_bond_0/ports/1/link_layer"
    text = ports.read_text()
    ports.write_text("")

    def sleep(seconds):
        host.waited += seconds
        if host.waited > 3:
            ports.write_text(text)

    effects = host.effects()
    effects.sleep = sleep
    assert restore_netdev(host.path, host.run, "ens1f0np0", print, effects) == 0
    assert host.roce_tos[TOS] == "106"
    assert 3 < host.waited < 5


def test_without_an_rdma_device_the_unit_says_so(host):
    applied(host, wanted())
    host.reboot()
    (host.path / "sys/class/infiniband/mlx5_bond_0/ports/1/link_layer").write_text("")
    said = []
    code = restore_netdev(host.path, host.run, "ens1f0np0", said.append, host.effects())
    assert code == 1
    assert any("ens1f0np0 has no RDMA device" in line for line in said)
    assert host.dcb_ports["ens1f0np0"].pfc == {3}


def test_soft_roce_has_a_type_of_service_only(tmp_path):
    host = changing(soft_roce, tmp_path)
    (host.path / "sys/kernel/config/rdma_cm").mkdir(parents=True)
    (step,) = steps(host, wanted(ecn="off"))
    assert (step.rule, step.after, step.effect) == ("ROCE-TOS-01", "104", "live")
    assert applied(host, wanted(ecn="off")).outcome == DONE
    assert set(host.roce_tos.values()) == {"104"}


def test_the_kernel_that_refuses_the_type_of_service(tmp_path):
    host = changing(soft_roce, tmp_path)
    (host.path / "sys/kernel/config/rdma_cm").mkdir(parents=True)
    (name,) = [d.name for d in host.reader().facts().rdma_devices]
    file = f"/sys/kernel/config/rdma_cm/{name}/ports/1/default_roce_tos"
    host.refusals[file] = errno.EACCES
    result = applied(host, wanted())
    assert result.outcome == ROLLED_BACK
    assert f"{file}: the kernel does not accept 106" in result.sentence
