# SPDX-License-Identifier: GPL-2.0-or-later
"""Parse a setupnetworks call for a host: the requested NICs and networks.

The checks are in network_checks and bond_checks, and are called in the order of
HostSetupNetworksCommand.validate and HostSetupNetworksValidator.validate.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from engine_double import bond_checks as bonds
from engine_double import network_checks as checks
from engine_double.answers import Missing
from engine_double.hosts_of_the_world import SimAttachment, SimHost, SimNic
from engine_double.world import SimNetwork, World, new_id


@dataclass
class Wanted:
    """NICs and attachments after the call, and the parts of the call.

    ``fresh`` are the ids of attachments to set up, ``left`` of nics that one was taken
    from.
    """

    nics: list[SimNic]
    attachments: list[SimAttachment]
    fresh: set[str] = field(default_factory=set)
    left: set[str] = field(default_factory=set)


@dataclass
class Asked:
    """An attachment that a call names: before the call and after it.

    What the host or the engine does not have is None, until the checks are over.
    """

    sent: Any
    network: Optional[SimNetwork]
    before: Optional[SimAttachment]
    nic: Optional[SimNic]
    one: Optional[SimAttachment] = None


def as_it_is(host: SimHost) -> Wanted:
    """Return a copy of the host's networks for changes."""
    return Wanted(copy.deepcopy(host.nics), copy.deepcopy(host.attachments))


def read(action: Any, world: World, host: SimHost) -> Wanted:
    """Parse a call; raises Refusal as the engine does."""
    wanted = as_it_is(host)
    synchronised = _synchronised(action, host)
    made = [_bond(sent, host, wanted) for sent in action.modified_bonds or []]
    asked = [
        _asked(sent, world, host, [*wanted.nics, *made])
        for sent in action.modified_network_attachments or []
    ]
    for each in asked:
        checks.check_form(world, each.sent)
    checks.check_not_both(world, asked, action)
    asked = [each for each in asked if checks.check_attachment(world, host, each)]
    for each in asked:
        each.one = _as_asked(host, each)
    # Parts that change nothing are left out before further checks.
    changed = [a for a in asked if a.one != a.before or _id(a.before) in synchronised]
    for each in changed:
        checks.check_role(world, host, each.one)
        checks.check_complete(world, each)
    gone = _removed(action, world, host, wanted)
    bonds.check_new(world, made, wanted.nics, _attached(changed, wanted, gone))
    removed = bonds.removed(
        world, action, wanted.nics, _attached(changed, wanted, gone)
    )
    checks.check_once(world, [each for each in asked if each.before is None])
    _bring_in(wanted, made, removed, changed, gone)
    wanted.fresh |= synchronised
    checks.check_all_attachments(world, wanted.nics, wanted.attachments)
    for each in changed:
        checks.check_properties(world, host, each.network, each.one.properties)
    bonds.check_modes(world, wanted.nics, wanted.attachments)
    checks.check_unmanaged(world, host, changed, made)
    for each in changed:
        if each.before is not None and each.before.id not in synchronised:
            checks.check_synchronised(world, host, each.before)
    return wanted


def _id(one: Optional[SimAttachment]) -> str:
    return one.id if one else ""


def _synchronised(action: Any, host: SimHost) -> set[str]:
    have = {one.id for one in host.attachments}
    wanted = {one.id for one in action.synchronized_network_attachments or []}
    if wanted - have:
        raise Missing(sorted(wanted - have))
    return wanted


def _bond(sent: Any, host: SimHost, wanted: Wanted) -> SimNic:
    name = sent.name or next((n.name for n in wanted.nics if n.id == sent.id), "")
    bonding = sent.bonding
    slaves = (bonding.slaves if bonding else None) or []
    names = {nic.id: nic.name for nic in wanted.nics}
    options = {o.name: o.value for o in (bonding.options if bonding else None) or []}
    return SimNic(
        id=new_id(f"{host.id} {name}"),
        name=name,
        mac="",
        ports=tuple(one.name or names.get(one.id, one.id) for one in slaves),
        # The kernel's default, where there are options without a mode.
        bond_mode=options.get("mode", "0") if options else None,
    )


