# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a world of the double from a recording's snapshot, with the same ids."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Optional
from urllib.parse import parse_qs
from xml.etree import ElementTree

from engine_double import (
    SimAssignment,
    SimAttachment,
    SimCluster,
    SimClusterNetwork,
    SimConnection,
    SimDataCenter,
    SimDomain,
    SimHook,
    SimHost,
    SimNetwork,
    SimNic,
    World,
    jobs,
)
from engine_double.answers import API

from engine_recording.exchanges import Exchange

Element = ElementTree.Element
# The simulated password, for the user that the recording logs in as.
PASSWORD = "secret-of-the-double"


def world_of(snapshot: Sequence[Exchange]) -> World:
    """Return the world of the engine of ``snapshot``."""
    world = World()
    answers = _Answers(snapshot)
    world.passwords = {answers.user: PASSWORD}
    world.version = answers.version
    for one in answers.all("datacenters"):
        center = SimDataCenter(_id(one), _text(one, "name"), _text(one, "status"))
        center.version = _level(one)
        world.data_centers[center.id] = center
    for one in answers.all("networks"):
        _network(world, one)
    for one in answers.all("clusters"):
        _cluster(world, one)
    for one in answers.all("storageconnections"):
        row = connection_of(one)
        world.connections[row.id] = row
    for one in answers.all("storagedomains"):
        _domain(world, one, answers)
    for one in answers.all("hosts"):
        world.add_host(_host(one))
    for one in answers.all("vms"):
        host = world.hosts.get(_id(one.find("host")))
        if host is not None and _text(one, "status") != "down":
            host.vms.append(_text(one, "name"))
    for one in answers.all("jobs"):
        if _text(one, "external") == "true":
            _job(world, one)
    _mount_all(world)
    return world


class _Answers:
    """A snapshot's answers by path below the API, without the query."""

    def __init__(self, snapshot: Sequence[Exchange]) -> None:
        self.by_path: dict[str, Exchange] = {}
        self.user = "admin@internal"
        for one in snapshot:
            if one.path.endswith("/sso/oauth/token"):
                self.user = parse_qs(one.request_body)["username"][0]
            elif one.path.startswith(API) and one.status == 200:
                self.by_path[one.path[len(API) :].strip("/")] = one

    @property
    def version(self) -> str:
        top = ElementTree.fromstring(self.by_path[""].body)
        words = ("major", "minor", "build")
        found = [top.findtext(f"product_info/version/{word}") for word in words]
        return ".".join(number for number in found if number)

    def all(self, path: str) -> list[Element]:
        found = self.by_path.get(path)
        top = ElementTree.fromstring(found.body) if found else ()
        return [one for one in top if one.tag != "actions"]


def _network(world: World, one: Element) -> None:
    vlan = one.find("vlan")
    tag = vlan.get("id") if vlan is not None else None
    network = SimNetwork(
        _id(one),
        _text(one, "name"),
        _id(one.find("data_center")),
        vm="vm" in _texts(one, "usages/usage"),
        mtu=int(_text(one, "mtu") or 0),
        vlan=int(tag) if tag else None,
    )
    world.networks[network.id] = network


def _cluster(world: World, one: Element) -> None:
    cluster = SimCluster(
        _id(one), _text(one, "name"), _id(one.find("data_center")), _level(one)
    )
    for network in one.findall("networks/network"):
        cluster.networks[_id(network)] = SimClusterNetwork(
            _id(network),
            required=_text(network, "required") == "true",
            usages=set(_texts(network, "usages/usage")),
        )
    cluster.upgrade_in_progress = _text(one, "upgrade_in_progress") == "true"
    world.clusters[cluster.id] = cluster


def connection_of(one: Element) -> SimConnection:
    """Return a storage connection of the double."""
    return SimConnection(
        _id(one),
        _text(one, "type"),
        _text(one, "address"),
        _text(one, "path"),
        nfs_version=_text(one, "nfs_version") or None,
        nfs_timeo=_number(one, "nfs_timeo"),
        nfs_retrans=_number(one, "nfs_retrans"),
        mount_options=_text(one, "mount_options") or None,
        vfs_type=_text(one, "vfs_type") or None,
        target=_text(one, "target") or None,
    )


def _domain(world: World, one: Element, answers: _Answers) -> None:
    place = _text(one, "storage/address"), _text(one, "storage/path")
    rows = world.connections.values()
    found = next((r for r in rows if (r.address, r.path) == place), None)
    domain = SimDomain(
        _id(one),
        _text(one, "name"),
        _text(one, "type"),
        _text(one, "storage/type"),
        found.id if found else None,
        master=_text(one, "master") == "true",
    )
    for center in world.data_centers.values():
        for there in answers.all(f"datacenters/{center.id}/storagedomains"):
            if _id(there) == domain.id:
                domain.data_center = center.id
                domain.status = _text(there, "status")
                domain.master = _text(there, "master") == "true"
    world.domains[domain.id] = domain
    if found is not None:
        world.export(found.export).domain = domain.id


