# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-MODE-01 and -02: the transport mode, and udev rules that cannot set it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import (
    A0,
    HFI1,
    MLX5,
    bond,
    child,
    finding,
    found,
    host,
    netdev,
    network,
    policy,
    profile,
    shown,
    steps,
)

from ovirt_rdma.host.facts.model import KernelOption, Software, UdevLine

ID = "IPOIB-MODE-01"
NO_CM = Software(kernel_config=(KernelOption("INFINIBAND_IPOIB_CM", "n"),))


LARGE, SMALL = [network(mtu=65520)], [network(mtu=1500)]
ASKED = netdev(mode="connected", mtu=65520, tso="asked")
PLAIN_MLX5 = {**MLX5, "connections": True, "tso": "fixed"}
KEEPS, NO_TSO = "keeps TSO", "does not support TSO"
UNKNOWN = "the driver, or its TSO state, is unknown, which decides"
NO_ADDRESS = "its address cannot be read, which would show if it is possible"
NO_RC = "the driver accepts no connections (the address begins with 00)"
NO_CONFIG = "this kernel is built without CONFIG_INFINIBAND_IPOIB_CM"
BY_ENGINE = "MTU 65520 (network 'storage')"


@pytest.mark.parametrize(
    ("facts", "rule", "mode", "reason"),
    [
        (host(), {}, "datagram", KEEPS),
        # Connected mode has it off.
        (host(ASKED), {}, "datagram", KEEPS),
        (host(tso="fixed"), {}, "connected", NO_TSO),
        (host(**A0), {}, "connected", "revision a0 must not"),
        (host(tso=None), {}, "datagram", UNKNOWN),
        (host(replace(netdev(tso="fixed"), address="")), {}, "datagram", NO_ADDRESS),
        (host(**MLX5), {}, "datagram", "mlx5's enhanced IPoIB"),
        (host(**PLAIN_MLX5), {}, "connected", NO_TSO),
        (host(connections=False, tso="fixed"), {}, "datagram", NO_RC),
        (host(**HFI1), {}, "datagram", "Omni-Path"),
        (host(software=NO_CM, tso="fixed"), {}, "datagram", NO_CONFIG),
        (host(), {"mtu": 9000}, "connected", "MTU 9000 (the policy)"),
        (host(**MLX5), {"mtu": 9000}, "datagram", "enhanced"),
        # The engine's MTU decides before the policy's.
        (host(networks=LARGE), {"mtu": 2044}, "connected", BY_ENGINE),
        (host(networks=SMALL), {"mtu": 9000}, "datagram", KEEPS),
        (host(active_mtu=2048), {"mtu": 4092}, "connected", "the link has MTU 2048"),
    ],
)
def test_auto_takes_the_best_that_is_possible_and_says_what_decided(
    facts, rule, mode, reason
):
    wanted = policy(transport_mode="auto", **rule)
    text = finding(facts, wanted, ID)
    plan = steps(facts, wanted)
    now = facts.netdevs[0].ipoib.mode
    assert reason in text
    if mode == now:
        verdict = "SKIP" if reason in (UNKNOWN, NO_ADDRESS) else "PASS"
        assert text.startswith(f"{verdict} ib0 is in {mode} mode")
        assert f"{ID}/ib0" not in plan
    else:
        assert text.startswith(f"FAIL ib0 is in {now} mode, but should be in {mode}")
        step = plan[f"{ID}/ib0"]
        assert (step.before, step.after, step.effect) == (now, mode, "link-down")
        assert reason in step.reason
        assert f"/sys/class/net/ib0/mode {now}>{mode}" in shown(step)


