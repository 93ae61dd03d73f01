# SPDX-License-Identifier: GPL-2.0-or-later
"""Which port of which RDMA device a netdev belongs to."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Optional

from ovirt_rdma.host.facts import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    Ipoib,
    Netdev,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.file_tree import FileTree
from ovirt_rdma.host.read_netdevs import NET_CLASS
from ovirt_rdma.host.read_rdma import RDMA_CLASS

PortOf = tuple[str, int]
"""An RDMA device and the number of its port, from 1."""

_TYPES = {"InfiniBand": ARPHRD_INFINIBAND, "Ethernet": ARPHRD_ETHER}
_IWARP = "RNIC"
# Kinds that are stacked on something: never a port's own netdev.
_STACKED = ("bond", "bridge", "vlan", "macvlan", "team")
_DEV_PORT = re.compile(r"[0-9]{1,5}")
# phys_port_name of a switchdev representor, which stands for a VF or sub-function
# (Documentation/networking/switchdev.rst).
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:(?:vf|sf)\d+)?")


def read_netdev_ports(
    tree: FileTree,
    netdevs: tuple[Netdev, ...],
    devices: tuple[RdmaDevice, ...],
    ipoib: Mapping[str, Ipoib],
) -> dict[str, PortOf]:
    """Return netdev names with the port each belongs to.

    A port's netdev is on the same bus device; where that has several, ``dev_port``
    tells which (an HCA with a port of InfiniBand and one of Ethernet). A device
    without a netdev on its bus device is looked for by GID and by MAC address.
    P_Key children belong to their parent's port, and the second port of an mlx5 bond
    to that of the first: the driver makes one RDMA device of both.
    """
    by_name = {netdev.name: netdev for netdev in netdevs}
    found: dict[str, PortOf] = {}
    for device in devices:
        bus = _of_bus_device(tree, device, by_name, ipoib)
        for port in device.ports:
            names = bus.get(port.number) or _of_virtual_device(
                tree, device, port, by_name
            )
            found.update((name, (device.name, port.number)) for name in names)
    for netdev in netdevs:
        if netdev.name in ipoib and netdev.name not in found:
            place = _of_parent(netdev, ipoib, found) or _of_guid(netdev, devices)
            if place:
                found[netdev.name] = place
    for netdev in netdevs:
        if netdev.driver == "mlx5_core" and netdev.name not in found:
            place = _of_bond(netdev, by_name, found)
            if place:
                found[netdev.name] = place
    return found


def _of_bus_device(
    tree: FileTree,
    device: RdmaDevice,
    by_name: Mapping[str, Netdev],
    ipoib: Mapping[str, Ipoib],
) -> dict[int, list[str]]:
    """Return the netdevs of the bus device of ``device``, by port."""
    ports = {port.number: _TYPES.get(port.link_layer) for port in device.ports}
    found: dict[int, list[str]] = {}
    for name in tree.names(f"{RDMA_CLASS}/{device.name}/device/net"):
        netdev = by_name.get(name)
        if netdev is None or (name in ipoib and ipoib[name].parent):
            continue
        text = tree.text(f"{NET_CLASS}/{name}/dev_port") or ""
        number = int(text) + 1 if _DEV_PORT.fullmatch(text) else 1
        if len(ports) == 1:
            (number,) = ports
        if ports.get(number) == netdev.type:
            found.setdefault(number, []).append(name)
    for number, names in found.items():
        if len(names) > 1:
            own = [name for name in names if not _is_representor(tree, name)]
            found[number] = own or names
    return found


def _is_representor(tree: FileTree, name: str) -> bool:
    text = tree.text(f"{NET_CLASS}/{name}/phys_port_name")  # many have none: an error
    return text is not None and _REPRESENTOR.fullmatch(text) is not None


def _of_virtual_device(
    tree: FileTree, device: RdmaDevice, port: RdmaPort, by_name: Mapping[str, Netdev]
) -> list[str]:
    """Return the Ethernet netdev of a port that has none on its bus device: Soft-RoCE,
    Soft-iWARP, and devices whose netdev is a PCI function of its own.
    """
    if port.link_layer != "Ethernet":
        return []
    parent = tree.text(f"{RDMA_CLASS}/{device.name}/parent") or ""  # rxe's
    if parent in by_name:
        return [parent]
    owners = {gid.netdev for gid in port.gids if gid.netdev}
    if device.node_type == _IWARP:  # the GID begins with the MAC address
        macs = {gid.gid.replace(":", "")[:12] for gid in port.gids}
        owners |= {n for n in by_name if by_name[n].address.replace(":", "") in macs}
    return sorted(
        name
        for name in owners
        if name in by_name
        and by_name[name].type == ARPHRD_ETHER
        and by_name[name].driver not in _STACKED
    )


def _of_parent(
    netdev: Netdev, ipoib: Mapping[str, Ipoib], found: Mapping[str, PortOf]
) -> Optional[PortOf]:
    return found.get(ipoib[netdev.name].parent or "")


def _of_guid(netdev: Netdev, devices: tuple[RdmaDevice, ...]) -> Optional[PortOf]:
    """Return the port whose GUID is the end of an IPoIB netdev's address."""
    guid = netdev.address.replace(":", "")[-16:]
    for device in devices:
        for port in device.ports:
            base = next((gid.gid for gid in port.gids if gid.index == 0), "")
            # VFs that have been given no GUID all have 0.
            if guid.strip("0") and guid == base.replace(":", "")[-16:]:
                return device.name, port.number
    return None


def _of_bond(
    netdev: Netdev, by_name: Mapping[str, Netdev], found: Mapping[str, PortOf]
) -> Optional[PortOf]:
    for upper in netdev.uppers:
        bond = by_name.get(upper)
        for name in bond.lowers if bond and bond.driver == "bond" else ():
            other = by_name.get(name)
            if name in found and other and _slot(other) == _slot(netdev):
                return found[name]
    return None


def _slot(netdev: Netdev) -> Optional[str]:
    """Return the PCI address without the function: that of the whole adapter."""
    return netdev.pci.address.partition(".")[0] if netdev.pci else None
