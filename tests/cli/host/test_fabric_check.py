# SPDX-License-Identifier: GPL-2.0-or-later
"""``fabric check``."""

from __future__ import annotations

import pytest
from support.host import ipoib_host
from support.host.subnet import Subnet as FakeSubnet

from ovirt_rdma.host.fabric.decisions import findings
from ovirt_rdma.host.fabric.partitions_conf import guid_text
from ovirt_rdma.host.fabric.subnet import (
    BroadcastGroup,
    FabricFacts,
    LocalPort,
    Manager,
    OpensmProcess,
    Subnet,
)
from ovirt_rdma.host.paths import OPENSM_SETTINGS_FILE
from ovirt_rdma.host.policy.fabric import FabricPolicy, SubnetManagerRule

pytestmark = pytest.mark.hypervisor

FILE = "/etc/rdma/partitions.conf"
OWN, OTHER = "0x0002c90300fb1231", "0x0002c90300fb1241"
POLICY = """\
version: 1
fabric:
  partitions:
    storage: {{pkey: 0x8001, {}members: [{}]}}
"""
PKEYS = "/sys/class/infiniband/mlx4_0/ports/1/pkeys"


@pytest.fixture
def fabric(changeable):
    fake = changeable.fake
    fake.write(FILE, "Default=0x7fff,ipoib : ALL=full;\nstorage=1,ipoib : ALL=full;")
    fake.write(f"{PKEYS}/0", "0xffff")
    subnet = FakeSubnet(changeable.root / FILE[1:], OWN, [OTHER])
    subnet.install(fake, "-p", "3", "-g", OWN)
    subnet.read()
    changeable.subnet = subnet
    return changeable


def check(host, *words):
    return host("fabric", "check", *words)


def verdict(host, words):
    """The verdict of the finding whose sentence has these words."""
    found = check(host, "-o", "json").document["findings"]
    (verdict,) = {one["verdict"] for one in found if words in one["sentence"]}
    return verdict


def test_managers_on_standby_are_named(fabric):
    fabric.subnet.others = [OTHER]
    result = check(fabric)
    assert (result.code, result.err) == (0, "")
    assert f"{OTHER} with priority 0 is standby; all of them need" in result.out


def test_check_passes(fabric):
    result = check(fabric)
    assert (result.code, result.err) == (0, "")
    assert "the subnet manager is at this host, LID 1, priority 0" in result.out
    assert "the broadcast group of 0xffff has MTU 2048 and 10 Gb/s" in result.out


def test_a_silent_manager_fails(fabric):
    fabric.subnet.silent = True
    result = check(fabric)
    assert result.code == 3
    assert "note: sminfo at mlx4_0/1 failed" in result.err
    assert verdict(fabric, "does not answer sminfo") == "FAIL"


def test_without_tools_nothing_is_claimed(fabric):
    for name in ("sminfo", "saquery"):
        del fabric.fake.runner.programs[name]
    result = check(fabric)
    assert result.code == 3
    assert result.out.endswith(" was not checked (no policy is loaded).\n")
    assert "SKIP  mlx4_0/1  not checked: sminfo is not available here" in result.out


def test_a_missing_p_key_fails(fabric):
    fabric.follow(POLICY.format("", OWN))
    result = check(fabric)
    assert result.code == 3
    assert f"{OWN} should be a full member of 0x8001, and is no member" in result.out
    assert "fix: ovirt-rdma-host fabric partitions apply" in result.out
    fabric.fake.write(f"{PKEYS}/1", "0x8001")
    assert check(fabric).code == 0


def test_a_limited_member_is_not_a_full_one(fabric):
    fabric.fake.write(f"{PKEYS}/1", "0x0001")
    fabric.follow(POLICY.format("", OWN))
    said = check(fabric)
    assert said.code == 3
    assert "should be a full member of 0x8001, and is not that" in said.out


def test_a_p_key_too_many_fails(fabric):
    fabric.fake.write(f"{PKEYS}/1", "0x8007")
    fabric.follow(POLICY.format("", OTHER))
    assert verdict(fabric, "is a member of 0x8007, and should not be") == "FAIL"


def test_a_group_unlike_the_policy_fails(fabric):
    fabric.fake.write(f"{PKEYS}/1", "0x8001")
    fabric.follow(POLICY.format("mtu: 4096, ", OWN))
    assert verdict(fabric, "opensm keeps the MTU and rate") == "FAIL"


def test_a_group_that_is_too_fast_for_the_port_fails(fabric):
    fabric.subnet.groups[0x7FFF] = (4, 16)
    result = check(fabric)
    assert result.code == 3
    assert "not for this port, which has 40 Gb/s, not 100" in result.out


def test_a_group_with_a_larger_mtu_than_the_port_fails():
    slow = LocalPort("mlx4_0", 1, OWN, ipoib_host.port(active_mtu=2048))
    master = Manager(OTHER, 1, 0, "master")
    for code, verdict in ((4, "PASS"), (5, "FAIL")):
        groups = (BroadcastGroup(0x7FFF, code, 3),)
        subnet = Subnet(slow, master, (master,), groups)
        found = [*findings(FabricPolicy(), FabricFacts("hv1", (subnet,)))]
        assert found[-1].verdict == verdict
    assert "has MTU 2048, not 4096" in found[-1].sentence


def test_two_masters_fail(fabric):
    plain = fabric.subnet.saquery
    fabric.fake.runner.program(
        "saquery",
        lambda argv: plain(argv).replace(
            "SMState...............2", "SMState...............3"
        ),
    )
    fabric.subnet.others = [OTHER]
    assert verdict(fabric, "several subnet managers are master") == "FAIL"


