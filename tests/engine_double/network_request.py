# SPDX-License-Identifier: GPL-2.0-or-later
"""A setupnetworks call read against a host: the nics and networks that are wanted."""

from __future__ import annotations

import copy
from collections import Counter
from dataclasses import dataclass, field
from typing import Any, Optional

from engine_double import network_checks as checks
from engine_double.answers import Missing, Refusal
from engine_double.hosts_of_the_world import SimAttachment, SimHost, SimNic
from engine_double.world import SimNetwork, World, new_id


@dataclass
class Wanted:
    """Nics and attachments as they are to be, and what the call is about.

    ``fresh`` are the ids of attachments to set up, ``left`` of nics that one was taken
    from.
    """

    nics: list[SimNic]
    attachments: list[SimAttachment]
    fresh: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)


def as_it_is(host: SimHost) -> Wanted:
    """The host's networks as a copy that may be changed."""
    return Wanted(copy.deepcopy(host.nics), copy.deepcopy(host.attachments))


def read(action: Any, world: World, host: SimHost) -> Wanted:
    """What a call asks for; raises what the engine refuses it with."""
    wanted = as_it_is(host)
    synchronised = _synchronised(action, host)
    _bonds(action, host, wanted)
    _remove(action, world, host, wanted)
    _attachments(action, world, host, wanted, synchronised)
    wanted.fresh |= synchronised
    checks.check_all_attachments(world, host, wanted.nics, wanted.attachments)
    return wanted


def _synchronised(action: Any, host: SimHost) -> set[str]:
    have = {one.id for one in host.attachments}
    wanted = {one.id for one in action.synchronized_network_attachments or []}
    if wanted - have:
        raise Missing(sorted(wanted - have))
    return wanted


def _nic(wanted: Wanted, sent: Any) -> SimNic:
    """The nic that a body names, by id or by name."""
    for nic in wanted.nics:
        if sent is not None and (
            nic.id == sent.id if sent.id else nic.name == sent.name
        ):
            return nic
    named = f"id {sent.id}, name {sent.name}" if sent is not None else "not given"
    raise checks.refused(400, f"The host network interface ({named}) does not exist.")


def _bonds(action: Any, host: SimHost, wanted: Wanted) -> None:
    for sent in action.removed_bonds or []:
        found = next(
            (n for n in wanted.nics if n.id == sent.id or n.name == sent.name), None
        )
        if found is None:
            raise Refusal(400, f"Following bonds do not exist: {sent.id or sent.name}.")
        if not found.ports:
            raise checks.refused(409, f"'{found.name}' is not a bond.")
        wanted.nics.remove(found)
    new = [_bond(sent, host, wanted) for sent in action.modified_bonds or []]
    used = Counter(port for bond in new for port in bond.ports)
    for bond in new:
        checks.check_bond(bond, wanted.nics, used)
        first = next(nic for nic in wanted.nics if nic.name == bond.ports[0])
        bond.mac, bond.speed_mbps, bond.mtu = first.mac, first.speed_mbps, first.mtu
        before = next((nic for nic in wanted.nics if nic.name == bond.name), None)
        if before is not None:
            bond.id, bond.mtu = before.id, before.mtu
            wanted.nics[wanted.nics.index(before)] = bond
        else:
            wanted.nics.append(bond)


def _bond(sent: Any, host: SimHost, wanted: Wanted) -> SimNic:
    name = sent.name or next((n.name for n in wanted.nics if n.id == sent.id), None)
    if name is None:
        raise Refusal(400, "Bond has neither an id nor a name.")
    bonding = sent.bonding
    slaves = (bonding.slaves if bonding else None) or []
    options = {o.name: o.value for o in (bonding.options if bonding else None) or []}
    return SimNic(
        id=new_id(f"{host.id} {name}"),
        name=name,
        mac="",
        ports=tuple(one.name or _nic(wanted, one).name for one in slaves),
        # HostSetupNetworksCommand.java: mode=4 where none is given.
        bond_mode=options.get("mode", "4"),
    )


def _remove(action: Any, world: World, host: SimHost, wanted: Wanted) -> None:
    for sent in action.removed_network_attachments or []:
        found = next((one for one in wanted.attachments if one.id == sent.id), None)
        if found is None:
            raise checks.refused(
                400,
                "Cannot remove following Network Attachments, because they do not "
                f"exist: {sent.id}.",
            )
        checks.check_removal(world, host, found)
        wanted.attachments.remove(found)
        wanted.left.add(found.nic)
    here = {nic.id for nic in wanted.nics}
    for one in wanted.attachments:
        if one.nic not in here:
            raise checks.refused(409, f"A bond is used by attachment {one.id}.")


def _attachments(
    action: Any,
    world: World,
    host: SimHost,
    wanted: Wanted,
    synchronised: set[str],
) -> None:
    for sent in action.modified_network_attachments or []:
        network = _network(world, host, sent, wanted)
        before = next(
            (
                one
                for one in wanted.attachments
                if (one.id == sent.id if sent.id else one.network == network.id)
            ),
            None,
        )
        if sent.id and before is None:
            raise checks.refused(400, f"Network attachment {sent.id} does not exist.")
        checks.check_in_cluster(world, host, network)
        one = copy.deepcopy(before) if before else None
        if one is None or sent.host_nic is not None:
            nic = _nic(wanted, sent.host_nic)
        else:
            nic = next(n for n in wanted.nics if n.id == one.nic)
        if one is None:
            one = SimAttachment(new_id(f"{host.id} {network.id}"), network.id, nic.id)
            one.addresses = [("none", None, None)]
        one.nic = nic.id
        if sent.ip_address_assignments is not None:
            one.addresses = checks.check_addresses(
                sent.ip_address_assignments, network, nic.name
            )
        if sent.properties is not None:
            one.properties = {each.name: each.value for each in sent.properties}
        checks.check_properties(world, host, network, one.properties)
        checks.check_role(world, host, one)
        if before is None:
            wanted.attachments.append(one)
        elif one == before:
            continue
        else:
            if before.id not in synchronised:
                checks.check_synchronised(world, host, before)
            wanted.attachments[wanted.attachments.index(before)] = one
            if before.nic != one.nic:
                wanted.left.add(before.nic)
        wanted.fresh.add(one.id)


def _network(world: World, host: SimHost, sent: Any, wanted: Wanted) -> SimNetwork:
    """The network that an attachment names, or is of already."""
    if sent.network is None:
        for one in wanted.attachments:
            if sent.id and one.id == sent.id:
                return world.networks[one.network]
        raise checks.refused(400, "There's unset networkId or networkName.")
    name: Optional[str] = sent.network.name
    data_center = world.data_center_of(host)
    for network in world.networks.values():
        if network.data_center != data_center:
            continue
        if network.id == sent.network.id if sent.network.id else network.name == name:
            return network
    raise Refusal(400, f"Logical Network ('{sent.network.id or name}') doesn't exist.")
