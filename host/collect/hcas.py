# SPDX-License-Identifier: GPL-2.0-or-later
"""Read adapters from the PCI bus: identity, driver, settings, PCIe link, interrupts.

The adapters are PCI functions in /sys/bus/pci/devices that are or could be RDMA
adapters. A hypervisor has hundreds of functions, most of them VFs; only vendor and
class are read of those that are not adapters.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from typing import Optional

from ovirt_rdma.host.facts.devices import Adapter, PciIdentity, RdmaDevice
from ovirt_rdma.host.facts.locality import IrqCpus, PciLink, Tuning
from ovirt_rdma.host.facts.model import UNKNOWN
from ovirt_rdma.host.system.tree import FileTree

# domain:bus:device.function; VMD and Hyper-V use domains of five digits and more.
_ADDRESS = re.compile(r"[0-9a-f]{4,}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
_NODE = re.compile(r"[0-9]{1,6}")


def read_pci(tree: FileTree, folder: str) -> Optional[PciIdentity]:
    """Return the PCI function of ``folder``/device, or None.

    It is the device itself or its parent (virtio, and the sub-functions of mlx5). The
    PCI host controller of a USB adapter is not used.
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
    """Return the driver bound to ``folder``/device, or None if there is none."""
    place = tree.real_path(f"{folder}/device/driver")
    return place.name if place else None


def read_numa_node(tree: FileTree, device: str) -> Optional[int]:
    """Return the NUMA node of a bus device's folder; None if it has none (-1)."""
    text = tree.text(f"{device}/numa_node")
    return int(text) if text and _NODE.fullmatch(text) else None


PCI_DEVICES = "/sys/bus/pci/devices"

_MELLANOX = "0x15b3"
# PCI base class and subclass, include/linux/pci_ids.h. Omni-Path is a "fabric
# controller"; old HCAs are InfiniBand controllers on the serial bus.
_NETWORK = "0x02"
_INFINIBAND = "0x0207"
_FABRIC = "0x0208"
_SERIAL_INFINIBAND = "0x0c06"
_CLASS = re.compile(r"0x[0-9a-f]{6}")
_COUNT = re.compile(r"[0-9]{1,6}")
# drivers/net/ethernet/mellanox/mlx4/main.c: at most two ports.
_MLX4_PORTS = (1, 2)


def read_adapters(
    tree: FileTree, devices: tuple[RdmaDevice, ...], problems: list[str]
) -> tuple[Adapter, ...]:
    """Return the adapters by PCI address; :class:`Adapter` says which are included.

    An adapter that disappears during the read is left out, with a sentence.
    """
    with_rdma = {device.pci.address for device in devices if device.pci}
    adapters = []
    for address in tree.names(PCI_DEVICES):
        folder = f"{PCI_DEVICES}/{address}"
        failures: list[str] = []
        vendor = tree.text(f"{folder}/vendor", failures)
        code = tree.text(f"{folder}/class", failures)
        if address in with_rdma or _may_be_adapter(vendor, code):
            adapter = _adapter(tree, address, vendor, code, failures)
            if address in with_rdma and not adapter.physical_function:
                adapter = _with_locality(tree, folder, adapter)
        elif failures:
            adapter = None
        else:
            continue
        if failures and not tree.is_folder(folder):
            problems.append(f"PCI device {address} disappeared during the read")
            continue
        problems.extend(failures)
        if adapter:
            adapters.append(adapter)
    return tuple(adapters)


def _may_be_adapter(vendor: Optional[str], code: Optional[str]) -> bool:
    code = code or ""
    if code.startswith((_INFINIBAND, _FABRIC, _SERIAL_INFINIBAND)):
        return True
    return vendor == _MELLANOX and code.startswith(_NETWORK)


def _adapter(
    tree: FileTree,
    address: str,
    vendor: Optional[str],
    code: Optional[str],
    problems: list[str],
) -> Adapter:
    folder = f"{PCI_DEVICES}/{address}"
    if code is not None and not _CLASS.fullmatch(code):
        problems.append(f"{folder}/class reads {code!a}, not a class code")
        code = None
    device, revision = (
        tree.text(f"{folder}/{name}", problems) or UNKNOWN
        for name in ("device", "revision")
    )
    driver = tree.link_name(f"{folder}/driver")
    physfn = tree.link_name(f"{folder}/physfn")
    max_vfs = None if physfn else _count(tree, f"{folder}/sriov_totalvfs", problems)
    ports: list[tuple[str, int]] = []
    if driver == "mlx4_core":
        ports = _mlx4_ports(tree, folder, problems)
    return Adapter(
        pci=PciIdentity(address, vendor or UNKNOWN, device, revision),
        class_code=code or UNKNOWN,
        driver=driver,
        numa_node=read_numa_node(tree, folder),
        physical_function=physfn,
        vfs=(
            _count(tree, f"{folder}/sriov_numvfs", problems)
            if max_vfs is not None
            else None
        ),
        max_vfs=max_vfs,
        port_types=tuple(kind for kind, _ in ports),
        port_mtus=tuple(mtu for _, mtu in ports),
    )


