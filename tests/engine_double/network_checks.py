# SPDX-License-Identifier: GPL-2.0-or-later
"""What the engine checks of a setupnetworks call before it asks the host.

HostSetupNetworksValidator.java of ovirt-engine 4.5.7, in its order; HTTP codes by
EngineMessage.java. The wording is ours.
"""

from __future__ import annotations

import ipaddress
import re
from typing import Any, Optional

from engine_double.answers import Refusal
from engine_double.host_nics import in_sync, is_management, mtu_of
from engine_double.hosts_of_the_world import SimAttachment, SimHost, SimNic
from engine_double.world import SimNetwork, World

USER_PROPERTIES = "UserDefinedNetworkCustomProperties"
_BOND_NAME = re.compile(r"bond[a-zA-Z0-9_]{1,11}\Z")
# HostValidator.java.
_STATUSES = ("maintenance", "up", "non_operational")
# PreDefinedNetworkCustomProperties; the first only on bridges.
_PREDEFINED = {"bridge_opts": r"[^\s=]+=[^\s=]+(\s+[^\s=]+=[^\s=]+)*"}
# HostSetupNetworksParameters.java: seconds.
_TIMEOUTS_S = range(1, 121)


def refused(status: int, what: str) -> Refusal:
    return Refusal(status, f"Cannot setup Networks. {what}")


def check_host(host: SimHost) -> None:
    if host.status not in _STATUSES:
        raise refused(
            409,
            "Operation can be performed only when Host status is "
            "Maintenance, Up, NonOperational.",
        )


def check_timeout(seconds: Optional[int]) -> None:
    if seconds is not None and seconds not in _TIMEOUTS_S:
        raise refused(400, "The connectivity timeout is from 1 to 120 seconds.")


def check_addresses(
    sent: Any, network: SimNetwork, nic: str
) -> list[tuple[str, Optional[str], Optional[str]]]:
    """The assignments of an attachment: (method, address, netmask or prefix)."""
    found = []
    where = f"Network {network.name}, Interface {nic}"
    for one in sent:
        if one.assignment_method is None:
            raise Refusal(400, f"Boot protocol is missing: {where}.")
        method = one.assignment_method.value
        address = one.ip.address if one.ip else None
        netmask = one.ip.netmask if one.ip else None
        if method != "static":
            if address or netmask:
                raise Refusal(400, f"Incompatible ip configuration: {where}.")
        elif not address or not netmask:
            raise Refusal(400, f"Must define ip address and netmask: {where}.")
        else:
            _check_address(address, netmask, where)
            named = one.ip.version.value if one.ip.version else "v4"
            if named != f"v{ipaddress.ip_address(address).version}":
                raise Refusal(400, f"Bad IP address {address}: {where}.")
        found.append((method, address, netmask))
    return found


def _check_address(address: str, netmask: str, where: str) -> None:
    try:
        version = ipaddress.ip_address(address).version
        if version == 6:
            good = netmask.isdecimal() and int(netmask) <= 128
        else:
            ipaddress.ip_network(f"0.0.0.0/{netmask}")
            good = "." in netmask or netmask.isdecimal()
    except ValueError:
        good = False
    if not good:
        raise Refusal(400, f"Bad IP address {address} or mask {netmask}: {where}.")


def check_properties(
    world: World, host: SimHost, network: SimNetwork, properties: dict[str, str]
) -> None:
    """Each custom property must be declared for the cluster's level, and match."""
    version = world.clusters[host.cluster].version
    declared = dict(_PREDEFINED) if network.vm else {}
    text = world.options.get((USER_PROPERTIES, version), "")
    declared.update(part.split("=", 1) for part in text.split(";") if "=" in part)
    for name, value in properties.items():
        if name not in declared or not re.fullmatch(declared[name], value):
            raise refused(
                400,
                "Some network custom properties contained errors (bad syntax, "
                "non-existing keys or invalid values), please take a closer look at "
                f"the following network(s): {network.name}. Refer to the engine log "
                "for further details.",
            )


