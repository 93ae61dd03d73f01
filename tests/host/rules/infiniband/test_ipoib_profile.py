# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PROFILE-01, the NetworkManager profile that VDSM needs; IPOIB-BOND-01."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.ipoib_host import (
    EXTERNAL,
    bond,
    child,
    finding,
    found,
    host,
    netdev,
    network,
    policy,
    port,
    profile,
    shown,
    steps,
)

from ovirt_rdma.host.facts.devices import NetworkManager

ID = "IPOIB-PROFILE-01"
WANTED = policy(transport_mode="datagram")
MADE = [
    "new:ib0 connection.type None>infiniband",
    "new:ib0 connection.id None>ib0",
    "new:ib0 connection.interface-name None>ib0",
    "new:ib0 infiniband.transport-mode None>datagram",
    "new:ib0 ipv4.method None>disabled",
    "new:ib0 ipv6.method None>disabled",
]
ADDRESS = netdev().address


@pytest.mark.parametrize(
    "profiles",
    [
        pytest.param([], id="none"),
        pytest.param([profile(file=EXTERNAL)], id="in memory, by NetworkManager"),
        pytest.param([profile(file="")], id="in memory"),
        pytest.param([profile("ib7")], id="another's"),
    ],
)
def test_a_netdev_that_the_policy_names_gets_a_profile(profiles):
    facts = host(profiles=profiles, uses=("ib0",))
    assert finding(facts, WANTED, ID).startswith("FAIL ib0 has no NetworkManager pro")
    step = steps(facts, WANTED)[f"{ID}/ib0"]
    assert shown(step) == MADE
    # NetworkManager activates it, and takes the link down for the mode.
    assert (step.effect, step.users) == ("link-down", ("nfs: nas:/ib0",))
    assert step.refused == ""


def test_what_is_new_gets_the_mode_that_is_there_and_then_the_wanted_one():
    facts = host(profiles=[])
    plan = steps(facts, policy(transport_mode="connected"))
    assert shown(plan[f"{ID}/ib0"]) == MADE
    # NetworkManager would refuse a revert that leaves no mode.
    assert shown(plan["IPOIB-MODE-01/ib0"]) == [
        "new:ib0 infiniband.transport-mode datagram>connected",
        "/sys/class/net/ib0/mode datagram>connected",
        "/sys/class/net/ib0/mtu 4092>65520",
    ]


def test_a_profile_on_disk_comes_before_the_one_in_memory():
    memory = replace(profile(file=EXTERNAL), uuid="memory")
    facts = host(profiles=[memory, profile(active=False)])
    assert finding(facts, WANTED, ID) == (
        "PASS ib0 has the profile 'ib0' with transport mode datagram | "
    )
    assert steps(facts, WANTED) == {}


@pytest.mark.parametrize(
    ("there", "effect"),
    [
        # NetworkManager refuses a Reapply of it until it is activated.
        (profile(interface=None), "link-down"),
        (profile(interface=None, active=False, mac=ADDRESS.upper()), "live"),
    ],
)
def test_the_name_that_a_profile_lacks_is_added(there, effect):
    facts = host(profiles=[there], uses=("ib0",))
    assert "has no connection.interface-name" in finding(facts, WANTED, ID)
    step = steps(facts, WANTED)[f"{ID}/ib0"]
    assert shown(step) == ["uuid-ib0 connection.interface-name None>ib0"]
    assert (step.effect, bool(step.users)) == (effect, effect == "link-down")


@pytest.mark.parametrize(
    "address",
    [ADDRESS, "80:00:ff:ff:" + ADDRESS[12:], "00:00:00:00:" + ADDRESS[12:].upper()],
)
def test_a_renamed_netdev_is_said_and_nothing_is_made(address):
    facts = host(profiles=[profile("ib5", mac=address, active=False)])
    text = finding(facts, policy(transport_mode="connected", mtu=9000), ID)
    assert text.startswith(
        "FAIL the profile 'ib5' of this port names the netdev ib5, but the netdev was "
        "renamed to ib0 |"
    )
    assert "nmcli connection modify uuid-ib5 connection.interface-name ib0" in text
    plan = steps(facts, policy(transport_mode="connected", mtu=2044, tso="off"))
    assert list(plan) == ["IPOIB-MODE-01/ib0", "IPOIB-MTU-01/ib0", "IPOIB-TSO-02/ib0"]
    # TSO needs no profile.
    assert plan.pop("IPOIB-TSO-02/ib0").refused == ""
    for step in plan.values():
        assert "names the netdev ib5, but" in step.refused


