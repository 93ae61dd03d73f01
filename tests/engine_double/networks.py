# SPDX-License-Identifier: GPL-2.0-or-later
"""The logical networks of the double's data centers."""

from __future__ import annotations

import contextlib
import re
from typing import Any, Optional

from ovirtsdk4 import types

from engine_double import cluster_networks
from engine_double.answers import Refusal, Unknown, created, listed
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimHost
from engine_double.routing import Call, known, route
from engine_double.search_words import matching
from engine_double.setup_networks import free, synchronise
from engine_double.views import followed, with_href
from engine_double.world import SimDataCenter, SimNetwork, World, new_id

_VALIDATOR = "bll/validator/NetworkValidator.java"
COMPLETE = behaviour(
    "NET-01",
    "A network that is added requires a name and a data center: 400, Incomplete "
    "parameters; a data center of a name that there is not: 404 with a fault.",
    "restapi/resource/BackendNetworksResource.java:97-116",
)
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
VLAN = behaviour(
    "NET-06",
    "A VLAN's number is from 0 to 4094: 400.",
    "common/businessentities/network/Network.java:56-58",
)
RENAMED = behaviour(
    "NET-08",
    "A network that hosts have cannot be renamed: 409.",
    "bll/network/dc/UpdateNetworkCommand.java:309-318",
)
ON_HOSTS = behaviour(
    "NET-09",
    "A change of a network is brought to the hosts that have it; where that fails, the "
    "change stays and the host is out of sync.",
    "bll/network/dc/UpdateNetworkCommand.java:149-157",
)
NAME_ON_HOSTS = behaviour(
    "NET-10",
    "A network whose name no netdev can have gets another on hosts: vdsm_name.",
    "utils/NetworkUtils.java:244-253",
)

_LEAST_MTU = 68
# Names that a host supports; others get a vdsm_name of their own.
_ON_HOSTS = re.compile(r"[0-9a-zA-Z_-]{1,15}\Z")
_FIELDS = (
    "name",
    "description",
    "comment",
    "mtu",
    "vlan.id",
    "usages.usage",
)


def shown(world: World, network: SimNetwork) -> types.Network:
    """A network as the API shows it outside clusters."""
    good = _ON_HOSTS.match(network.name) or not world.does(NAME_ON_HOSTS)
    return with_href(
        types.Network(
            id=network.id,
            name=network.name,
            description=network.description,
            comment=network.comment,
            data_center=types.DataCenter(id=network.data_center),
            mtu=network.mtu,
            stp=False,
            port_isolation=False,
            usages=[types.NetworkUsage.VM] if network.vm else [],
            vlan=None if network.vlan is None else types.Vlan(id=network.vlan),
            vdsm_name=network.name if good else f"on{network.id.replace('-', '')[:13]}",
        ),
        f"/networks/{network.id}",
    )


@followed("datacenters", "networks")
def networks_of(world: World, data_center: SimDataCenter) -> list[types.Network]:
    """The networks of a data center."""
    every = world.networks.values()
    return [shown(world, one) for one in every if one.data_center == data_center.id]


@route("GET", "/networks", query=("max", "search", "case_sensitive"))
def list_networks(call: Call) -> Any:
    world = call.world
    fields = {
        "name": lambda one: one.name,
        "id": lambda one: one.id,
        "datacenter": lambda one: world.data_centers[one.data_center].name,
    }
    every = world.networks.values()
    found = matching(call.query.get("search", ""), every, fields)
    return listed("networks", [shown(world, one) for one in call.first(found)])


@route("GET", "/datacenters/{dc}/networks", query=("max",))
def list_networks_of_data_center(call: Call) -> Any:
    data_center = known(call.world.data_centers, call.ids["dc"])
    return listed("networks", call.first(networks_of(call.world, data_center)))


@route("GET", "/networks/{network}")
def get_network(call: Call) -> Any:
    return shown(call.world, known(call.world.networks, call.ids["network"]))


@route(
    "POST",
    "/networks",
    root="network",
    fields=(*_FIELDS, "data_center.id", "data_center.name"),
)
def add_network(call: Call) -> Any:
    sent = call.body.data_center
    missing = [] if call.body.name else ["name"]
    if sent is None or not (sent.id or sent.name):
        missing.append("dataCenter.name|id")
    if missing and call.world.does(COMPLETE):
        raise _incomplete(*missing)
    for data_center in call.world.data_centers.values() if sent else ():
        if data_center.id == sent.id if sent.id else data_center.name == sent.name:
            return _add(call, data_center.id)
    if sent and sent.id:
        raise Refusal(400, "Cannot add Network. The Data Center does not exist.")
    if not call.world.does(COMPLETE):
        return _add(call, next(iter(call.world.data_centers)))
    raise Unknown(f"Datacenter: name={sent.name}")


def _incomplete(*missing: str) -> Refusal:
    return Refusal(
        400,
        f"Network [{', '.join(missing)}] required for add",
        reason="Incomplete parameters",
    )


@route("POST", "/datacenters/{dc}/networks", root="network", fields=_FIELDS)
def add_network_to_data_center(call: Call) -> Any:
    found = known(call.world.data_centers, call.ids["dc"])
    if not call.body.name:
        raise _incomplete("name")
    return _add(call, found.id)


