# SPDX-License-Identifier: GPL-2.0-or-later
"""List the adapters that can do RDMA, and the kernel modules of each. Data.

Of many adapters one module drives the PCI function, and another one makes its RDMA
device; without the second one the function is an ordinary NIC. The PCI ids are from the
tables of the drivers in Linux 6.12, the names from pci.ids:

- mlx4_core: drivers/net/ethernet/mellanox/mlx4/main.c, mlx4_pci_table
- mlx5_core: drivers/net/ethernet/mellanox/mlx5/core/main.c, mlx5_core_pci_table
- ice: drivers/net/ethernet/intel/ice/ice_devids.h; ice_idc.c makes the devices
  ``ice.roce`` and ``ice.iwarp``, which drivers/infiniband/hw/irdma/main.c binds
- i40e: drivers/net/ethernet/intel/i40e/i40e_devids.h, X722 only: the others have no
  RDMA (func_caps.iwarp); ``i40e.iwarp`` is bound by irdma/i40iw_if.c
- bnxt_en: drivers/net/ethernet/broadcom/bnxt/bnxt.c:145, NetXtreme-E; ``bnxt_en.rdma``
  is bound by drivers/infiniband/hw/bnxt_re/main.c
- cxgb4: drivers/net/ethernet/chelsio/cxgb4/t4_pci_id_tbl.h: 0xVFPP, V the generation, F
  4 for the function of the driver
- qede: drivers/net/ethernet/qlogic/qede/qede_main.c:50
- be2net: drivers/net/ethernet/emulex/benet/be.h:53, Skyhawk
- hns3: drivers/net/ethernet/hisilicon/hns3/hnae3.h:52, those with RDMA
- one module for all: drivers/infiniband/hw/{mthca,qib,hfi1,erdma,vmw_pvrdma}

usNIC, EFA and MANA are left out: their kernel modules have no memory registration
(alloc_mr), which storage in the kernel needs. Nor are virtual functions of NICs here.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Optional

from ovirt_rdma.host.facts.devices import NetdevGraph, PciIdentity
from ovirt_rdma.host.facts.model import Facts

MLX4, MLX5 = "mlx4_core", "mlx5_core"
MTHCA, QIB, HFI1 = "ib_mthca", "ib_qib", "hfi1"


@dataclass(frozen=True)
class Model:
    """The product ``name`` (``ConnectX-3 Pro``) and the kernel's modules.

    module: drives the PCI function (``mlx4_core``)
    rdma_module: makes the RDMA device (``mlx4_ib``), if that is another one, else empty
    gen2: mlx4_core supports it only if built with MLX4_CORE_GEN2
    """

    name: str
    module: str
    rdma_module: str = ""
    gen2: bool = False

    @property
    def is_nic(self) -> bool:
        """Whether it is mostly used as an ordinary NIC, without RDMA."""
        return bool(self.rdma_module) and self.module not in (MLX4, MLX5)


# The module that makes the RDMA device, by that of the PCI function, and the symbol of
# the kernel's configuration for it.
RDMA_MODULES = {
    MLX4: ("mlx4_ib", "MLX4_INFINIBAND"),
    MLX5: ("mlx5_ib", "MLX5_INFINIBAND"),
    "ice": ("irdma", "INFINIBAND_IRDMA"),
    "i40e": ("irdma", "INFINIBAND_IRDMA"),
    "bnxt_en": ("bnxt_re", "INFINIBAND_BNXT_RE"),
    "cxgb4": ("iw_cxgb4", "INFINIBAND_CXGB4"),
    "qede": ("qedr", "INFINIBAND_QEDR"),
    "be2net": ("ocrdma", "INFINIBAND_OCRDMA"),
    "hns3": ("hns_roce_hw_v2", "INFINIBAND_HNS_HIP08"),
}
SYMBOLS = dict(RDMA_MODULES.values())

# ConnectX and ConnectX-2 have the same ids; the PCI revision distinguishes them.
CONNECTX_OR_2 = "ConnectX or ConnectX-2"
_BY_REVISION = {"0xa0": "ConnectX (revision a0)", "0xb0": "ConnectX-2"}
_GEN2 = "6340 634a 6354 6732 673c 6368 6750 6372 675a 6764 6746 676e 1002"
_MELLANOX, _INTEL, _BROADCOM, _QLOGIC = "0x15b3", "0x8086", "0x14e4", "0x1077"

# The names with their ids, by module and vendor.
_TABLES = {
    (MLX4, _MELLANOX): {
        CONNECTX_OR_2: _GEN2,
        "ConnectX-3": "1003",
        "ConnectX-3 virtual function": "1004",
        "ConnectX-3 Pro": "1007",
        "ConnectX-3 (MT275xx)": "1005 1006 1008 1009 100a 100b 100c 100d 100e 100f "
        "1010",
    },
    (MLX5, _MELLANOX): {
        "Connect-IB": "1011",
        "Connect-IB virtual function": "1012",
        "ConnectX-4": "1013",
        "ConnectX-4 virtual function": "1014",
        "ConnectX-4 Lx": "1015",
        "ConnectX-4 Lx virtual function": "1016",
        "ConnectX-5": "1017",
        "ConnectX-5 virtual function": "1018",
        "ConnectX-5 Ex": "1019",
        "ConnectX-5 Ex virtual function": "101a",
        "ConnectX-6": "101b",
        "ConnectX-6 virtual function": "101c",
        "ConnectX-6 Dx": "101d",
        "ConnectX virtual function": "101e",
        "ConnectX-6 Lx": "101f",
        "ConnectX-7": "1021",
        "ConnectX-8": "1023",
        "ConnectX-9": "1025",
        "ConnectX-10": "1027 2101",
        "BlueField (ConnectX-5)": "a2d2",
        "BlueField virtual function": "a2d3",
        "BlueField-2 (ConnectX-6 Dx)": "a2d6",
        "BlueField-3 (ConnectX-7)": "a2dc",
        "BlueField-4": "a2df",
    },
    (MTHCA, _MELLANOX): {
        "InfiniHost": "5a44",
        "InfiniHost III Ex": "6278 6282",
        "InfiniHost III Lx": "6274 5e8c",
    },
    (QIB, "0x1fc1"): {"QLogic IBA6120": "0010"},
    (QIB, _QLOGIC): {"QLogic IBA7220": "7220", "QLogic IBA7322 (TrueScale)": "7322"},
    (HFI1, _INTEL): {"Omni-Path HFI 100": "24f0 24f1"},
    ("ice", _INTEL): {
        "Intel E810": "1591 1592 1593 1599 159a 159b",
        "Intel E822": "1888 1890 1891 1892 1893 1894 1897 1898 1899 189a",
        "Intel E823": "188a 188b 188c 188d 188e 124c 124d 124e 124f 151d",
        "Intel E825-C": "579c 579d 579e 579f",
        "Intel E830": "12d1 12d2 12d3 12d4 12d5 12d8 12da 12dc 12dd 12de",
    },
    ("i40e", _INTEL): {"Intel X722": "37ce 37cf 37d0 37d1 37d2 37d3 0dda"},
    ("bnxt_en", _BROADCOM): {
        "Broadcom BCM5740x": "16d0 16d1 16d2 16d4 16d5 16e7 16e8 16e9 16ea",
        "Broadcom BCM5741x": "16c0 16cc 16d6 16d7 16d8 16d9 16de 16e2 16e3 16eb "
        "16ec 16ed 16ee 16ef",
        "Broadcom BCM5745x": "1604 1605 1614 16f1",
        "Broadcom BCM5750x": "1750 1751 1752 1800 1801 1802 1803 1804 1805",
        "Broadcom BCM5760x": "1760 1761 1762 1763",
        "Broadcom BCM5880x": "16f0 d802 d804",
    },
    ("qede", _QLOGIC): {
        "QLogic FastLinQ 45000": "1634 1636 1644 1654 1656 1666",
        "QLogic FastLinQ 41000": "8070",
    },
    ("be2net", "0x10df"): {"Emulex OneConnect Skyhawk": "0720"},
    ("hns3", "0x19e5"): {"HiSilicon HNS": "a222 a223 a224 a225 a226 a228"},
    ("erdma", "0x1ded"): {"Alibaba ERDMA": "107f"},
    ("vmw_pvrdma", "0x15ad"): {"VMware PVRDMA": "0820"},
}
MODELS: dict[tuple[str, str], Model] = {
    (vendor, f"0x{device}"): Model(
        name, module, RDMA_MODULES.get(module, ("", ""))[0], name == CONNECTX_OR_2
    )
    for (module, vendor), names in _TABLES.items()
    for name, ids in names.items()
    for device in ids.split()
}
_CHELSIO = "0x1425"
VENDORS = {vendor for vendor, _ in MODELS} | {_CHELSIO}
_CHELSIO_ID = re.compile(r"0x([456])4[0-9a-f]{2}")


def model_of(pci: PciIdentity) -> Optional[Model]:
    """Return the model of a PCI function; None if its id is not in the tables.

    Of the ids that both have, revision 0xa0 is ConnectX and 0xb0 ConnectX-2.
    """
    vendor, device = pci.vendor.lower(), pci.device.lower()
    chelsio = _CHELSIO_ID.fullmatch(device) if vendor == _CHELSIO else None
    if chelsio:
        return Model(f"Chelsio T{chelsio[1]}", "cxgb4", RDMA_MODULES["cxgb4"][0])
    model = MODELS.get((vendor, device))
    if model is None or not model.gen2:
        return model
    return replace(model, name=_BY_REVISION.get(pci.revision.lower(), model.name))


def without_rdma_device(facts: Facts, netdev: str) -> tuple[str, str]:
    """Return a clause about the adapter below ``netdev`` whose RDMA module made no RDMA
    device, and a command that helps; both empty if there is none.
    """
    by_name = {one.name: one for one in facts.netdevs}
    for name in NetdevGraph(facts.netdevs).below(netdev):
        one = by_name.get(name)
        model = model_of(one.pci) if one and one.pci else None
        if one is None or model is None or not model.rdma_module or one.rdma_device:
            continue
        module, modules = model.rdma_module, facts.modules
        state, fix = "is not loaded", f"modprobe {module}"
        if module in modules.loaded:
            state, fix = "is loaded and made no RDMA device", "ovirt-rdma-host check"
        elif modules.available is not None and module not in modules.available:
            state, fix = "is missing in this kernel", "ovirt-rdma-host check"
        return f"{name} ({model.name}) can do RDMA, and {module} {state}", fix
    return "", ""