def test_an_inactive_port_counts_if_the_policy_names_it(fabric):
    fabric.fake.write("/sys/class/infiniband/mlx4_0/ports/1/state", "1: DOWN")
    assert check(fabric, "--allow-none").code == 0
    fabric.follow(POLICY.format("", OWN))
    result = check(fabric)
    assert result.code == 3
    assert "FAIL  mlx4_0/1  the port is DOWN" in result.out


@pytest.mark.parametrize(
    "keys",
    [
        "hosts: {other: ['0002:c903:00fb:1231']}",
        "subnet_managers: {hv1: {priority: 3, ports: ['0002:c903:00fb:1231']}}",
    ],
)
def test_an_inactive_port_counts_also_if_no_partition_names_it(fabric, keys):
    fabric.fake.write("/sys/class/infiniband/mlx4_0/ports/1/state", "1: DOWN")
    fabric.follow(f"version: 1\nfabric:\n  {keys}\n")
    assert "FAIL  mlx4_0/1  the port is DOWN" in check(fabric).out


@pytest.mark.parametrize(
    ("members", "said"),
    [
        (f"SELF, {OTHER}", "SKIP  mlx4_0/1  0x8001 is not compared"),
        (f"SELF, {OWN}", "PASS  mlx4_0/1  its P_Keys are as the policy says"),
        (OTHER, "FAIL  mlx4_0/1  0x0002c90300fb1231 is a member of 0x8001"),
    ],
)
def test_without_a_subnet_manager_it_is_unknown_who_self_is(fabric, members, said):
    fabric.fake.write(f"{PKEYS}/1", "0x8001")
    fabric.subnet.silent = True
    fabric.follow(POLICY.format("", members))
    assert said in check(fabric).out


RUNS = ("mlx4_0/3", "PASS", "priority 14")


@pytest.mark.parametrize(
    ("ports", "runs", "found"),
    [
        ((2,), (2,), [("mlx4_0/2", "PASS", "priority 14")]),
        (
            (2,),
            (1,),
            [
                ("mlx4_0/2", "FAIL", "no opensm of ovirt-rdma is running there"),
                ("mlx4_0/1", "FAIL", "the policy does not name this port"),
            ],
        ),
        (
            (1, 2),
            (1,),
            [
                ("mlx4_0/2", "FAIL", "no opensm of ovirt-rdma is running there"),
                ("mlx4_0/1", "PASS", "priority 14"),
            ],
        ),
        (
            (1, 7),
            (1,),
            [
                ("hv1", "FAIL", "0002:c903:00fb:1237 is not an InfiniBand port"),
                ("mlx4_0/1", "PASS", "priority 14"),
            ],
        ),
        # Without ports that one of both is meant cannot be said.
        ((), (1,), [("mlx4_0/1", "PASS", "priority 14")]),
        # A named port may have no link.
        ((3,), (3,), [RUNS]),
        (("ALL",), (3,), [*((f"mlx4_0/{n}", "FAIL", "there") for n in (1, 2)), RUNS]),
        ((3,), (), [("host", "FAIL", "no opensm of ovirt-rdma is running")]),
    ],
)
def test_opensm_runs_at_the_ports_of_the_policy_and_no_others(ports, runs, found):
    def guid(number):
        return number if number == "ALL" else f"0002:c903:00fb:123{number}"

    subnets = tuple(
        Subnet(LocalPort("mlx4_0", n, guid_text(guid(n)), ipoib_host.port(n, state=s)))
        for n, s in ((1, "ACTIVE"), (2, "ACTIVE"), (3, "DOWN"))
    )
    processes = tuple(
        OpensmProcess(
            80 + n,
            guid=guid_text(guid(n)),
            priority=14,
            settings=OPENSM_SETTINGS_FILE.format(guid_text(guid(n))),
        )
        for n in runs
    )
    rule = SubnetManagerRule("hv1", 14, tuple(map(guid, ports)))
    facts = FabricFacts("hv1", subnets, processes)
    told = [
        one
        for one in findings(FabricPolicy(subnet_managers=(rule,)), facts)
        if one.rule == "FABRIC-SM-02"
    ]
    assert [(one.subject, one.verdict) for one in told] == [one[:2] for one in found]
    for one, (_, _, words) in zip(told, found):
        assert words in one.sentence


def test_a_host_without_infiniband(host):
    result = host("fabric", "check")
    assert (result.code, "has no InfiniBand port" in result.out) == (3, True)


def test_facts_show_partition_and_vlan_of_a_netdev(changeable):
    policy = "version: 1\nfabric:\n  partitions: {{storage: {{{}, members: [ALL]}}}}\n"
    changeable.fake.write("/sys/class/net/ib0/pkey", "0x8064")
    assert "0x8064 (VLAN 100)" in changeable("facts").out
    changeable.follow(policy.format("vlan: 100"))
    assert changeable("facts").out.count("0x8064 (storage, VLAN 100)") == 1
    assert "0x8064 (storage, VLAN 100)" in changeable("facts", "--interfaces").out
    # The policy knows the partition, and it is no VLAN.
    changeable.follow(policy.format("pkey: 0x8064"))
    assert "0x8064 (storage)" in changeable("facts").out
    # Another one is not in the policy.
    changeable.follow(policy.format("pkey: 0x8065"))
    shown = changeable("facts", "--interfaces").out
    assert "0x8064" in shown
    assert "(" not in shown
