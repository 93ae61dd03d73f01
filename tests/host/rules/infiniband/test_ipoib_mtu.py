# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MTU-01 to -03: the MTU, the engine's MTU, and the receive buffers."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import (
    HFI1,
    MLX5,
    bond,
    child,
    finding,
    host,
    netdev,
    network,
    policy,
    port,
    profile,
    shown,
    steps,
)

from ovirt_rdma.host.facts.devices import Adapter, PciIdentity

ID = "IPOIB-MTU-01"
SYSFS = "/sys/class/net/ib0/mtu"


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        pytest.param(
            host(), "MTU 4092 in datagram mode: the port's largest MTU is 4096", id="4K"
        ),
        pytest.param(
            host(max_mtu=2048),
            "MTU 2044 in datagram mode: the port's largest MTU is 2048",
            id="2K port",
        ),
        pytest.param(
            host(active_mtu=2048),
            "MTU 2044 in datagram mode: the link has MTU 2048",
            id="2K switch",
        ),
        pytest.param(
            host(netdev(mtu=2044)),
            "MTU 2044 in datagram mode: the broadcast group",
            id="2K group",
        ),
        pytest.param(
            host(netdev(mtu=2044), profiles=[profile(mtu=4092)]),
            "MTU 2044 in datagram mode: the broadcast group",
            id="2K group, profile asks for more",
        ),
        pytest.param(
            host(netdev(mtu=65520, mode="connected")),
            "MTU 65520 in connected mode: ",
            id="connected",
        ),
        pytest.param(host(**HFI1), "MTU 10236 in datagram mode", id="Omni-Path"),
        pytest.param(
            host(ports=(port(state="DOWN", active_mtu=2048),)),
            "MTU 4092 in datagram mode: the port's largest MTU",
            id="the link MTU of a port that is down does not count",
        ),
    ],
)
def test_auto_says_what_decided(facts, words):
    wanted = policy(mtu="auto")
    if facts.rdma_devices[0].ports[0].state == "DOWN":
        facts = replace(facts, netdevs=(netdev(mtu=4092),))
    text = finding(facts, wanted, ID)
    assert text.startswith("PASS ib0 has ")
    assert words in text
    assert not [name for name in steps(facts, wanted) if name.startswith(ID)]


@pytest.mark.parametrize(
    ("facts", "mtu", "changes", "verdict"),
    [
        pytest.param(
            host(netdev(mtu=1500)), "auto", [f"{SYSFS} 1500>4092"], "FAIL", id="raise"
        ),
        pytest.param(
            host(netdev(mtu=2044)), 4092, [f"{SYSFS} 2044>4092"], "FAIL", id="number"
        ),
        pytest.param(
            host(netdev(mtu=4092)), 2044, [f"{SYSFS} 4092>2044"], "FAIL", id="lower"
        ),
        pytest.param(
            host(netdev(mtu=2044), profiles=[profile(mtu=2044)]),
            "auto",
            ["uuid-ib0 infiniband.mtu 2044>4092", f"{SYSFS} 2044>4092"],
            "FAIL",
            id="profile holds it down",
        ),
        pytest.param(
            host(profiles=[profile(mtu=65520)]),
            "auto",
            ["uuid-ib0 infiniband.mtu 65520>4092"],
            "WARN",
            id="profile of connected days",
        ),
        pytest.param(
            host(profiles=[profile()]),
            4092,
            ["uuid-ib0 infiniband.mtu None>4092"],
            "WARN",
            id="a number has to be kept",
        ),
        pytest.param(
            host(profiles=[profile(mtu="auto")]), "auto", [], "PASS", id="nothing kept"
        ),
        pytest.param(
            host(netdev(mtu=9000, mode="connected")),
            "auto",
            [f"{SYSFS} 9000>65520"],
            "FAIL",
            id="connected",
        ),
        pytest.param(
            host(netdev(mtu=1500), ports=(port(max_mtu=None, active_mtu=None),)),
            2044,
            [f"{SYSFS} 1500>2044"],
            "FAIL",
            id="a number needs no limit to be known",
        ),
    ],
)
def test_the_mtu_is_set_now_and_for_good(facts, mtu, changes, verdict):
    wanted = policy(mtu=mtu)
    assert finding(facts, wanted, ID).startswith(verdict)
    plan = steps(facts, wanted)
    assert [text for step in plan.values() for text in shown(step)] == changes
    for step in plan.values():
        assert step.effect == "live"


