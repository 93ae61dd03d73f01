# SPDX-License-Identifier: GPL-2.0-or-later
"""Check a setupnetworks call as the engine does before it asks the host.

HTTP codes by EngineMessage.java; the wording is ours.
"""

from __future__ import annotations

import ipaddress
import re
from collections import Counter
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Optional

from engine_double.answers import Refusal
from engine_double.behaviours import behaviour
from engine_double.host_nics import in_sync, is_management, mtu_of
from engine_double.world import SimAssignment, SimAttachment, SimHost, SimNic, World

if TYPE_CHECKING:
    from engine_double.setup_networks import Asked

_HOST = "bll/network/host"
_SETUP = f"{_HOST}/HostSetupNetworksValidator.java"
_ATTACHMENT = "bll/validator/NetworkAttachmentValidator.java"
STATUS = behaviour(
    "NET-21",
    "The networks of a host are set up only while it is Maintenance, Up or "
    "NonOperational: 409.",
    f"{_HOST}/HostValidator.java:18-57",
)
TIMEOUT = behaviour(
    "NET-22",
    "The connectivity timeout is from 1 to 120 seconds: 400, before the host's status "
    "is looked at.",
    "common/action/HostSetupNetworksParameters.java:44-46",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:731",
)
ADDRESS_FORM = behaviour(
    "NET-23",
    "An address and its mask or prefix must be some of the version that is named: 400.",
    "common/businessentities/network/IPv4Address.java:17-24",
    "common/businessentities/network/IpV6Address.java:19-27",
    "mapper/NetworkAttachmentMapper.java:142-157",
)
ATTACHMENT_THERE = behaviour(
    "NET-24",
    "An attachment that is changed or removed by its id is there: 400; and is not both "
    "changed and removed.",
    f"{_SETUP}:747-776",
    f"{_SETUP}:800-807",
)
IN_CLUSTER = behaviour(
    "NET-26",
    "The network of an attachment is in the host's cluster: 400.",
    f"{_ATTACHMENT}:100-105",
)
ROLE_ADDRESS = behaviour(
    "NET-27",
    "A network with a role in the cluster requires an address on the host: 409.",
    f"{_ATTACHMENT}:107-115",
)
NIC_THERE = behaviour(
    "NET-28",
    "The nic of an attachment is one of the host, or a bond of the call: 400.",
    f"{_SETUP}:782-798",
)
SAME_NETWORK = behaviour(
    "NET-29",
    "An attachment keeps its network: 400 for another one.",
    f"{_ATTACHMENT}:122-129",
)
ADDRESS_COMPLETE = behaviour(
    "NET-30",
    "An address has a boot protocol; a static one address and mask, and only a static "
    "one; one of IPv6 a gateway only in the network with the default route, if the "
    "host has that: 400.",
    "bll/validator/network/NetworkAttachmentIpConfigurationValidator.java:53-141",
)
MANAGEMENT = behaviour(
    "NET-31",
    "The management network is not taken off a host: 400.",
    f"{_SETUP}:819",
    "bll/validator/NetworkValidator.java:159-164",
)
ONE_UNTAGGED = behaviour(
    "NET-33",
    "A nic carries one network without a VLAN at most: 409.",
    "bll/validator/NetworkAttachmentsValidator.java:46-57",
    "bll/validator/network/VlanUntaggedNetworkExclusivenessValidator.java:30-39",
)
SAME_MTU = behaviour(
    "NET-34",
    "Where a nic carries a network without a VLAN, all networks on it have its MTU: "
    "409.",
    f"{_HOST}/NetworkMtuValidator.java:34-87",
)
PROPERTIES = behaviour(
    "NET-35",
    "A custom property is declared for the cluster's level, and matches: 400; "
    "bridge_opts is there for networks of virtual machines.",
    f"{_SETUP}:936-970",
    "dbscripts/upgrade/pre_upgrade/0000_config.sql:760-761",
)
SYNCHRONISED = behaviour(
    "NET-36",
    "A network that is out of sync cannot be changed on the host, unless the call "
    "synchronises it: 409.",
    f"{_HOST}/HostSetupNetworksCommand.java:444-496",
)

