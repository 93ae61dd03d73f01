# SPDX-License-Identifier: GPL-2.0-or-later
"""Find the netdev of a change again after netdevs were renamed.

An IPoIB netdev is identified by its port's GUID, the last 8 bytes of its address (the
other 12 change), a P_Key child by its P_Key too, and any other netdev by its PCI
function and port.
"""

from __future__ import annotations

from typing import Optional

from ovirt_rdma.host.changes.kinds.base import Host
from ovirt_rdma.host.changes.kinds.model import Place
from ovirt_rdma.host.facts.devices import ARPHRD_INFINIBAND, Guid, Netdev
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.pkeys import partition_of
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.rules.ipoib_children import PARENT_LENGTH
from ovirt_rdma.host.system.tree import FileTree


def place_of_netdev(name: str, facts: Facts) -> Place:
    """Return the place of the netdev ``name``, according to ``facts``. Pure.

    A child that the plan makes, ``ib0.8001``, is identified by its parent, which
    exists.
    """
    by_name = {netdev.name: netdev for netdev in facts.netdevs}
    if name in by_name:
        return _place(by_name[name])
    head, dot, digits = name.rpartition(".")
    pkey = f"0x{digits}"
    parents = [n for n in facts.netdevs if dot and n.name[:PARENT_LENGTH] == head]
    for parent in parents:
        if parent.type == ARPHRD_INFINIBAND and partition_of(pkey) is not None:
            return Place(netdev=name, guid=_guid(parent.address), pkey=pkey)
    return Place(netdev=name)


def _place(netdev: Netdev) -> Place:
    child = netdev.ipoib is not None and netdev.ipoib.parent is not None
    return Place(
        netdev=netdev.name,
        guid=_guid(netdev.address) if netdev.type == ARPHRD_INFINIBAND else None,
        pkey=netdev.ipoib.pkey if netdev.ipoib and child else None,
        pci=netdev.pci.address if netdev.pci else None,
        port=netdev.rdma_port,
    )


def _guid(address: str) -> Optional[str]:
    """Return the GUID in an IPoIB netdev's address; None if there is none, or only
    zeros, as in VFs without an assigned GUID.
    """
    guid = Guid.of_address(address)
    return guid.in_bytes if guid and guid.assigned else None


def present_name(host: Host, place: Place) -> Optional[str]:
    """Return the netdev that is at ``place`` now; None if there is none. Reads /sys
    only.

    If there are several, the one with the earlier name is returned. A child made with
    ``ip link`` has no P_Key in /sys: it is identified by its earlier name.
    """
    tree = FileTree(host.root)
    names = [name for name in tree.names(NET_CLASS) if _is_at(tree, name, place)]
    if place.netdev in names:
        return place.netdev
    return names[0] if names else None


def netdevs_of_pci(host: Host, address: str) -> dict[str, int]:
    """Return the netdevs of a PCI function, with the port of each, from 1."""
    tree = FileTree(host.root)
    return {
        name: _port(tree, name)
        for name in tree.names(NET_CLASS)
        if _pci(tree, name) == address
    }


def _is_at(tree: FileTree, name: str, place: Place) -> bool:
    folder = f"{NET_CLASS}/{name}"
    if tree.is_folder(f"{folder}/bonding"):  # it has the address of a member
        return False
    if place.guid is not None:
        same = _guid(tree.text(f"{folder}/address") or "") == place.guid
        return same and _is_of_pkey(tree, name, place)
    if place.pci is None or place.pkey is not None:
        return name == place.netdev
    same = _pci(tree, name) == place.pci
    return same and place.port in (None, _port(tree, name), _only_port(tree, place))


def _is_of_pkey(tree: FileTree, name: str, place: Place) -> bool:
    """Whether the netdev has the P_Key of ``place``; if that has none, whether it is a
    base netdev.
    """
    files = tree.names(f"{NET_CLASS}/{name}")
    if place.pkey is None:
        return "create_child" in files
    if "create_child" in files or "parent" not in files:
        return "create_child" not in files and name == place.netdev
    pkey = partition_of(tree.text(f"{NET_CLASS}/{name}/pkey"))
    return pkey is not None and pkey == partition_of(place.pkey)


def _pci(tree: FileTree, name: str) -> Optional[str]:
    """Return the PCI address of a netdev's device. The device may be below the PCI
    function, as with virtio.
    """
    device = tree.real_path(f"{NET_CLASS}/{name}/device")
    parts = device.parts[::-1] if device else ()
    return next((part for part in parts if part.count(":") == 2), None)


def _port(tree: FileTree, name: str) -> int:
    text = tree.text(f"{NET_CLASS}/{name}/dev_port") or ""
    return int(text) + 1 if text.isdecimal() and len(text) < 6 else 1


def _only_port(tree: FileTree, place: Place) -> Optional[int]:
    """Return ``place.port`` if the PCI function has only one netdev, else None: then
    that is the right netdev, whatever dev_port says.
    """
    names = tree.names(NET_CLASS)
    alone = [name for name in names if _pci(tree, name) == place.pci]
    return place.port if len(alone) == 1 else None
