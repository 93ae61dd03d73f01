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


PORT_4K, PORT_2K = (f"the port's largest MTU is {mtu}" for mtu in (4096, 2048))
LINK_2K = "the link has MTU 2048, limited by its other end"
GROUP = "the broadcast group limits it; the port supports 4092"
NO_LIMIT = (port(max_mtu=None, active_mtu=None),)
DOWN = (port(state="DOWN", active_mtu=2048),)


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (host(), f"MTU 4092 in datagram mode: {PORT_4K}"),
        (host(max_mtu=2048), f"MTU 2044 in datagram mode: {PORT_2K}"),
        (host(active_mtu=2048), f"MTU 2044 in datagram mode: {LINK_2K}"),
        (host(netdev(mtu=2044)), f"MTU 2044 in datagram mode: {GROUP}"),
        (
            host(netdev(mtu=2044), profiles=[profile(mtu=4092)]),
            f"MTU 2044 in datagram mode: {GROUP}",
        ),
        (host(netdev(mtu=65520, mode="connected")), "MTU 65520 in connected mode: "),
        (host(**HFI1), "MTU 10236 in datagram mode"),
        # The link MTU of a port that is down does not count.
        (host(netdev(mtu=4092), ports=DOWN), f"MTU 4092 in datagram mode: {PORT_4K}"),
    ],
)
def test_auto_says_what_decided(facts, words):
    wanted = policy(mtu="auto")
    text = finding(facts, wanted, ID)
    assert text.startswith("PASS ib0 has ")
    assert words in text
    assert not [name for name in steps(facts, wanted) if name.startswith(ID)]


LOW, CONNECTED = netdev(mtu=1500), netdev(mtu=9000, mode="connected")
KEPT = "uuid-ib0 infiniband.mtu"


@pytest.mark.parametrize(
    ("facts", "mtu", "changes", "verdict"),
    [
        (host(LOW), "auto", [f"{SYSFS} 1500>4092"], "FAIL"),
        (host(netdev(mtu=2044)), 4092, [f"{SYSFS} 2044>4092"], "FAIL"),
        (host(netdev(mtu=4092)), 2044, [f"{SYSFS} 4092>2044"], "FAIL"),
        # The profile holds it down.
        (
            host(netdev(mtu=2044), profiles=[profile(mtu=2044)]),
            "auto",
            [f"{KEPT} 2044>4092", f"{SYSFS} 2044>4092"],
            "FAIL",
        ),
        # The profile of connected days, and a number that has to be kept.
        (host(profiles=[profile(mtu=65520)]), "auto", [f"{KEPT} 65520>4092"], "WARN"),
        (host(profiles=[profile()]), 4092, [f"{KEPT} None>4092"], "WARN"),
        (host(profiles=[profile(mtu="auto")]), "auto", [], "PASS"),
        (host(CONNECTED), "auto", [f"{SYSFS} 9000>65520"], "FAIL"),
        # A number needs no limit to be known.
        (host(LOW, ports=NO_LIMIT), 2044, [f"{SYSFS} 1500>2044"], "FAIL"),
    ],
)
def test_the_mtu_is_set_now_and_for_good(facts, mtu, changes, verdict):
    wanted = policy(mtu=mtu)
    assert finding(facts, wanted, ID).startswith(verdict)
    plan = steps(facts, wanted)
    assert [text for step in plan.values() for text in shown(step)] == changes
    assert {step.effect for step in plan.values()} <= {"live"}


def test_only_auto_lets_the_group_settle_for_less():
    facts = host(netdev(mtu=1500))
    (auto,) = steps(facts, policy(mtu="auto"))[f"{ID}/ib0"].changes
    (number,) = steps(facts, policy(mtu=4092))[f"{ID}/ib0"].changes
    assert (auto.clamped, number.clamped) == (True, False)