def test_only_auto_lets_the_group_settle_for_less():
    facts = host(netdev(mtu=1500))
    (auto,) = steps(facts, policy(mtu="auto"))[f"{ID}/ib0"].changes
    (number,) = steps(facts, policy(mtu=4092))[f"{ID}/ib0"].changes
    assert (auto.clamped, number.clamped) == (True, False)


@pytest.mark.parametrize(
    ("facts", "mtu", "limits"),
    [
        (host(max_mtu=2048), 4092, ("2044", "the port's largest MTU is 2048")),
        (host(), 9000, ("4092", "the port's largest MTU is 4096")),
        (
            host(active_mtu=2048),
            4092,
            ("2044", "the link has MTU 2048", "the kernel would accept more"),
        ),
        (host(**MLX5), 65520, ("4092", "the port's largest MTU is 4096")),
    ],
)
def test_more_than_is_possible_is_refused_and_fails(facts, mtu, limits):
    wanted = policy(mtu=mtu)
    text = finding(facts, wanted, ID)
    refused = steps(facts, wanted)[f"{ID}/ib0"].refused
    assert text.startswith("FAIL ")
    assert f"the policy's {mtu} is not possible: {refused}" in text
    assert [limit for limit in limits if limit not in refused] == []
    assert ("accept more" in refused) == (len(limits) == 3)


def test_a_number_that_the_group_clamps_is_a_failure_and_no_step():
    facts = host(netdev(mtu=2044), profiles=[profile(mtu=4092)])
    wanted = policy(mtu=4092)
    text = finding(facts, wanted, ID)
    assert text.startswith(
        "FAIL ib0 has MTU 2044 in datagram mode, although the profile has 4092: "
        "the broadcast group allows 2044"
    )
    assert "mtu=5" in text
    assert steps(facts, wanted) == {}


def test_a_number_that_the_group_may_clamp_says_what_to_do_then():
    text = finding(host(netdev(mtu=2044)), policy(mtu=4092), ID)
    assert "ovirt-rdma-host plan; " in text
    assert "ipoib,mtu=5" in text
    # Only InfiniBand has opensm and its MTU codes.
    text = finding(host(netdev(mtu=2044), **HFI1), policy(mtu=10236), ID)
    assert text.endswith(" 10236 | ")
    text = finding(host(netdev(mtu=1500)), policy(mtu=4092), ID)
    assert text.endswith(" 4092 | ")


def test_the_mode_decides_before_the_mtu():
    facts = host(netdev(mtu=4092), profiles=[profile(mtu=4092)])
    wanted = policy(transport_mode="connected", mtu="auto")
    plan = steps(facts, wanted)
    assert list(plan) == ["IPOIB-MODE-01/ib0", f"{ID}/ib0"]
    # The kernel sets 65520 with the mode; the profile has to let it.
    assert shown(plan[f"{ID}/ib0"]) == ["uuid-ib0 infiniband.mtu 4092>65520"]


def test_enhanced_ipoib_loses_its_carrier_with_the_mtu():
    facts = host(netdev(mtu=2044, connections=False), uses=("ib0",), **MLX5)
    step = steps(facts, policy(mtu=4092))[f"{ID}/ib0"]
    assert (step.effect, step.users) == ("link-down", ("nfs: nas:/ib0",))


def test_without_ibv_devinfo_auto_does_not_guess():
    facts = host(netdev(mtu=1500), ports=(port(max_mtu=None, active_mtu=None),))
    text = finding(facts, policy(mtu="auto"), ID)
    assert text.startswith("SKIP ib0 has MTU 1500; the largest of mlx4_0/1")
    assert "libibverbs-utils" in text