@pytest.mark.parametrize(
    ("facts", "why"),
    [
        (host(**MLX5), "ConnectX-4 and later"),
        (host(connections=False), "begins with 00"),
        (host(software=NO_CM), "built without CONFIG_INFINIBAND_IPOIB_CM"),
    ],
)
def test_connected_where_it_is_impossible_is_refused_and_fails(facts, why):
    wanted = policy(transport_mode="connected", mtu="auto")
    text = finding(facts, wanted, ID)
    assert text.startswith("FAIL ")
    assert "connected mode is not possible" in text
    plan = steps(facts, wanted)
    assert why in text
    assert why in plan[f"{ID}/ib0"].refused
    # The limit of the MTU is then that of the present mode.
    assert finding(facts, wanted, "IPOIB-MTU-01").startswith("PASS ib0 has MTU 4092")


BONDED = netdev(mtu=65520, mode="connected", uppers=("bond0",))


@pytest.mark.parametrize(
    ("facts", "who"),
    [
        (host(ASKED, networks=LARGE), "network 'storage'"),
        (host(BONDED, replace(bond(members=("ib0",)), mtu=65520)), "bond0"),
    ],
)
def test_datagram_mode_below_an_mtu_that_does_not_fit_is_refused(facts, who):
    """It would split packets that the engine's network, or the bond, sends whole."""
    wanted = policy(transport_mode="datagram", mtu="auto")
    text = finding(facts, wanted, ID)
    assert text.startswith("FAIL ")
    assert "lower that MTU first" in text
    step = steps(facts, wanted)[f"{ID}/ib0"]
    assert "does not fit a datagram" in step.refused
    assert step.refused.startswith(f"MTU 65520 ({who}) ")
    # auto keeps connected mode for that reason.
    auto = finding(facts, policy(transport_mode="auto"), ID)
    assert auto.startswith(f"PASS ib0 is in connected mode: MTU 65520 ({who})")


def test_a_mode_in_which_the_policys_mtu_is_not_possible_is_refused():
    """The change would set a smaller MTU, which the policy does not want."""
    facts = host(netdev(mtu=65520, mode="connected", tso="asked"), active_mtu=2048)
    wanted = policy(transport_mode="datagram", mtu=4092, tso="auto")
    text = finding(facts, wanted, ID)
    assert text.startswith("FAIL ib0 is in connected mode, and the policy's datagram")
    assert "lower that MTU first" in text
    plan = steps(facts, wanted)
    assert list(plan) == [f"{ID}/ib0", "IPOIB-MTU-01/ib0"]
    refused = [step.refused for step in plan.values()]
    assert refused[0].startswith("MTU 4092 (the policy) does not fit a datagram")
    assert refused[1].startswith("the limit is 2044 ")
    assert all("the link has MTU 2048" in one for one in refused)
    # It is the same from datagram mode, where only the MTU would change.
    (step,) = steps(host(netdev(mtu=2044), active_mtu=2048), wanted).values()
    assert (step.id, step.refused[:13]) == ("IPOIB-MTU-01/ib0", "the limit is ")


CONNECTED = netdev(mtu=2044, mode="connected")


@pytest.mark.parametrize(
    ("facts", "mtu", "after"),
    [
        # The profile's number is that of the mode before.
        (host(ASKED, profiles=[profile(mtu=65520)]), None, 4092),
        # Nobody knows the limit: the policy decides, and the kernel takes what it can.
        (host(CONNECTED, max_mtu=None), 4092, 4092),
        (host(CONNECTED, max_mtu=None), "auto", 2044),
        # VDSM gives a network without MTU 1500.
        (host(ASKED, networks=[network(mtu=None)]), 4092, 1500),
        # More than the engine should allow.
        (host(netdev(mtu=2044), networks=[network(mtu=70000)]), None, 65520),
    ],
)
def test_a_change_of_mode_sets_the_mtu_of_whoever_decides_it(facts, mtu, after):
    (now,) = {one.ipoib.mode for one in facts.netdevs}
    mode = "datagram" if now == "connected" else "connected"
    changes = steps(facts, policy(transport_mode=mode, mtu=mtu))[f"{ID}/ib0"].changes
    (change,) = [c for c in changes if c.target.endswith("/mtu")]
    assert change.after == str(after)


