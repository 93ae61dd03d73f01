# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PKEY-01 and -02: P_Key children, those of ``partitions: follow``, and the file
that lets the daemon update them.
"""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.host.ipoib_host import (
    OTHERS,
    child,
    finding,
    found,
    host,
    netdev,
    policy,
    port,
    profile,
    shown,
    steps,
)
from support.host.ipoib_kernel import carried_out
from support.host.ipoib_undo import undone

from ovirt_rdma.host.facts.model import OwnFile, Software
from ovirt_rdma.host.policy.model import HostPolicy, InterfaceRule, Policy
from ovirt_rdma.host.rules.base import FILE, Change
from ovirt_rdma.host.rules.registry import decide
from ovirt_rdma.host.system.files import FOLLOW_PARTITIONS, own_text

CHILDREN, FOLLOWED = "IPOIB-PKEY-01", "IPOIB-PKEY-02"
FOLLOW = policy(partitions="follow")


def table(*keys, **parts):
    """mlx4_0/1 with a P_Key table."""
    return (port(pkeys=keys, **parts),)


def made(facts, wanted=FOLLOW):
    """The children that a plan creates."""
    plan = steps(facts, wanted)
    ours = [step for step in plan.values() if step.rule == CHILDREN]
    return [step.subject for step in ours if not step.refused]


@pytest.mark.parametrize(
    ("keys", "own", "children"),
    [
        (("0xffff", "0x8001", "0x8002"), "0xffff", ["ib0.8001", "ib0.8002"]),
        # A limited member: the kernel sets bit 15 of the child's P_Key anyway.
        (("0xffff", "0x0001"), "0xffff", ["ib0.8001"]),
        (("0xffff", "0x8001", "0x0001"), "0xffff", ["ib0.8001"]),
        # The default partition, at any index, and the one at index 0 are the base
        # netdev's.
        (("0x8001", "0xffff", "0x7fff", "0x8002"), "0x8001", ["ib0.8002"]),
        (("0xffff",), "0xffff", []),
        (("0xffff", "0x8000", "0x0000", "what", ""), "0xffff", []),
        # The subnet manager may have replaced it since ib_ipoib was loaded.
        (("0x8001", "0x8002", "0x8003"), "0x8002", ["ib0.8003"]),
    ],
)
def test_each_partition_of_the_table_has_a_child(keys, own, children):
    assert made(host(netdev(pkey=own), ports=table(*keys))) == children


def test_a_followed_child_is_made_as_one_that_the_policy_names():
    keys = table("0xffff", "0x8001")
    for profiles in (None, []):
        facts = host(ports=keys, profiles=profiles)
        followed, named = (
            steps(facts, wanted)[f"{CHILDREN}/ib0.8001"]
            for wanted in (FOLLOW, policy(pkey_children=("0x8001",)))
        )
        assert shown(followed) == shown(named)
        assert followed.reason == "the children follow the port's P_Key table"


def test_a_child_gets_what_the_rule_that_names_it_says():
    rules = (
        InterfaceRule(1, "a", pkey="0x8002", transport_mode="connected"),
        InterfaceRule(2, "b", link_layer="infiniband", partitions="follow", mtu=2044),
    )
    facts = host(netdev(mtu=2044), ports=table("0xffff", "0x8001", "0x8002"))
    assert list(steps(facts, Policy(host=HostPolicy(rules)))) == [
        f"{CHILDREN}/ib0.8001",
        f"{CHILDREN}/ib0.8002",
        "IPOIB-MODE-01/ib0.8002",
        "IPOIB-MTU-01/ib0.8001",
        f"{FOLLOWED}/host",
    ]


def test_a_rule_without_follow_makes_none():
    rules = (
        InterfaceRule(1, "a", port=2),
        InterfaceRule(2, "b", link_layer="infiniband", partitions="follow"),
    )
    facts = host(
        netdev(),
        netdev("ib1", port=2),
        ports=(
            port(1, pkeys=("0xffff", "0x8001")),
            port(2, pkeys=("0xffff", "0x8001")),
        ),
    )
    assert made(facts, Policy(host=HostPolicy(rules))) == ["ib0.8001"]


def test_what_is_there_is_left_whoever_made_it():
    facts = host(
        netdev(),
        child("storage0", "0x0001", sysfs=False),
        ports=table("0xffff", "0x8001"),
    )
    assert made(facts) == []
    assert finding(facts, FOLLOW, CHILDREN, "storage0").startswith("PASS ")


def test_a_child_whose_partition_has_left_is_reported():
    facts = host(netdev(), child(), ports=table("0xffff"))
    assert list(steps(facts, FOLLOW)) == [f"{FOLLOWED}/host"]
    text = finding(facts, FOLLOW, CHILDREN, "ib0.8001")
    assert text.startswith("WARN ib0.8001 (P_Key 0x8001) has no carrier")
    removed = "; with partitions: follow the daemon removes those of ours that are not"
    assert text.endswith(f"{removed} in use")
    # The daemon is named under that condition only, so there is one text for all.
    assert text.count("daemon") == 1
    assert finding(facts, Policy(), CHILDREN, "ib0.8001") == text


@pytest.mark.parametrize(
    ("keys", "text"),
    [
        ((), "FAIL the P_Key table of mlx4_0/1 could not be read"),
        (("0xffff",), "PASS mlx4_0/1 is in no partition that needs a child of ib0"),
    ],
)
def test_where_there_is_nothing_to_follow(keys, text):
    facts = host(ports=table(*keys))
    assert finding(facts, FOLLOW, CHILDREN, "ib0").startswith(text)


@pytest.mark.parametrize("pkey_children", [(), ("0x8001",)])
@pytest.mark.parametrize(
    "there",
    [
        profile("ib0.8001", active=False, parent="ib0", pkey="0x8001"),
        # With another name, without an interface name, and as a limited member.
        profile("x", active=False, interface="", parent="ib0", pkey="0x0001"),
    ],
)
def test_no_second_profile_is_made_for_one_child(there, pkey_children):
    facts = host(ports=table("0xffff", "0x8001"), profiles=[profile(), there])
    wanted = policy(pkey_children=pkey_children) if pkey_children else FOLLOW
    step = steps(facts, wanted)[f"{CHILDREN}/ib0.8001"]
    assert f"the profile {there.name!r} is for this child" in step.refused
    (text,) = found(facts, wanted)[CHILDREN, "ib0.8001"]
    assert f"nmcli connection up {there.uuid}" in text


def test_a_profile_of_another_child_is_no_reason():
    other = profile("ib0.8002", active=False, parent="ib0", pkey="0x8002")
    facts = host(ports=table("0xffff", "0x8001"), profiles=[profile(), other])
    assert made(facts) == ["ib0.8001"]


KEYS = st.lists(
    st.sampled_from(["0xffff", "0x7fff", "0x8001", "0x0002", "0x8003", "0x8000", "?"]),
    max_size=5,
)


@given(KEYS, st.sampled_from(["0xffff", "0x8001", None]), st.booleans())
def test_carried_out_nothing_is_left_and_undone_all_is_as_before(keys, own, managed):
    facts = host(
        netdev(pkey=own),
        ports=table(*keys),
        profiles=[profile()] if managed else None,
    )
    plan = decide(facts, FOLLOW, {*OTHERS, FOLLOWED}).steps
    after = carried_out(facts, plan)
    assert [
        s for s in decide(after, FOLLOW, {*OTHERS, FOLLOWED}).steps if not s.refused
    ] == []
    before = undone(after, plan)
    assert before.netdevs == facts.netdevs
    if managed:
        assert before.network_manager.profiles == facts.network_manager.profiles


# Children that the policy names

IN_TWO = (port(pkeys=("0xffff", "0x8001")),)


def test_a_child_is_made_through_sysfs_where_networkmanager_is_not():
    facts = host(ports=IN_TWO)
    wanted = policy(pkey_children=("0x8001",))
    assert finding(facts, wanted, CHILDREN, "ib0.8001").startswith(
        "FAIL interface 1 requires ib0.8001"
    )
    step = steps(facts, wanted)[f"{CHILDREN}/ib0.8001"]
    assert shown(step) == ["/sys/class/net/ib0/create_child None>0x8001"]
    assert step.undo == "writes 0x8001 to /sys/class/net/ib0/delete_child"
    assert step.effect == "live"


def test_a_child_is_made_by_a_profile_where_networkmanager_is():
    step = steps(host(ports=IN_TWO, profiles=[]), policy(pkey_children=("0x8001",)))[
        f"{CHILDREN}/ib0.8001"
    ]
    assert shown(step) == [
        "new:ib0.8001 connection.type None>infiniband",
        "new:ib0.8001 connection.id None>ib0.8001",
        "new:ib0.8001 connection.interface-name None>ib0.8001",
        "new:ib0.8001 infiniband.transport-mode None>datagram",
        "new:ib0.8001 ipv4.method None>disabled",
        "new:ib0.8001 ipv6.method None>disabled",
        "new:ib0.8001 infiniband.parent None>ib0",
        "new:ib0.8001 infiniband.p-key None>0x8001",
    ]


@pytest.mark.parametrize(
    ("there", "keys"),
    [
        (child(), ("0x8001",)),
        (child(), ("0x0001",)),
        # Created by ip link, with any name and P_Key.
        (child("storage0", "0x0001", sysfs=False), ("0x8001",)),
        (child("ibstor.8001", parent="ib0"), ("0x8001",)),
    ],
)
def test_a_child_that_is_there_is_there(there, keys):
    facts = host(netdev(), there, ports=IN_TWO)
    wanted = policy(pkey_children=keys)
    text = finding(facts, wanted, CHILDREN, there.name)
    assert text.startswith(f"PASS {there.name} exists, for P_Key 0x8001")
    assert steps(facts, wanted) == {}


@pytest.mark.parametrize(
    ("ports", "words"),
    [
        ((port(),), "P_Key table of mlx4_0/1 has no 0x8001, so ib0.8001"),
        ((port(pkeys=()),), "P_Key table of mlx4_0/1 could not be read, so ib0.8001"),
    ],
)
def test_without_the_partition_there_is_no_step(ports, words):
    facts = host(ports=ports)
    wanted = policy(pkey_children=("0x8001",))
    text = finding(facts, wanted, CHILDREN, "ib0.8001")
    assert text.startswith("FAIL ")
    assert words in text
    assert "0x0001,ipoib : 0x0002c90300fb1231=full" in text
    assert steps(facts, wanted) == {}


def test_a_limited_member_is_told_so():
    facts = host(ports=(port(pkeys=("0xffff", "0x0001")),))
    wanted = policy(pkey_children=("0x8001",))
    missing, limited = found(facts, wanted)[CHILDREN, "ib0.8001"]
    assert missing.startswith("FAIL ")
    assert limited.startswith("WARN ib0.8001 will be created, for P_Key 0x8001, ")
    assert "mlx4_0/1 is a limited member" in limited
    assert f"{CHILDREN}/ib0.8001" in steps(facts, wanted)


def test_full_membership_counts_where_the_table_has_both():
    facts = host(netdev(), child(), ports=(port(pkeys=("0x0001", "0x8001")),))
    wanted = policy(pkey_children=("0x8001",))
    assert finding(facts, wanted, CHILDREN, "ib0.8001").startswith("PASS ")


def test_children_that_nobody_named_are_left_alone():
    facts = host(
        netdev(),
        child(),
        child("ib0.8005", "0x8005"),
        child("ib0.8007", None),
        ports=IN_TWO,
    )
    assert finding(facts, None, CHILDREN, "ib0.8001").startswith(
        "PASS ib0.8001 (P_Key 0x"
    )
    gone = finding(facts, None, CHILDREN, "ib0.8005")
    assert gone.startswith("WARN ib0.8005 (P_Key 0x8005) has no carrier: its P_Key is")
    unread = finding(facts, None, CHILDREN, "ib0.8007")
    assert unread.startswith("WARN the P_Key of ib0.8007 could not be read")
    no_table = host(netdev(), child(), ports=(port(pkeys=()),))
    unread = finding(no_table, None, CHILDREN, "ib0.8001")
    assert unread.startswith("SKIP ib0.8001 (P_Key 0x8001): the P_Key table of mlx4_0")
    assert steps(facts, policy(pkey_children=("0x8001",))) == {}


@pytest.mark.parametrize(
    ("name", "profiles", "subject", "refused"),
    [
        ("ibp129s0f0d1", (), "ibp129s0f0.8001", "NetworkManager expects another name"),
        ("ibp129s0f0d1", None, "ibp129s0f0.8001", ""),
        ("ibp129s0f0", (), "ibp129s0f0.8001", ""),
    ],
)
def test_the_kernel_cuts_the_parents_name(name, profiles, subject, refused):
    facts = host(netdev(name), ports=IN_TWO, profiles=profiles)
    plan = steps(facts, policy(pkey_children=("0x8001",)))
    step = plan[f"{CHILDREN}/{subject}"]
    assert bool(step.refused) == bool(refused) and refused in step.refused


def test_a_child_in_its_parents_partition_is_refused():
    facts = host(netdev(pkey="0x8001"), ports=IN_TWO)
    step = steps(facts, policy(pkey_children=("0x8001",)))[f"{CHILDREN}/ib0.8001"]
    assert step.refused == "ib0 itself is in that partition"


@pytest.mark.parametrize(
    ("keys", "words"),
    [
        ({"pkey_children": ("0x8001",)}, "interface 1 (0x8001)"),
        ({"partitions": "follow"}, "interface 1 (partitions: follow)"),
    ],
)
def test_a_port_without_ipoib_can_have_no_children(keys, words):
    facts = host(netdev("eth0", ipoib=None, port=2), ports=IN_TWO)
    text = finding(facts, policy(**keys), CHILDREN, "mlx4_0/1")
    assert text.startswith("FAIL mlx4_0/1 has no IPoIB netdev ")
    assert words in text


@pytest.mark.parametrize("pkey", ["garbage", "", None])
def test_odd_p_keys_from_the_kernel_are_no_reason_to_stop(pkey):
    facts = host(
        netdev(), child(pkey=pkey), ports=(port(pkeys=("0x8001", "what", "")),)
    )
    (step,) = steps(facts, policy(pkey_children=("0x8001",))).values()
    assert step.refused == "another netdev ib0.8001 exists, or will exist"


def test_two_parents_whose_children_would_have_one_name():
    facts = host(
        netdev("ibp129s0f0"),
        netdev("ibp129s0f0d1", port=2),
        ports=(port(1, pkeys=("0x8001",)), port(2, pkeys=("0x8001",))),
    )
    plan = steps(facts, policy(pkey_children=("0x8001",)))
    assert [(name, bool(step.refused)) for name, step in plan.items()] == [
        (f"{CHILDREN}/ibp129s0f0.8001", False),
        (f"{CHILDREN}/ibp129s0f0d1.8001", True),
    ]


# The daemon


def allowed(text=None, follow=True):
    """The finding and step of IPOIB-PKEY-02 for a host with such a file of ours."""
    files = () if text is None else (OwnFile(FOLLOW_PARTITIONS, text),)
    facts = host(software=Software(own_files=files), ports=table("0xffff"))
    wanted = FOLLOW if follow else policy(mtu=2044)
    found = finding(facts, wanted, FOLLOWED, "host")
    return found, steps(facts, wanted).get(f"{FOLLOWED}/host")


OURS = own_text(["partitions: follow"])


def test_apply_lets_the_daemon_follow():
    text, step = allowed()
    assert text.startswith("FAIL the children of ib0 should follow the P_Key table")
    assert step.changes == (Change(FILE, FOLLOW_PARTITIONS, None, OURS),)
    assert (step.effect, step.refused, step.users) == ("live", "", ())


def test_a_file_of_somebody_else_is_left():
    text, step = allowed("what?\n")
    assert "is not from ovirt-rdma" in step.refused
    assert step.refused in text


@pytest.mark.parametrize(
    ("text", "follow", "verdict"),
    [(OURS, True, "PASS"), (None, False, "SKIP"), (OURS, False, "WARN")],
)
def test_what_is_said_of_the_file(text, follow, verdict):
    found, step = allowed(text, follow=follow)
    assert found.startswith(f"{verdict} ")
    assert (f"revert {FOLLOWED}/host" in found) == (verdict == "WARN")
    assert step is None


def test_a_host_that_no_rule_with_follow_names_needs_none():
    facts = host(ports=table("0xffff"), software=Software())
    rule = InterfaceRule(1, "a", port=2, partitions="follow")
    wanted = Policy(host=HostPolicy((rule,)))
    text = finding(facts, wanted, FOLLOWED, "host")
    assert text.startswith("SKIP no rule with partitions: follow applies")
    assert steps(facts, wanted) == {}
