# SPDX-License-Identifier: GPL-2.0-or-later
"""DRIVER-01 and STACK-01: adapters without a driver, and the origin of modules."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.rule_cases import (
    REQUIRE_RDMA,
    adapter,
    facts,
    files,
    findings,
    ib_device,
    modprobe,
    pci,
)

from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.model import KernelOption, RdmaStack
from ovirt_rdma.host.rules.adapters import DRIVERS, STACK

EL9 = {"distribution": "el9"}
GEN2_OFF = {"kernel_config": (KernelOption("MLX4_CORE_GEN2", "n"),)}
MLX4 = {"loaded": ("mlx4_core",), "available": ("mlx4_core", "mlx4_ib")}


@pytest.mark.parametrize(
    ("device", "revision", "name", "module"),
    [
        ("0x6340", "0xa0", "ConnectX (revision a0)", "mlx4_core"),
        ("0x6732", "0xA0", "ConnectX (revision a0)", "mlx4_core"),
        ("0x673c", "0xb0", "ConnectX-2", "mlx4_core"),
        ("0x676e", "0x00", "ConnectX or ConnectX-2", "mlx4_core"),
        ("0x1003", "0x00", "ConnectX-3", "mlx4_core"),
        ("0x1007", "0x00", "ConnectX-3 Pro", "mlx4_core"),
        ("0x1017", "0x00", "ConnectX-5", "mlx5_core"),
        ("0x1021", "0x00", "ConnectX-7", "mlx5_core"),
        ("0x6274", "0xa0", "InfiniHost III Lx", "ib_mthca"),
    ],
)
def test_names_that_people_know(device, revision, name, module):
    model = model_of(pci(device, revision=revision))
    assert (model.name, model.module) == (name, module)


WITHOUT_MLX4 = {"available": ("mlx5_core",)}
CONNECTX_2, CONNECTX_3 = adapter("0x673c", revision="0xb0"), adapter("0x1003")
CONNECTX_5, TRUESCALE = adapter("0x1017"), adapter("0x7322", vendor="0x1077")
WORKS = {"rdma_devices": (ib_device(),)}


NO_GEN2 = "this kernel's mlx4_core is built without MLX4_CORE_GEN2"
PREVENTED = "/etc/modprobe.d/site.conf:3 prevents loading mlx5_core"


def blocked(line):
    return {**WITHOUT_MLX4, "modprobe_lines": (modprobe(line),)}


@pytest.mark.parametrize(
    ("card", "modules", "software", "verdict", "words"),
    [
        # EL9 builds it without; the kernel's configuration takes precedence.
        (
            CONNECTX_2,
            {},
            EL9,
            "FAIL",
            f"ConnectX-2 (15b3:673c) has no driver: {NO_GEN2} | use another adapter",
        ),
        (CONNECTX_2, MLX4, GEN2_OFF, "FAIL", NO_GEN2),
        (
            CONNECTX_2,
            MLX4,
            {**EL9, "kernel_config": (KernelOption("MLX4_CORE_GEN2", "y"),)},
            "FAIL",
            "mlx4_core is loaded but has not claimed it | journalctl -k",
        ),
        (
            CONNECTX_3,
            WITHOUT_MLX4,
            {"distribution": "el10"},
            "FAIL",
            "this kernel has no mlx4_core | use another adapter, or an out-of-tree "
            "build of mlx4_core for this kernel (ELRepo",
        ),
        (
            TRUESCALE,
            WITHOUT_MLX4,
            EL9,
            "FAIL",
            "(TrueScale) (1077:7322) has no driver: this kernel has no ib_qib",
        ),
        (
            CONNECTX_5,
            WITHOUT_MLX4,
            {},
            "FAIL",
            "mlx5_core is available but not loaded | modprobe mlx5_core",
        ),
        (
            CONNECTX_5,
            blocked("blacklist mlx5-core"),
            {},
            "FAIL",
            f"{PREVENTED} (blacklist) |",
        ),
        (
            CONNECTX_5,
            blocked("install mlx5_core /bin/false"),
            {},
            "FAIL",
            f"{PREVENTED} (install) |",
        ),
        (
            CONNECTX_5,
            {},
            {},
            "FAIL",
            "mlx5_core is not loaded, and it is unknown if this kernel has it",
        ),
        (
            adapter("0xffff", vendor="0x1234"),
            {},
            {},
            "FAIL",
            "(1234:ffff) has no driver: its PCI id is unknown to this program | lspci",
        ),
        (
            adapter("0x1018", "vfio-pci"),
            {},
            {},
            "PASS",
            "reserved for a guest by vfio-pci",
        ),
        (
            adapter("0x1018", "mlx5_vfio_pci"),
            {},
            {},
            "PASS",
            "reserved for a guest by mlx5_vfio_pci",
        ),
        (
            adapter("0x1018", physical_function="0000:03:00.0"),
            {},
            {},
            "PASS",
            "of 0000:03:00.0 has no driver and is available for a guest",
        ),
    ],
)
def test_adapter(judged, card, modules, software, verdict, words):
    host = facts(adapters=(card,), modules=modules, software=software)
    judged(DRIVERS, host, None, "0000:04:00.0", verdict, words)


@pytest.mark.parametrize(
    ("card", "verdict", "words"),
    [
        (CONNECTX_5, "WARN", "mlx5_core is available but not loaded"),
        (
            adapter("0x1003", "mlx4_core"),
            "PASS",
            "ConnectX-3 (15b3:1003) uses the driver mlx4_core",
        ),
    ],
)
def test_an_adapter_beside_an_rdma_device(card, verdict, words):
    found = findings(DRIVERS, facts(adapters=(card,), modules=WITHOUT_MLX4, **WORKS))
    assert found["0000:04:00.0"][0] == verdict
    assert words in found["0000:04:00.0"][1]


def test_virtual_functions_are_not_listed_beside_their_own():
    parent = adapter("0x1003", "mlx4_core", vfs=3, max_vfs=8)
    functions = tuple(
        replace(
            adapter("0x1004", driver, physical_function=parent.pci.address),
            pci=pci("0x1004", address=f"0000:04:00.{number}"),
        )
        for number, driver in enumerate(("vfio-pci", "vfio-pci", None), 1)
    )
    host = facts(adapters=(parent, *functions), rdma_devices=(ib_device(),))
    found = findings(DRIVERS, host)
    assert list(found) == ["0000:04:00.0"]
    assert found["0000:04:00.0"] == (
        "PASS",
        "ConnectX-3 (15b3:1003) uses the driver mlx4_core | ",
    )


def test_no_adapter():
    assert findings(DRIVERS, facts())["host"][0] == "SKIP"


# STACK-01

IN = "kernel/drivers/infiniband/core/{}.ko.xz"
OUT = "extra/mlnx-ofa_kernel/drivers/infiniband/core/{}.ko"
OFED = (RdmaStack("MLNX_OFED", "5.8-3.0.7.0", "ofed_info -s"),)
EITHER = (RdmaStack("MLNX_OFED or DOCA", None, "/etc/x"),)
NFS_IN = "kernel/net/sunrpc/xprtrdma/rpcrdma.ko.xz"
NFS_OUT = "extra/mlnx-nfsrdma/rpcrdma.ko"


def _base(form):
    return {"ib_core": form.format("ib_core"), "rdma_cm": form.format("rdma_cm")}


WEAK = "weak-updates/x/{}.ko"
MIXED = {"ib_core": IN.format("ib_core"), "rdma_cm": OUT.format("rdma_cm")}
OFEDS = f"MLNX_OFED 5.8-3.0.7.0 (ofed_info -s): {OUT.format('ib_core')}"


@pytest.mark.parametrize(
    ("paths", "stacks", "modules", "verdict", "words"),
    [
        ({**_base(IN), "rpcrdma": NFS_IN}, (), {}, "PASS", "kernel's own"),
        # That rpcrdma is missing is NFSRDMA-01's.
        (
            _base(OUT),
            OFED,
            {"available": ("ib_core",)},
            "PASS",
            f"the RDMA modules are from {OFEDS}; rpcrdma is missing",
        ),
        ({**_base(OUT), "rpcrdma": NFS_IN}, OFED, {}, "FAIL", "another tree"),
        ({**_base(OUT), "rpcrdma": NFS_OUT}, OFED, {}, "PASS", NFS_OUT),
        ({**_base(WEAK), "rpcrdma": NFS_IN}, (), {}, "FAIL", "another tree"),
        ({**_base(IN), "rpcrdma": NFS_OUT}, (), {}, "FAIL", "another tree"),
        ({**_base(IN), "rpcrdma": NFS_IN}, OFED, {}, "WARN", "are the distribution's"),
        ({**MIXED, "rpcrdma": NFS_IN}, OFED, {}, "FAIL", "from two trees"),
        (
            _base(OUT),
            (),
            {},
            "SKIP",
            f"the RDMA modules are from an out-of-tree stack: {OUT.format('ib_core')}; "
            "rpcrdma is of unknown origin",
        ),
        (_base(OUT), EITHER, {}, "SKIP", "from MLNX_OFED or DOCA (/etc/x): extra/"),
        ({}, OFED, {}, "SKIP", "unknown"),
        ({}, (), {}, "SKIP", "unknown"),
    ],
)
def test_stack(judged, paths, stacks, modules, verdict, words):
    host = facts(
        modules={"files": files(**paths), **modules}, software={"stacks": stacks}
    )
    judged(STACK, host, REQUIRE_RDMA, "host", verdict, words)


@pytest.mark.parametrize(
    ("paths", "verdict"),
    [
        # NFSRDMA-01 says that there is no rpcrdma.
        (_base(OUT), "PASS"),
        ({**_base(OUT), "rpcrdma": NFS_IN}, "WARN"),
        ({**_base(IN), "rpcrdma": NFS_OUT}, "WARN"),
        (MIXED, "FAIL"),
    ],
)
def test_rpcrdma_is_no_failure_where_nobody_wants_nfs_over_rdma(paths, verdict):
    host = facts(modules={"files": files(**paths), "available": ()})
    assert findings(STACK, host)["host"][0] == verdict


def test_single_drivers_from_elsewhere_are_named(judged):
    paths = {**_base(IN), "rpcrdma": NFS_IN, "mlx4_core": "extra/mlx4/mlx4_core.ko"}
    judged(
        STACK,
        facts(modules={"files": files(**paths)}),
        None,
        "host",
        "PASS",
        "the kernel's own, except extra/mlx4/mlx4_core.ko",
    )
