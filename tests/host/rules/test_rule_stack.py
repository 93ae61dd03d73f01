# SPDX-License-Identifier: GPL-2.0-or-later
"""STACK-01 and KERNEL-01: the origin of modules, and the kernel's configuration."""

from __future__ import annotations

import pytest
from support.host.rule_cases import (
    REQUIRE_RDMA,
    facts,
    files,
    findings,
    host_policy,
    ib_device,
    interface_rule,
    roce_device,
)

from ovirt_rdma.host.facts.model import KernelOption, RdmaStack
from ovirt_rdma.host.rules import adapters

IN = "kernel/drivers/infiniband/core/{}.ko.xz"
OUT = "extra/mlnx-ofa_kernel/drivers/infiniband/core/{}.ko"
OFED = (RdmaStack("MLNX_OFED", "5.8-3.0.7.0", "ofed_info -s"),)
NFS_IN = "kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz"
NFS_OUT = "extra/mlnx-nfsrdma/rpcrdma.ko"


def _base(form):
    return {"ib_core": form.format("ib_core"), "rdma_cm": form.format("rdma_cm")}


@pytest.mark.parametrize(
    ("paths", "stacks", "modules", "verdict", "words"),
    [
        ({**_base(IN), "rpcrdma": NFS_IN}, (), {}, "PASS", "kernel's own"),
        (
            _base(OUT),
            OFED,
            {"available": ("ib_core",)},
            "FAIL",
            "MLNX_OFED 5.8-3.0.7.0 (extra/mlnx-ofa_kernel/drivers/infiniband/core/"
            "ib_core.ko), and rpcrdma is missing",
        ),
        ({**_base(OUT), "rpcrdma": NFS_IN}, OFED, {}, "FAIL", "another tree"),
        ({**_base(OUT), "rpcrdma": NFS_OUT}, OFED, {}, "PASS", NFS_OUT),
        (
            {**_base("weak-updates/x/{}.ko"), "rpcrdma": NFS_IN},
            (),
            {},
            "FAIL",
            "another tree",
        ),
        ({**_base(IN), "rpcrdma": NFS_OUT}, (), {}, "FAIL", "another tree"),
        ({**_base(IN), "rpcrdma": NFS_IN}, OFED, {}, "WARN", "are the distribution's"),
        (
            {**_base(IN), "rdma_cm": OUT.format("rdma_cm"), "rpcrdma": NFS_IN},
            OFED,
            {},
            "FAIL",
            "from two trees",
        ),
        (_base(OUT), (), {}, "WARN", "from an out-of-tree stack"),
        ({}, OFED, {}, "WARN", "unknown"),
        ({}, (), {}, "SKIP", "unknown"),
    ],
)
def test_stack(paths, stacks, modules, verdict, words):
    host = facts(
        modules={"files": files(**paths), **modules}, software={"stacks": stacks}
    )
    found = findings(adapters.STACK, host, REQUIRE_RDMA)["host"]
    assert found[0] == verdict
    assert words in found[1]


@pytest.mark.parametrize(
    ("paths", "verdict"),
    [
        (_base(OUT), "WARN"),
        ({**_base(OUT), "rpcrdma": NFS_IN}, "WARN"),
        ({**_base(IN), "rpcrdma": NFS_OUT}, "WARN"),
        ({**_base(IN), "rdma_cm": OUT.format("rdma_cm")}, "FAIL"),
    ],
)
def test_rpcrdma_is_no_failure_where_nobody_wants_nfs_over_rdma(paths, verdict):
    host = facts(modules={"files": files(**paths), "available": ()})
    assert findings(adapters.STACK, host)["host"][0] == verdict


def test_single_drivers_from_elsewhere_are_named():
    paths = {**_base(IN), "rpcrdma": NFS_IN, "mlx4_core": "extra/mlx4/mlx4_core.ko"}
    found = findings(adapters.STACK, facts(modules={"files": files(**paths)}))["host"]
    assert found[0] == "PASS"
    assert "the kernel's own, except extra/mlx4/mlx4_core.ko" in found[1]


def test_missing_rpcrdma_is_told_how_to_get():
    host = facts(modules={"files": files(**_base(OUT)), "available": ()})
    assert "--with-nfsrdma" in findings(adapters.STACK, host)["host"][1]


def _config(**values):
    return {"kernel_config": tuple(KernelOption(n, v) for n, v in values.items())}


ALL = {
    "INFINIBAND": "m",
    "INFINIBAND_USER_ACCESS": "m",
    "SUNRPC_XPRT_RDMA": "m",
    "INFINIBAND_IPOIB": "m",
    "INFINIBAND_IPOIB_CM": "y",
}
CONNECTED = host_policy(interfaces=(interface_rule(transport_mode="connected"),))


@pytest.mark.parametrize(
    ("device", "config", "policy", "expected"),
    [
        (ib_device(), ALL, None, {"host": "PASS"}),
        (
            ib_device(),
            {**ALL, "INFINIBAND_IPOIB": "n"},
            None,
            {"INFINIBAND_IPOIB": "FAIL"},
        ),
        (
            ib_device(),
            {**ALL, "INFINIBAND_IPOIB_CM": "n"},
            None,
            {"INFINIBAND_IPOIB_CM": "WARN"},
        ),
        (
            ib_device(),
            {**ALL, "INFINIBAND_IPOIB_CM": "n"},
            CONNECTED,
            {"INFINIBAND_IPOIB_CM": "FAIL"},
        ),
        (roce_device(), {**ALL, "INFINIBAND_IPOIB": "n"}, None, {"host": "PASS"}),
        (
            roce_device(),
            {**ALL, "SUNRPC_XPRT_RDMA": "n"},
            None,
            {"SUNRPC_XPRT_RDMA": "WARN"},
        ),
        (
            roce_device(),
            {**ALL, "SUNRPC_XPRT_RDMA": "n"},
            REQUIRE_RDMA,
            {"SUNRPC_XPRT_RDMA": "FAIL"},
        ),
        (None, {}, None, {"host": "SKIP"}),
        (
            None,
            {},
            REQUIRE_RDMA,
            {
                "INFINIBAND": "FAIL",
                "SUNRPC_XPRT_RDMA": "FAIL",
                "INFINIBAND_USER_ACCESS": "WARN",
            },
        ),
    ],
)
def test_kernel(device, config, policy, expected):
    host = facts(rdma_devices=(device,) if device else (), software=_config(**config))
    found = findings(adapters.CONFIGURATION, host, policy)
    assert {subject: verdict for subject, (verdict, _) in found.items()} == expected


def test_module_from_elsewhere_is_as_good():
    host = facts(
        rdma_devices=(roce_device(),),
        software=_config(**{**ALL, "SUNRPC_XPRT_RDMA": "n"}),
        modules={"available": ("rpcrdma",)},
    )
    assert findings(adapters.CONFIGURATION, host)["host"][0] == "PASS"


def test_no_configuration():
    found = findings(adapters.CONFIGURATION, facts(rdma_devices=(ib_device(),)))["host"]
    assert found[0] == "SKIP"
    assert "/proc/config.gz" in found[1]
