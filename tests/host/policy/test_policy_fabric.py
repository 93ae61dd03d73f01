# SPDX-License-Identifier: GPL-2.0-or-later
"""The ``fabric:`` part of policy.yaml: its meaning, and its mistakes."""

from __future__ import annotations

import pytest
from support.host.policy_mistakes import expect_mistake, rows

from ovirt_rdma.host.policy.fabric import (
    FabricHost,
    FabricPolicy,
    PartitionRule,
    SubnetManagerRule,
)
from ovirt_rdma.host.policy.load import parse_policy
from ovirt_rdma.host.policy.model import Policy, from_json_dict, to_json_dict

HOSTS = "  hosts: {hv1: [0x2c90300fb1231], hv2: [0002:c903:00fb:1241]}\n"
G1, G2 = "0002:c903:00fb:1231", "0002:c903:00fb:1241"


def fabric(text: str) -> FabricPolicy:
    return parse_policy(f"version: 1\nfabric:\n{text}", "p.yaml").policy.fabric


def test_a_partition_has_members_defaults_and_a_key():
    text = (
        "  defaults: {mtu: 4096, rate: 40}\n"
        f"{HOSTS}"
        "  partitions:\n"
        "    storage: {pkey: 0x0001, members: [hv1, hv2=limited, SELF]}\n"
        "    v100: {vlan: 100, membership: limited, ipoib: off, mtu: 2048,\n"
        "      members: [1002:0103:0000:1231, ALL=full]}\n"
    )
    assert fabric(text) == FabricPolicy(
        (FabricHost("hv1", (G1,)), FabricHost("hv2", (G2,))),
        (
            PartitionRule(
                "storage",
                "0x8001",
                ("hv1=full", "hv2=limited", "SELF=full"),
                mtu=4096,
                rate=40,
            ),
            PartitionRule(
                "v100",
                "0x8064",
                ("1002:0103:0000:1231=limited", "ALL=full"),
                ipoib=False,
                mtu=2048,
                rate=40,
                vlan=100,
            ),
        ),
    )


def test_a_guid_may_be_in_the_list_of_one_host_twice():
    text = HOSTS.replace("231]", "231, 0x2c90300fb1231]")
    assert fabric(text).hosts[0] == FabricHost("hv1", (G1, G1))


@pytest.mark.parametrize("text", ["", "  partitions:\n", "  hosts: {}\n  defaults:\n"])
def test_a_fabric_part_with_nothing_in_it_is_the_empty_policy(text):
    assert fabric(text) == FabricPolicy()


def partition(keys: str) -> str:
    return f"version: 1\nfabric:\n{HOSTS}  partitions:\n    a: {keys}\n"


@pytest.mark.parametrize(
    ("keys", "expected"),
    rows(r"""\
{pkey: 0x0, members: [hv1]} | a.pkey | value-invalid
{pkey: 0x8000, members: [hv1]} | a.pkey | value-invalid
{pkey: 0x10001, members: [hv1]} | a.pkey | value-invalid
{pkey: 0x7fff, members: [hv1]} | a.pkey | pkey-default-partition
{vlan: 0, members: [hv1]} | a.vlan | value-out-of-range
{vlan: 4095, members: [hv1]} | a.vlan | value-out-of-range
{members: [hv1]} | a | pkey-or-vlan
{pkey: 0x1, vlan: 1, members: [hv1]} | a | pkey-or-vlan
{pkey: 0x1} | a.members | key-missing
{pkey: 0x1, members: []} | a.members | partition-empty
{pkey: 0x1, members: [hv3]} | a.members[1] | host-unknown
{pkey: 0x1, members: [0x0]} | a.members[1] | guid-zero
{pkey: 0x1, members: [hv1=ful]} | a.members[1] | value-invalid
{pkey: 0x1, members: [-]} | a.members[1] | value-invalid
{pkey: 0x1, members: [hv1, hv1]} | a.members[2] | member-repeated
{pkey: 0x1, members: [hv1, '0002:c903:00fb:1231=limited']} | a.members[2] \
    | member-repeated
{pkey: 0x1, members: [hv1], mtu: 5} | a.mtu | value-unknown
{pkey: 0x1, members: [hv1], rate: 7} | a.rate | value-unknown
"""),
)
def test_mistakes_of_a_partition(keys, expected):
    where, id = expected
    expect_mistake(partition(keys), f"5: fabric.partitions.{where}", id)


