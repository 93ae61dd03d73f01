# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a sample world: one data center with hosts, domains and a network."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from engine_double.world import (
    SimAssignment,
    SimAttachment,
    SimCluster,
    SimClusterNetwork,
    SimConnection,
    SimDataCenter,
    SimDomain,
    SimHost,
    SimNetwork,
    SimNic,
    World,
    new_id,
)

SERVER = "nfs1.example.com"
MANAGEMENT = "ovirtmgmt"


def sample_world(
    *,
    hosts: int = 3,
    domains: Sequence[str] = ("data1", "data2"),
    iso: bool = False,
    export: bool = False,
    hosted_engine: bool = False,
    hosted_engine_name: str = "hosted_storage",
    default_data_center: bool = False,
    iscsi: bool = False,
    addon: bool = False,
    reads_per_stage: int = 1,
    server: str = SERVER,
) -> World:
    """Data center ``dc1``, cluster ``cl1``, hosts ``host01``... that are Up.

    host01 is SPM. Each has nics eth0, with the management network, and ib0, an IPoIB
    netdev. ``domains`` are NFS data domains on SERVER:/exports/NAME, active, the first
    one is master, mounted over TCP on every host. ``iso`` and ``export`` add domains of
    those names; ``hosted_engine`` adds ``hosted_engine_name``, which is then the
    master; ``default_data_center`` a data center ``Default`` without hosts; ``iscsi`` a
    block domain. ``addon``: ovirt-rdma is on the hosts, with an empty policy.
    """
    world = World(reads_per_stage=reads_per_stage)
    centre = SimDataCenter(new_id("dc1"), "dc1")
    world.data_centers[centre.id] = centre
    cluster = SimCluster(new_id("cl1"), "cl1", centre.id)
    world.clusters[cluster.id] = cluster
    _add_network(world, centre, cluster)
    for number in range(1, hosts + 1):
        world.add_host(_host(world, number, cluster, addon))
    named = [(name, "data") for name in domains]
    if hosted_engine:
        named.insert(0, (hosted_engine_name, "data"))
    named += [("iso", "iso")] * iso + [("export", "export")] * export
    for name, kind in named:
        _add_domain(world, centre, name, kind, server)
    if hosted_engine:
        world.domain(hosted_engine_name).hosted_engine = True
        for host in world.hosts.values():
            host.hosted_engine = True
    if iscsi:
        _add_block_domain(world, centre)
    if default_data_center:
        other = SimDataCenter(new_id("Default"), "Default", "uninitialized")
        world.data_centers[other.id] = other
        empty = SimCluster(new_id("Default cluster"), "Default", other.id)
        world.clusters[empty.id] = empty
        _add_network(world, other, empty)
    return world


def _add_network(world: World, centre: SimDataCenter, cluster: SimCluster) -> None:
    network = SimNetwork(
        new_id(f"{MANAGEMENT} {centre.name}"), MANAGEMENT, centre.id, vm=True
    )
    world.networks[network.id] = network
    cluster.networks[network.id] = SimClusterNetwork(
        network.id,
        required=True,
        usages={"vm", "management", "display", "migration", "default_route"},
    )


def _host(world: World, number: int, cluster: SimCluster, addon: bool) -> SimHost:
    name = f"host{number:02}"
    high, low = divmod(number, 250)
    octets = f"{high:02x}:{low:02x}"
    ib_mac = "80:00:02:08:fe:80:00:00:00:00:00:00:00:02:c9:03:00:00:" + octets
    address = f"192.0.{2 + high}.{low + 1}"
    eth0 = SimNic(
        new_id(f"{name} eth0"),
        "eth0",
        f"52:54:00:00:{octets}",
        address=address,
        netmask="255.255.255.0",
        boot_protocol="static",
    )
    ib0 = SimNic(
        new_id(f"{name} ib0"),
        "ib0",
        ib_mac,
        mtu=2044,
        max_mtu=4092,
        infiniband=True,
    )
    network = next(
        n for n in world.networks.values() if n.data_center == cluster.data_center
    )
    managed = SimAttachment(
        new_id(f"{name} {MANAGEMENT}"),
        network.id,
        eth0.id,
        [SimAssignment("static", address, "255.255.255.0")],
    )
    key = hashlib.sha256(name.encode()).hexdigest()[:43]
    return SimHost(
        new_id(name),
        name,
        f"{name}.example.com",
        cluster.id,
        spm=number == 1,
        nics=[eth0, ib0],
        attachments=[managed],
        fingerprint=f"SHA256:{key}",
        public_key=f"ecdsa-sha2-nistp256 {key}",
        addon=addon,
        policy_text="" if addon else None,
    )


def _add_domain(
    world: World, centre: SimDataCenter, name: str, kind: str, server: str
) -> None:
    row = SimConnection(
        new_id(f"connection {name}"),
        "nfs",
        server,
        f"/exports/{name}",
        nfs_version="v4_2",
    )
    first = not world.domains_of(centre.id)
    domain = SimDomain(
        new_id(f"domain {name}"),
        name,
        kind,
        "nfs",
        row.id,
        centre.id,
        "active",
        master=first and kind == "data",
    )
    world.connections[row.id] = row
    world.domains[domain.id] = domain
    world.export(row.export).domain = domain.id
    for host in world.hosts.values():
        host.mounts[row.export] = "tcp"


def _add_block_domain(world: World, centre: SimDataCenter) -> None:
    row = SimConnection(
        new_id("connection block1"),
        "iscsi",
        "192.0.2.250",
        target="iqn.2026-01.com.example:block1",
    )
    world.connections[row.id] = row
    name = new_id("domain block1")
    world.domains[name] = SimDomain(
        name, "block1", "data", "iscsi", None, centre.id, "active"
    )
