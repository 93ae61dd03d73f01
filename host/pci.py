# SPDX-License-Identifier: GPL-2.0-or-later
"""The bus device behind an RDMA device or a netdev: PCI identity and driver."""

from __future__ import annotations

import re
from typing import Optional

from ovirt_rdma.host.facts import UNKNOWN, PciIdentity
from ovirt_rdma.host.file_tree import FileTree

# domain:bus:device.function; VMD and Hyper-V use domains of five digits and more.
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODE = re.compile(r"[0-9]{1,6}")


def read_pci(tree: FileTree, folder: str) -> Optional[PciIdentity]:
    """Return the PCI function that ``folder``/device leads to, or None.

    The function is the device itself or its parent (virtio, and the sub-functions
    of mlx5); a USB adapter is not taken for the PCI host controller it hangs off.
    """
    place = tree.real_path(f"{folder}/device")
    if place is None:
        return None
    for function, link in ((place, "device"), (place.parent, "device/..")):
        if _ADDRESS.fullmatch(function.name):
            ids = [
                tree.text(f"{folder}/{link}/{name}") or UNKNOWN
                for name in ("vendor", "device", "revision")
            ]
            return PciIdentity(function.name, *ids)
    return None


def read_driver(tree: FileTree, folder: str) -> Optional[str]:
    """Return the driver bound to ``folder``/device, or None where there is none."""
    place = tree.real_path(f"{folder}/device/driver")
    return place.name if place else None


def read_numa_node(tree: FileTree, device: str) -> Optional[int]:
    """Return the NUMA node of a bus device's folder; None where it has none (-1)."""
    text = tree.text(f"{device}/numa_node")
    return int(text) if text and _NODE.fullmatch(text) else None
