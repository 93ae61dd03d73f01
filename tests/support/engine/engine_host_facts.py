# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the facts of a simulated host: adapters and netdevs from a golden host, and the
double's mounts in the form of the kernel.

An InfiniBand NIC is an IPoIB netdev on its own port. If none of them has an address,
the storage network is RoCE: the management NIC is an RDMA port too.
"""

from __future__ import annotations

import functools
import ipaddress
import re
from dataclasses import replace
from pathlib import Path
from typing import Optional

from engine_double import SimHost, SimNic, World
from engine_double.mounts import PREFER_RDMA, TCP, asked_for, nfs_version

from ovirt_rdma.host.facts import model
from ovirt_rdma.host.facts.devices import (
    Bond,
    Gid,
    Ipoib,
    Neighbour,
    Netdev,
    NetdevUse,
    NetworkManager,
    OvirtNetwork,
    RdmaDevice,
    RdmaPort,
)
from ovirt_rdma.host.facts.model import (
    CmId,
    DegradedMark,
    Facts,
    NfsMount,
    Route,
)
from ovirt_rdma.storage.mounts import conflict_clause, sharers

_SERVER_ADDRESS = "192.0.2.250"
_AGE_S = 600
_MOUNTED = "/rhev/data-center/mnt"
_NO_ANSWER = "the server did not answer over RDMA"


def facts_of(world: World, host: SimHost) -> Facts:
    """Return the facts that ``ovirt-rdma-host facts`` would report on ``host``."""
    golden = base()
    devices, way = devices_of(host), _storage_way(host)
    mounts = tuple(_mount(world, export, how) for export, how in host.mounts.items())
    addresses = sorted({mount.address or "" for mount in mounts} | {_SERVER_ADDRESS})
    return replace(
        golden,
        hostname=host.address,
        rdma_devices=devices,
        netdevs=netdevs_of(host),
        netdev_uses=_uses(host, mounts, way),
        network_manager=network_manager_of(host),
        ovirt_networks=networks_of(world, host),
        routes=tuple(Route(one, *way) for one in addresses),
        nfs_mounts=mounts,
        cm_ids=tuple(_cm_ids(devices, mounts, way[1])),
        degraded_marks=tuple(_marks(world, host, mounts, golden.uptime_s)),
    )


@functools.cache
def _sample(transport: str) -> NfsMount:
    name = {"rdma": "rxe-one-mount", "tcp": "no-rdma-tcp-mount"}[transport]
    return model.load(DATA / "facts" / f"{name}.json").nfs_mounts[0]


def _storage_way(host: SimHost) -> tuple[Optional[str], Optional[str]]:
    """Return the netdev of the route to NFS servers, and the source address."""
    for nic in host.nics:
        if nic.infiniband and nic.address:
            return nic.name, nic.address
    managed = management(host)
    return ("ovirtmgmt", managed.address) if managed else (None, None)


def _uses(
    host: SimHost,
    mounts: tuple[NfsMount, ...],
    way: tuple[Optional[str], Optional[str]],
) -> tuple[NetdevUse, ...]:
    managed = management(host)
    found = []
    if managed is not None:
        found.append(NetdevUse(managed.name, "management", "network ovirtmgmt"))
    if way[0] is not None:
        for mount in mounts:
            what = f"{mount.source} at {mount.mountpoint}"
            found.append(NetdevUse(way[0], "nfs", what))
    return tuple(found)


def _address_of(world: World, server: str) -> str:
    """Return the address of a server's name: one each, in the order of their use."""
    known = world.more.setdefault("server addresses", {})
    first = ipaddress.ip_address(_SERVER_ADDRESS)
    return str(known.setdefault(server.lower(), first - len(known)))


def _mount(world: World, export: str, transport: str) -> NfsMount:
    sample = _sample(transport)
    server, path = export.rsplit(":", 1)
    try:
        address = str(ipaddress.ip_address(server.strip("[]")))
    except ValueError:
        address = _address_of(world, server)
    row = next((c for c in world.connections.values() if c.export == export), None)
    version = nfs_version(row)
    family = "6" if ":" in address else ""
    options = sample.options.replace(f"addr={sample.address}", f"addr={address}")
    options = options.replace("vers=4.2", f"vers={version}")
    options = options.replace(f"proto={transport}", f"proto={transport}{family}")
    # VDSM's name for it: "_" is doubled, "/" becomes "_" (storage/fileUtils.py).
    place = f"{server}:{path}".replace("_", "__").replace("/", "_")
    return replace(
        sample,
        source=export,
        mountpoint=f"{_MOUNTED}/{place}",
        options=options,
        version=version,
        protocol=f"{transport}{family}",
        address=address,
        age_s=_AGE_S,
    )


