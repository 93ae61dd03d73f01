# SPDX-License-Identifier: GPL-2.0-or-later
"""Read netdevs from /sys/class/net: type, MTU, addresses, stack, owner and RDMA port.

``ip -j -d addr show`` adds addresses and virtual kinds. The owner is the service that
sets a netdev up: NetworkManager, systemd-networkd or ifupdown. NetworkManager is asked
with nmcli, the others record their netdevs below /run; configuration files that no
service uses are ignored.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.collect.hcas import read_driver, read_pci
from ovirt_rdma.host.collect.parsers.iproute import IpLink
from ovirt_rdma.host.collect.rdma import RDMA_CLASS
from ovirt_rdma.host.facts.devices import (
    ARPHRD_ETHER,
    ARPHRD_INFINIBAND,
    Guid,
    Ipoib,
    Netdev,
    NetdevGraph,
    NetworkManager,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.paths import NET_CLASS
from ovirt_rdma.host.system.tree import FileTree


def concerned(netdevs: Sequence[Netdev]) -> set[str]:
    """Return the names of the netdevs of RDMA ports and of what is stacked on them."""
    ports = (netdev.name for netdev in netdevs if netdev.rdma_device)
    return set(NetdevGraph(netdevs).above(*ports))


def read_netdevs(
    tree: FileTree, links: Mapping[str, IpLink], problems: list[str]
) -> tuple[Netdev, ...]:
    """Return all netdevs by name; ``links`` has addresses and virtual kinds.

    A netdev that disappears during the read, or whose type or MTU cannot be read, is
    left out, with a sentence in ``problems``.
    """
    netdevs = []
    for name in tree.names(NET_CLASS, problems):
        folder = f"{NET_CLASS}/{name}"
        if not tree.is_folder(folder):  # bonding_masters is a file
            continue
        failures: list[str] = []
        netdev = _netdev(tree, name, links.get(name, IpLink()), failures)
        if failures and not tree.is_folder(folder):
            problems.append(f"netdev {name} disappeared during the read")
            continue
        problems.extend(failures)
        if netdev:
            netdevs.append(netdev)
    return tuple(netdevs)


def _netdev(
    tree: FileTree, name: str, link: IpLink, problems: list[str]
) -> Optional[Netdev]:
    folder = f"{NET_CLASS}/{name}"
    kind = _number(tree, f"{folder}/type", problems)
    mtu = _number(tree, f"{folder}/mtu", problems)
    if kind is None or mtu is None:
        return None
    entries = tree.names(folder)
    return Netdev(
        name=name,
        type=kind,
        mtu=mtu,
        address=tree.text(f"{folder}/address") or "",
        operstate=tree.text(f"{folder}/operstate", problems) or UNKNOWN,
        driver=read_driver(tree, folder) or link.kind,
        pci=read_pci(tree, folder),
        uppers=_stacked(entries, "upper_"),
        lowers=_stacked(entries, "lower_"),
        addresses=link.addresses,
    )


def _stacked(entries: list[str], prefix: str) -> tuple[str, ...]:
    return tuple(e[len(prefix) :] for e in entries if e.startswith(prefix))


def _number(tree: FileTree, path: str, problems: list[str]) -> Optional[int]:
    text = tree.text(path, problems)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 10:
        problems.append(f"{path} reads {text!a}, not a number")
        return None
    return int(text)


NETWORK_MANAGER = "NetworkManager"
NETWORKD = "systemd-networkd"
IFUPDOWN = "ifupdown"

# One file per netdev, named by its index (systemd src/network/networkd-link.c,
# link_save); it has NETWORK_FILE if a .network file was applied.
_LINKS = "/run/systemd/netif/links"
_APPLIED = re.compile(r"^NETWORK_FILE=.", re.MULTILINE)
# Lines "eth0=eth0" for netdevs that ifup has set up (Debian's ifupdown, main.c).
_IFSTATE = "/run/network/ifstate"


def with_owners(
    tree: FileTree, netdevs: tuple[Netdev, ...], manager: Optional[NetworkManager]
) -> tuple[Netdev, ...]:
    """Return ``netdevs``, with the owners of those of RDMA ports and above them.

    The owner is None if none of the three services owns the netdev.
    """
    names = concerned(netdevs)
    managed = manager.managed if manager and manager.running else ()
    text = tree.text(_IFSTATE) or ""
    brought_up = {line.partition("=")[0].strip() for line in text.splitlines()}
    return tuple(
        replace(netdev, owner=_owner(tree, netdev.name, managed, brought_up))
        if netdev.name in names
        else netdev
        for netdev in netdevs
    )


def _owner(
    tree: FileTree, name: str, managed: tuple[str, ...], brought_up: set[str]
) -> Optional[str]:
    # First, because NetworkManager also lists netdevs of other services as managed.
    index = tree.text(f"{NET_CLASS}/{name}/ifindex") or ""
    if index.isdecimal() and _APPLIED.search(tree.text(f"{_LINKS}/{index}") or ""):
        return NETWORKD
    if name in managed:
        return NETWORK_MANAGER
    return IFUPDOWN if name in brought_up else None


PortOf = tuple[str, int]
"""An RDMA device and the number of its port, from 1."""

_TYPES = {"InfiniBand": ARPHRD_INFINIBAND, "Ethernet": ARPHRD_ETHER}
# Kinds that are stacked on other netdevs: never a port's own netdev.
_STACKED = ("bond", "bridge", "vlan", "macvlan", "team")
_DEV_PORT = re.compile(r"[0-9]{1,5}")
# phys_port_name of a switchdev representor, which represents a VF or sub-function
# (Documentation/networking/switchdev.rst).
_REPRESENTOR = re.compile(r"(?:c\d+)?pf\d+(?:(?:vf|sf)\d+)?")


def read_netdev_ports(
    tree: FileTree,
    netdevs: tuple[Netdev, ...],
    devices: tuple[RdmaDevice, ...],
    ipoib: Mapping[str, Ipoib],
) -> dict[str, PortOf]:
    """Return the port of each netdev, by netdev name.

    A port's netdev is on the same bus device. If that has several, ``dev_port`` decides
    (an HCA with an InfiniBand and an Ethernet port). For a device without a netdev on
    its bus device, GID and MAC address are compared. P_Key children belong to the port
    of their parent. The second port of an mlx5 bond belongs to the first port, because
    the driver creates one RDMA device for both.
    """
    by_name = {netdev.name: netdev for netdev in netdevs}
    ports_of: dict[str, PortOf] = {}
    for device in devices:
        bus = _of_bus_device(tree, device, by_name, ipoib)
        for port in device.ports:
            names = bus.get(port.number) or _of_virtual_device(
                tree, device, port, by_name
            )
            ports_of.update((name, (device.name, port.number)) for name in names)
    for netdev in netdevs:
        if netdev.name in ipoib and netdev.name not in ports_of:
            place = _of_parent(netdev, ipoib, ports_of) or _of_guid(netdev, devices)
            if place:
                ports_of[netdev.name] = place
    for netdev in netdevs:
        if netdev.driver == "mlx5_core" and netdev.name not in ports_of:
            place = _of_bond(netdev, by_name, ports_of)
            if place:
                ports_of[netdev.name] = place
    return ports_of


def _of_bus_device(
    tree: FileTree,
    device: RdmaDevice,
    by_name: Mapping[str, Netdev],
    ipoib: Mapping[str, Ipoib],
) -> dict[int, list[str]]:
    """Return the netdevs of the bus device of ``device``, by port."""
    ports = {port.number: _TYPES.get(port.link_layer) for port in device.ports}
    by_port: dict[int, list[str]] = {}
    for name in tree.names(f"{RDMA_CLASS}/{device.name}/device/net"):
        netdev = by_name.get(name)
        if netdev is None or (name in ipoib and ipoib[name].parent):
            continue
        text = tree.text(f"{NET_CLASS}/{name}/dev_port") or ""
        number = int(text) + 1 if _DEV_PORT.fullmatch(text) else 1
        if len(ports) == 1:
            (number,) = ports
        if ports.get(number) == netdev.type:
            by_port.setdefault(number, []).append(name)
    for number, names in by_port.items():
        if len(names) > 1:
            own = [name for name in names if not _is_representor(tree, name)]
            by_port[number] = own or names
    return by_port


def _is_representor(tree: FileTree, name: str) -> bool:
    text = tree.text(f"{NET_CLASS}/{name}/phys_port_name")  # an error for many
    return text is not None and _REPRESENTOR.fullmatch(text) is not None


def _of_virtual_device(
    tree: FileTree, device: RdmaDevice, port: RdmaPort, by_name: Mapping[str, Netdev]
) -> list[str]:
    """Return the Ethernet netdev of a port without one on its bus device: Soft-RoCE,
    Soft-iWARP, and devices whose netdev is a separate PCI function.
    """
    if not port.is_ethernet:
        return []
    parent = tree.text(f"{RDMA_CLASS}/{device.name}/parent") or ""  # rxe's
    if parent in by_name:
        return [parent]
    owners = {gid.netdev for gid in port.gids if gid.netdev}
    if device.is_iwarp:
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
    netdev: Netdev, ipoib: Mapping[str, Ipoib], ports_of: Mapping[str, PortOf]
) -> Optional[PortOf]:
    return ports_of.get(ipoib[netdev.name].parent or "")


def _of_guid(netdev: Netdev, devices: tuple[RdmaDevice, ...]) -> Optional[PortOf]:
    """Return the port whose GUID is at the end of an IPoIB netdev's address."""
    guid = Guid.of_address(netdev.address)
    for device in devices if guid and guid.assigned else ():
        for port in device.ports:
            base = next((gid.gid for gid in port.gids if gid.index == 0), "")
            if guid == Guid.of_gid(base):
                return device.name, port.number
    return None


def _of_bond(
    netdev: Netdev, by_name: Mapping[str, Netdev], ports_of: Mapping[str, PortOf]
) -> Optional[PortOf]:
    for upper in netdev.uppers:
        bond = by_name.get(upper)
        for name in bond.lowers if bond and bond.driver == "bond" else ():
            other = by_name.get(name)
            if name in ports_of and other and _slot(other) == _slot(netdev):
                return ports_of[name]
    return None


def _slot(netdev: Netdev) -> Optional[str]:
    """Return the PCI address without the function, which identifies the adapter."""
    return netdev.pci.address.partition(".")[0] if netdev.pci else None