UNMANAGED = behaviour(
    "NET-37",
    "Nothing is put on a nic, or on a bond of it, that carries an unmanaged network: "
    "400.",
    f"{_HOST}/UnmanagedNetworkValidator.java:56-67",
    f"{_HOST}/UnmanagedNetworkValidator.java:120-129",
    f"{_SETUP}:624-633",
)

USER_PROPERTIES = "UserDefinedNetworkCustomProperties"
_STATUSES = ("maintenance", "up", "non_operational")
_PREDEFINED = {"bridge_opts": r"[^\s=]+=[^\s=]+(\s+[^\s=]+=[^\s=]+)*"}
_ROLES = {"migration", "display", "gluster", "default_route"}


def refused(status: int, what: str) -> Refusal:
    return Refusal(status, f"Cannot setup Networks. {what}")


def check_host(world: World, host: SimHost) -> None:
    if host.status not in _STATUSES and world.does(STATUS):
        raise refused(
            409,
            "Operation can be performed only when Host status is "
            "Maintenance, Up, NonOperational.",
        )


def check_timeout(world: World, seconds: Optional[int]) -> None:
    wrong = seconds is not None and seconds not in range(1, 121)
    if wrong and world.does(TIMEOUT):
        raise refused(400, "The connectivity timeout is from 1 to 120 seconds.")


def _assignment(one: Any) -> SimAssignment:
    method = one.assignment_method.value if one.assignment_method else ""
    if one.ip is None:
        return SimAssignment(method)
    version = one.ip.version.value if one.ip.version else "v4"
    parts = (one.ip.address, one.ip.netmask, one.ip.gateway)
    return SimAssignment(method, *parts, version == "v6")


def check_form(world: World, sent: Any) -> None:
    """Check the addresses of an attachment, each by itself."""
    for one in sent.ip_address_assignments or []:
        _, address, netmask, gateway, v6 = _assignment(one)
        none, mask = ("::" if v6 else "0.0.0.0"), netmask or "0"
        good = mask.isdecimal() or not v6
        try:
            found = ipaddress.ip_interface(f"{address or none}/0")
            good = good and found.version == (6 if v6 else 4)
            ipaddress.ip_network(f"{none}/{mask}")
            good = (
                good and ipaddress.ip_address(gateway or none).version == found.version
            )
        except ValueError:
            good = False
        if not good and world.does(ADDRESS_FORM):
            bad = f"Bad IP address {address}, mask {netmask} or gateway {gateway}."
            raise Refusal(400, bad)


def addresses(sent: Any) -> list[SimAssignment]:
    """The assignments of an attachment; none of IPv6 is what there is without one."""
    every = [_assignment(one) for one in sent]
    return [one for one in every if (one.v6, one.method) != (True, "none")]


def check_attachment(world: World, host: SimHost, asked: Asked) -> bool:
    """Check what an attachment names: itself, its network and its NIC.

    False: there is nothing to do, and the engine accepts that.
    """
    sent, network = asked.sent, asked.network
    if sent.id and asked.before is None and world.does(ATTACHMENT_THERE):
        raise refused(400, f"Network attachment {sent.id} does not exist.")
    if network is None:
        raise Refusal(400, "The Logical Network of an attachment doesn't exist.")
    inside = network.id in world.clusters[host.cluster].networks
    if not inside and world.does(IN_CLUSTER):
        raise Refusal(
            400, f"Logical Network '{network.name}' does not exist in Cluster."
        )
    if asked.nic is None:
        if not world.does(NIC_THERE):
            return False
        named = f"name {sent.host_nic.name}" if sent.host_nic else "not given"
        raise refused(400, f"The host network interface ({named}) does not exist.")
    before = asked.before
    if before and before.network != network.id and world.does(SAME_NETWORK):
        raise refused(400, "The network of an attachment cannot change.")
    return True


