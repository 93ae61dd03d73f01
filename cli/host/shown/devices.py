# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the tables of ``facts`` about adapters, virtual functions, RDMA devices, ports
and netdevs.

Each function returns one table as a Section, which prints itself.
"""

from __future__ import annotations

from collections import Counter
from typing import Optional

from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.devices import Adapter, Dcb, Netdev, PKey, Profile, RdmaPort
from ovirt_rdma.host.facts.infiniband import is_full_member
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import Interface, NetdevUsers, interfaces_of
from ovirt_rdma.host.policy.fabric import FabricPolicy

NOTHING = "-"


# What rules and people ask for least.
_MINOR = ("BUS INFO", "DRIVER", "LINK LAYER")


class Section:
    """A titled table; a cell may be None or empty.

    ``even_empty``: the title is printed even without rows, because that is a fact too.
    """

    def __init__(
        self,
        title: str,
        headings: tuple[str, ...],
        rows: list[tuple[Optional[str], ...]],
        even_empty: bool = False,
    ) -> None:
        self.title, self.headings = title, headings
        self.rows, self.even_empty = rows, even_empty

    def show(self, output: Output) -> None:
        """Print the table, without columns that have no values."""
        if self.rows or self.even_empty:
            output.line()
            output.line(self.title if self.rows else f"{self.title}: none")
        if not self.rows:
            return
        shown = [n for n, _ in enumerate(self.headings) if any(r[n] for r in self.rows)]
        output.table(
            [self.headings[column] for column in shown],
            [[row[column] or NOTHING for column in shown] for row in self.rows],
            minor=_MINOR,
        )


def known(*parts: Optional[str], between: str = ", ") -> Optional[str]:
    """Join the parts that are known; None if none is."""
    return between.join(part for part in parts if part) or None


def number(value: Optional[int]) -> Optional[str]:
    """Return a number as text; None for None."""
    return None if value is None else str(value)


_TSO = "tx-tcp-segmentation"


def netdevs(facts: Facts) -> Section:
    """Return all netdevs."""
    return Section(
        "netdevs",
        ("NETDEV", "STATE", "MTU", "DRIVER", "BELOW IT", "ADDRESSES"),
        [
            (
                netdev.name,
                netdev.operstate,
                str(netdev.mtu),
                netdev.driver,
                known(*netdev.lowers),
                known(*netdev.addresses),
            )
            for netdev in facts.netdevs
        ],
        even_empty=True,
    )


def ipoib(facts: Facts) -> Section:
    """Return the settings of IPoIB netdevs."""
    return Section(
        "IPoIB",
        ("NETDEV", "RDMA PORT", "P_KEY", "CHILD OF", "MODE", "MTU", "TSO", "PROFILE"),
        [
            (
                netdev.name,
                _rdma_port(netdev),
                netdev.ipoib.pkey,
                netdev.ipoib.parent,
                netdev.ipoib.mode,
                str(netdev.mtu),
                _offload(netdev, _TSO),
                _owner(facts, netdev),
            )
            for netdev in facts.netdevs
            if netdev.ipoib
        ],
    )


def _rdma_port(netdev: Netdev) -> Optional[str]:
    return known(netdev.rdma_device, number(netdev.rdma_port), between="/")


def _offload(netdev: Netdev, name: str) -> Optional[str]:
    for offload in netdev.offloads:
        if offload.name == name:
            return ("on" if offload.on else "off") + (
                " [fixed]" if offload.fixed else ""
            )
    return None


def _owner(facts: Facts, netdev: Netdev) -> Optional[str]:
    manager = facts.network_manager
    for profile in manager.profiles if manager else ():
        if profile.active_on == netdev.name:
            return profile.name
    if netdev.owner:
        return netdev.owner
    return "unmanaged" if manager and netdev.name in manager.unmanaged else None


def roce(facts: Facts) -> Section:
    """Return the flow control of the Ethernet netdevs of RoCE ports."""
    gid_types: dict[tuple[Optional[str], Optional[int]], Optional[str]] = {
        (device.name, port.number): port.default_gid_type
        for device in facts.rdma_devices
        for port in device.ports
    }
    return Section(
        "RoCE",
        ("NETDEV", "RDMA PORT", "DEFAULT GID TYPE", "PFC", "ECN", "TRUST", "PAUSE"),
        [
            (
                netdev.name,
                _rdma_port(netdev),
                gid_types.get((netdev.rdma_device, netdev.rdma_port)),
                _priorities(netdev.dcb.pfc_priorities),
                _priorities(netdev.dcb.ecn_priorities),
                netdev.dcb.trust,
                _pause(netdev.dcb),
            )
            for netdev in facts.netdevs
            if netdev.dcb and netdev.rdma_device
        ],
    )


def _priorities(priorities: Optional[tuple[int, ...]]) -> Optional[str]:
    if priorities is None:
        return None
    return f"priority {', '.join(map(str, priorities))}" if priorities else "off"


def _pause(dcb: Dcb) -> Optional[str]:
    if dcb.pause_rx is None and dcb.pause_tx is None:
        return None
    on = known("rx" if dcb.pause_rx else None, "tx" if dcb.pause_tx else None)
    return on or "off"


def bonds(facts: Facts) -> Section:
    """Return the bonds."""
    return Section(
        "bonds",
        ("BOND", "MODE", "ACTIVE", "FAIL_OVER_MAC", "MEMBERS"),
        [
            (
                netdev.name,
                netdev.bond.mode,
                netdev.bond.active,
                netdev.bond.fail_over_mac,
                known(*netdev.bond.members),
            )
            for netdev in facts.netdevs
            if netdev.bond
        ],
    )


def profiles(facts: Facts) -> Section:
    """Return NetworkManager's profiles of netdevs on RDMA ports."""
    manager = facts.network_manager
    return Section(
        "NetworkManager profiles",
        ("PROFILE", "TYPE", "FOR", "ACTIVE ON", "SETTINGS"),
        [
            (
                profile.name,
                profile.type,
                profile.interface_name,
                profile.active_on,
                _settings(profile),
            )
            for profile in (manager.profiles if manager else ())
        ],
    )