def test_a_child_made_by_ip_link_has_no_file_for_its_mode():
    facts = host(netdev(), child(sysfs=False))
    plan = steps(facts, policy(transport_mode="connected"))
    assert plan[f"{ID}/ib0"].refused == ""
    assert "no sysfs file for its mode" in plan[f"{ID}/ib0.8001"].refused
    # It cannot leave connected mode either; auto does not change it.
    facts = host(netdev(), child(mode="connected", mtu=65520, sysfs=False))
    (step,) = steps(facts, policy(transport_mode="datagram")).values()
    assert step.id == f"{ID}/ib0.8001"
    assert "no sysfs file for its mode" in step.refused
    text = finding(facts, policy(transport_mode="datagram"), ID, "ib0.8001")
    assert "ip link set ib0.8001 type ipoib mode datagram" in text
    assert steps(facts, policy(transport_mode="auto", mtu="auto")) == {}


def test_what_connected_mode_costs_is_said():
    wanted, costs = policy(transport_mode="connected"), "no TSO and no checksum offload"
    assert costs in finding(host(ASKED), wanted, ID)
    (step,) = steps(host(), wanted).values()
    assert "65520" in step.sentence and costs in step.sentence


def test_who_would_notice_is_named_also_of_children():
    facts = host(netdev(), child(), uses=("ib0", "ib0.8001"))
    plan = steps(facts, policy(transport_mode="connected"))
    assert plan[f"{ID}/ib0"].users == ("nfs: nas:/ib0", "nfs: nas:/ib0.8001")
    assert plan[f"{ID}/ib0.8001"].users == ("nfs: nas:/ib0.8001",)


def test_the_profile_keeps_the_mode():
    facts = host(profiles=[profile()])
    step = steps(facts, policy(transport_mode="connected"))[f"{ID}/ib0"]
    assert shown(step) == [
        "uuid-ib0 infiniband.transport-mode datagram>connected",
        "/sys/class/net/ib0/mode datagram>connected",
        "/sys/class/net/ib0/mtu 4092>65520",
    ]
    assert "datagram mode and MTU 4092" in step.undo


@pytest.mark.parametrize("active", [True, False])
def test_a_profile_that_says_otherwise_is_mended(active):
    """NetworkManager refuses a Reapply of an active one until it is activated."""
    there = profile(mode="connected", active=active)
    facts = host(profiles=[there], uses=("ib0",))
    wanted = policy(transport_mode="datagram")
    assert finding(facts, wanted, ID).startswith("WARN ib0 is in datagram mode, but")
    step = steps(facts, wanted)[f"{ID}/ib0"]
    assert shown(step) == ["uuid-ib0 infiniband.transport-mode connected>datagram"]
    assert step.effect == ("link-down" if active else "live")
    assert bool(step.users) is active


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        (host(), "connected is possible |"),
        (host(**MLX5), "connected is not possible: mlx5's enhanced IPoIB"),
    ],
)
def test_without_a_policy_it_says_what_is_possible(facts, words):
    text = finding(facts, None, ID)
    assert text.startswith("PASS ib0 is in datagram mode; ")
    assert words in text