def _cm_ids(
    devices: tuple[RdmaDevice, ...],
    mounts: tuple[NfsMount, ...],
    source: Optional[str],
) -> list[CmId]:
    found = {}
    for number, mount in enumerate(mounts):
        if (mount.protocol or "").startswith("rdma") and devices:
            address = mount.address or ""
            to = f"[{address}]" if ":" in address else address
            found[to] = CmId(
                devices[-1].name,
                "CONNECT",
                "[rpcrdma]",
                f"{source}:{40001 + number}",
                f"{to}:20049",
            )
    return list(found.values())


def _marks(
    world: World, host: SimHost, mounts: tuple[NfsMount, ...], uptime_s: float
) -> list[DegradedMark]:
    """Return vdsmd's marks of mounts that should use RDMA by a rule but do not."""
    found = []
    # Block storage has no export.
    rows = [row for row in world.connections.values() if row.path]
    wishes = {row.export: asked_for(host, row) for row in rows}
    for mount in mounts:
        if not host.addon or (mount.protocol or "")[:3] != "tcp":
            continue
        if wishes.get(mount.source) == PREFER_RDMA:
            others = [m for m in sharers(mount, mounts) if wishes.get(m.source) == TCP]
            reason = conflict_clause(others) if others else _NO_ANSWER
            found.append(
                DegradedMark(
                    mount.mountpoint,
                    mount.source,
                    "rule",
                    PREFER_RDMA,
                    "tcp",
                    reason,
                    mounted_s=uptime_s - _AGE_S,
                )
            )
    return found


# -- adapters and netdevs

DATA = Path(__file__).parents[2] / "data"
# The MTU of IPoIB in datagram mode is the IB MTU less 4 bytes (RFC 4391, section 7).
_IB_MTUS = (256, 512, 1024, 2048, 4096)


@functools.cache
def base() -> Facts:
    """Return the facts of the golden host."""
    return model.load(DATA / "hosts" / "connectx-5-ib" / "facts.json")


def infiniband(host: SimHost) -> list[SimNic]:
    """Return the IPoIB NICs of ports, without their bonds and P_Key children."""
    found = [nic for nic in host.nics if nic.infiniband and not nic.ports]
    names = {nic.name for nic in found}
    return [nic for nic in found if nic.name.rpartition(".")[0] not in names]


def _guid(nic: SimNic) -> str:
    digits = nic.mac.replace(":", "")[-16:]
    return ":".join(digits[at : at + 4] for at in range(0, 16, 4))


def devices_of(host: SimHost) -> tuple[RdmaDevice, ...]:
    """Return the RDMA devices, with one port each."""
    pattern = base().rdma_devices[0]
    state = ("ACTIVE", "LinkUp") if host.rdma_ready else ("DOWN", "Polling")
    devices = []
    for number, nic in enumerate(infiniband(host)):
        guid = _guid(nic)
        ib_mtu = max(mtu for mtu in _IB_MTUS if mtu <= min(nic.max_mtu + 4, 4096))
        port = replace(
            pattern.ports[0],
            state=state[0],
            physical_state=state[1],
            active_mtu=ib_mtu,
            guid=guid,
            gids=(Gid(0, f"fe80:0000:0000:0000:{guid}", "IB/RoCE v1"),),
            neighbours=(_leaf(host, number),) if host.rdma_ready else (),
        )
        name = f"mlx5_{number}"
        devices.append(replace(pattern, name=name, node_guid=guid, ports=(port,)))
    roce = management(host)
    if roce is not None and not any(nic.address for nic in host.nics if nic.infiniband):
        devices.append(_roce(pattern, f"mlx5_{len(devices)}", roce, state))
    return tuple(devices)


