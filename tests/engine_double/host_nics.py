# SPDX-License-Identifier: GPL-2.0-or-later
"""The nics of the double's hosts and the networks on them, as the API shows them.

``in_sync`` compares as the engine does: each value exactly, the MTU too
(NetworkInSyncWithVdsNetworkInterface.java; facts/engine.md, section 5.4).
"""

from __future__ import annotations

import ipaddress
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import API, Mistake, linked, listed
from engine_double.hosts_of_the_world import SimAttachment, SimHost, SimNic
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import SimNetwork, World

DEFAULT_MTU = 1500
ACTIVE_BACKUP = ("1", "active-backup")
_MODE_WORDS = {"active-backup": "1", "802.3ad": "4", "balance-rr": "0"}

Row = tuple[str, Optional[str], Optional[str]]


@followed("hosts", "nics")
def nics_of(world: World, host: SimHost) -> list[types.HostNic]:
    """The host's nics, bonds among them."""
    return [_nic(world, host, nic) for nic in host.nics]


@followed("hosts", "network_attachments")
def attachments_of(world: World, host: SimHost) -> list[types.NetworkAttachment]:
    """The networks on the host's nics, with their sync state."""
    return [_attachment(world, host, one) for one in host.attachments]


def out_of_sync(world: World, host: SimHost) -> list[str]:
    """The names of the networks whose configuration on the host differs."""
    return [
        world.networks[one.network].name
        for one in host.attachments
        if not in_sync(world, host, one)
    ]


def in_sync(world: World, host: SimHost, one: SimAttachment) -> bool:
    return all(actual == expected for _, actual, expected in compared(world, host, one))


def compared(world: World, host: SimHost, one: SimAttachment) -> list[Row]:
    """What the engine compares: (name, actual, expected)."""
    network, nic = world.networks[one.network], nic_by_id(host, one.nic)
    rows: list[Row] = [
        ("mtu", str(one.actual.get("mtu", nic.mtu)), str(mtu_of(network))),
        ("bridged", *_both(one.actual.get("bridged", network.vm), network.vm)),
        ("vlan", *_both(one.actual.get("vlan", network.vlan), network.vlan)),
        ("switchType", "LEGACY", "LEGACY"),
    ]
    for method, address, netmask in one.addresses:
        if address and ":" in address:
            rows += _rows("ipv6", nic, method, address, netmask, "prefix")
        else:
            rows += _rows("ipv4", nic, method, address, netmask, "netmask")
    management = is_management(world, host, one.network)
    rows.append(("default_route", *_both(management, management)))
    return rows


def mtu_of(network: SimNetwork) -> int:
    """The MTU that a network wants on a host: 0 is the engine's DefaultMTU."""
    return network.mtu or DEFAULT_MTU


def is_management(world: World, host: SimHost, network: str) -> bool:
    row = world.clusters[host.cluster].networks.get(network)
    return row is not None and "management" in row.usages


def nic_by_id(host: SimHost, name: str) -> SimNic:
    return next(nic for nic in host.nics if nic.id == name)


def _rows(
    family: str,
    nic: SimNic,
    method: str,
    address: Optional[str],
    netmask: Optional[str],
    width: str,
) -> list[Row]:
    v6 = family == "ipv6"
    has = nic.boot_protocol_v6 if v6 else nic.boot_protocol
    rows: list[Row] = [(f"{family}_boot_protocol", _java(has), _java(method))]
    if method == has == "static":
        mine = (nic.netmask_v6, nic.address_v6) if v6 else (nic.netmask, nic.address)
        rows.append((f"{family}_{width}", mine[0], netmask))
        rows.append((f"{family}_address", mine[1], address))
        rows.append((f"{family}_gateway", None, None))
    return rows


def _java(method: str) -> str:
    """As Ipv4BootProtocol.java calls it."""
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
    shown = with_href(
        types.HostNic(
            id=nic.id,
            name=nic.name,
            host=types.Host(id=host.id),
            mac=types.Mac(address=nic.mac),
            mtu=nic.mtu,
            status=types.NicStatus(nic.status),
            speed=None if nic.speed_mbps is None else nic.speed_mbps * 10**6,
            boot_protocol=types.BootProtocol(nic.boot_protocol),
            ipv6_boot_protocol=types.BootProtocol(nic.boot_protocol_v6),
            bridged=any(world.networks[one.network].vm for one in untagged),
            custom_configuration=False,
            ip=_ip(nic.address, nic.netmask),
            ipv6=_ip(nic.address_v6, nic.netmask_v6),
        ),
        f"/hosts/{host.id}/nics/{nic.id}",
    )
    if untagged:
        shown.network = types.Network(id=untagged[0].network)
    if nic.ports:
        shown.bonding = _bonding(host, nic)
    own = f"{API}/hosts/{host.id}/nics/{nic.id}"
    return linked(
        shown,
        networkattachments=f"{own}/networkattachments",
        statistics=f"{own}/statistics",
    )


def _bonding(host: SimHost, bond: SimNic) -> types.Bonding:
    mode = bond.bond_mode or "4"
    return types.Bonding(
        options=[
            types.Option(name="mode", value=_MODE_WORDS.get(mode, mode)),
            types.Option(name="miimon", value="100"),
        ],
        slaves=[types.HostNic(id=host.nic(name).id) for name in bond.ports],
    )


def _ip(address: Optional[str], netmask: Optional[str]) -> Optional[types.Ip]:
    if address is None:
        return None
    version = types.IpVersion(f"v{ipaddress.ip_address(address).version}")
    return types.Ip(address=address, netmask=netmask, version=version)


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
                types.IpAddressAssignment(
                    assignment_method=types.BootProtocol(method),
                    ip=_ip(address, netmask) or types.Ip(version=types.IpVersion.V4),
                )
                for method, address, netmask in one.addresses
            ],
            properties=[
                types.Property(name=name, value=value)
                for name, value in one.properties.items()
            ]
            or None,
        ),
        f"/hosts/{host.id}/networkattachments/{one.id}",
    )


@route("GET", "/hosts/{host}/nics", query=("max",))
def list_nics(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return listed("host_nics", call.first(nics_of(call.world, host)))


@route("GET", "/hosts/{host}/nics/{nic}")
def get_nic(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    shown = {nic.id: nic for nic in nics_of(call.world, host)}
    return known(shown, call.ids["nic"])


@route("GET", "/hosts/{host}/nics/{nic}/networkattachments", query=("max",))
def list_attachments_of_nic(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    nic = known({nic.id: nic for nic in host.nics}, call.ids["nic"])
    shown = attachments_of(call.world, host)
    mine = [one for one in shown if one.host_nic.id == nic.id]
    return listed("network_attachments", call.first(mine))


@route("GET", "/hosts/{host}/networkattachments", query=("max",))
def list_attachments(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return listed("network_attachments", call.first(attachments_of(call.world, host)))


@route("GET", "/hosts/{host}/networkattachments/{attachment}")
def get_attachment(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    shown = {one.id: one for one in attachments_of(call.world, host)}
    return known(shown, call.ids["attachment"])


def clamp(host: SimHost, nic: str, mtu: int) -> None:
    """The netdev can do less from now on, as after a change of the IPoIB mode."""
    found = host.nic(nic)
    if mtu < 68:
        raise Mistake(f"an MTU of {mtu} is none")
    found.max_mtu = mtu
    found.mtu = min(found.mtu, mtu)