def _host(one: Element) -> SimHost:
    shown = one.findall("nics/host_nic")
    names = {_id(nic): _text(nic, "name") for nic in shown}
    nics = [_nic(nic, names) for nic in shown if _text(nic, "name")]
    attachments = one.findall("network_attachments/network_attachment")
    hooks = one.findall("hooks/hook")
    return SimHost(
        _id(one),
        _text(one, "name"),
        _text(one, "address"),
        _id(one.find("cluster")),
        _text(one, "status"),
        spm=_text(one, "spm/status") == "spm",
        nics=nics,
        attachments=[_attachment(found) for found in attachments],
        hooks=[SimHook(_text(h, "name"), _text(h, "event_name")) for h in hooks],
        hosted_engine=_text(one, "hosted_engine/configured") == "true",
        fingerprint=_text(one, "ssh/fingerprint") or None,
        public_key=_text(one, "ssh/public_key") or None,
        port=int(_text(one, "ssh/port") or 22),
        memory=int(_text(one, "memory") or 0),
    )


def _nic(one: Element, names: Mapping[str, str]) -> SimNic:
    ports = [
        names.get(_id(port), "") for port in one.findall("bonding/slaves/host_nic")
    ]
    options = one.findall("bonding/options/option")
    modes = [_text(o, "value") for o in options if _text(o, "name") == "mode"]
    mac = _text(one, "mac/address")
    return SimNic(
        _id(one),
        _text(one, "name"),
        mac,
        mtu=int(_text(one, "mtu") or 1500),
        max_mtu=65520,
        status=_text(one, "status") or "up",
        infiniband=len(mac.split(":")) == 20,
        address=_text(one, "ip/address") or None,
        netmask=_text(one, "ip/netmask") or None,
        gateway=_text(one, "ip/gateway") or None,
        boot_protocol=_text(one, "boot_protocol") or "none",
        address_v6=_text(one, "ipv6/address") or None,
        netmask_v6=_text(one, "ipv6/netmask") or None,
        boot_protocol_v6=_text(one, "ipv6_boot_protocol") or "none",
        ports=tuple(port for port in ports if port),
        bond_mode=modes[0] if modes else None,
    )


def _attachment(one: Element) -> SimAttachment:
    assigned = one.findall("ip_address_assignments/ip_address_assignment")
    return SimAttachment(
        _id(one),
        _id(one.find("network")),
        _id(one.find("host_nic")),
        [
            SimAssignment(
                _text(found, "assignment_method"),
                _text(found, "ip/address") or None,
                _text(found, "ip/netmask") or None,
                _text(found, "ip/gateway") or None,
                v6=_text(found, "ip/version") == "v6",
            )
            for found in assigned
            # The engine reports that there is no IPv6; the double's rows do not.
            if found.find("ip/address") is not None
            or _text(found, "assignment_method") != "none"
        ],
        properties={
            _text(found, "name"): _text(found, "value")
            for found in one.findall("properties/property")
        },
    )


def _job(world: World, one: Element) -> None:
    made = jobs.add(world, _text(one, "description"))
    del jobs.jobs_of(world)[made.id]
    made.id, made.status = _id(one), _text(one, "status")
    made.auto_cleared = _text(one, "auto_cleared") == "true"
    jobs.jobs_of(world)[made.id] = made


def _mount_all(world: World) -> None:
    for host in world.hosts.values():
        if host.status != "up":
            continue
        for domain in world.domains_of(world.data_center_of(host)):
            row = world.connections.get(domain.connection or "")
            if row is not None and domain.status == "active":
                rdma = re.search(r"\bproto=rdma6?\b|\brdma\b", row.mount_options or "")
                host.mounts[row.export] = "rdma" if rdma else "tcp"


def _id(one: Optional[Element]) -> str:
    return "" if one is None else str(one.get("id") or "")


def _text(one: Element, path: str) -> str:
    return (one.findtext(path) or "").strip()


def _texts(one: Element, path: str) -> list[str]:
    return [(found.text or "").strip() for found in one.findall(path)]


def _number(one: Element, path: str) -> Optional[int]:
    text = _text(one, path)
    return int(text) if text else None


def _level(one: Element) -> str:
    return f"{_text(one, 'version/major')}.{_text(one, 'version/minor')}"