def test_omni_path_hides_its_mtu_from_ibv_devinfo():
    facts = host(ports=(port(max_mtu=None, active_mtu=None),), **HFI1)
    text = finding(facts, policy(mtu="auto"), ID)
    assert text.startswith("SKIP ")
    assert "10236 if the fabric has 10240" in text


def test_the_mtu_of_a_bond_member_is_the_bonds():
    member = netdev(uppers=("bond0",), mtu=2044)
    facts = host(member, bond(members=("ib0",)))
    wanted = policy(mtu="auto")
    assert finding(facts, wanted, ID).startswith("SKIP ib0 is a member of bond0")
    assert steps(facts, wanted) == {}


ENGINE = "IPOIB-MTU-02"


@pytest.mark.parametrize(
    ("facts", "wanted", "verdict", "words"),
    [
        (
            host(networks=[network(mtu=2044)]),
            policy(mtu="auto"),
            "WARN",
            "MTU 2044 on ib0, and the policy requires 4092",
        ),
        (host(networks=[network()]), policy(mtu=2044), "WARN", "MTU 1500 on ib0"),
        (host(networks=[network(mtu=4092)]), policy(mtu="auto"), "PASS", "MTU 4092"),
        (
            host(networks=[network(mtu=1500)]),
            None,
            "PASS",
            "MTU 1500 on ib0; up to 4092 is possible: the port's largest MTU is 4096",
        ),
        (
            host(networks=[network(mtu=1500)]),
            policy(mtu=4092),
            "WARN",
            "if the subnet manager gives the partition that MTU (opensm: mtu=5)",
        ),
        (
            host(networks=[network(mtu=9000)]),
            None,
            "FAIL",
            "datagram mode supports at most 4092: the port's largest MTU is 4096",
        ),
        (
            host(networks=[network(mtu=9000)]),
            policy(transport_mode="auto"),
            "PASS",
            "MTU 9000",
        ),
        (
            host(
                netdev(uppers=("bond0",)),
                bond(members=("ib0",)),
                networks=[network(southbound="bond0", mtu=2044)],
            ),
            policy(mtu=4092),
            "WARN",
            "the policy requires 4092",
        ),
    ],
)
def test_the_engines_mtu_is_never_a_step(facts, wanted, verdict, words):
    text = finding(facts, wanted, ENGINE)
    assert text.startswith(f"{verdict} network 'storage' sets MTU ")
    assert words in text
    assert not any("MTU" in name for name in steps(facts, wanted))


def test_a_network_on_a_child_does_not_own_its_parents_mtu():
    facts = host(
        netdev(mtu=1500), child(mtu=1500), networks=[network(southbound="ib0.8001")]
    )
    plan = steps(facts, policy(mtu="auto"))
    assert list(plan) == [f"{ID}/ib0"]


BUFFERS = "IPOIB-MTU-03"
PCI = PciIdentity("0000:04:00.0", "0x15b3", "0x1003", "0x00")


def connectx3(*mtus, **parts):
    """The adapter with its port MTUs."""
    return Adapter(
        PCI,
        "mlx4_core",
        **{"port_types": ("ib",) * len(mtus), "port_mtus": mtus, **parts},
    )


def test_a_port_mtu_takes_all_netdevs_of_the_adapter_down():
    facts = host(
        netdev(),
        netdev("ib1", port=2),
        ports=(port(1), port(2)),
        adapter=connectx3(4096, 4096),
        uses=("ib1",),
    )
    rule = policy(port=1, port_mtu=2048, mtu="auto")
    plan = steps(facts, rule)
    step = plan[f"{BUFFERS}/mlx4_0/1"]
    assert shown(step) == ["/sys/bus/pci/devices/0000:04:00.0/mlx4_port1_mtu 4096>2048"]
    assert (step.effect, step.users) == ("link-down", ("nfs: nas:/ib1",))
    assert next(iter(plan)) == step.id
    assert finding(facts, rule, BUFFERS, "mlx4_0/1").startswith("FAIL ")
    # The netdev comes back with the MTU that follows from it, and is not written to.
    assert list(plan) == [step.id]


