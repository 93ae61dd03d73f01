# SPDX-License-Identifier: GPL-2.0-or-later
"""NFSRDMA-01 to -03: module, registration of memory, port."""

from __future__ import annotations

import pytest
from support.host.rule_cases import (
    REQUIRE_RDMA,
    facts,
    files,
    findings,
    ib_device,
    modprobe,
    roce_device,
)

from ovirt_rdma.host.facts.model import NfsMount, Route
from ovirt_rdma.host.policy.model import NfsPolicy, NfsRule, Policy
from ovirt_rdma.host.rules.base import View
from ovirt_rdma.host.rules.nfs import MODULE, PORT, REGISTRATION

TCP_ONLY = Policy(nfs=NfsPolicy((NfsRule(1, "rule 1", "*", "*", "tcp"),)))
PREFER = Policy(nfs=NfsPolicy((NfsRule(1, "rule 1", "*", "*", "prefer-rdma"),)))


@pytest.mark.parametrize(
    ("policy", "mounts", "expected"),
    [
        (Policy(), (), False),
        (TCP_ONLY, (), False),
        (PREFER, (), True),
        (REQUIRE_RDMA, (), True),
        (Policy(), ("tcp",), False),
        (Policy(), (None,), False),
        (Policy(), ("tcp", "rdma"), True),
        (Policy(), ("rdma6",), True),
    ],
)
def test_whether_rdma_is_wanted(policy, mounts, expected):
    found = tuple(NfsMount("s:/d", "/mnt", "", protocol=p) for p in mounts)
    view = View(facts(nfs_mounts=found), policy)
    assert view.wants_nfs_over_rdma is expected


@pytest.mark.parametrize(
    ("modules", "verdict", "wanted", "words"),
    [
        ({"loaded": ("rpcrdma",)}, "PASS", "PASS", "is loaded"),
        ({"available": ("rpcrdma",)}, "PASS", "PASS", "at the first mount"),
        ({"available": ()}, "WARN", "FAIL", "this kernel has no rpcrdma"),
        ({}, "SKIP", "SKIP", "it is unknown if this kernel has rpcrdma"),
        (
            {
                "available": ("rpcrdma",),
                "modprobe_lines": (modprobe("install rpcrdma /usr/bin/true"),),
            },
            "WARN",
            "FAIL",
            "site.conf:3 prevents loading rpcrdma (install)",
        ),
        (  # MLNX_OFED's ib_core, and the kernel's own rpcrdma
            {
                "available": ("ib_core", "rpcrdma"),
                "files": files(
                    ib_core="extra/mlnx-ofa_kernel/ib_core.ko",
                    rpcrdma="kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz",
                ),
            },
            "WARN",
            "FAIL",
            "other RDMA modules | see STACK-01",
        ),
        (  # a blacklist does not stop the kernel from loading the module by name
            {
                "available": ("rpcrdma",),
                "modprobe_lines": (modprobe("blacklist rpcrdma"),),
            },
            "PASS",
            "PASS",
            "at the first mount",
        ),
    ],
)
def test_module(modules, verdict, wanted, words):
    host = facts(rdma_devices=(ib_device(),), modules=modules)
    assert findings(MODULE, host)["rpcrdma"][0] == verdict
    found = findings(MODULE, host, REQUIRE_RDMA)["rpcrdma"]
    assert found[0] == wanted
    assert words in found[1]


@pytest.mark.parametrize(
    ("driver", "verdict", "wanted"),
    [
        ("mlx4_core", "PASS", "PASS"),
        ("mlx5_core", "PASS", "PASS"),
        ("hfi1", "PASS", "PASS"),
        ("rdma_rxe", "PASS", "PASS"),
        ("bnxt_en", "PASS", "PASS"),
        ("ib_qib", "WARN", "FAIL"),
        ("ib_mthca", "WARN", "FAIL"),
        (None, "SKIP", "SKIP"),
        ("new_hca", "SKIP", "SKIP"),
    ],
)
def test_registration(driver, verdict, wanted):
    host = facts(rdma_devices=(ib_device("ib_dev", driver),))
    assert findings(REGISTRATION, host)["ib_dev"][0] == verdict
    found = findings(REGISTRATION, host, REQUIRE_RDMA)["ib_dev"]
    assert found[0] == wanted
    if wanted == "FAIL":
        assert "frwr mode is not supported" in found[1]


def test_old_card_beside_a_good_one_is_a_warning():
    host = facts(rdma_devices=(ib_device("qib0", "ib_qib"), roce_device()))
    found = findings(REGISTRATION, host, REQUIRE_RDMA)
    assert {name: verdict for name, (verdict, _) in found.items()} == {
        "qib0": "WARN",
        "mlx5_0": "PASS",
    }


@pytest.mark.parametrize(
    ("states", "verdict", "wanted", "words"),
    [
        (("ACTIVE", "DOWN"), "PASS", "PASS", "mlx4_0/1 is ACTIVE"),
        (("ACTIVE", "ACTIVE"), "PASS", "PASS", "mlx4_0/1, mlx4_1/1 are ACTIVE"),
        (("INIT",), "WARN", "FAIL", "mlx4_0/1 is INIT (LinkUp)"),
        (("unknown",), "WARN", "FAIL", "mlx4_0/1 is unknown"),
    ],
)
def test_port(states, verdict, wanted, words):
    devices = tuple(ib_device(f"mlx4_{n}", state=s) for n, s in enumerate(states))
    host = facts(rdma_devices=devices)
    assert findings(PORT, host)["host"][0] == verdict
    found = findings(PORT, host, REQUIRE_RDMA)["host"]
    assert found[0] == wanted
    assert words in found[1]


def test_no_device():
    for rule in (REGISTRATION, PORT):
        assert findings(rule, facts())["host"][0] == "SKIP"
    # Only one of them fails.
    assert findings(REGISTRATION, facts(), REQUIRE_RDMA)["host"][0] == "SKIP"
    assert findings(PORT, facts(), REQUIRE_RDMA)["host"][0] == "FAIL"


NAS, ISO = "10.0.0.5", "10.0.0.6"


def _mount(address, path):
    return NfsMount(f"{address}:{path}", "/mnt", "", address=address)


@pytest.mark.parametrize(
    ("rules", "mounts", "failed"),
    [
        # The first rule wins: TCP.
        ([(NAS, "*", "tcp"), ("10.0.0.0/16", "*", "require-rdma")], [NAS], []),
        # The other mount has no rule, and a target of iSCSI is no server of NFS.
        ([("*", "/vm/*", "require-rdma")], [ISO], []),
        ([("*", "/vm/*", "require-rdma")], [], []),
        ([("*", "*", "require-rdma")], [NAS], [NAS]),
        ([(NAS, "/vm/*", "require-rdma")], [], [NAS]),
    ],
)
def test_a_route_counts_for_the_rule_of_its_mounts(rules, mounts, failed):
    policy = Policy(
        nfs=NfsPolicy(
            tuple(NfsRule(n, f"rule {n}", *rule) for n, rule in enumerate(rules, 1))
        )
    )
    host = facts(
        rdma_devices=(ib_device(),),
        routes=(Route(NAS, "ovirtmgmt"), Route(ISO, "ovirtmgmt")),
        nfs_mounts=tuple(_mount(address, "/data") for address in mounts),
    )
    found = findings(PORT, host, policy)
    assert [name for name in found if found[name][0] == "FAIL"] == failed
