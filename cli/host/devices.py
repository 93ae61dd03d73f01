# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the tables of ``facts``. Each is a Section, which prints itself."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import compress
from operator import attrgetter
from types import SimpleNamespace
from typing import Any, Callable, NamedTuple, Optional

from ovirt_rdma.cli.output import Output
from ovirt_rdma.host.facts.adapter_models import model_of
from ovirt_rdma.host.facts.devices import (
    Adapter,
    Dcb,
    Neighbour,
    Netdev,
    RdmaDevice,
    RdmaPort,
    VirtualFunction,
)
from ovirt_rdma.host.facts.infiniband import is_full_member
from ovirt_rdma.host.facts.model import Facts
from ovirt_rdma.host.facts.uses import Interface, NetdevUsers, interfaces_of
from ovirt_rdma.host.policy.fabric import FabricPolicy

NOTHING = "-"


# What rules and people ask for least.
_MINOR = ("BUS INFO", "DRIVER", "LINK LAYER")


class Section:
    """A titled table of ``rows``; ``columns`` has each heading with what is below it,
    ``MTU=mtu, P_KEY=ipoib.pkey``: the name of one of ``cells``, or else of an
    attribute. Of several values all that are known are shown.

    ``even_empty``: the title is printed even without rows, because that is a fact too.
    """

    def __init__(
        self,
        title: str,
        rows: Iterable[object],
        columns: str,
        *,
        even_empty: bool = False,
        **cells: Callable[[Any], object],
    ) -> None:
        pairs = [column.split("=") for column in columns.split(", ")]
        shown = [cells.get(name) or attrgetter(name) for _, name in pairs]
        self._title, self._even_empty = title, even_empty
        self._headings = [heading for heading, _ in pairs]
        self._rows = [[_cell(value(row)) for value in shown] for row in rows]

    def show(self, output: Output) -> None:
        """Print the table, without columns that have no values."""
        if self._rows or self._even_empty:
            output.line()
            output.line(self._title if self._rows else f"{self._title}: none")
        if not self._rows:
            return
        used = [any(column) for column in zip(*self._rows)]
        output.table(
            [*compress(self._headings, used)],
            [[cell or NOTHING for cell in compress(row, used)] for row in self._rows],
            minor=_MINOR,
        )


def known(*parts: object, between: str = ", ") -> Optional[str]:
    """Join the parts that are known; None if none is."""
    return between.join(str(part) for part in parts if part not in (None, "")) or None


def _cell(value: object) -> Optional[str]:
    return known(*value) if isinstance(value, tuple) else known(value)


def _rdma_port(netdev: Netdev) -> Optional[str]:
    return known(netdev.rdma_device, netdev.rdma_port, between="/")


def _tso(netdev: Netdev) -> Optional[str]:
    for offload in netdev.offloads:
        if offload.name == "tx-tcp-segmentation":
            fixed = " [fixed]" if offload.fixed else ""
            return f"{'on' if offload.on else 'off'}{fixed}"
    return None


def _owner(facts: Facts, netdev: Netdev) -> Optional[str]:
    manager = facts.network_manager
    for profile in manager.profiles if manager else ():
        if profile.active_on == netdev.name:
            return profile.name
    return "unmanaged" if manager and netdev.name in manager.unmanaged else None


def _priorities(priorities: Optional[tuple[int, ...]]) -> Optional[str]:
    if priorities is None:
        return None
    return f"priority {', '.join(map(str, priorities))}" if priorities else "off"


def _pause(dcb: Dcb) -> Optional[str]:
    if dcb.pause_rx is None and dcb.pause_tx is None:
        return None
    on = known("rx" if dcb.pause_rx else None, "tx" if dcb.pause_tx else None)
    return on or "off"


_MOST_PKEYS = 12


def _adapter(adapter: Adapter) -> str:
    pci = adapter.pci
    model = model_of(pci)
    ids = [text.removeprefix("0x") for text in (pci.vendor, pci.device, pci.revision)]
    shown = "{}:{} rev {}".format(*ids)
    return f"{model.name} ({shown})" if model else shown


def _vfs(adapter: Adapter, drivers: Optional[Counter[str]]) -> Optional[str]:
    if not adapter.max_vfs:
        return None
    text = f"{adapter.vfs or 0} of {adapter.max_vfs}"
    if drivers:
        names = (f"{count} {driver}" for driver, count in drivers.most_common())
        text += f" ({', '.join(names)})"
    return text


class _OfPort(NamedTuple):
    device: RdmaDevice
    port: RdmaPort
    other: Optional[Neighbour] = None


def _ports(facts: Facts) -> list[_OfPort]:
    return [
        _OfPort(device, port) for device in facts.rdma_devices for port in device.ports
    ]


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


def _of(*both: Optional[int], unless: tuple[Optional[int], ...] = (None,)) -> str:
    """Return ``2048/4096``, ``?`` for an unknown number; "" for both of ``unless``."""
    if {*both} <= {*unless}:
        return ""
    return "/".join("?" if value is None else str(value) for value in both)