@pytest.mark.parametrize(
    ("addresses", "made"),
    [
        (("10.0.0.1/24",), False),
        (("fe80::1/64", "fd00::1/64"), False),
        (("fe80::1/64", "169.254.3.4/16"), True),
    ],
)
def test_an_address_that_no_profile_keeps_is_not_taken_away(addresses, made):
    facts = host(netdev(addresses=addresses), profiles=[])
    assert (f"{ID}/ib0" in steps(facts, WANTED)) == made
    if not made:
        text = finding(facts, WANTED, ID)
        assert text.startswith(f"FAIL ib0 has the address {addresses[-1]}")


MEMBER = (netdev(uppers=("bond0",)), bond(members=("ib0",)))


@pytest.mark.parametrize(
    ("netdevs", "subject", "why", "fix"),
    [
        (
            (netdev(addresses=("10.0.0.1/24",)),),
            "ib0",
            "ib0 has the address 10.0.0.1/24, which is in no profile",
            "move it to a profile of type infiniband for ib0",
        ),
        (MEMBER, "ib0", "ib0 is a member of bond0", "create the bond in the engine"),
        (
            (netdev(), child("odd")),
            "odd",
            "requires the name that create_child gives a P_Key child, but odd has "
            "another",
            "delete the child, and add its P_Key to pkey_children",
        ),
    ],
)
def test_why_no_profile_is_made_and_what_to_do(netdevs, subject, why, fix):
    facts = host(*netdevs, profiles=[])
    reason, _, mended = finding(facts, None, ID, subject).partition(" | ")
    assert reason.startswith("WARN ") and why in reason
    assert mended.startswith(fix)


@pytest.mark.parametrize(
    ("manager", "words", "fix"),
    [
        (None, "NetworkManager is not installed", "install it"),
        (
            NetworkManager(False),
            "NetworkManager is not running, so nothing stores the settings of ib0",
            "| systemctl enable --now NetworkManager",
        ),
        (
            NetworkManager(True, (), ("ib0",)),
            "ib0 is an unmanaged device of NetworkManager",
            "unmanaged-devices",
        ),
        (NetworkManager(True), "ib0 is unknown to NetworkManager", "udev's"),
    ],
)
def test_where_networkmanager_does_not_manage_it(manager, words, fix):
    facts = replace(host(), network_manager=manager)
    running = manager is not None and manager.running
    text = finding(facts, WANTED, ID, "ib0" if running else "host")
    assert text.startswith(f"WARN {words}")
    assert fix in text
    # The settings are then only in sysfs.
    plan = steps(facts, policy(transport_mode="connected", mtu=9000, tso="off"))
    kinds = {change.kind for step in plan.values() for change in step.changes}
    assert kinds == {"sysfs", "offload"}


@pytest.mark.parametrize("managed", [(), ("ib0",)])
def test_what_nmcli_does_not_say_is_not_guessed(managed):
    """A profile that is there may not be seen, and one without IP would replace it."""
    manager = NetworkManager(None, managed)
    keys = (port(pkeys=("0xffff", "0x8001")),)
    facts = replace(host(ports=keys), network_manager=manager)
    for wanted in (None, WANTED):
        text = finding(facts, wanted, ID, "host")
        assert text.startswith("SKIP nmcli failed: what NetworkManager does is unknown")
    wanted = policy(transport_mode="connected", mtu=2044, pkey_children=("0x8001",))
    plan = steps(facts, wanted)
    assert {"IPOIB-MODE-01/ib0", "IPOIB-PKEY-01/ib0.8001"} <= plan.keys()
    for step in plan.values():
        assert step.refused.startswith("nmcli failed: what NetworkManager does")


def test_without_a_policy_it_warns_and_says_which_line_helps():
    text = finding(host(profiles=[]), None, ID)
    assert text.startswith("WARN ib0 has no NetworkManager profile of its own")
    assert 'match: {guid: "0002:c903:00fb:1231"}' in text


@pytest.mark.parametrize(
    ("parts", "more", "verdict"),
    [
        ({}, {}, "SKIP"),
        ({}, {"uses": ("ib0",)}, "WARN"),
        ({}, {"networks": [network()]}, "WARN"),
        ({"addresses": ("fe80::1/64",)}, {}, "SKIP"),
    ],
)
def test_a_netdev_without_link_that_nobody_needs_is_left_out(parts, more, verdict):
    idle = replace(netdev(**parts), carrier=False)
    text = finding(host(idle, profiles=[], **more), None, ID)
    assert text.startswith(f"{verdict} ib0 has no NetworkManager profile of its own")


def test_a_profile_without_its_netdev_may_be_of_a_renamed_one():
    gone = profile("ib7", active=False)
    said = found(host(profiles=[profile(), gone]), WANTED)
    (text,) = said[ID, "ib7"]
    assert text.startswith("WARN the profile 'ib7' is for ib7, which does not exist")
    assert "write its name into connection.interface-name of uuid-ib7" in text


