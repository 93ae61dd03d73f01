# SPDX-License-Identifier: GPL-2.0-or-later
"""NFS-PATHS-01: each path on a port of its own; and the threads of its server."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from support.host.rule_cases import (
    above,
    ethernet,
    facts,
    findings,
    ipoib,
    roce_device,
    sound_server,
)

from ovirt_rdma.host.facts.devices import ARPHRD_ETHER, Netdev
from ovirt_rdma.host.facts.model import Activity, ConnectionActivity, load
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules.base import FAIL, PASS, SKIP, WARN
from ovirt_rdma.host.rules.nfs import PATHS
from ovirt_rdma.host.rules.nfs_server import RULES as SERVER_RULES

A1, A2 = "10.99.0.1", "10.98.0.1"
ROCE_NIC = Path(__file__).parents[2] / "data" / "facts" / "roce-nic.json"


def policy(*lists):
    """A policy with a rule for each list of paths."""
    made = [NfsRule(n, f"r{n}", "nas", "*", "prefer-rdma", paths=one)
            for n, one in enumerate(lists, 1)]  # fmt: skip
    return Policy(nfs=NfsPolicy(tuple(made)))


def second(*addresses, name="ens2", **parts):
    """The netdev of another RDMA device."""
    return ethernet(name, addresses=addresses, rdma_device="mlx5_1", **parts)


def host(*netdevs, **parts):
    devices = roce_device(), roce_device("mlx5_1")
    return facts(rdma_devices=devices, netdevs=netdevs, **parts)


FIRST = ethernet("ens1", addresses=("10.99.0.2/24", "fd00:99::2/64"))
PLAIN = Netdev("eno1", ARPHRD_ETHER, 1500, "", "up", addresses=("10.98.0.2/24",))
VLANS = [above(f"ens1.{n}", "ens1", addresses=(f"10.{n}.0.2/24",)) for n in (98, 99)]
BELOW = ethernet("ens1", uppers=("ens1.98", "ens1.99"))


WIDE = ethernet("ens1", addresses=("10.99.0.2/24", "10.0.0.2/8"))
CHILD = ipoib("ib0.8001", "0x8001", addresses=("10.98.0.2/24",))
BRIDGE = [second(uppers=("br",)), above("br", "ens2", addresses=("10.98.0.2/24",))]
SECOND = second("10.98.0.2/24")
ONE_CABLE = f"leads to it and to {A1} (10.99.0.0/24): one cable for two paths"


@pytest.mark.parametrize(
    ("netdevs", "paths", "expected", "words"),
    [
        ([FIRST, SECOND], (A1, A2), (PASS, PASS), "ens2 (mlx5_1/1, 10.98.0.0/24)"),
        # A host route beside: the subnet with the longest prefix is the route.
        ([WIDE, SECOND], (A1, A2), (PASS, PASS), "ens2"),
        # One netdev; one subnet; two VLANs, and two partitions, of one port.
        (
            [ethernet("ens1", addresses=("10.99.0.2/24", "10.98.0.2/24"))],
            (A1, A2),
            (PASS, FAIL),
            f"ens1 (mlx5_0/1, 10.98.0.0/24) {ONE_CABLE}",
        ),
        (
            [FIRST, second("10.99.0.3/24")],
            (A1, "10.99.0.9"),
            (PASS, FAIL),
            f"ens1 (mlx5_0/1, 10.99.0.0/24) {ONE_CABLE}",
        ),
        ([*VLANS, BELOW], (A1, A2), (PASS, FAIL), f"to {A1}"),
        (
            [ipoib("ib0", addresses=("10.99.0.2/24",)), CHILD],
            (A1, A2),
            (PASS, FAIL),
            f"ib0.8001 (mlx4_0/1, 10.98.0.0/24) {ONE_CABLE}",
        ),
        # A netdev without RDMA, and a bridge above the port.
        (
            [FIRST, PLAIN],
            (A1, A2),
            (PASS, FAIL),
            "eno1, its netdev, is on no RDMA port",
        ),
        ([FIRST, *BRIDGE], (A1, A2), (PASS, PASS), "br (mlx5_1/1, 10.98.0.0/24)"),
        # Through a router.
        ([FIRST, second("10.97.0.2/24")], (A1, A2), (PASS, WARN), "routers"),
        ([FIRST, second("fe80::1/64", "odd")], (A1, A2), (PASS, WARN), "routers"),
        ([], (A1, A2), (SKIP, SKIP), "unknown"),
    ],
)
def test_each_path(netdevs, paths, expected, words):
    found = findings(PATHS, host(*netdevs), policy(paths))
    assert tuple(found[path][0] for path in paths) == expected
    sentence = found[paths[1]][1]
    assert words in sentence
    if expected[1] in (FAIL, WARN):
        assert "a subnet" in sentence.partition(" | ")[2]


def test_a_real_host_with_two_nics():
    found = findings(PATHS, load(ROCE_NIC), policy((A1, A2)))
    assert {verdict for verdict, _ in found.values()} == {PASS}
    assert "eth1 (rxe1/1, 10.98.0.0/24) leads to it, and to no path" in found[A2][1]


def test_an_iwarp_port_cannot_be_asked():
    devices = roce_device(), replace(roce_device("mlx5_1"), node_type="RNIC")
    one = facts(rdma_devices=devices, netdevs=(FIRST, SECOND))
    found = findings(PATHS, one, policy((A1, A2)))
    assert (found[A1][0], found[A2][0]) == (PASS, WARN)
    assert "iWARP" in found[A2][1]


def test_rules_of_one_server_count_once():
    netdevs = FIRST, second("10.98.0.2/24")
    found = findings(PATHS, host(*netdevs), policy((A1, A2), (), (A1, A2)))
    assert [verdict for verdict, _ in found.values()] == [PASS, PASS]


def test_without_paths_there_is_nothing_to_check():
    assert findings(PATHS, host(FIRST), policy(()))["host"][0] == SKIP


CONNECTION = ConnectionActivity("switch-0/xprt-0-rdma")


@pytest.mark.parametrize(
    ("loaded", "activity", "fails"),
    [
        (("sunrpc",), Activity(1.0, connections=None), True),
        (("sunrpc",), Activity(1.0, connections=()), False),
        (("sunrpc",), Activity(1.0, connections=(CONNECTION,)), False),
        # Then the folder says nothing, and nothing is mounted.
        ((), Activity(1.0, connections=None), False),
        (("sunrpc",), None, False),
    ],
)
def test_the_kernel_has_to_let_connections_be_moved(loaded, activity, fails):
    one = host(
        FIRST,
        second("10.98.0.2/24"),
        modules={"loaded": loaded},
        activity=activity,
    )
    found = findings(PATHS, one, policy((A1, A2)))
    assert ("host" in found) is fails
    if fails:
        verdict, sentence = found["host"]
        assert verdict == FAIL
        assert "5.15" in sentence
    assert findings(PATHS, one, policy(()))["host"][0] == SKIP


(THREADS,) = (rule for rule in SERVER_RULES if rule.id == "SERVER-THREADS-01")


@pytest.mark.parametrize(
    ("netdevs", "threads", "verdict"),
    [
        ((FIRST,), 8, PASS),
        ((FIRST, second()), 8, PASS),
        ((FIRST, second("fe80::1/64")), 8, PASS),
        ((FIRST, second("10.98.0.1/24")), 8, WARN),
        ((FIRST, second("10.98.0.1/24")), 15, WARN),
        ((FIRST, second("10.98.0.1/24")), 16, PASS),
        ((FIRST,), 7, WARN),
    ],
)
def test_a_server_with_several_paths_needs_more_threads(netdevs, threads, verdict):
    server = replace(sound_server(), threads=threads)
    (found, sentence) = findings(THREADS, host(*netdevs, nfs_server=server))["host"]
    assert found == verdict
    if verdict == WARN:
        reached = sum("10." in str(netdev.addresses) for netdev in netdevs)
        least = f"{16 if reached > 1 else 8} are the least for 2 NFS 4 clients"
        assert f"{least} and {reached} RDMA netdevs |" in sentence