def check_addresses(world: World, host: SimHost, asked: Asked) -> None:
    """Check that the addresses of an attachment are there, and complete."""
    assert asked.one is not None and asked.network is not None
    rows = world.clusters[host.cluster].networks
    row = rows.get(asked.network.id)
    had = (rows.get(one.network) for one in host.attachments)
    routed = any(each and "default_route" in each.usages for each in had)
    routed = routed and not (row and "default_route" in row.usages)
    bare = all(each.method == "none" for each in asked.one.addresses)
    if row and row.usages & _ROLES and bare and world.does(ROLE_ADDRESS):
        raise refused(409, f"{asked.network.name} has no boot protocol assigned.")
    for one in asked.sent.ip_address_assignments or []:
        method, address, netmask, gateway, v6 = _assignment(one)
        what = ""
        if not method:
            what = "Boot protocol is missing"
        elif method == "static" and not (address and netmask):
            what = "Must define ip address and netmask"
        elif gateway and v6 and routed:
            what = "IPv6 gateway, and not the default route"
        elif method != "static" and (address or netmask or gateway):
            what = "Incompatible ip configuration"
        if what and world.does(ADDRESS_COMPLETE):
            raise Refusal(400, f"{what}: Network {asked.network.name}.")


def check_removal(
    world: World, host: SimHost, found: Optional[SimAttachment], name: str
) -> None:
    if found is None:
        if world.does(ATTACHMENT_THERE):
            raise refused(
                400,
                "Cannot remove following Network Attachments, because they do not "
                f"exist: {name}.",
            )
    elif is_management(world, host, found.network) and world.does(MANAGEMENT):
        named = world.networks[found.network].name
        raise Refusal(
            400,
            f"The Management Network ('{named}') is mandatory and cannot be removed.",
        )


def check_not_both(world: World, asked: Sequence[Asked], action: Any) -> None:
    gone = {one.id for one in action.removed_network_attachments or []}
    for each in asked:
        both = each.before is not None and each.before.id in gone
        if both and world.does(ATTACHMENT_THERE):
            raise refused(400, "An attachment is both changed and removed.")


def check_all_attachments(
    world: World, nics: Sequence[SimNic], wanted: Sequence[SimAttachment]
) -> None:
    """Check all networks on the host together."""
    for nic in nics:
        on_it = [world.networks[one.network] for one in wanted if one.nic == nic.id]
        untagged = [one for one in on_it if one.vlan is None]
        if len(untagged) > 1 and world.does(ONE_UNTAGGED):
            raise refused(
                409,
                "At most one VLAN-untagged Logical Network is allowed on a NIC "
                "(optionally in conjunction with several VLAN Logical Networks). The "
                f"following Network Interfaces violate that rule: {nic.name}.",
            )
        mtus = {mtu_of(one) for one in on_it}
        if untagged and len(mtus) > 1 and world.does(SAME_MTU):
            raise refused(
                409,
                "The following Logical Networks do not have the same MTU value: "
                f"{', '.join(one.name for one in on_it)}.",
            )


def check_properties(world: World, host: SimHost, asked: Asked) -> None:
    """Each custom property must be declared for the cluster's level, and match."""
    network, one = asked.network, asked.one
    assert network is not None and one is not None
    version = world.clusters[host.cluster].version
    declared = dict(_PREDEFINED) if network.vm else {}
    text = world.options.get((USER_PROPERTIES, version), "")
    for part in text.split(";"):
        named, sign, pattern = part.partition("=")
        declared.update({named: pattern} if sign else {})
    for name, value in one.properties.items() if world.does(PROPERTIES) else ():
        if name not in declared or not re.fullmatch(declared[name], value):
            raise refused(
                400,
                "Some network custom properties contained errors (bad syntax, "
                "non-existing keys or invalid values), please take a closer look at "
                f"the following network(s): {network.name}. Refer to the engine log "
                "for further details.",
            )


def check_unmanaged(
    world: World, host: SimHost, changed: Sequence[Asked], made: Sequence[SimNic]
) -> None:
    ports = {port for bond in made for port in bond.ports}
    taken = {each.nic.id for each in changed if each.nic is not None}
    taken |= {nic.id for nic in host.nics if nic.name in ports}
    for name, nic in host.more.get("unmanaged", {}).items():
        if nic in taken and world.does(UNMANAGED):
            raise refused(400, f"A nic carries the unmanaged network {name}.")


