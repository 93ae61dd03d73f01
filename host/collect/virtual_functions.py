# SPDX-License-Identifier: GPL-2.0-or-later
"""Read the virtual functions of adapters, and what their physical function has set.

The kernel shows which functions they are (``virtfnN``, drivers/pci/iov.c). What a PF
has set for them, it shows in two ways:

- mlx5: netlink, by the PF's IPoIB netdev (``ip link show dev ib0``; the kernel's
  rtnl_fill_vfinfo() in net/core/rtnetlink.c, and mlx5's ib_virt.c): node and port GUID,
  and the policy for the link;
- mlx4: the folder ``iov`` of the PF's RDMA device (drivers/infiniband/hw/mlx4/sysfs.c):
  for each port the GUIDs, and which entries of the port's P_Key table a VF sees.

Here too is the host's id, of which the GUIDs of VFs are made.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.collect.hcas import PCI_DEVICES
from ovirt_rdma.host.collect.parsers.iproute import IpVf, virtual_functions
from ovirt_rdma.host.collect.rdma import RDMA_CLASS
from ovirt_rdma.host.collect.tools import Tools
from ovirt_rdma.host.facts.devices import (
    ARPHRD_INFINIBAND,
    Adapter,
    Guid,
    Netdev,
)
from ovirt_rdma.host.facts.functions import (
    VfPort,
    VirtualFunction,
    mlx4_function,
)
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.system.tree import FileTree

_VIRTFN = re.compile(r"virtfn([0-9]{1,5})")
_ADMIN_GUID = re.compile(r"[0-9a-f]{1,16}")
# The subnet manager, or nobody, assigns the GUID (sysfs.c, show_admin_alias_guid).
_NOBODYS = "ffffffffffffffff"

# As VDSM does it (lib/vdsm/host/__init__.py, uuid); dmidecode reads the same value.
_VDSM_ID = "/etc/vdsm/vdsm.id"
_PRODUCT_UUID = "/sys/class/dmi/id/product_uuid"


def read_host_uuid(tree: FileTree) -> Optional[str]:
    """Return the host's id in VDSM; None if it has none, or only root may read it."""
    text = tree.text(_VDSM_ID) or tree.text(_PRODUCT_UUID)
    return text.splitlines()[0].strip().lower() if text else None


def with_virtual_functions(
    tree: FileTree, tools: Tools, facts: Facts, problems: list[str]
) -> tuple[Adapter, ...]:
    """Return the adapters of ``facts`` with their VFs; ``ip`` is run for each PF that
    has some.
    """
    by_address = {d.pci.address: d.name for d in facts.rdma_devices if d.pci}
    base = _base_netdevs(facts.netdevs)
    found = []
    for adapter in facts.adapters:
        numbers = _numbers(tree, adapter) if adapter.vfs else {}
        if not numbers:
            found.append(adapter)
            continue
        device = by_address.get(adapter.pci.address)
        ip_vfs: Mapping[int, IpVf] = {}
        if adapter.driver != "mlx4_core" and adapter.pci.address in base:
            netdev = base[adapter.pci.address]
            if netdev.type == ARPHRD_INFINIBAND:
                command = ["ip", "-j", "link", "show", "dev", netdev.name]
                ip_vfs = virtual_functions(tools.rows(command, problems) or [])
        vfs = []
        for number, address in sorted(numbers.items()):
            vf = VirtualFunction(
                number=number,
                address=address,
                driver=tree.link_name(f"{PCI_DEVICES}/{address}/driver"),
                rdma_device=by_address.get(address),
                netdev=base[address].name if address in base else None,
            )
            if number in ip_vfs:
                vf = _with_ip(vf, ip_vfs[number])
            elif adapter.driver == "mlx4_core" and device:
                ports = _mlx4_ports(tree, adapter.pci.address, device, number, problems)
                vf = replace(vf, ports=ports)
            vfs.append(vf)
        found.append(replace(adapter, virtual_functions=tuple(vfs)))
    return tuple(found)


def _base_netdevs(netdevs: tuple[Netdev, ...]) -> dict[str, Netdev]:
    """Return the first netdev of each PCI function that is no P_Key child."""
    base: dict[str, Netdev] = {}
    for netdev in netdevs:
        if netdev.pci and not (netdev.ipoib and netdev.ipoib.parent):
            base.setdefault(netdev.pci.address, netdev)
    return base


def _numbers(tree: FileTree, adapter: Adapter) -> dict[int, str]:
    """Return the PCI addresses of the VFs by number."""
    folder = f"{PCI_DEVICES}/{adapter.pci.address}"
    numbers = {}
    for name in tree.names(folder):
        match = _VIRTFN.fullmatch(name)
        address = tree.link_name(f"{folder}/{name}") if match else None
        if match and address:
            numbers[int(match[1])] = address
    return numbers


def _with_ip(vf: VirtualFunction, ip_vf: IpVf) -> VirtualFunction:
    """Return ``vf`` with what ``ip`` shows; mlx5 has one port a function."""
    guid = ip_vf.port_guid
    return replace(
        vf,
        node_guid=ip_vf.node_guid,
        link_state=ip_vf.link_state,
        ports=() if guid is None else (VfPort(1, guid),),
    )


def _mlx4_ports(
    tree: FileTree, pf: str, device: str, number: int, problems: list[str]
) -> tuple[VfPort, ...]:
    """Return the ports of VF ``number``: entry ``number`` + 1 of a port's GUIDs."""
    iov = f"{RDMA_CLASS}/{device}/iov"
    ports = []
    for port in tree.names(f"{iov}/ports"):
        path = f"{iov}/ports/{port}/admin_guids/{number + 1}"
        text = tree.text(path)
        if text is None or not port.isdecimal():
            continue
        if not _ADMIN_GUID.fullmatch(text):
            problems.append(f"{path} reads {text!a}, not a GUID")
            continue
        digits = "0" if text == _NOBODYS else text
        folder = f"{iov}/{mlx4_function(pf, number)}/ports/{port}/pkey_idx"
        guid = Guid(digits.zfill(16)).in_groups
        ports.append(VfPort(int(port), guid, _pkey_indexes(tree, folder)))
    return tuple(ports)


def _pkey_indexes(tree: FileTree, folder: str) -> tuple[int, ...]:
    """Return the first entries of a VF's P_Key table, up to one that is not used."""
    indexes: list[int] = []
    while True:
        text = tree.text(f"{folder}/{len(indexes)}") or "none"
        if not (text.isascii() and text.isdecimal()):
            return tuple(indexes)
        indexes.append(int(text))