@pytest.mark.parametrize(
    ("there", "key"),
    [
        (child(), "0x8001"),
        # The key given to create_child; the kernel has set bit 15 of the P_Key itself.
        (child("ib0.0001"), "0x0001"),
        (child("storage0", sysfs=False), None),
        (child("ib0.8002"), None),
        (child("ib9.8001"), None),
        (child("ib0.zzzz", "zzzz"), None),
    ],
)
def test_the_profile_of_a_child_names_parent_and_p_key(there, key):
    facts = host(netdev(), there, profiles=[profile()])
    plan = steps(facts, WANTED)
    if key is None:
        assert plan == {}
        text = finding(facts, WANTED, ID, there.name)
        assert text.startswith(
            "FAIL NetworkManager requires the name that create_child"
        )
        assert there.name in text
    else:
        assert shown(plan[f"{ID}/{there.name}"])[-2:] == [
            f"new:{there.name} infiniband.parent None>ib0",
            f"new:{there.name} infiniband.p-key None>{key}",
        ]


def test_a_bond_member_is_not_taken_out_of_its_bond():
    facts = host(*MEMBER, profiles=[])
    text = finding(facts, WANTED, ID)
    assert text.startswith("FAIL ib0 is a member of bond0, but has no profile")
    assert steps(facts, WANTED) == {}
    kept = host(*MEMBER, profiles=[profile(master="bond0")])
    assert finding(kept, WANTED, ID).startswith("PASS ib0 has the profile 'ib0'")


def test_children_have_profiles_of_their_own():
    key = {"pkey": "0x8001", "parent": "ib0", "mac": ADDRESS}
    facts = host(netdev(), child(), profiles=[profile(), profile("ib0.8001", **key)])
    said = found(facts, WANTED)
    assert [text for (rule, _), (text,) in said.items() if rule == ID] == [
        "PASS ib0 has the profile 'ib0' with transport mode datagram | ",
        "PASS ib0.8001 has the profile 'ib0.8001' with transport mode datagram | ",
    ]
    assert steps(facts, WANTED) == {}


# IPOIB-BOND-01

BONDS = "IPOIB-BOND-01"


def bonded(second="datagram", **parts):
    """ib0 and ib1 in bond0."""
    return host(
        netdev("ib0", uppers=("bond0",)),
        netdev("ib1", mode=second, port=2, uppers=("bond0",)),
        bond(**parts),
        ports=(port(1), port(2)),
    )


BACKUP = "active-backup with"
ONLY = (
    "but IPoIB supports only active-backup with active: an address cannot move to "
    "another port"
)


@pytest.mark.parametrize(
    ("facts", "verdict", "words"),
    [
        (bonded(), "PASS", f"{BACKUP} fail_over_mac active, which IPoIB requires"),
        (
            bonded(fail_over_mac=None),
            "SKIP",
            f"{BACKUP} fail_over_mac unknown; that, or a member's mode, could not be "
            "read",
        ),
        (
            bonded(None),
            "SKIP",
            f"{BACKUP} fail_over_mac active; that, or a member's mode, could not be "
            "read",
        ),
        (
            bonded(mode="balance-rr"),
            "FAIL",
            f"balance-rr with fail_over_mac active, {ONLY}",
        ),
        (bonded(fail_over_mac="none"), "FAIL", f"{BACKUP} fail_over_mac none, {ONLY}"),
        (
            bonded("connected"),
            "WARN",
            f"{BACKUP} fail_over_mac active, but its members have different transport "
            "modes",
        ),
    ],
)
def test_bonds(facts, verdict, words):
    text = finding(facts, None, BONDS, "bond0")
    assert text.startswith(f"{verdict} bond0 of ib0, ib1 is in mode {words} |")


VM = {"bridged": True}


@pytest.mark.parametrize(
    ("made", "words", "fix"),
    [
        (network(**VM), "is a VM network on ib0,", "non-VM network"),
        (network(southbound="ib0.100", vlan=100), "has VLAN 100 on ib0", "P_Key child"),
        (network(southbound="ib0.8001", **VM), "on ib0.8001", "non-VM network"),
        (network("vm", "bond0", **VM), "is a VM network on bond0", "non-VM network"),
    ],
)
def test_networks_that_cannot_be_attached(made, words, fix):
    facts = replace(bonded(), ovirt_networks=(made,))
    facts = replace(facts, netdevs=(*facts.netdevs, child()))
    *bonds, text = found(facts)[BONDS, made.southbound]
    assert len(bonds) == (made.southbound == "bond0")
    assert text.startswith(f"FAIL network {made.name!r} ")
    assert words in text and fix in text


@pytest.mark.parametrize(
    "networks",
    [(), (network(),), (network(southbound="eth0", bridged=True, vlan=5),)],
)
def test_networks_that_can(networks):
    text = finding(host(networks=networks), None, BONDS, "host")
    assert text == "SKIP no bond, bridge or VLAN is on an IPoIB netdev | "