def check_synchronised(world: World, host: SimHost, one: SimAttachment) -> None:
    """Check ``one`` before the call: it must be in sync or synchronised to change."""
    if not in_sync(world, host, one) and world.does(SYNCHRONISED):
        raise refused(
            409,
            "The following Network definitions on the Network Interface are different "
            "than those on the Logical Network. Please synchronize the Network "
            f"Interface before editing network {world.networks[one.network].name}.",
        )


# -- bonds

NAME = behaviour(
    "NET-41",
    "A bond's name is 'bond' and letters, digits or '_': 400; one of a nic that is no "
    "bond: 409.",
    f"{_SETUP}:501-517",
    "common/businessentities/BusinessEntitiesDefinitions.java:52",
)
TWO_PORTS = behaviour(
    "NET-42", "A bond has two ports at least: 400.", f"{_SETUP}:519-525"
)
PORTS = behaviour(
    "NET-43",
    "The port of a bond is there (400), is no bond, is in no other bond, and carries "
    "no network (409).",
    f"{_SETUP}:536-587",
    f"{_SETUP}:607-622",
)
IN_USE = behaviour(
    "NET-45",
    "A bond that carries a network is not removed: 409.",
    f"{_SETUP}:388-400",
)
_NAME = re.compile(r"bond\w+\Z", re.ASCII)


def check_new_bonds(
    world: World,
    made: Sequence[SimNic],
    nics: Sequence[SimNic],
    attachments: Sequence[SimAttachment],
) -> None:
    """Check new and changed bonds; ``attachments`` are all those after the call."""
    used = Counter(port for bond in made for port in bond.ports)
    for bond in made:
        _check_name(world, bond, nics)
        if len(bond.ports) < 2 and world.does(TWO_PORTS):
            raise refused(400, f"{bond.name} has less than two Network Interfaces.")
        for port in bond.ports if world.does(PORTS) else ():
            _check_port(port, made, nics, attachments, used)


def _check_name(world: World, bond: SimNic, nics: Sequence[SimNic]) -> None:
    if not bond.name:
        raise Refusal(400, "Bond has neither an id nor a name.")
    if not world.does(NAME):
        return
    if not _NAME.match(bond.name) or len(bond.name) > 50:
        raise Refusal(400, f"Bond name '{bond.name}' does not follow naming criteria.")
    if any(nic.name == bond.name and not nic.ports for nic in nics):
        raise refused(409, f"The network interface '{bond.name}' is not a bond.")


def _check_port(
    port: str,
    made: Sequence[SimNic],
    nics: Sequence[SimNic],
    attachments: Sequence[SimAttachment],
    used: Counter[str],
) -> None:
    found = next((nic for nic in nics if nic.name == port), None)
    if found is None:
        raise refused(400, f"The host network interface (name {port}) does not exist.")
    if found.ports:
        raise refused(409, f"Network Interface '{port}' cannot be slave.")
    changed = {each.name for each in made}
    for other in nics:
        if port in other.ports and other.name not in changed:
            raise Refusal(
                409, f"Network Interface '{port}' already belongs to the bond."
            )
    if any(one.nic == found.id for one in attachments):
        raise refused(
            409,
            f"Network Interface '{port}' cannot become slave, there's a network "
            "attached to it.",
        )
    if used[port] > 1:
        raise refused(409, f"Network interface '{port}' is used multiple times.")


def removed_bonds(
    world: World,
    action: Any,
    nics: Sequence[SimNic],
    attachments: Sequence[SimAttachment],
) -> list[SimNic]:
    """Return the bonds that a call removes, by their names."""
    gone = []
    for sent in action.removed_bonds or []:
        found = next((nic for nic in nics if nic.name == sent.name), None)
        if found is None:
            raise Refusal(400, f"Following bonds do not exist: {sent.name}.")
        if not found.ports:
            raise refused(409, f"'{found.name}' is not a bond.")
        if any(a.nic == found.id for a in attachments) and world.does(IN_USE):
            raise refused(409, f"{found.name} is used by an attachment.")
        gone.append(found)
    return gone