def _netdevs(facts: Facts, device: RdmaDevice, port: RdmaPort) -> tuple[str, ...]:
    """Return the netdevs of the port, and those that own its GIDs."""
    names = [
        netdev.name
        for netdev in facts.netdevs
        if (netdev.rdma_device, netdev.rdma_port) == (device.name, port.number)
    ]
    names += [gid.netdev for gid in port.gids if gid.netdev]
    return tuple(dict.fromkeys(names))


def _pkeys(of: _OfPort) -> tuple[str, ...]:
    shown = [_pkey(pkey.value) for pkey in of.port.pkeys[:_MOST_PKEYS]]
    more = len(of.port.pkeys) - len(shown)
    return (*shown, f"and {more} more" if more else "")


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
        interfaces_of(facts),
        "NETDEV=name, LINK LAYER=link_layer, DRIVER=driver, BUS INFO=bus_info, "
        "RDMA PORT=port, GUID=guid, PARENT=parent, P_KEY=pkey, VLAN=vlan, "
        "MTU=mtu, SPEED=speed, NETWORKS=networks, ROLES=roles",
        even_empty=True,
        port=lambda one: known(one.device, one.port, between="/"),
        pkey=lambda one: _interface_pkey(one, described),
        speed=lambda one: f"{_gbps(one.speed_mbps)} Gb/s" if one.speed_mbps else None,
    )


def _interface_pkey(found: Interface, fabric: Optional[FabricPolicy]) -> Optional[str]:
    """Return ``0x8064 (storage, VLAN 100)``."""
    if found.pkey is None:
        return None
    name, vlan = None, found.pkey_vlan
    if fabric is not None:
        name, vlan = fabric.name_of(found.pkey), fabric.vlan_of(found.pkey)
    stands_for = known(name, f"VLAN {vlan}" if vlan else None)
    return f"{found.pkey} ({stands_for})" if stands_for else found.pkey


_MOST_VFS = 32


def adapters(facts: Facts) -> Iterator[Section]:
    """Yield the tables of adapters, their virtual functions, RDMA devices and ports.
    The line of a PF counts its VFs.
    """
    addresses = {adapter.pci.address for adapter in facts.adapters}
    by_function: dict[str, Counter[str]] = {}
    alone = []
    for adapter in facts.adapters:
        if adapter.physical_function in addresses:
            drivers = by_function.setdefault(adapter.physical_function, Counter())
            drivers[adapter.driver or "without driver"] += 1
        else:
            alone.append(adapter)
    yield Section(
        "adapters",
        alone,
        "PCI ADDRESS=pci.address, ADAPTER=model, DRIVER=driver, PORTS=ports, VFS=vfs",
        model=_adapter,
        driver=lambda adapter: adapter.driver or "none",
        # mlx4 can change both.
        ports=lambda adapter: tuple(
            f"{kind} MTU {mtu}" if mtu else kind
            for kind, mtu in zip(adapter.port_types, adapter.port_mtus)
        ),
        vfs=lambda adapter: _vfs(adapter, by_function.get(adapter.pci.address)),
    )
    yield Section(
        "virtual functions",
        _vfs_shown(facts),
        "PF=pf, VF=number, PCI ADDRESS=vf.address, DRIVER=driver, "
        "NODE GUID=vf.node_guid, GUID OF PORT=guids, LINK=vf.link_state, "
        "NETDEV=vf.netdev",
        driver=lambda one: one.vf.driver or "none",
        guids=lambda one: tuple(port.guid for port in one.vf.ports),
    )
    yield Section(
        "RDMA devices",
        facts.rdma_devices,
        "DEVICE=name, DRIVER=driver, PCI ADDRESS=pci, TYPE=hca_type, REV=hw_rev, "
        "FIRMWARE=firmware",
        pci=lambda device: device.pci.address if device.pci else None,
    )
    yield Section(
        "RDMA ports",
        _ports(facts),
        "DEVICE=device.name, PORT=port.number, STATE=state, "
        "LINK LAYER=port.link_layer, RATE (DATA)=rate, MTU/MAX=mtu, LID/SM=lid, "
        "NETDEVS=netdevs",
        even_empty=True,
        state=lambda one: _state(one.port),
        rate=lambda one: _rate(one.port),
        mtu=lambda one: _of(one.port.active_mtu, one.port.max_mtu),
        lid=lambda one: _of(one.port.lid, one.port.sm_lid, unless=(None, 0)),
        netdevs=lambda one: _netdevs(facts, one.device, one.port),
    )


def _vfs_shown(facts: Facts) -> Iterator[SimpleNamespace]:
    """Yield the first VFs of each PF, and how many more it has."""
    for adapter in facts.adapters:
        pf, vfs = adapter.pci.address, adapter.virtual_functions
        for vf in vfs[:_MOST_VFS]:
            yield SimpleNamespace(pf=pf, number=vf.number, vf=vf)
        if len(vfs) > _MOST_VFS:
            more = f"and {len(vfs) - _MOST_VFS} more"
            nothing = VirtualFunction(_MOST_VFS, "", NOTHING)
            yield SimpleNamespace(pf=pf, number=more, vf=nothing)