def _asked(sent: Any, world: World, host: SimHost, nics: Sequence[SimNic]) -> Asked:
    """Return what an attachment names; find it by its id, or else by its network."""
    network = _network(world, host, sent)
    before = next(
        (
            one
            for one in host.attachments
            if (one.id == sent.id if sent.id else network and one.network == network.id)
        ),
        None,
    )
    if sent.network is None and before:
        network = world.networks[before.network]
    named = sent.host_nic
    found = before.nic if before else None
    for nic in nics:
        if named is not None and (
            nic.id == named.id if named.id else nic.name == named.name
        ):
            return Asked(sent, network, before, nic)
        if named is None and nic.id == found:
            return Asked(sent, network, before, nic)
    return Asked(sent, network, before, None)


def _network(world: World, host: SimHost, sent: Any) -> Optional[SimNetwork]:
    if sent.network is None:
        return None
    data_center = world.data_center_of(host)
    for network in world.networks.values():
        if network.data_center != data_center:
            continue
        wanted = sent.network
        if network.id == wanted.id if wanted.id else network.name == wanted.name:
            return network
    return None


def _as_asked(host: SimHost, asked: Asked) -> SimAttachment:
    """Return the attachment after the call; what the call does not name stays."""
    sent, network, nic = asked.sent, asked.network, asked.nic
    assert network is not None and nic is not None
    if asked.before is None:
        one = SimAttachment(new_id(f"{host.id} {network.id}"), network.id, nic.id)
        one.addresses = [("none", None, None)]
    else:
        one = copy.deepcopy(asked.before)
    one.nic = nic.id
    if sent.ip_address_assignments is not None:
        one.addresses = checks.addresses(sent.ip_address_assignments)
    if sent.properties is not None:
        one.properties = {each.name: each.value for each in sent.properties}
    return one


def _removed(action: Any, world: World, host: SimHost, wanted: Wanted) -> list[str]:
    gone = []
    for sent in action.removed_network_attachments or []:
        found = next((one for one in wanted.attachments if one.id == sent.id), None)
        checks.check_removal(world, host, found, sent.id)
        if found:
            gone.append(found.id)
    return gone


def _attached(
    changed: Sequence[Asked], wanted: Wanted, gone: Sequence[str]
) -> list[SimAttachment]:
    """Return all attachments after the call."""
    mine = [each.one for each in changed if each.one]
    new = {one.id for one in mine} | set(gone)
    return [*[one for one in wanted.attachments if one.id not in new], *mine]


def _bring_in(
    wanted: Wanted,
    made: Sequence[SimNic],
    removed: Sequence[SimNic],
    changed: Sequence[Asked],
    gone: Sequence[str],
) -> None:
    for bond in made:
        before = next((nic for nic in wanted.nics if nic.name == bond.name), None)
        by_name = {nic.name: nic for nic in wanted.nics}
        ports = [by_name[port] for port in bond.ports if port in by_name]
        bond.ports = tuple(port.name for port in ports)
        if ports:
            first = ports[0]
            bond.mac, bond.speed_mbps, bond.mtu = first.mac, first.speed_mbps, first.mtu
        if before is not None:
            bond.id, bond.mtu = before.id, before.mtu
            wanted.nics[wanted.nics.index(before)] = bond
        else:
            wanted.nics.append(bond)
    for nic in removed:
        wanted.nics.remove(nic)
    left = {one.id: one.nic for one in wanted.attachments}
    wanted.left |= {left[name] for name in gone}
    for each in changed:
        one = each.one
        assert one is not None
        if each.before is not None and each.before.nic != one.nic:
            wanted.left.add(each.before.nic)
        wanted.fresh.add(one.id)
    wanted.attachments = _attached(changed, wanted, gone)