def check_bond(bond: SimNic, nics: list[SimNic], used: dict[str, int]) -> None:
    """A new or changed bond; ``used`` counts the nics in all bonds of the request."""
    if not _BOND_NAME.match(bond.name):
        raise Refusal(400, f"Bond name '{bond.name}' does not follow naming criteria.")
    by_name = {nic.name: nic for nic in nics}
    before = by_name.get(bond.name)
    if before is not None and not before.ports:
        raise refused(409, f"The network interface '{bond.name}' is not a bond.")
    if len(bond.ports) < 2:
        raise refused(
            400,
            "The following bonds consist of less than two Network Interfaces: "
            f"{bond.name}.",
        )
    for port in bond.ports:
        if port not in by_name:
            raise refused(
                400, f"The host network interface (name {port}) does not exist."
            )
        if by_name[port].ports:
            raise refused(409, f"Network Interface '{port}' cannot be slave.")
        other = next((n for n in nics if port in n.ports and n.name != bond.name), None)
        if other is not None:
            raise Refusal(
                409, f"Network Interface '{port}' already belongs to the bond."
            )
        if used[port] > 1:
            raise refused(409, f"Network interface '{port}' is used multiple times.")


def check_all_attachments(
    world: World, host: SimHost, nics: list[SimNic], wanted: list[SimAttachment]
) -> None:
    """What has to be true of all networks on the host together."""
    names = {nic.id: nic.name for nic in nics}
    ports = {port for nic in nics for port in nic.ports}
    networks = [one.network for one in wanted]
    for name in {n for n in networks if networks.count(n) > 1}:
        raise refused(
            409,
            "The following Logical Networks are attached to more than one Network "
            f"Interface: {world.networks[name].name}.",
        )
    for nic, name in names.items():
        on_it = [world.networks[one.network] for one in wanted if one.nic == nic]
        if name in ports and on_it:
            raise refused(
                409,
                f"Network Interface '{name}' cannot become slave, there's network "
                f"'{on_it[0].name}' attached to it.",
            )
        untagged = [one for one in on_it if one.vlan is None]
        if len(untagged) > 1:
            raise refused(
                409,
                "At most one VLAN-untagged Logical Network is allowed on a NIC "
                "(optionally in conjunction with several VLAN Logical Networks). The "
                f"following Network Interfaces violate that rule: {name}.",
            )
        mtus = {mtu_of(one) for one in on_it if one.vlan is not None or not one.vm}
        if untagged and not untagged[0].vm and len(mtus) > 1:
            raise refused(
                409,
                "The following Logical Networks do not have the same MTU value: "
                f"{', '.join(one.name for one in on_it)}.",
            )


def check_in_cluster(world: World, host: SimHost, network: SimNetwork) -> None:
    if network.id not in world.clusters[host.cluster].networks:
        raise Refusal(
            400, f"Logical Network '{network.name}' does not exist in Cluster."
        )


def check_role(world: World, host: SimHost, one: SimAttachment) -> None:
    """A network with a role needs an address on each host."""
    row = world.clusters[host.cluster].networks[one.network]
    roles = row.usages & {"migration", "display", "gluster", "default_route"}
    if roles and not any(method != "none" for method, _, _ in one.addresses):
        raise refused(
            409,
            "Role (migration/display/gluster/default-route) network "
            f"'{world.networks[one.network].name}' has no boot protocol assigned.",
        )


def check_synchronised(world: World, host: SimHost, one: SimAttachment) -> None:
    """``one`` as it was: a changed network has to be in sync, or be synchronised."""
    if not in_sync(world, host, one):
        raise refused(
            409,
            "The following Network definitions on the Network Interface are different "
            "than those on the Logical Network. Please synchronize the Network "
            f"Interface before editing network {world.networks[one.network].name}.",
        )


def check_removal(world: World, host: SimHost, one: SimAttachment) -> None:
    if is_management(world, host, one.network):
        name = world.networks[one.network].name
        raise Refusal(
            400,
            f"The Management Network ('{name}') is mandatory and cannot be removed.",
        )
