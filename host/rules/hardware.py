# SPDX-License-Identifier: GPL-2.0-or-later
"""What rules about IPoIB want to know of an RDMA device's chip and driver. Pure.

The revision that forbids TSO is the kernel's ``MLX4_IB_CARD_REV_A0``
(drivers/infiniband/hw/mlx4/mlx4_ib.h, main.c).
"""

from __future__ import annotations

from ovirt_rdma.host.rdma_facts import RdmaDevice
from ovirt_rdma.host.rules.pci_ids import CONNECTX_OR_2, HFI1, MLX5, model_of

REVISION_A0 = "a0"


def is_connectx_a0(device: RdmaDevice) -> bool:
    """Whether ``device`` is a ConnectX of revision a0.

    ConnectX-2 has the same PCI ids and revision b0. The driver goes by the revision
    in the HCA's NodeInfo, which it shows as ``hw_rev``; the PCI revision counts where
    that is not known.
    """
    model = model_of(device.pci) if device.pci else None
    if device.pci is None or model is None or not model.gen2:
        return False
    revision = device.pci.revision if device.hw_rev is None else device.hw_rev
    return _bare(revision) == REVISION_A0


def revision_text(device: RdmaDevice) -> str:
    """Return what told the chip: ``15b3:634a, PCI revision a0, hw_rev a0``."""
    if device.pci is None:
        return "no PCI identity"
    ids = f"{_bare(device.pci.vendor)}:{_bare(device.pci.device)}"
    hw_rev = "unknown" if device.hw_rev is None else _bare(device.hw_rev)
    return f"PCI id {ids}, PCI revision {_bare(device.pci.revision)}, hw_rev {hw_rev}"


def chip(device: RdmaDevice) -> str:
    """Return how people call the chip, or the driver where the id is not known."""
    model = model_of(device.pci) if device.pci else None
    if model is None or model.name == CONNECTX_OR_2:
        return device.driver or "RDMA device"
    return model.name


def is_mlx5(device: RdmaDevice) -> bool:
    """Whether mlx5 drives ``device``: Connect-IB, ConnectX-4 and later."""
    return device.driver == MLX5


def is_omni_path(device: RdmaDevice) -> bool:
    """Whether ``device`` is an Omni-Path HFI."""
    return device.driver == HFI1


def _bare(number: str) -> str:
    """Return ``a0`` for ``0xA0`` and for ``a0``."""
    return number.strip().lower().removeprefix("0x")
