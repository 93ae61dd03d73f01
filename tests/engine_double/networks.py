# SPDX-License-Identifier: GPL-2.0-or-later
"""Serve the logical networks of data centers and of clusters."""

from __future__ import annotations

from typing import Any, Optional

from ovirtsdk4 import types

from engine_double.answers import Missing, Refusal, created, listed
from engine_double.behaviours import behaviour
from engine_double.host_nics import address_of, nic_by_id
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import (
    SimAttachment,
    SimCluster,
    SimClusterNetwork,
    SimHost,
    SimNetwork,
    World,
    new_id,
)

_VALIDATOR = "bll/validator/NetworkValidator.java"
FOR_VMS = behaviour(
    "NET-02",
    "A network is one for virtual machines, unless it comes with usages, be they "
    "empty.",
    "common/businessentities/network/Network.java:86-91",
    "mapper/NetworkMapper.java:60-71",
)
NAME_IN_USE = behaviour(
    "NET-03",
    "A name is used once in a data center: 409.",
    f"{_VALIDATOR}:106-115",
)
NO_BOND = behaviour(
    "NET-04", "A network's name cannot begin with 'bond': 400.", f"{_VALIDATOR}:81-84"
)
MTU = behaviour(
    "NET-05",
    "An MTU is 0 or at least 68, without a maximum: 400.",
    "common/validation/MTUValidator.java:15-17",
)


def _network_view(network: SimNetwork) -> types.Network:
    """A network as the API shows it outside clusters."""
    return with_href(
        types.Network(
            id=network.id,
            name=network.name,
            data_center=types.DataCenter(id=network.data_center),
            mtu=network.mtu,
            usages=[types.NetworkUsage.VM] if network.vm else [],
            vlan=None if network.vlan is None else types.Vlan(id=network.vlan),
        ),
        f"/networks/{network.id}",
    )


@route("GET", "/networks")
def list_networks(call: Call) -> Any:
    every = call.world.networks.values()
    return listed("networks", [_network_view(one) for one in every])


@route("GET", "/networks/{network}")
def get_network(call: Call) -> Any:
    return _network_view(known(call.world.networks, call.ids["network"]))


@route(
    "POST",
    "/networks",
    root="network",
    fields=("mtu", "usages.usage", "vlan.id"),
    wants=("name", "data_center.id"),
)
def add_network(call: Call) -> Any:
    world, sent = call.world, call.body
    data_center = sent.data_center.id
    if data_center not in world.data_centers:
        raise Refusal(400, "Cannot add Network. The Data Center does not exist.")
    vlan = sent.vlan.id if sent.vlan else None
    # Network.java:56-57; outside, it is 400.
    assert vlan is None or 0 <= vlan <= 4094
    if 0 < (sent.mtu or 0) < 68 and world.does(MTU):
        raise Refusal(400, "MTU must be 0 or at least 68.")
    _check_name(world, sent.name, data_center)
    network = SimNetwork(new_id(), sent.name, data_center, mtu=sent.mtu or 0, vlan=vlan)
    network.vm = world.does(FOR_VMS)
    if sent.usages is not None:
        network.vm = types.NetworkUsage.VM in sent.usages
    world.networks[network.id] = network
    _say(call, 942, f"Finished adding Network {network.name}", data_center)
    return created(_network_view(network))


@route("DELETE", "/networks/{network}")
def remove_network(call: Call) -> Any:
    world = call.world
    network = known(world.networks, call.ids["network"])
    for cluster in world.clusters.values():
        if network.id in cluster.networks:
            _take_out(world, cluster, network.id)
    del world.networks[network.id]
    _say(call, 944, f"Finished Network {network.name} removal", network.data_center)
    return None


def _check_name(world: World, name: str, data_center: str) -> None:
    # Bean validation comes first.
    if len(name) > 256:
        raise Refusal(400, "Network name must be 1-256 long")
    if name.lower().startswith("bond") and world.does(NO_BOND):
        raise Refusal(400, "Bad network name, network cannot start with 'bond'")
    used = {(one.data_center, one.name) for one in world.networks.values()}
    if (data_center, name) in used and world.does(NAME_IN_USE):
        raise Refusal(
            409,
            f"Cannot add Network. The name of the logical network '{name}' is "
            "already used by an existing logical network in the same data-center.",
        )


def _say(call: Call, code: int, sentence: str, data_center: Optional[str]) -> None:
    call.world.log.record(
        code,
        "normal",
        sentence,
        data_center=data_center,
        correlation_id=call.correlation_id,
    )


# -- in clusters

