# SPDX-License-Identifier: GPL-2.0-or-later
"""Define how an adapter is connected to the host: PCIe link, interrupts, processors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class PciLink:
    """The PCIe link of a function (/sys/bus/pci/devices/ADDRESS, drivers/pci/pci.c).

    speed_gts, width: the link as it is, in GT/s for each of ``width`` lanes
    most_speed_gts, most_width: what the adapter can have
    slot_speed_gts, slot_width: what the port above it can have
    None in a field: the kernel does not know (``Unknown``).
    """

    speed_gts: Optional[float] = None
    width: Optional[int] = None
    most_speed_gts: Optional[float] = None
    most_width: Optional[int] = None
    slot_speed_gts: Optional[float] = None
    slot_width: Optional[int] = None


@dataclass(frozen=True)
class IrqCpus:
    """How many interrupts of an adapter go to ``cpus``, a list such as ``0-3,8``
    (/proc/irq/N/effective_affinity_list, or smp_affinity_list).
    """

    cpus: str
    interrupts: int


@dataclass(frozen=True)
class Tuning:
    """Settings of the host that decide how fast an adapter can be used.

    numa_nodes: how many nodes are online
    governors: of frequency scaling, without repetition; none without scaling
    rdma_slots: requests under way for each connection over RDMA, for connections to
    come (/proc/sys/sunrpc/rdma_slot_table_entries); None until rpcrdma is loaded
    """

    numa_nodes: Optional[int] = None
    governors: tuple[str, ...] = ()
    rdma_slots: Optional[int] = None