def _settings(profile: Profile) -> Optional[str]:
    """Return the properties that are not in the section ``connection``."""
    return known(
        *(
            f"{p.name} {p.value}"
            for p in profile.properties
            if not p.name.startswith("connection.")
        )
    )


def networks(facts: Facts) -> Section:
    """Return the engine's logical networks on this host."""
    return Section(
        "oVirt networks",
        ("NETWORK", "ON", "BRIDGE", "VLAN", "MTU", "DEFAULT ROUTE"),
        [
            (
                network.name,
                network.southbound,
                "yes" if network.bridged else "no",
                number(network.vlan),
                number(network.mtu),
                "yes" if network.default_route else None,
            )
            for network in facts.ovirt_networks
        ],
    )


def uses(facts: Facts) -> Section:
    """Return what uses netdevs and needs their link."""
    return Section(
        "netdevs in use",
        ("NETDEV", "FOR", "WHAT"),
        [
            (use.netdev or "unknown", use.purpose, use.what)
            for use in NetdevUsers(facts).all
        ],
    )


def routes(facts: Facts) -> Section:
    """Return the routes to storage servers and to requested addresses."""
    return Section(
        "routes",
        ("TO", "NETDEV", "FROM", "GATEWAY"),
        [
            (route.destination, route.netdev or route.problem, route.source,
             route.gateway)
            for route in facts.routes
        ],
    )  # fmt: skip


def mounts(facts: Facts) -> Section:
    """Return the NFS mounts."""
    return Section(
        "NFS mounts",
        ("EXPORT", "MOUNTED AT", "NFS", "PROTOCOL", "TRANSPORTS"),
        [
            (
                mount.source,
                mount.mountpoint,
                mount.version,
                mount.protocol,
                known(*mount.protocols, between=" "),
            )
            for mount in facts.nfs_mounts
        ],
        even_empty=True,
    )


_MOST_PKEYS = 12


def adapters(facts: Facts) -> Section:
    """Return the adapters; the line of a PF counts its VFs."""
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
    """Return ``ib MTU 4096, eth``; mlx4 can change both."""
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
    """Return the RDMA devices."""
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
    """Return the RDMA ports."""
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
    if port.is_active:
        return port.state
    return f"{port.state} ({port.physical_state})"


def _rate(port: RdmaPort) -> Optional[str]:
    """Return ``56 Gb/s (54.5)``: the data rate follows if it differs."""
    if not port.rate_mbps:
        return None
    text = f"{_gbps(port.rate_mbps)} Gb/s"
    if port.data_rate_mbps in (None, port.rate_mbps):
        return text
    return f"{text} ({_gbps(port.data_rate_mbps)})"