_CLUSTER = "bll/network/cluster"
REQUIRED = behaviour(
    "NET-11",
    "A network that is added to a cluster is required, unless the request says no.",
    "common/businessentities/network/NetworkCluster.java:27-29",
)
ONCE = behaviour(
    "NET-12",
    "A network is put into a cluster once: 409.",
    f"{_CLUSTER}/AttachNetworkToClusterInternalCommand.java:99-105",
)
LEFT_ON_HOSTS = behaviour(
    "NET-16",
    "A network that leaves a cluster stays on its hosts, unmanaged.",
    f"{_CLUSTER}/DetachNetworkFromClusterInternalCommand.java:48-53",
    f"{_CLUSTER}/NetworkClusterHelper.java:51-54",
)

MANAGED_AGAIN = behaviour(
    "NET-38",
    "A network that comes into a cluster is managed on the hosts that carry it: an "
    "attachment is made of what they have.",
    f"{_CLUSTER}/AttachNetworkToClusterInternalCommand.java:133-142",
)

# The API's order (NetworkMapper.java).
_ROLES = ("display", "migration", "management", "default_route", "gluster")


@followed("clusters", "networks")
def networks_of(world: World, cluster: SimCluster) -> list[types.Network]:
    """Return the cluster's networks as the API shows them below the cluster."""
    return [_shown(world, cluster, row) for row in cluster.networks.values()]


def _shown(world: World, cluster: SimCluster, row: SimClusterNetwork) -> types.Network:
    network = world.networks[row.network]
    result = _network_view(network)
    with_href(result, f"/clusters/{cluster.id}/networks/{network.id}")
    result.cluster = types.Cluster(id=cluster.id)
    result.required = row.required
    result.display = "display" in row.usages
    usages = [*(["vm"] if network.vm else []), *(r for r in _ROLES if r in row.usages)]
    result.usages = [types.NetworkUsage(word) for word in usages]
    result.status = types.NetworkStatus.OPERATIONAL
    return result


@route("GET", "/clusters/{cluster}/networks")
def list_networks_of_cluster(call: Call) -> Any:
    cluster = known(call.world.clusters, call.ids["cluster"])
    return listed("networks", networks_of(call.world, cluster))


@route(
    "POST",
    "/clusters/{cluster}/networks",
    root="network",
    fields=("id", "required", "usages.usage"),
)
def attach(call: Call) -> Any:
    world, sent = call.world, call.body
    cluster = known(world.clusters, call.ids["cluster"])
    network = known(world.networks, sent.id)
    if network.data_center != cluster.data_center:
        raise Missing(network.id)
    if network.id in cluster.networks and world.does(ONCE):
        raise Refusal(409, "Logical Network is already attached to Cluster.")
    otherwise = world.does(REQUIRED)
    required = otherwise if sent.required is None else sent.required
    row = cluster.networks[network.id] = SimClusterNetwork(network.id, required)
    for host in world.hosts.values() if world.does(MANAGED_AGAIN) else ():
        if host.cluster == cluster.id:
            _manage(host, network)
    _say(call, 946, f"Network {network.name} attached to Cluster {cluster.name}", None)
    return created(_shown(world, cluster, row))


@route("DELETE", "/clusters/{cluster}/networks/{network}")
def detach(call: Call) -> Any:
    world = call.world
    cluster = known(world.clusters, call.ids["cluster"])
    row = known(cluster.networks, call.ids["network"])
    name = world.networks[row.network].name
    _take_out(world, cluster, row.network)
    _say(call, 948, f"Network {name} detached from Cluster {cluster.name}", None)
    return None


def _take_out(world: World, cluster: SimCluster, network: str) -> None:
    """Remove a network from a cluster; hosts keep it, unmanaged from now on."""
    del cluster.networks[network]
    name = world.networks[network].name
    for host in world.hosts.values():
        if host.cluster != cluster.id:
            continue
        for one in [each for each in host.attachments if each.network == network]:
            host.attachments.remove(one)
            if not world.does(LEFT_ON_HOSTS):
                nic = nic_by_id(host, one.nic)
                nic.address, nic.mtu = None, min(1500, nic.max_mtu)
                continue
            host.more.setdefault("unmanaged", {})[name] = one.nic


def _manage(host: SimHost, network: SimNetwork) -> None:
    """Make an attachment of a network that is on a host already."""
    on = host.more.get("unmanaged", {}).pop(network.name, None)
    if on is None:
        return
    nic = nic_by_id(host, on)
    made = SimAttachment(new_id(f"{host.id} {network.id}"), network.id, nic.id)
    made.addresses = [address_of(nic, v6=False)]
    if nic.boot_protocol_v6 != "none":
        made.addresses.append(address_of(nic, v6=True))
    host.attachments.append(made)