@pytest.mark.parametrize(
    ("facts", "mtu", "limit"),
    [
        (host(max_mtu=2048), 4092, f"2044 ({PORT_2K})"),
        (host(), 9000, f"4092 ({PORT_4K})"),
        (host(active_mtu=2048), 4092, f"2044 ({LINK_2K})"),
        (host(**MLX5), 65520, f"4092 ({PORT_4K})"),
    ],
)
def test_more_than_is_possible_is_refused_and_fails(facts, mtu, limit):
    wanted = policy(mtu=mtu)
    text = finding(facts, wanted, ID)
    refused = steps(facts, wanted)[f"{ID}/ib0"].refused
    assert text.startswith("FAIL ")
    assert f"the policy's {mtu} is not possible: {refused}" in text
    assert refused == f"the limit is {limit}"


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


@pytest.mark.parametrize("chip", [{}, HFI1])
def test_without_ibv_devinfo_auto_does_not_guess(chip):
    text = finding(host(LOW, ports=NO_LIMIT, **chip), policy(mtu="auto"), ID)
    assert text.startswith(
        "SKIP ib0 has MTU 1500; the largest of mlx4_0/1 in datagram mode is unknown | "
        "install ibv_devinfo (libibverbs-utils)"
    )
    assert "10236 if the fabric has 10240" in text


def test_the_mtu_of_a_bond_member_is_the_bonds():
    member = netdev(uppers=("bond0",), mtu=2044)
    facts = host(member, bond(members=("ib0",)))
    wanted = policy(mtu="auto")
    assert finding(facts, wanted, ID) == "SKIP bond0 sets the MTU of ib0 | "
    assert steps(facts, wanted) == {}


def engine(mtu, *netdevs, **more):
    """A host with a logical network of this MTU."""
    return host(*netdevs, networks=[network(mtu=mtu, **more)])


BOND = (netdev(uppers=("bond0",)), bond(members=("ib0",)))
AUTO = policy(mtu="auto")


@pytest.mark.parametrize(
    ("facts", "wanted", "verdict", "words"),
    [
        (engine(2044), AUTO, "WARN", "MTU 2044 on ib0, and the policy requires 4092"),
        (engine(None), policy(mtu=2044), "WARN", "MTU 1500 on ib0"),
        (engine(4092), AUTO, "PASS", "MTU 4092"),
        (
            engine(1500),
            None,
            "PASS",
            f"MTU 1500 on ib0; up to 4092 is possible: {PORT_4K}",
        ),
        (
            engine(1500),
            policy(mtu=4092),
            "WARN",
            "if the subnet manager gives the partition that MTU (opensm: mtu=5)",
        ),
        # No group's MTU is that of connected mode.
        (
            engine(9000, CONNECTED),
            policy(mtu=65520, transport_mode="connected"),
            "WARN",
            "for all its hosts; or remove mtu from the policy",
        ),
        (engine(9000), None, "FAIL", f"datagram mode supports at most 4092: {PORT_4K}"),
        (engine(9000), policy(transport_mode="auto"), "PASS", "MTU 9000"),
        (
            engine(2044, *BOND, southbound="bond0"),
            policy(mtu=4092),
            "WARN",
            "MTU 2044 on ib0, and the policy requires 4092",
        ),
    ],
)
def test_the_engines_mtu_is_never_a_step(facts, wanted, verdict, words):
    text = finding(facts, wanted, "IPOIB-MTU-02")
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


ONLY = "only InfiniBand ports of physical functions of mlx4 have that setting, and this"
OF_PF = {"physical_function": "0000:03:00.0"}


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (host(adapter=connectx3(4096, vfs=4)), "while there are 4 VFs"),
        (
            host(adapter=connectx3(2048, **OF_PF)),
            f"{ONLY} is a virtual function of mlx4_core (InfiniBand)",
        ),
        (host(**MLX5), f"{ONLY} is a port of mlx5_core (InfiniBand)"),
        (host(adapter=Adapter(PCI, "mlx5_core", vfs=8), **MLX5), f"{ONLY} is a port"),
        (
            host(adapter=Adapter(PCI, "mlx5_core", **OF_PF), **MLX5),
            f"{ONLY} is a virtual function of mlx5_core",
        ),
        (host(**HFI1), f"{ONLY} is a port of hfi1 (InfiniBand)"),
        (
            host(adapter=connectx3(4096), ports=(port(link_layer="Ethernet"),)),
            f"{ONLY} is a port of mlx4_core (Ethernet)",
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
