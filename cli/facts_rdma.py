# SPDX-License-Identifier: GPL-2.0-or-later
"""The facts overview's tables about adapters, RDMA devices, ports and P_Keys."""

from __future__ import annotations

from collections import Counter
from typing import Optional

from ovirt_rdma.cli.facts_section import Section, known, number
from ovirt_rdma.host.facts import Adapter, Facts, PKey, RdmaPort
from ovirt_rdma.host.rules.pci_ids import model_of

_FULL_MEMBER = 0x8000
_MOST_PKEYS = 12


def adapters(facts: Facts) -> Section:
    """Adapters; the VFs of a PF that is there are counted in its line."""
    addresses = {adapter.pci.address for adapter in facts.adapters}
    by_function: dict[str, Counter[str]] = {}
    alone = []
    for adapter in facts.adapters:
        if adapter.physical_function in addresses:
            drivers = by_function.setdefault(adapter.physical_function, Counter())
            drivers[adapter.driver or "without driver"] += 1
        else:
            alone.append(adapter)
    return Section(
        "adapters",
        ("PCI ADDRESS", "ADAPTER", "DRIVER", "NUMA", "PORTS", "VFS"),
        [
            (
                adapter.pci.address,
                _adapter(adapter),
                adapter.driver or "none",
                number(adapter.numa_node),
                _mlx4_ports(adapter),
                _vfs(adapter, by_function.get(adapter.pci.address)),
            )
            for adapter in alone
        ],
    )


def _adapter(adapter: Adapter) -> str:
    pci = adapter.pci
    model = model_of(pci)
    ids = f"{_bare(pci.vendor)}:{_bare(pci.device)} rev {_bare(pci.revision)}"
    return f"{model.name} ({ids})" if model else ids


def _bare(text: str) -> str:
    return text.removeprefix("0x")


def _mlx4_ports(adapter: Adapter) -> Optional[str]:
    """Return ``ib MTU 4096, eth``: mlx4 can change both."""
    return known(
        *(
            f"{kind} MTU {mtu}" if mtu else kind
            for kind, mtu in zip(adapter.port_types, adapter.port_mtus)
        )
    )


def _vfs(adapter: Adapter, drivers: Optional[Counter[str]]) -> Optional[str]:
    if not adapter.max_vfs:
        return None
    text = f"{adapter.vfs or 0} of {adapter.max_vfs}"
    if drivers:
        names = (f"{count} {driver}" for driver, count in drivers.most_common())
        text += f" ({', '.join(names)})"
    return text


def devices(facts: Facts) -> Section:
    """RDMA devices."""
    return Section(
        "RDMA devices",
        ("DEVICE", "DRIVER", "PCI ADDRESS", "TYPE", "REV", "FIRMWARE", "BOARD", "NUMA"),
        [
            (
                device.name,
                device.driver,
                device.pci.address if device.pci else None,
                device.hca_type,
                device.hw_rev,
                device.firmware,
                device.board_id,
                number(device.numa_node),
            )
            for device in facts.rdma_devices
        ],
    )


def ports(facts: Facts) -> Section:
    """RDMA ports."""
    return Section(
        "RDMA ports",
        ("DEVICE", "PORT", "STATE", "LINK LAYER", "RATE (DATA)", "MTU/MAX", "LID/SM",
         "NETDEVS"),
        [
            (
                device.name,
                str(port.number),
                _state(port),
                port.link_layer,
                _rate(port),
                _of(port.active_mtu, port.max_mtu),
                _of(port.lid, port.sm_lid) if port.lid or port.sm_lid else None,
                known(*_netdevs(facts, device.name, port)),
            )
            for device in facts.rdma_devices
            for port in device.ports
        ],
        even_empty=True,
    )  # fmt: skip


def _state(port: RdmaPort) -> str:
    if port.state == "ACTIVE":
        return port.state
    return f"{port.state} ({port.physical_state})"


def _rate(port: RdmaPort) -> Optional[str]:
    """Return ``56 Gb/s (54.5)``: the payload rate where it is another one."""
    if not port.rate_mbps:
        return None
    text = f"{_gbps(port.rate_mbps)} Gb/s"
    if port.data_rate_mbps in (None, port.rate_mbps):
        return text
    return f"{text} ({_gbps(port.data_rate_mbps)})"


def _gbps(mbps: int) -> str:
    return f"{round(mbps / 1000, 1):g}"


def _of(first: Optional[int], second: Optional[int]) -> Optional[str]:
    """Return ``2048/4096``, with a question mark for what is not known."""
    if first is None and second is None:
        return None
    return "/".join("?" if one is None else str(one) for one in (first, second))


def _netdevs(facts: Facts, device: str, port: RdmaPort) -> list[str]:
    """Return the port's own netdevs, and those that own its GIDs."""
    names = [
        netdev.name
        for netdev in facts.netdevs
        if (netdev.rdma_device, netdev.rdma_port) == (device, port.number)
    ]
    names += [gid.netdev for gid in port.gids if gid.netdev]
    return list(dict.fromkeys(names))


def pkeys(facts: Facts) -> Section:
    """GUID and P_Key table of each InfiniBand port; RoCE has but the default one."""
    return Section(
        "InfiniBand partitions",
        ("DEVICE", "PORT", "GUID", "P_KEYS"),
        [
            (device.name, str(port.number), port.guid, _pkeys(port.pkeys))
            for device in facts.rdma_devices
            for port in device.ports
            if port.link_layer == "InfiniBand" and (port.guid or port.pkeys)
        ],
    )


def _pkeys(found: tuple[PKey, ...]) -> Optional[str]:
    shown = [_pkey(pkey.value) for pkey in found[:_MOST_PKEYS]]
    more = len(found) - len(shown)
    return known(*shown, f"and {more} more" if more else None)


def _pkey(value: str) -> str:
    try:
        full = int(value, 16) & _FULL_MEMBER
    except ValueError:  # of a facts file
        return value
    return value if full else f"{value} (limited)"
