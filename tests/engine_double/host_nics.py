# SPDX-License-Identifier: GPL-2.0-or-later
"""Show the NICs of the double's hosts and the networks on them."""

from __future__ import annotations

import dataclasses
import ipaddress
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import API, linked
from engine_double.behaviours import behaviour
from engine_double.views import followed, with_href
from engine_double.world import (
    SimAssignment,
    SimAttachment,
    SimHost,
    SimNetwork,
    SimNic,
    World,
    new_id,
)

_SYNC = "utils/NetworkInSyncWithVdsNetworkInterface.java"
EXACT = behaviour(
    "NET-57",
    "A network is in sync when the host has each value exactly, the MTU too; 0 stands "
    "for 1500.",
    f"{_SYNC}:65-102",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:806",
)
BOTH_VERSIONS = behaviour(
    "NET-58",
    "An attachment shows an assignment for IPv4 and one for IPv6, also the "
    "method 'none' if none was requested.",
    "bll/network/host/IpConfigurationCompleter.java:14-34",
    "mapper/NetworkAttachmentMapper.java:191-209",
)
VLAN_NICS = behaviour(
    "NET-61",
    "A network with a VLAN is on a nic of its own, NIC.TAG, which names its base "
    "interface and has the addresses.",
    "mapper/HostNicMapper.java:199-211",
    "utils/NetworkInSyncWithVdsNetworkInterface.java:68-77",
)
UNMANAGED = behaviour(
    "NET-63",
    "The nic of a network that the cluster does not have shows its name, and no id.",
    "mapper/HostNicMapper.java:195-198",
    "restapi/resource/BackendHostNicsResource.java:66-75",
)
UNSORTED = behaviour(
    "NET-64",
    "A host's nics come in the order of the database's rows, which is none.",
    "dal/dao/network/InterfaceDaoImpl.java:194-201",
    "dbscripts/network_sp.sql:691-792",
)

DEFAULT_MTU = 1500
ACTIVE_BACKUP = ("1", "active-backup")
_MODE_WORDS = {"active-backup": "1", "802.3ad": "4", "balance-rr": "0"}

Row = tuple[str, Optional[str], Optional[str]]


@followed("hosts", "nics")
def nics_of(world: World, host: SimHost) -> list[types.HostNic]:
    """Return the host's NICs, including bonds and VLANs, in an order of no meaning."""
    nics = [_nic(world, host, nic) for nic in host.nics]
    tagged = [
        _vlan_nic(world, host, one)
        for one in host.attachments
        if world.networks[one.network].vlan is not None and world.does(VLAN_NICS)
    ]
    left = [
        _left_vlan(world, host, name, nic_by_id(host, on), vlan)
        for name, on in _unmanaged(host).items()
        if (vlan := _vlan(world, name)) is not None and world.does(VLAN_NICS)
    ]
    every = nics + tagged + left
    return sorted(every, key=lambda nic: nic.id) if world.does(UNSORTED) else every


@followed("hosts", "network_attachments")
def attachments_of(world: World, host: SimHost) -> list[types.NetworkAttachment]:
    """Return the networks on the host's NICs, with their sync state."""
    return [_attachment(world, host, one) for one in host.attachments]


def in_sync(world: World, host: SimHost, one: SimAttachment) -> bool:
    return all(actual == expected for _, actual, expected in compared(world, host, one))


def compared(world: World, host: SimHost, one: SimAttachment) -> list[Row]:
    """Return what the engine compares: (name, actual, expected)."""
    network, nic = world.networks[one.network], nic_by_id(host, one.nic)
    rows: list[Row] = [
        ("mtu", str(_actual_mtu(world, nic, network)), str(mtu_of(network))),
        ("bridged", *_both(network.vm, network.vm)),
        ("vlan", *_both(network.vlan, network.vlan)),
        ("switchType", "LEGACY", "LEGACY"),
    ]
    if network.vlan is not None:
        nic = _with_addresses(nic, one)
    for each in assignments(world, one):
        rows += _rows(nic, each)
    return rows


def assignments(world: World, one: SimAttachment) -> list[SimAssignment]:
    """Return an attachment's assignments as the engine completes them, IPv4 first."""
    if not world.does(BOTH_VERSIONS):
        return one.addresses
    v4 = [each for each in one.addresses if not each.v6] or [SimAssignment("none")]
    v6 = [each for each in one.addresses if each.v6]
    return [*v4, *(v6 or [SimAssignment("none", v6=True)])]