@pytest.mark.parametrize(
    ("facts", "asked", "wanted", "verdict"),
    [
        (host(), "connected", None, "FAIL"),
        (host(), "datagram", None, "PASS"),
        (host(), None, None, "PASS"),
        (host(), "auto", None, "PASS"),
        (host(netdev(mode="connected")), "auto", None, "FAIL"),
        (host(), "no such mode", None, "PASS"),
        # The policy decides, and has a step of its own.
        (host(), "connected", "datagram", "PASS"),
    ],
)
def test_a_mode_that_a_network_asks_for_and_has_not(facts, asked, wanted, verdict):
    """VDSM's hook runs out of time, and VDSM sets the network up without the mode and
    without a word to the engine.
    """
    facts = replace(facts, ovirt_networks=(network(mtu=1500, ipoib_mode=asked),))
    text = finding(facts, wanted and policy(transport_mode=wanted), ID)
    assert text.startswith(verdict)
    if verdict == "FAIL":
        assert "the network 'storage' asks for" in text
        assert "ovirt-rdma-host apply" in text
        mode = "connected" if asked == "connected" else "datagram"
        assert f"transport_mode: {mode}" in text
        assert f"IPOIB-MODE-01/{netdev().name}" in {
            f"{step.rule}/{step.subject}"
            for step in steps(facts, policy(transport_mode=mode)).values()
        }


def test_an_unknown_mode_is_no_mode():
    facts = host(replace(netdev(), ipoib=None), netdev("ib1", mode=None))
    wanted = policy(transport_mode="auto", mtu="auto")
    for name in ("ib0", "ib1"):
        assert finding(facts, wanted, ID, name).startswith("SKIP ")
    unknown = "the transport mode of ib1 is unknown, so its largest MTU is too | "
    assert finding(facts, wanted, "IPOIB-MTU-01", "ib1") == f"SKIP {unknown}"
    text = finding(facts, None, "IPOIB-MTU-01", "ib1")
    assert text.startswith("PASS ib1 has MTU 4092 in an unknown mode")
    assert not any("MODE" in name or "MTU" in name for name in steps(facts, wanted))


def test_a_host_without_ipoib():
    facts = replace(host(), netdevs=())
    assert finding(facts, None, ID, "host") == "SKIP this host has no IPoIB netdev | "


@pytest.mark.parametrize(
    ("text", "mode"),
    [
        ('ACTION=="add", KERNEL=="ib*", ATTR{mode}="connected"', "connected"),
        ('ATTR{mode} = "datagram"', "datagram"),
        ('SUBSYSTEM=="net", ATTR{mode}:="connected", ATTR{mtu}="65520"', "connected"),
        (r'ATTR{mode}="connected\n"', r"connected\n"),  # no escape without e
        ('ATTR{mode}=e"connected"', "connected"),
    ],
)
def test_a_udev_rule_that_sets_the_mode_never_works(text, mode):
    line = UdevLine("/etc/udev/rules.d/99-ib.rules", 3, text)
    facts = host(software=Software(udev_lines=(line,)))
    subject = "/etc/udev/rules.d/99-ib.rules:3"
    said = finding(facts, None, "IPOIB-MODE-02", subject)
    assert said.startswith(f'WARN {subject} sets ATTR{{mode}}="{mode}"')
    assert "which never works: udev writes no newline" in said
    assert "transport_mode in the policy" in said


def test_a_udev_rule_with_the_newline_works_with_some_udev():
    text = r'ATTR{type}=="32", ATTR{mode}=e"connected\n"'
    line = UdevLine("/etc/udev/rules.d/99-ib.rules", 3, text)
    facts = host(software=Software(udev_lines=(line,)))
    said = finding(facts, None, "IPOIB-MODE-02", "/etc/udev/rules.d/99-ib.rules:3")
    assert said.startswith("WARN ")
    assert r'sets ATTR{mode}=e"connected\n", which NetworkManager replaces' in said
    assert "never works" not in said


@pytest.mark.parametrize(
    "text",
    [
        'ATTR{mode}=="connected", NAME="ib0"',
        'ATTR{mode}!="connected", ATTR{mtu}="2044"',
        "RUN+=\"/bin/sh -c 'echo connected > /sys/class/net/%k/mode'\"",
    ],
)
def test_other_udev_rules_are_let_alone(text):
    facts = host(software=Software(udev_lines=(UdevLine("/etc/r", 1, text),)))
    said = [subject for rule, subject in found(facts) if rule == "IPOIB-MODE-02"]
    assert said == ["host"]