def _gbps(mbps: int) -> str:
    return f"{round(mbps / 1000, 1):g}"


def _of(first: Optional[int], second: Optional[int]) -> Optional[str]:
    """Return ``2048/4096``, with a question mark for an unknown number."""
    if first is None and second is None:
        return None
    return "/".join("?" if value is None else str(value) for value in (first, second))


def _netdevs(facts: Facts, device: str, port: RdmaPort) -> list[str]:
    """Return the netdevs of the port, and those that own its GIDs."""
    names = [
        netdev.name
        for netdev in facts.netdevs
        if (netdev.rdma_device, netdev.rdma_port) == (device, port.number)
    ]
    names += [gid.netdev for gid in port.gids if gid.netdev]
    return list(dict.fromkeys(names))


def pkeys(facts: Facts) -> Section:
    """Return GUID and P_Key table of InfiniBand ports; RoCE has the default only."""
    return Section(
        "InfiniBand partitions",
        ("DEVICE", "PORT", "GUID", "P_KEYS"),
        [
            (device.name, str(port.number), port.guid, _pkeys(port.pkeys))
            for device in facts.rdma_devices
            for port in device.ports
            if port.is_infiniband and (port.guid or port.pkeys)
        ],
    )


def _pkeys(pkeys: tuple[PKey, ...]) -> Optional[str]:
    shown = [_pkey(pkey.value) for pkey in pkeys[:_MOST_PKEYS]]
    more = len(pkeys) - len(shown)
    return known(*shown, f"and {more} more" if more else None)


def _pkey(value: str) -> str:
    try:
        full = is_full_member(value)
    except ValueError:  # possible in a facts file
        return value
    return value if full else f"{value} (limited)"


def interfaces(facts: Facts, fabric: Optional[FabricPolicy] = None) -> Section:
    """Return the netdevs with what ``network attach --nic-match`` chooses them by.

    ``fabric`` has the names of partitions. If it says something of partitions, the
    VLANs are its own, else those of the convention.
    """
    described = None if fabric == FabricPolicy() else fabric
    return Section(
        "interfaces",
        ("NETDEV", "LINK LAYER", "DRIVER", "BUS INFO", "RDMA PORT", "GUID", "PARENT",
         "P_KEY", "VLAN", "MTU", "SPEED", "NETWORKS", "ROLES"),
        [
            (
                found.name,
                found.link_layer,
                found.driver,
                found.bus_info,
                known(found.device, number(found.port), between="/"),
                found.guid,
                found.parent,
                _interface_pkey(found, described),
                number(found.vlan),
                number(found.mtu),
                _speed(found.speed_mbps),
                known(*found.networks),
                known(*found.roles),
            )
            for found in interfaces_of(facts)
        ],
        even_empty=True,
    )  # fmt: skip


def _interface_pkey(found: Interface, fabric: Optional[FabricPolicy]) -> Optional[str]:
    """Return ``0x8064 (storage, VLAN 100)``."""
    if found.pkey is None:
        return None
    name, vlan = None, found.pkey_vlan
    if fabric is not None:
        name, vlan = fabric.name_of(found.pkey), fabric.vlan_of(found.pkey)
    stands_for = known(name, f"VLAN {vlan}" if vlan else None)
    return f"{found.pkey} ({stands_for})" if stands_for else found.pkey


def _speed(mbps: Optional[int]) -> Optional[str]:
    return f"{round(mbps / 1000, 1):g} Gb/s" if mbps else None


_MOST_VFS = 32


def virtual_functions(facts: Facts) -> Section:
    """Return the first VFs of each PF, and what the PF has set for them."""
    return Section(
        "virtual functions",
        (
            "PF",
            "VF",
            "PCI ADDRESS",
            "DRIVER",
            "NODE GUID",
            "PORT GUID",
            "LINK",
            "NETDEV",
        ),
        [
            (
                adapter.pci.address,
                number(vf.number),
                vf.address,
                vf.driver or "none",
                vf.node_guid,
                known(*(port.guid for port in vf.ports)),
                vf.link_state,
                vf.netdev,
            )
            for adapter in facts.adapters
            for vf in adapter.virtual_functions[:_MOST_VFS]
        ],
    )
