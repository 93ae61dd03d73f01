# SPDX-License-Identifier: GPL-2.0-or-later
"""STACK-01: the origin of modules."""

from __future__ import annotations

import pytest
from support.host.rule_cases import (
    REQUIRE_RDMA,
    facts,
    files,
    findings,
)

from ovirt_rdma.host.facts.model import RdmaStack
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