@pytest.mark.parametrize(
    ("text", "where", "id"),
    [
        ("  hosts: {ALL: [0x5]}\n", "3: fabric.hosts.ALL", "value-invalid"),
        ("  hosts: {hv1: [five]}\n", "3: fabric.hosts.hv1[1]", "value-invalid"),
        (
            "  hosts: {hv1: [0x5], hv2: [0x5]}\n",
            "3: fabric.hosts.hv2[1]",
            "guid-repeated",
        ),
        (
            "  hosts: {hv1: []}\n  partitions: {a: {vlan: 1, members: [hv1]}}\n",
            "4: fabric.partitions.a.members[1]",
            "host-without-guid",
        ),
        (
            "  partitions: {5a: {vlan: 1, members: [ALL]}}\n",
            "3: fabric.partitions.5a",
            "value-invalid",
        ),
        (
            "  partitions:\n    a: {vlan: 1, members: [ALL]}\n"
            "    b: {pkey: 0x0001, members: [ALL]}\n",
            "5: fabric.partitions.b.pkey",
            "pkey-repeated",
        ),
        (
            "  partitions: {Default: {vlan: 1, members: [ALL]}}\n",
            "3: fabric.partitions.Default.vlan",
            "pkey-default-partition",
        ),
    ],
)
def test_mistakes_between_hosts_and_partitions(text, where, id):
    expect_mistake(f"version: 1\nfabric:\n{text}", where, id)


def test_a_vlan_stands_for_a_p_key_as_the_policy_says():
    partitions = (
        "  partitions:\n"
        "    v100: {vlan: 100, members: [ALL]}\n"
        "    storage: {pkey: 0x8007, members: [ALL]}\n"
    )
    named = fabric(partitions)
    assert (named.vlan_of("0x8064"), named.vlan_of("0x0064")) == (100, 100)
    assert (named.vlan_of("0x8007"), named.name_of("0x8007")) == (None, "storage")
    all_of_them = fabric(f"{partitions}  pkeys_are_vlans: on\n")
    assert all_of_them.vlan_of("0x8007") == 7
    # 0 is no partition, 4095 no VLAN, and 0x7fff the default partition.
    assert [all_of_them.vlan_of(key) for key in ("0x8000", "0x8fff", "0xffff")] == (
        [None] * 3
    )
    stored = to_json_dict(Policy(fabric=all_of_them))
    assert from_json_dict(stored).fabric == all_of_them


MANAGERS = HOSTS + "  subnet_managers:\n    {}\n"


def test_subnet_managers_have_priority_ports_and_standby():
    text = (
        f"{HOSTS}"
        "  subnet_managers:\n"
        "    hv1: {priority: 14}\n"
        f"    hv2: {{priority: 0, ports: ['{G2}'], standby: on}}\n"
        "    hv3.example.org: {priority: 3, ports: [ALL]}\n"
    )
    found = fabric(text)
    assert found.subnet_managers == (
        SubnetManagerRule("hv1", 14),
        SubnetManagerRule("hv2", 0, (G2,), standby=True),
        SubnetManagerRule("hv3.example.org", 3, ("ALL",)),
    )
    policy = Policy(fabric=found)
    assert from_json_dict(to_json_dict(policy)) == policy
    assert found.manager_guids == {G1, G2}


@pytest.mark.parametrize(
    ("hostname", "guids", "names"),
    [
        # By GUIDs, whatever the host is called.
        ("other", [G1], ["hv1"]),
        ("hv1", ["0000:0000:0000:0005"], []),
        # A name without GUIDs is a host name.
        ("HV3.example.org", [], ["hv3"]),
        ("hv3", [], ["hv3"]),
        ("hv33", [], []),
    ],
)
def test_which_of_them_is_this_host(hostname, guids, names):
    text = f"{HOSTS}  subnet_managers: {{hv1: {{priority: 1}}, hv3: {{priority: 2}}}}\n"
    found = fabric(text).managers_of(hostname, guids)
    assert [rule.host for rule in found] == names


@pytest.mark.parametrize(
    ("keys", "expected"),
    rows(r"""\
hv1: {} | hv1.priority | key-missing
hv1: {priority: 16} | hv1.priority | value-out-of-range
hv1: {priority: -1} | hv1.priority | value-out-of-range
hv1: {priority: 1, role: master} | hv1.role | key-unknown
hv1: {priority: 1, standby: maybe} | hv1.standby | value-unknown
hv1: {priority: 1, ports: [all]} | hv1.ports[1] | value-invalid
hv1: {priority: 1, ports: [0x0]} | hv1.ports[1] | guid-zero
hv1: {priority: 1, ports: [ALL, '0002:c903:00fb:1231']} | hv1.ports[1] | all-not-alone
hv1: {priority: 1, ports: ['0002:c903:00fb:1231', '0x2c90300fb1231']} | hv1.ports[2] \
    | guid-repeated
hv1: {priority: 1, ports: ['0002:c903:00fb:1241']} | hv1.ports[1] | guid-of-another-host
ALL: {priority: 1} | ALL | value-invalid
"""),
)
def test_mistakes_of_a_subnet_manager(keys, expected):
    where, id = expected
    text = f"version: 1\nfabric:\n{MANAGERS.replace('    {}', f'    {keys}')}"
    expect_mistake(text, f"5: fabric.subnet_managers.{where}", id)
