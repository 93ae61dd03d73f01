# SPDX-License-Identifier: GPL-2.0-or-later
"""All hosts of tests/data/hosts, which has facts, policy and decision of each.

For each host: the function that builds it, and the exit codes of ``check`` and
``plan --exit-code``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Callable

from support.fakes.fake_root import FakeRoot
from support.golden import golden_mlx4 as mlx4
from support.golden import golden_mlx5 as mlx5
from support.golden import golden_others as others

DATA = Path(__file__).parents[2] / "data" / "hosts"


@dataclass(frozen=True)
class Golden:
    """A host; ``check`` and ``plan`` are exit codes with its policy, ``plain`` is the
    exit code of ``check`` with an empty policy.
    """

    build: Callable[[Path], FakeRoot]
    check: int
    plan: int
    plain: int = 0


HOSTS = {
    "connectx-a0-in-box": Golden(mlx4.connectx_a0_in_box, check=3, plan=3),
    "connectx-a0-old-driver": Golden(
        mlx4.connectx_a0_old_driver, check=3, plan=3, plain=3
    ),
    "connectx-2-on-el9": Golden(mlx4.connectx_2_on_el9, check=3, plan=0, plain=3),
    "connectx-3-on-el10": Golden(mlx4.connectx_3_on_el10, check=3, plan=0, plain=3),
    "connectx-3-vpi": Golden(mlx4.connectx_3_vpi, check=3, plan=3),
    "connectx-3-busy": Golden(mlx4.connectx_3_busy, check=3, plan=3),
    "engine-owned-mtu": Golden(mlx4.engine_owned_mtu, check=0, plan=0),
    "pkeys": Golden(mlx4.pkeys, check=3, plan=3),
    "partitions": Golden(mlx4.partitions, check=3, plan=3),
    "connectx-5-ib": Golden(mlx5.connectx_5_ib, check=3, plan=0),
    "connectx-7-ndr": Golden(mlx5.connectx_7_ndr, check=3, plan=3),
    "connectx-6-dx-roce": Golden(mlx5.connectx_6_dx_roce, check=0, plan=0),
    "two-hcas": Golden(mlx5.two_hcas, check=3, plan=3),
    "bond-of-ipoib": Golden(mlx5.bond_of_ipoib, check=0, plan=0),
    "virtual-functions": Golden(mlx5.virtual_functions, check=3, plan=0),
    "virtual-functions-in-use": Golden(mlx5.virtual_functions, check=3, plan=3),
    "virtual-functions-wanted": Golden(mlx5.virtual_functions_wanted, check=3, plan=3),
    "mlnx-ofed": Golden(mlx5.mlnx_ofed, check=3, plan=0),
    "qib": Golden(others.qib, check=3, plan=0),
    "hfi1": Golden(others.hfi1, check=3, plan=3),
    "without-rdma": Golden(others.without_rdma, check=3, plan=0, plain=3),
    "everything-off": Golden(others.everything_off, check=3, plan=3),
}
