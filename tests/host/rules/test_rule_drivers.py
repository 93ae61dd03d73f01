# SPDX-License-Identifier: GPL-2.0-or-later
"""DRIVER-01: adapters without a driver."""

from __future__ import annotations

from dataclasses import replace

import pytest
from support.host.rule_cases import adapter, facts, findings, ib_device, modprobe, pci

from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.model import KernelOption
from ovirt_rdma.host.rules.adapters import DRIVERS

EL9 = {"distribution": "el9"}
EL10 = {"distribution": "el10"}
GEN2_OFF = {"kernel_config": (KernelOption("MLX4_CORE_GEN2", "n"),)}
GEN2_ON = {**EL9, "kernel_config": (KernelOption("MLX4_CORE_GEN2", "y"),)}
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


@pytest.mark.parametrize(
    ("host", "verdict", "words"),
    [
        pytest.param(
            {"adapters": (adapter("0x673c", revision="0xb0"),), "software": EL9},
            "FAIL",
            ("ConnectX-2 (15b3:673c)", "without MLX4_CORE_GEN2", "another adapter"),
            id="ConnectX-2 on EL9",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x673c"),),
                "modules": MLX4,
                "software": GEN2_OFF,
            },
            "FAIL",
            ("without MLX4_CORE_GEN2",),
            id="ConnectX-2, by the kernel's configuration",
        ),
        pytest.param(
            {"adapters": (adapter("0x673c"),), "modules": MLX4, "software": GEN2_ON},
            "FAIL",
            ("mlx4_core is loaded but", "journalctl -k"),
            id="ConnectX-2 on EL9 with a kernel that supports it",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x1003"),),
                "modules": {"available": ("mlx5_core",)},
                "software": EL10,
            },
            "FAIL",
            ("this kernel has no mlx4_core", "ELRepo"),
            id="ConnectX-3 on EL10",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x7322", vendor="0x1077"),),
                "modules": {"available": ("mlx5_core",)},
                "software": EL9,
            },
            "FAIL",
            ("TrueScale", "this kernel has no ib_qib"),
            id="qib on EL9",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x1017"),),
                "modules": {"available": ("mlx5_core",)},
            },
            "FAIL",
            ("mlx5_core is available but not loaded", "modprobe mlx5_core"),
            id="not loaded",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x1017"),),
                "modules": {
                    "available": ("mlx5_core",),
                    "modprobe_lines": (modprobe("blacklist mlx5-core"),),
                },
            },
            "FAIL",
            ("/etc/modprobe.d/site.conf:3 prevents", "mlx5_core", "blacklist"),
            id="blacklisted",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x1017"),),
                "modules": {
                    "available": ("mlx5_core",),
                    "modprobe_lines": (modprobe("install mlx5_core /bin/false"),),
                },
            },
            "FAIL",
            ("/etc/modprobe.d/site.conf:3 prevents", "mlx5_core", "install"),
            id="install false",
        ),
        pytest.param(
            {"adapters": (adapter("0x1017"),)},
            "FAIL",
            ("mlx5_core is not loaded", "unknown"),
            id="modules unknown",
        ),
        pytest.param(
            {"adapters": (adapter("0xffff", vendor="0x1234"),)},
            "FAIL",
            ("1234:ffff", "its PCI id is unknown", "lspci"),
            id="unknown id",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x1017"),),
                "rdma_devices": (ib_device(),),
                "modules": {"available": ("mlx5_core",)},
            },
            "WARN",
            ("not loaded",),
            id="a second adapter",
        ),
        pytest.param(
            {"adapters": (adapter("0x1018", "vfio-pci"),)},
            "PASS",
            ("reserved for a guest by vfio-pci",),
            id="VF of a guest",
        ),
        pytest.param(
            {"adapters": (adapter("0x1018", physical_function="0000:04:00.0"),)},
            "PASS",
            ("available for a guest",),
            id="VF that is available",
        ),
        pytest.param(
            {
                "adapters": (adapter("0x1003", "mlx4_core"),),
                "rdma_devices": (ib_device(),),
            },
            "PASS",
            ("ConnectX-3 (15b3:1003)", "mlx4_core"),
            id="correct",
        ),
    ],
)
def test_adapter(host, verdict, words):
    found = findings(DRIVERS, facts(**host))["0000:04:00.0"]
    assert found[0] == verdict
    for word in words:
        assert word in found[1]


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