@route("PUT", "/networks/{network}", root="network", fields=_FIELDS)
def update_network(call: Call) -> Any:
    """Change it, also on all hosts that have it; those that cannot stay out of sync."""
    world, sent = call.world, call.body
    network = known(world.networks, call.ids["network"])
    _check(call, network.data_center, network)
    on = [
        host
        for host in world.hosts.values()
        if any(one.network == network.id for one in host.attachments)
    ]
    if on and sent.name not in (None, network.name) and world.does(RENAMED):
        names = ", ".join(host.name for host in on)
        raise Refusal(409, f"Cannot edit Network. Hosts use it: {names}.")
    as_before = {"bridged": network.vm, "vlan": network.vlan}
    _take(world, network, sent)
    for host in on if world.does(ON_HOSTS) else ():
        mine = [one for one in host.attachments if one.network == network.id]
        for one in mine:
            one.actual = {**as_before, **one.actual}
        with contextlib.suppress(Refusal):
            synchronise(world, host, {one.id for one in mine})
    _say(call, 1114, f"Finished Network {network.name} update", network.data_center)
    return shown(world, network)


@route("DELETE", "/networks/{network}")
def remove_network(call: Call) -> Any:
    world = call.world
    network = known(world.networks, call.ids["network"])
    inside = [c for c in world.clusters.values() if network.id in c.networks]
    management = any("management" in c.networks[network.id].usages for c in inside)
    if management and world.does(cluster_networks.MANAGEMENT_STAYS):
        raise Refusal(
            400,
            f"The Management Network ('{network.name}') is mandatory and cannot be "
            "removed.",
        )
    for cluster in inside:
        cluster_networks.take_out(world, cluster, network.id)
    del world.networks[network.id]
    _say(call, 944, f"Finished Network {network.name} removal", network.data_center)
    return None


@route("GET", "/hosts/{host}/unmanagednetworks", query=("max",))
def list_unmanaged(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    return listed("unmanaged_networks", call.first(unmanaged_of(call.world, host)))


@route("DELETE", "/hosts/{host}/unmanagednetworks/{network}")
def remove_unmanaged(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    unmanaged = host.more.get("unmanaged", {})
    free(call.world, host, known(unmanaged, call.ids["network"]))
    del unmanaged[call.ids["network"]]
    return None


@followed("hosts", "unmanaged_networks")
def unmanaged_of(world: World, host: SimHost) -> list[types.UnmanagedNetwork]:
    """Return the networks on the host that the engine does not know."""
    return [
        with_href(
            types.UnmanagedNetwork(
                id=name,
                name=name,
                host=types.Host(id=host.id),
                host_nic=types.HostNic(id=nic),
            ),
            f"/hosts/{host.id}/unmanagednetworks/{name}",
        )
        for name, nic in host.more.get("unmanaged", {}).items()
    ]


def _add(call: Call, data_center: str) -> Any:
    world = call.world
    _check(call, data_center, None)
    network = SimNetwork(new_id(), call.body.name or "", data_center)
    network.vm = world.does(FOR_VMS)
    _take(world, network, call.body)
    world.networks[network.id] = network
    _say(call, 942, f"Finished adding Network {network.name}", data_center)
    return created(shown(world, network))


def _take(world: World, network: SimNetwork, sent: Any) -> None:
    for name in ("name", "description", "comment", "mtu"):
        if getattr(sent, name) is not None:
            setattr(network, name, getattr(sent, name))
    if sent.vlan is not None:
        network.vlan = sent.vlan.id
    if sent.usages is not None:
        network.vm = types.NetworkUsage.VM in sent.usages


def _check(call: Call, data_center: str, itself: Optional[SimNetwork]) -> None:
    world, sent = call.world, call.body
    name = sent.name if sent.name is not None else itself.name if itself else ""
    # Bean validation comes first.
    if len(name) > 256:
        raise Refusal(400, "Network name must be 1-256 long")
    small = sent.mtu is not None and sent.mtu != 0 and sent.mtu < _LEAST_MTU
    if small and world.does(MTU):
        raise Refusal(400, f"MTU must be 0 or at least {_LEAST_MTU}.")
    tag = sent.vlan.id if sent.vlan is not None else 0
    if not 0 <= tag <= 4094 and world.does(VLAN):
        raise Refusal(400, "VLAN ID must be a number between 0 and 4094.")
    if name.lower().startswith("bond") and world.does(NO_BOND):
        raise Refusal(400, "Bad network name, network cannot start with 'bond'")
    for other in world.networks.values() if world.does(NAME_IN_USE) else ():
        same = (other.data_center, other.name) == (data_center, name)
        if same and other is not itself:
            raise Refusal(
                409,
                f"Cannot add Network. The name of the logical network '{name}' is "
                "already used by an existing logical network in the same data-center.",
            )


def _say(call: Call, code: int, sentence: str, data_center: str) -> None:
    call.world.log.record(
        code,
        "normal",
        sentence,
        data_center=data_center,
        correlation_id=call.correlation_id,
    )
