# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the facts of virtual functions (SR-IOV), as plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional

# The driver of PCI functions that virtual machines use.
VFIO = "vfio-pci"


def mlx4_function(pf: str, number: int) -> str:
    """Return the name that mlx4's folder ``iov`` has for VF ``number`` of the function
    at ``pf`` (get_name() in drivers/infiniband/hw/mlx4/sysfs.c). It looks like the VF's
    PCI address, and on most hosts it is that.
    """
    slave = number + 1
    return f"{pf[:8]}{slave // 8:02d}.{slave % 8}"


@dataclass(frozen=True)
class VfPort:
    """What a PF has set for one port of a VF, by its number from 1.

    ``guid`` as ``0002:c903:00fb:1231``: zeros if none is assigned. ``pkey_indexes``
    (mlx4): where in the port's own P_Key table the VF's first entries are.
    """

    number: int
    guid: Optional[str] = None
    pkey_indexes: tuple[int, ...] = ()


@dataclass(frozen=True)
class VirtualFunction:
    """A VF, as its PF and this host see it.

    number: from 0, as in ``virtfn0`` and ``ip link set ib0 vf 0``
    driver: ``vfio-pci`` while a virtual machine has it, None if none is bound
    rdma_device, netdev: of the VF on this host, None if there are none
    node_guid: that the PF has set (mlx5); zeros if none was assigned
    link_state: ``auto``, ``enable`` or ``disable`` (mlx5)
    ports: of InfiniBand
    """

    number: int
    address: str
    driver: Optional[str] = None
    rdma_device: Optional[str] = None
    netdev: Optional[str] = None
    node_guid: Optional[str] = None
    link_state: Optional[str] = None
    ports: tuple[VfPort, ...] = ()

    @property
    def in_virtual_machine(self) -> bool:
        """Whether a virtual machine has it, or will have it when it starts."""
        return self.driver == VFIO