def _leaf(host: SimHost, number: int) -> Neighbour:
    """Return the switch of a host's port: a rack of 42 hosts has two, in turns."""
    at = int(re.sub(r"\D", "", host.name)[:4] or 1) - 1
    leaf = at // 42 * 2 + (at + number) % 2 + 1
    return Neighbour(
        kind="switch",
        id=f"ec0d:9a03:00f5:{leaf:04x}",
        name=f"leaf{leaf}",
        port=str(at % 42 // 2 + 1),
        description=None,
        netdev=None,
    )


def _roce(
    pattern: RdmaDevice, name: str, nic: SimNic, state: tuple[str, str]
) -> RdmaDevice:
    packed = ipaddress.ip_address(f"::ffff:{nic.address}").packed.hex()
    gid = ":".join(packed[at : at + 4] for at in range(0, 32, 4))
    port = RdmaPort(
        1,
        *state,
        "Ethernet",
        rate_mbps=100_000,
        max_mtu=1024,
        active_mtu=1024,
        default_gid_type="RoCE v2",
        gids=(Gid(0, gid, "RoCE v2", "ovirtmgmt"),),
    )
    return replace(pattern, name=name, ports=(port,))


def management(host: SimHost) -> Optional[SimNic]:
    """Return the NIC with the management address."""
    return next((n for n in host.nics if n.address and not n.infiniband), None)


def netdevs_of(host: SimHost) -> tuple[Netdev, ...]:
    """Return the host's NICs, the management bridge and lo."""
    golden = {netdev.name: netdev for netdev in base().netdevs}
    found = [golden["lo"]]
    bond_of = {port: nic.name for nic in host.nics for port in nic.ports}
    managed = management(host)
    numbers = {nic.name: number for number, nic in enumerate(infiniband(host))}
    for nic in host.nics:
        upper = (bond_of[nic.name],) if nic.name in bond_of else ()
        pattern = golden["ib0" if nic.infiniband else "eno1"]
        addresses = tuple(
            f"{address}/{_prefix(address, netmask)}"
            for address, netmask in (
                (nic.address, nic.netmask),
                (nic.address_v6, nic.netmask_v6),
            )
            if address
        )
        netdev = replace(
            pattern,
            name=nic.name,
            mtu=nic.mtu,
            address=nic.mac,
            operstate=nic.status,
            carrier=nic.status == "up",
            addresses=addresses,
            uppers=upper,
        )
        if nic.ports:
            mode = "active-backup" if nic.bond_mode == "1" else str(nic.bond_mode)
            netdev = replace(
                netdev,
                driver="bond",
                pci=None,
                lowers=nic.ports,
                ipoib=None,
                rdma_device=None,
                rdma_port=None,
                bond=Bond(mode, nic.ports[0], "active"),
            )
        elif nic.name in numbers:
            device = f"mlx5_{numbers[nic.name]}"
            netdev = replace(netdev, rdma_device=device, rdma_port=1)
        elif nic.infiniband:  # as the kernel names a P_Key child (ipoib_vlan.c)
            parent, _, pkey = nic.name.rpartition(".")
            netdev = replace(
                netdev,
                rdma_device=f"mlx5_{numbers[parent]}",
                rdma_port=1,
                ipoib=Ipoib("datagram", f"0x{pkey}", parent),
            )
        if nic is managed:
            bridge = replace(
                golden["ovirtmgmt"],
                address=nic.mac,
                lowers=(nic.name,),
                addresses=addresses,
            )
            found.append(bridge)
            netdev = replace(netdev, uppers=("ovirtmgmt",), addresses=())
        found.append(netdev)
    return tuple(sorted(found, key=lambda netdev: netdev.name))


def _prefix(address: str, netmask: Optional[str]) -> int:
    if ":" in address:
        return int(netmask or 128)
    return ipaddress.ip_network(f"0.0.0.0/{netmask or 32}").prefixlen


def network_manager_of(host: SimHost) -> NetworkManager:
    """Return NetworkManager with one profile per IPoIB netdev."""
    found = base().network_manager
    assert found is not None
    pattern = found.profiles[0]
    profiles = []
    for nic in infiniband(host):
        properties = tuple(
            replace(one, value=nic.name) if one.value == pattern.name else one
            for one in pattern.properties
        )
        profiles.append(
            replace(
                pattern,
                name=nic.name,
                interface_name=nic.name,
                active_on=nic.name,
                file=f"/etc/NetworkManager/system-connections/{nic.name}.nmconnection",
                properties=properties,
            )
        )
    names = tuple(sorted({nic.name for nic in host.nics} | {"ovirtmgmt"}))
    return replace(found, managed=names, profiles=tuple(profiles))


def networks_of(world: World, host: SimHost) -> tuple[OvirtNetwork, ...]:
    """Return the logical networks as VDSM stores them."""
    names = {nic.id: nic for nic in host.nics}
    found = []
    for one in host.attachments:
        network, nic = world.networks[one.network], names[one.nic]
        row = world.clusters[host.cluster].networks.get(one.network)
        management = row is not None and "management" in row.usages
        found.append(
            OvirtNetwork(
                network.name, nic.name, network.vm, network.vlan, nic.mtu, management
            )
        )
    return tuple(found)
