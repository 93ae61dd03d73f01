# SPDX-License-Identifier: GPL-2.0-or-later
"""IPOIB-PKEY-01: P_Key children."""

from __future__ import annotations

import pytest
from support.host.ipoib_host import (
    child,
    finding,
    found,
    host,
    netdev,
    policy,
    port,
    shown,
    steps,
)

ID = "IPOIB-PKEY-01"
IN_TWO = (port(pkeys=("0xffff", "0x8001")),)


def test_a_child_is_made_through_sysfs_where_networkmanager_is_not():
    facts = host(ports=IN_TWO)
    wanted = policy(pkey_children=("0x8001",))
    assert finding(facts, wanted, ID, "ib0.8001").startswith(
        "FAIL interface 1 requires ib0.8001"
    )
    step = steps(facts, wanted)[f"{ID}/ib0.8001"]
    assert shown(step) == ["/sys/class/net/ib0/create_child None>0x8001"]
    assert step.undo == "writes 0x8001 to /sys/class/net/ib0/delete_child"
    assert step.effect == "live"


def test_a_child_is_made_by_a_profile_where_networkmanager_is():
    step = steps(host(ports=IN_TWO, profiles=[]), policy(pkey_children=("0x8001",)))[
        f"{ID}/ib0.8001"
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
    text = finding(facts, wanted, ID, there.name)
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
    text = finding(facts, wanted, ID, "ib0.8001")
    assert text.startswith("FAIL ")
    assert words in text
    assert "0x0001,ipoib : 0x0002c90300fb1231=full" in text
    assert steps(facts, wanted) == {}


def test_a_limited_member_is_told_so():
    facts = host(ports=(port(pkeys=("0xffff", "0x0001")),))
    wanted = policy(pkey_children=("0x8001",))
    missing, limited = found(facts, wanted)[ID, "ib0.8001"]
    assert missing.startswith("FAIL ")
    assert limited.startswith("WARN ib0.8001 will be created, for P_Key 0x8001, ")
    assert "mlx4_0/1 is a limited member" in limited
    assert f"{ID}/ib0.8001" in steps(facts, wanted)


def test_full_membership_counts_where_the_table_has_both():
    facts = host(netdev(), child(), ports=(port(pkeys=("0x0001", "0x8001")),))
    wanted = policy(pkey_children=("0x8001",))
    assert finding(facts, wanted, ID, "ib0.8001").startswith("PASS ")


def test_children_that_nobody_named_are_left_alone():
    facts = host(
        netdev(),
        child(),
        child("ib0.8005", "0x8005"),
        child("ib0.8007", None),
        ports=IN_TWO,
    )
    assert finding(facts, None, ID, "ib0.8001").startswith("PASS ib0.8001 (P_Key 0x")
    gone = finding(facts, None, ID, "ib0.8005")
    assert gone.startswith("WARN ib0.8005 (P_Key 0x8005) has no carrier: its P_Key is")
    unread = finding(facts, None, ID, "ib0.8007")
    assert unread.startswith("WARN the P_Key of ib0.8007 could not be read")
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
    step = plan[f"{ID}/{subject}"]
    assert bool(step.refused) == bool(refused) and refused in step.refused


def test_a_child_in_its_parents_partition_is_refused():
    facts = host(netdev(pkey="0x8001"), ports=IN_TWO)
    step = steps(facts, policy(pkey_children=("0x8001",)))[f"{ID}/ib0.8001"]
    assert step.refused == "ib0 itself is in that partition"


def test_a_port_without_ipoib_can_have_no_children():
    facts = host(netdev("eth0", ipoib=None, port=2), ports=IN_TWO)
    text = finding(facts, policy(pkey_children=("0x8001",)), ID, "mlx4_0/1")
    assert text.startswith("FAIL mlx4_0/1 has no IPoIB netdev ")
    assert "interface 1 (0x8001)" in text


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
        (f"{ID}/ibp129s0f0.8001", False),
        (f"{ID}/ibp129s0f0d1.8001", True),
    ]