def _actual_mtu(world: World, nic: SimNic, network: SimNetwork) -> int:
    return nic.mtu if world.does(EXACT) else max(nic.mtu, mtu_of(network))


def mtu_of(network: SimNetwork) -> int:
    """Return a network's MTU on a host: 0 is the engine's DefaultMTU."""
    return network.mtu or DEFAULT_MTU


def is_management(world: World, host: SimHost, network: str) -> bool:
    row = world.clusters[host.cluster].networks.get(network)
    return row is not None and "management" in row.usages


def nic_by_id(host: SimHost, name: str) -> SimNic:
    return next(nic for nic in host.nics if nic.id == name)


def _rows(nic: SimNic, wanted: SimAssignment) -> list[Row]:
    family, width = ("ipv6", "prefix") if wanted.v6 else ("ipv4", "netmask")
    has = address_of(nic, wanted.v6)
    methods = (_java(has.method), _java(wanted.method))
    rows: list[Row] = [(f"{family}_boot_protocol", *methods)]
    if wanted.method == has.method == "static":
        rows.append((f"{family}_{width}", has.netmask, wanted.netmask))
        rows.append((f"{family}_address", has.address, wanted.address))
        rows.append((f"{family}_gateway", has.gateway, wanted.gateway))
    return rows


def _java(method: str) -> str:
    """Return the name in Ipv4BootProtocol.java."""
    return {"static": "STATIC_IP"}.get(method, method.upper())


def _both(actual: Any, expected: Any) -> tuple[Optional[str], Optional[str]]:
    return _text(actual), _text(expected)


def _text(value: Any) -> Optional[str]:
    if value is None:
        return None
    return str(value).lower() if isinstance(value, bool) else str(value)


def _nic(world: World, host: SimHost, nic: SimNic) -> types.HostNic:
    mine = [one for one in host.attachments if one.nic == nic.id]
    untagged = [one for one in mine if world.networks[one.network].vlan is None]
    shown = _shown(host, nic.id, nic.name, nic, mtu=nic.mtu, **_addresses(nic))
    unmanaged = [
        name
        for name, on in _unmanaged(host).items()
        if on == nic.id and _vlan(world, name) is None
    ]
    if untagged:
        shown.network = types.Network(id=untagged[0].network)
    elif unmanaged and world.does(UNMANAGED):
        shown.network = types.Network(name=unmanaged[0])
    if nic.ports:
        shown.bonding = _bonding(host, nic)
    own = f"{API}/hosts/{host.id}/nics/{nic.id}"
    return linked(
        shown,
        networkattachments=f"{own}/networkattachments",
        statistics=f"{own}/statistics",
    )


def _shown(
    host: SimHost, id: str, name: str, like: SimNic, **more: Any
) -> types.HostNic:
    """Return a NIC with the MAC and the status of ``like``."""
    shown = types.HostNic(
        id=id,
        name=name,
        host=types.Host(id=host.id),
        mac=types.Mac(address=like.mac),
        status=types.NicStatus(like.status),
        **more,
    )
    return with_href(shown, f"/hosts/{host.id}/nics/{id}")


def _addresses(nic: SimNic) -> dict[str, Any]:
    return {
        "boot_protocol": types.BootProtocol(nic.boot_protocol),
        "ipv6_boot_protocol": types.BootProtocol(nic.boot_protocol_v6),
        "ip": _ip(nic.address, nic.netmask, nic.gateway),
        "ipv6": _ip(nic.address_v6, nic.netmask_v6, nic.gateway_v6),
    }


def _with_addresses(nic: SimNic, one: SimAttachment) -> SimNic:
    """Return the netdev of a network with a VLAN, with the requested addresses."""
    found = dataclasses.replace(nic)
    take_addresses(found)
    for each in one.addresses:
        give_address(found, each)
    return found


def take_addresses(nic: SimNic) -> None:
    for v6 in (False, True):
        give_address(nic, SimAssignment("none", v6=v6))