def netdevs(facts: Facts, fabric: Optional[FabricPolicy]) -> Iterator[Section]:
    """Yield the tables of partitions, netdevs and all that is on them."""
    yield Section(
        "InfiniBand partitions",
        (
            one
            for one in _ports(facts)
            if one.port.is_infiniband and (one.port.guid or one.port.pkeys)
        ),
        "DEVICE=device.name, PORT=port.number, GUID=port.guid, P_KEYS=pkeys",
        pkeys=_pkeys,
    )
    yield Section(
        "netdevs",
        facts.netdevs,
        "NETDEV=name, STATE=operstate, MTU=mtu, DRIVER=driver, BELOW IT=lowers, "
        "ADDRESSES=addresses",
        even_empty=True,
    )
    yield interfaces(facts, fabric)
    yield Section(
        "IPoIB",
        (netdev for netdev in facts.netdevs if netdev.ipoib),
        "NETDEV=name, RDMA PORT=port, P_KEY=ipoib.pkey, CHILD OF=ipoib.parent, "
        "MODE=ipoib.mode, MTU=mtu, TSO=tso, PROFILE=owner",
        port=_rdma_port,
        tso=_tso,
        owner=lambda netdev: _owner(facts, netdev),
    )
    gid_types = {
        (one.device.name, one.port.number): one.port.default_gid_type
        for one in _ports(facts)
    }
    yield Section(
        "RoCE",
        (netdev for netdev in facts.netdevs if netdev.dcb and netdev.rdma_device),
        "NETDEV=name, RDMA PORT=port, DEFAULT GID TYPE=gid_type, PFC=pfc, "
        "ECN=ecn, TRUST=dcb.trust, PAUSE=pause",
        port=_rdma_port,
        gid_type=lambda one: gid_types.get((one.rdma_device, one.rdma_port)),
        pfc=lambda one: _priorities(one.dcb.pfc_priorities),
        ecn=lambda one: _priorities(one.dcb.ecn_priorities),
        pause=lambda one: _pause(one.dcb),
    )
    yield Section(
        "bonds",
        (netdev for netdev in facts.netdevs if netdev.bond),
        "BOND=name, MODE=bond.mode, ACTIVE=bond.active, "
        "FAIL_OVER_MAC=bond.fail_over_mac, MEMBERS=lowers",
    )
    yield Section(
        "NetworkManager profiles",
        facts.network_manager.profiles if facts.network_manager else (),
        "PROFILE=name, TYPE=type, FOR=interface_name, ACTIVE ON=active_on, "
        "SETTINGS=settings",
        settings=lambda profile: tuple(
            f"{one.name} {one.value}"
            for one in profile.properties
            if not one.name.startswith("connection.")
        ),
    )
    yield Section(
        "oVirt networks",
        facts.ovirt_networks,
        "NETWORK=name, ON=southbound, BRIDGE=bridge, VLAN=vlan, MTU=mtu, "
        "DEFAULT ROUTE=default",
        bridge=lambda network: "yes" if network.bridged else "no",
        default=lambda network: "yes" if network.default_route else None,
    )
    yield Section(
        "netdevs in use",
        NetdevUsers(facts).all,
        "NETDEV=netdev, FOR=purpose, WHAT=what",
        netdev=lambda use: use.netdev or "unknown",
    )
    yield Section(
        "routes",
        facts.routes,
        "TO=destination, NETDEV=netdev, FROM=source, GATEWAY=gateway",
        netdev=lambda route: route.netdev or route.problem,
    )
    yield Section(
        "NFS mounts",
        facts.nfs_mounts,
        "EXPORT=source, MOUNTED AT=mountpoint, NFS=version, PROTOCOL=protocol, "
        "TRANSPORTS=transports",
        even_empty=True,
        transports=lambda mount: " ".join(mount.protocols),
    )


def links(facts: Facts) -> Iterator[Section]:
    """Yield the tables of what RDMA ports are cabled to, as far as that is known, and
    of their error counters that are not 0.
    """
    yield Section(
        "cables of RDMA ports",
        (of._replace(other=one) for of in _ports(facts) for one in of.port.neighbours),
        "DEVICE=device.name, PORT=port.number, NETDEV=other.netdev, "
        "CABLED TO=other.name, KIND=other.kind, ITS PORT=other.port_title, "
        "ITS ID=other.id",
    )
    yield Section(
        "errors of RDMA ports",
        (
            SimpleNamespace(port=port, error=error)
            for port in (facts.activity.ports if facts.activity else ())
            for error in port.errors
        ),
        "DEVICE=port.device, PORT=port.port, COUNTER=error.name, TOTAL=error.value, "
        "NOW=now",
        now=lambda one: f"+{one.error.grown}" if one.error.grown else None,
    )
