# SPDX-License-Identifier: GPL-2.0-or-later
"""Map PCI ids of InfiniBand and RoCE adapters to product name and kernel module. Pure.

The ids of each module are from the kernel's tables (drivers/net/ethernet/mellanox/
mlx4/main.c and mlx5/core/main.c, drivers/infiniband/hw/{mthca,qib,hfi1}, Linux 6.1);
the names are from pci.ids.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

from ovirt_rdma.host.facts.devices import PciIdentity

MELLANOX = "0x15b3"

MLX4, MLX5 = "mlx4_core", "mlx5_core"
MTHCA, QIB, HFI1 = "ib_mthca", "ib_qib", "hfi1"

# ConnectX and ConnectX-2 have the same ids; the PCI revision distinguishes them.
CONNECTX_OR_2 = "ConnectX or ConnectX-2"
_CONNECTX_REVISION_A0 = "0xa0"
_CONNECTX2_REVISION_B0 = "0xb0"


@dataclass(frozen=True)
class Model:
    """The product ``name`` (``ConnectX-3 Pro``) and kernel ``module`` (``mlx4_core``).

    ``gen2``: mlx4_core supports it only if built with MLX4_CORE_GEN2.
    """

    name: str
    module: str
    gen2: bool = False


def _mlx4() -> dict[tuple[str, str], Model]:
    old = "6340 634a 6354 6732 673c 6368 6750 6372 675a 6764 6746 676e 1002"
    new = {
        "1003": "ConnectX-3",
        "1004": "ConnectX-3 virtual function",
        "1007": "ConnectX-3 Pro",
    }
    models = {
        (MELLANOX, f"0x{i}"): Model(CONNECTX_OR_2, MLX4, gen2=True) for i in old.split()
    }
    for number, name in new.items():
        models[MELLANOX, f"0x{number}"] = Model(name, MLX4)
    return models


def _mlx5() -> dict[tuple[str, str], Model]:
    names = {
        "1011": "Connect-IB",
        "1012": "Connect-IB virtual function",
        "1013": "ConnectX-4",
        "1014": "ConnectX-4 virtual function",
        "1015": "ConnectX-4 Lx",
        "1016": "ConnectX-4 Lx virtual function",
        "1017": "ConnectX-5",
        "1018": "ConnectX-5 virtual function",
        "1019": "ConnectX-5 Ex",
        "101a": "ConnectX-5 Ex virtual function",
        "101b": "ConnectX-6",
        "101c": "ConnectX-6 virtual function",
        "101d": "ConnectX-6 Dx",
        "101e": "ConnectX virtual function",
        "101f": "ConnectX-6 Lx",
        "1021": "ConnectX-7",
        "1023": "ConnectX-8",
        "a2d2": "BlueField (ConnectX-5)",
        "a2d3": "BlueField virtual function",
        "a2d6": "BlueField-2 (ConnectX-6 Dx)",
        "a2dc": "BlueField-3 (ConnectX-7)",
        "a2df": "BlueField-4",
    }
    return {(MELLANOX, f"0x{i}"): Model(name, MLX5) for i, name in names.items()}


_OTHERS = {
    (MELLANOX, "0x5a44"): Model("InfiniHost", MTHCA),
    (MELLANOX, "0x6278"): Model("InfiniHost III Ex", MTHCA),
    (MELLANOX, "0x6282"): Model("InfiniHost III Ex", MTHCA),
    (MELLANOX, "0x6274"): Model("InfiniHost III Lx", MTHCA),
    (MELLANOX, "0x5e8c"): Model("InfiniHost III Lx", MTHCA),
    ("0x1fc1", "0x0010"): Model("QLogic IBA6120", QIB),
    ("0x1077", "0x7220"): Model("QLogic IBA7220", QIB),
    ("0x1077", "0x7322"): Model("QLogic IBA7322 (TrueScale)", QIB),
    ("0x8086", "0x24f0"): Model("Omni-Path HFI 100", HFI1),
    ("0x8086", "0x24f1"): Model("Omni-Path HFI 100", HFI1),
}

MODELS: dict[tuple[str, str], Model] = {**_mlx4(), **_mlx5(), **_OTHERS}


def model_of(pci: PciIdentity) -> Optional[Model]:
    """Return the model of a PCI function; None if its id is not in the tables.

    Of the ids that both have, revision 0xa0 is ConnectX and 0xb0 ConnectX-2.
    """
    model = MODELS.get((pci.vendor.lower(), pci.device.lower()))
    if model is None or not model.gen2:
        return model
    by_revision = {
        _CONNECTX_REVISION_A0: "ConnectX (revision a0)",
        _CONNECTX2_REVISION_B0: "ConnectX-2",
    }
    name = by_revision.get(pci.revision.lower(), model.name)
    return Model(name, model.module, model.gen2)