def _mlx4_ports(
    tree: FileTree, folder: str, problems: list[str]
) -> list[tuple[str, int]]:
    """Return type and IB MTU by port; the MTU is 0 for an Ethernet port.

    For Ethernet the file has no meaning, and the kernel logs a warning if it is read.
    """
    names = set(tree.names(folder, problems))
    ports = []
    for number in _MLX4_PORTS:
        if f"mlx4_port{number}" not in names:
            continue
        path = f"{folder}/mlx4_port{number}"
        kind = tree.text(path, problems) or UNKNOWN
        mtu = None if "eth" in kind else _count(tree, f"{path}_mtu", problems)
        ports.append((kind, mtu or 0))
    return ports


def _count(tree: FileTree, path: str, problems: list[str]) -> Optional[int]:
    """Return the number in a file; None if there is no such file."""
    text = tree.text(path)
    if text is None:
        return None
    if not _COUNT.fullmatch(text):
        problems.append(f"{path} reads {text!a}, not a number")
        return None
    return int(text)


# drivers/pci/pci-sysfs.c: "8.0 GT/s PCIe" and "16"; "Unknown" and 0 if it has no link.
_SPEED = re.compile(r"([0-9]{1,4}(?:\.[0-9])?) GT/s(?: PCIe)?")
_WIDTH = re.compile(r"[1-9][0-9]?")
# "0-3,8": lib/vsprintf.c, %*pbl. An empty list is no text.
_CPUS = re.compile(r"[0-9]{1,5}(?:[-,][0-9]{1,5})*")
_NODES = re.compile(r"([0-9]{1,5})(?:-([0-9]{1,5}))?")


def _with_locality(tree: FileTree, folder: str, adapter: Adapter) -> Adapter:
    local = tree.text(f"{folder}/local_cpulist") or ""
    return replace(
        adapter,
        pci_link=_pci_link(tree, folder),
        local_cpus=local if _CPUS.fullmatch(local) else None,
        interrupts=_interrupts(tree, folder),
    )


def _pci_link(tree: FileTree, folder: str) -> Optional[PciLink]:
    """Return the link; None if the kernel shows nothing of it."""
    above = tree.real_path(folder)
    # The folder of a function is inside that of the port above it.
    slot = f"{folder}/.." if above and _ADDRESS.fullmatch(above.parent.name) else ""
    link = PciLink(
        _speed(tree, f"{folder}/current_link_speed"),
        _width(tree, f"{folder}/current_link_width"),
        _speed(tree, f"{folder}/max_link_speed"),
        _width(tree, f"{folder}/max_link_width"),
        _speed(tree, f"{slot}/max_link_speed") if slot else None,
        _width(tree, f"{slot}/max_link_width") if slot else None,
    )
    return None if link == PciLink() else link


def _speed(tree: FileTree, path: str) -> Optional[float]:
    match = _SPEED.fullmatch(tree.text(path) or "")
    return float(match[1]) if match else None


def _width(tree: FileTree, path: str) -> Optional[int]:
    text = tree.text(path) or ""
    return int(text) if _WIDTH.fullmatch(text) else None


def _interrupts(tree: FileTree, folder: str) -> tuple[IrqCpus, ...]:
    """Return where the function's MSI-X interrupts go, by number of interrupts."""
    counted: Counter[str] = Counter()
    for number in tree.names(f"{folder}/msi_irqs"):
        irq = f"/proc/irq/{number}"
        for name in ("effective_affinity_list", "smp_affinity_list"):
            cpus = tree.text(f"{irq}/{name}") or ""
            if _CPUS.fullmatch(cpus):
                counted[cpus] += 1
                break
    found = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    return tuple(IrqCpus(cpus, number) for cpus, number in found)


def read_tuning(tree: FileTree) -> Tuning:
    """Return the settings of the host that concern all adapters."""
    policies = "/sys/devices/system/cpu/cpufreq"
    governors = {
        tree.text(f"{policies}/{name}/scaling_governor")
        for name in tree.names(policies)
        if name.startswith("policy")
    }
    nodes = tree.text("/sys/devices/system/node/online") or ""
    slots = tree.text("/proc/sys/sunrpc/rdma_slot_table_entries") or ""
    return Tuning(
        numa_nodes=_listed(nodes),
        governors=tuple(sorted(name for name in governors if name)),
        rdma_slots=int(slots) if _COUNT.fullmatch(slots) else None,
    )


def _listed(text: str) -> Optional[int]:
    """Return how many numbers a list such as ``0-1,4`` has; None if it is none."""
    parts = [_NODES.fullmatch(part) for part in text.split(",")]
    if not all(parts):
        return None
    ends = [(int(part[1]), int(part[2] or part[1])) for part in parts if part]
    return sum(max(0, last - first + 1) for first, last in ends)