def test_children_that_a_port_mtu_ends_for_good_are_named():
    kept = profile("ib0.8001", pkey="0x8001", parent="ib0")
    facts = host(
        netdev(),
        child(),
        child("ib0.8002", "0x8002"),
        profiles=[profile(), kept],
        adapter=connectx3(4096),
    )
    step = steps(facts, policy(port_mtu=2048))[f"{BUFFERS}/mlx4_0/1"]
    assert "except ib0.8002," in step.sentence
    assert "4096" in step.undo
    assert step.undo.endswith(" ib0.8002")
    facts = replace(facts, netdevs=facts.netdevs[:2])
    step = steps(facts, policy(port_mtu=2048))[f"{BUFFERS}/mlx4_0/1"]
    assert "except" not in step.sentence
    assert step.undo.endswith(" 4096")


@pytest.mark.parametrize(
    ("now", "port_mtu", "wanted", "changes"),
    [
        (4096, 2048, 2044, []),
        # Its revert must not write 4092 while the port has 2048.
        (4096, 2048, 1500, [f"{SYSFS} 2044>1500"]),
        (2048, 4096, "auto", []),
        (2048, 4096, 4092, []),
        (2048, 4096, 2044, [f"{SYSFS} 4092>2044"]),
    ],
)
def test_the_mtu_after_a_new_port_mtu(now, port_mtu, wanted, changes):
    facts = host(adapter=connectx3(now), max_mtu=now)
    plan = steps(facts, policy(port_mtu=port_mtu, mtu=wanted))
    found = plan[f"{ID}/ib0"].changes if f"{ID}/ib0" in plan else ()
    assert [f"{c.target} {c.before}>{c.after}" for c in found] == changes


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (host(adapter=connectx3(4096, vfs=4)), "while there are 4 VFs"),
        (
            host(adapter=connectx3(2048, physical_function="0000:03:00.0")),
            "it is a virtual function",
        ),
        (host(**MLX5), "only mlx4 has that setting, and this is mlx5_core"),
        (
            host(adapter=Adapter(PCI, "mlx5_core", vfs=8), **MLX5),
            "only mlx4 has that setting",
        ),
        (
            host(adapter=Adapter(PCI, "mlx5_core", physical_function="x"), **MLX5),
            "only mlx4 has that setting",
        ),
        (host(**HFI1), "only mlx4 has that setting, and this is hfi1"),
        (
            host(adapter=connectx3(4096), ports=(port(link_layer="Ethernet"),)),
            "it is an Ethernet port",
        ),
    ],
)
def test_a_port_mtu_that_cannot_be_set_is_refused(facts, why):
    rule = policy(link_layer=None, port_mtu=4096, mtu="auto")
    text = finding(facts, rule, BUFFERS, "mlx4_0/1")
    assert text.startswith("FAIL ")
    assert why in text
    step = steps(facts, rule)[f"{BUFFERS}/mlx4_0/1"]
    assert why in step.refused
    assert step.changes == ()


def test_a_profile_that_asks_for_more_than_the_new_port_mtu_is_changed():
    facts = host(adapter=connectx3(4096), profiles=[profile(mtu=4092)])
    step = steps(facts, policy(port_mtu=2048, mtu="auto"))["IPOIB-MTU-01/ib0"]
    assert shown(step) == ["uuid-ib0 infiniband.mtu 4092>2044"]


def test_a_port_mtu_that_is_set_already():
    facts = host(adapter=connectx3(2048), max_mtu=2048)
    rule = policy(port_mtu=2048)
    assert finding(facts, rule, BUFFERS, "mlx4_0/1").startswith("PASS ")
    assert steps(facts, rule) == {}
