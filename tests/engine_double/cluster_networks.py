# SPDX-License-Identifier: GPL-2.0-or-later
"""The networks of a cluster: which are required, and which have a role.

UpdateNetworkOnClusterCommand.java of ovirt-engine 4.5.7.
"""

from __future__ import annotations

from typing import Any

from ovirtsdk4 import types

from engine_double.answers import Missing, Refusal, created, listed
from engine_double.required_networks import set_operational
from engine_double.routing import Call, known, route
from engine_double.views import followed, with_href
from engine_double.world import SimCluster, SimClusterNetwork, SimNetwork, World

# The API's order (NetworkMapper.java).
_ROLES = ("display", "migration", "management", "default_route", "gluster")
# One network of a cluster has each of these; it falls back to the management network.
_ONE_EACH = ("display", "migration", "default_route")


@followed("clusters", "networks")
def networks_of(world: World, cluster: SimCluster) -> list[types.Network]:
    """The cluster's networks as the API shows them below the cluster."""
    return [_shown(world, cluster, row) for row in cluster.networks.values()]


def _shown(world: World, cluster: SimCluster, row: SimClusterNetwork) -> types.Network:
    from engine_double.networks import shown

    network = world.networks[row.network]
    result = shown(network)
    with_href(result, f"/clusters/{cluster.id}/networks/{network.id}")
    result.cluster = types.Cluster(id=cluster.id)
    result.required = row.required
    result.display = "display" in row.usages
    usages = [*(["vm"] if network.vm else []), *(r for r in _ROLES if r in row.usages)]
    result.usages = [types.NetworkUsage(word) for word in usages]
    status = "operational" if row.operational else "non_operational"
    result.status = types.NetworkStatus(status)
    return result


_FIELDS = ("id", "name", "required", "display", "usages.usage")


@route("GET", "/clusters/{cluster}/networks", query=("max",))
def list_networks(call: Call) -> Any:
    cluster = known(call.world.clusters, call.ids["cluster"])
    return listed("networks", call.first(networks_of(call.world, cluster)))


@route("GET", "/clusters/{cluster}/networks/{network}")
def get_network(call: Call) -> Any:
    cluster = known(call.world.clusters, call.ids["cluster"])
    return _shown(call.world, cluster, known(cluster.networks, call.ids["network"]))


@route("POST", "/clusters/{cluster}/networks", root="network", fields=_FIELDS)
def attach(call: Call) -> Any:
    world, sent = call.world, call.body
    cluster = known(world.clusters, call.ids["cluster"])
    network = _of_data_center(world, cluster, sent)
    if network.id in cluster.networks:
        raise Refusal(409, "Logical Network is already attached to Cluster.")
    # NetworkCluster.java: required unless it is said not to be.
    row = SimClusterNetwork(network.id, sent.required is not False)
    cluster.networks[network.id] = row
    _give_roles(world, cluster, row, sent)
    set_operational(world, cluster, network.id)
    _say(call, 946, f"Network {network.name} attached to Cluster {cluster.name}")
    return created(_shown(world, cluster, row))


@route("PUT", "/clusters/{cluster}/networks/{network}", root="network", fields=_FIELDS)
def update(call: Call) -> Any:
    world, sent = call.world, call.body
    cluster = known(world.clusters, call.ids["cluster"])
    row = known(cluster.networks, call.ids["network"])
    required = row.required if sent.required is None else sent.required
    if "management" in row.usages:
        name = world.networks[row.network].name
        if not required:
            raise Refusal(400, f"The management network '{name}' must be required.")
        if sent.usages is not None and "management" not in _words(sent):
            raise Refusal(400, "Unsetting management network property is not allowed.")
    _give_roles(world, cluster, row, sent)
    row.required = required
    set_operational(world, cluster, row.network)
    return _shown(world, cluster, row)


@route("DELETE", "/clusters/{cluster}/networks/{network}")
def detach(call: Call) -> Any:
    world = call.world
    cluster = known(world.clusters, call.ids["cluster"])
    row = known(cluster.networks, call.ids["network"])
    name = world.networks[row.network].name
    if "management" in row.usages:
        raise Refusal(
            400,
            f"The Management Network ('{name}') is mandatory and cannot be removed.",
        )
    take_out(world, cluster, row.network)
    _say(call, 948, f"Network {name} detached from Cluster {cluster.name}")
    return None


def take_out(world: World, cluster: SimCluster, network: str) -> None:
    """A network leaves a cluster: its roles go to the management network.

    What hosts have of it stays on them, unknown to the engine from now on.
    """
    row = cluster.networks.pop(network)
    for role in row.usages & set(_ONE_EACH):
        _fall_back(cluster, role)
    name = world.networks[network].name
    for host in world.hosts.values():
        if host.cluster != cluster.id:
            continue
        for one in [each for each in host.attachments if each.network == network]:
            host.attachments.remove(one)
            host.more.setdefault("unmanaged", {})[name] = one.nic


def _give_roles(
    world: World, cluster: SimCluster, row: SimClusterNetwork, sent: Any
) -> None:
    if sent.usages is None:
        return
    words = _words(sent) & set(_ROLES)
    if "management" in words - row.usages:
        raise Refusal(
            400, "Changing management network in a non-empty cluster is not allowed."
        )
    if words - row.usages:
        _check_addresses(world, cluster, row)
    for role in (words - row.usages) & {*_ONE_EACH, "gluster"}:
        for other in cluster.networks.values():
            other.usages.discard(role)
    for role in (row.usages - words) & set(_ONE_EACH):
        _fall_back(cluster, role)
    # What the management network falls back to itself, it keeps.
    kept = row.usages & set(_ONE_EACH) if "management" in row.usages else set()
    row.usages = words | kept


def _fall_back(cluster: SimCluster, role: str) -> None:
    for other in cluster.networks.values():
        if "management" in other.usages:
            other.usages.add(role)


def _check_addresses(world: World, cluster: SimCluster, row: SimClusterNetwork) -> None:
    for host in world.hosts.values():
        for one in host.attachments if host.cluster == cluster.id else ():
            if one.network == row.network and not any(
                method != "none" for method, _, _ in one.addresses
            ):
                raise Refusal(
                    400,
                    "Cannot edit Network. IP address has to be set for the NIC that "
                    f"bears a role network. Network: {world.networks[row.network].name}"
                    f" on host {host.name} violates that rule.",
                )


def _words(sent: Any) -> set[str]:
    return {usage.value for usage in sent.usages or []}


def _of_data_center(world: World, cluster: SimCluster, sent: Any) -> SimNetwork:
    if not sent.id and not sent.name:
        raise Refusal(400, "Network [id|name] required for add", reason="Incomplete")
    for network in world.networks.values():
        if network.data_center == cluster.data_center and (
            network.id == sent.id if sent.id else network.name == sent.name
        ):
            if sent.name and sent.name != network.name:
                raise Refusal(400, "Network ID provided does not match the name.")
            return network
    raise Missing(sent.id or sent.name)


def _say(call: Call, code: int, sentence: str) -> None:
    call.world.log.record(code, "normal", sentence, correlation_id=call.correlation_id)