def address_of(nic: SimNic, v6: bool) -> SimAssignment:
    """Return what the netdev has of IPv4 or IPv6."""
    if v6:
        mine = (nic.boot_protocol_v6, nic.address_v6, nic.netmask_v6, nic.gateway_v6)
        return SimAssignment(*mine, v6=True)
    return SimAssignment(nic.boot_protocol, nic.address, nic.netmask, nic.gateway)


def give_address(nic: SimNic, one: SimAssignment) -> None:
    if one.v6:
        nic.boot_protocol_v6, nic.address_v6 = one.method, one.address
        nic.netmask_v6, nic.gateway_v6 = one.netmask, one.gateway
    else:
        nic.boot_protocol, nic.address = one.method, one.address
        nic.netmask, nic.gateway = one.netmask, one.gateway


def _vlan_nic(world: World, host: SimHost, one: SimAttachment) -> types.HostNic:
    network, base = world.networks[one.network], nic_by_id(host, one.nic)
    return _tagged(
        host,
        base,
        network.vlan,
        network=types.Network(id=network.id),
        mtu=min(mtu_of(network), base.mtu),
        **_addresses(_with_addresses(base, one)),
    )


def _tagged(
    host: SimHost, base: SimNic, tag: Optional[int], **more: Any
) -> types.HostNic:
    """Return the NIC of a VLAN on ``base``."""
    name = f"{base.name}.{tag}"
    words = {"base_interface": base.name, "vlan": types.Vlan(id=tag), **more}
    return _shown(host, new_id(f"{host.id} {name}"), name, base, **words)


def _unmanaged(host: SimHost) -> dict[str, str]:
    """Return networks that the cluster does not have: the ids of their NICs by name."""
    found: dict[str, str] = host.more.get("unmanaged", {})
    return found


def _vlan(world: World, name: str) -> Optional[int]:
    """Return the tag of a network on a host; None if the network is gone."""
    return next((n.vlan for n in world.networks.values() if n.name == name), None)


def _left_vlan(
    world: World, host: SimHost, name: str, base: SimNic, tag: int
) -> types.HostNic:
    network = types.Network(name=name) if world.does(UNMANAGED) else None
    return _tagged(host, base, tag, network=network, mtu=base.mtu)


def _bonding(host: SimHost, bond: SimNic) -> types.Bonding:
    mode = bond.bond_mode or "4"
    return types.Bonding(
        options=[
            types.Option(name="mode", value=_MODE_WORDS.get(mode, mode)),
            types.Option(name="miimon", value="100"),
        ],
        slaves=[types.HostNic(id=host.nic(name).id) for name in bond.ports],
    )


def _ip(
    address: Optional[str], netmask: Optional[str], gateway: Optional[str]
) -> Optional[types.Ip]:
    if address is None:
        return None
    version = types.IpVersion(f"v{ipaddress.ip_address(address).version}")
    return types.Ip(address=address, netmask=netmask, gateway=gateway, version=version)


def _attachment(
    world: World, host: SimHost, one: SimAttachment
) -> types.NetworkAttachment:
    rows = [
        types.ReportedConfiguration(
            name=name,
            actual_value=actual,
            expected_value=expected,
            in_sync=actual == expected,
        )
        for name, actual, expected in compared(world, host, one)
    ]
    return with_href(
        types.NetworkAttachment(
            id=one.id,
            host=types.Host(id=host.id),
            network=types.Network(id=one.network),
            host_nic=types.HostNic(id=one.nic),
            in_sync=all(row.in_sync for row in rows),
            reported_configurations=rows,
            ip_address_assignments=[
                _assignment(each) for each in assignments(world, one)
            ],
            properties=[
                types.Property(name=name, value=value)
                for name, value in one.properties.items()
            ]
            or None,
        ),
        f"/hosts/{host.id}/networkattachments/{one.id}",
    )


def _assignment(one: SimAssignment) -> types.IpAddressAssignment:
    version = types.IpVersion.V6 if one.v6 else types.IpVersion.V4
    return types.IpAddressAssignment(
        assignment_method=types.BootProtocol(one.method),
        ip=_ip(one.address, one.netmask, one.gateway) or types.Ip(version=version),
    )


def clamp(host: SimHost, nic: str, mtu: int) -> None:
    """Limit the netdev's MTU from now on, as a change of the IPoIB mode does."""
    found = host.nic(nic)
    found.max_mtu = mtu
    found.mtu = min(found.mtu, mtu)
