# SPDX-License-Identifier: GPL-2.0-or-later
"""``POST /hosts/ID/setupnetworks`` and its like: all or nothing, and gone after a boot
unless it is committed.

A call is parsed, checked in the order of HostSetupNetworksCommand.validate and
HostSetupNetworksValidator.validate (setup_checks), and carried out on the host as VDSM
and nmstate do. Their rules are not the engine's: an IPoIB NIC supports no bridge, no
VLAN tag, and only the bond mode active-backup; the device must support the MTU.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Optional

from engine_double import setup_checks as checks
from engine_double.answers import Missing, Refusal, done
from engine_double.behaviours import behaviour
from engine_double.host_life import COMMITTED_NETWORKS
from engine_double.host_nics import (
    ACTIVE_BACKUP,
    DEFAULT_MTU,
    give_address,
    mtu_of,
    take_addresses,
)
from engine_double.routing import Call, known, route
from engine_double.world import (
    SimAssignment,
    SimAttachment,
    SimHost,
    SimNetwork,
    SimNic,
    World,
    new_id,
)

_SETUP = "bll/network/host/HostSetupNetworksCommand.java"
ROLLED_BACK = behaviour(
    "NET-51",
    "A set-up after which the engine does not reach the host is rolled back, unless "
    "check_connectivity is false: 400.",
    "restapi/resource/BackendHostResource.java:336-338",
    f"{_SETUP}:350-355",
)
SILENT = behaviour(
    "NET-52",
    "Without check_connectivity a host that is cut off is not asked back: 400 without "
    "a word, and the networks are as was asked.",
    f"{_SETUP}:351",
    f"{_SETUP}:374-376",
)
COMMITTED = behaviour(
    "NET-53",
    "What a set-up makes is gone after a boot, unless commit_on_success is true or it "
    "is committed by a call of its own.",
    "restapi/resource/BackendHostResource.java:344",
    f"{_SETUP}:526-528",
)

_ATTACHMENT = "modified_network_attachments.network_attachment"
_BOND = "modified_bonds.host_nic"


@route(
    "POST",
    "/hosts/{host}/setupnetworks",
    root="action",
    fields=(
        "check_connectivity",
        "commit_on_success",
        "connectivity_timeout",
        f"{_ATTACHMENT}.id",
        f"{_ATTACHMENT}.network.id",
        f"{_ATTACHMENT}.host_nic.name",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.assignment_method",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.ip.address",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.ip.netmask",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.ip.gateway",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.ip.version",
        f"{_ATTACHMENT}.properties.property.name",
        f"{_ATTACHMENT}.properties.property.value",
        f"{_BOND}.name",
        f"{_BOND}.bonding.options.option.name",
        f"{_BOND}.bonding.options.option.value",
        f"{_BOND}.bonding.slaves.host_nic.name",
        "removed_bonds.host_nic.name",
        "removed_network_attachments.network_attachment.id",
        "synchronized_network_attachments.network_attachment.id",
    ),
)
def setup_networks(call: Call) -> Any:
    world, action = call.world, call.body
    host = known(world.hosts, call.ids["host"])
    checks.check_timeout(world, action.connectivity_timeout)
    checks.check_host(world, host)
    wanted = _read(action, world, host)
    _carry_out(world, host, wanted, action)
    return done()


@route("POST", "/hosts/{host}/commitnetconfig", root="action")
def commit_net_config(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    _check_reached(call.world, host)
    host.more.pop(COMMITTED_NETWORKS, None)
    return done()


def _carry_out(world: World, host: SimHost, wanted: Wanted, action: Any) -> None:
    same = (wanted.nics, wanted.attachments) == (host.nics, host.attachments)
    if same and not wanted.fresh and not wanted.left:
        return
    _check_reached(world, host)
    _apply(world, wanted.nics, wanted.attachments, wanted.fresh, wanted.left)
    asks_back = action.check_connectivity is not False
    if host.cut_off and asks_back and world.does(ROLLED_BACK):
        raise Refusal(400, "Reverting back to last known saved configuration.")
    host.more.setdefault(COMMITTED_NETWORKS, (host.nics, host.attachments))
    host.nics, host.attachments = wanted.nics, wanted.attachments
    if host.cut_off and world.does(SILENT):
        host.reachable, host.status = False, "non_responsive"
        raise Refusal(400)
    if action.commit_on_success or not world.does(COMMITTED):
        host.more.pop(COMMITTED_NETWORKS, None)


# -- what a call asks for


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


def _read(action: Any, world: World, host: SimHost) -> Wanted:
    """Parse a call; raises Refusal as the engine does."""
    wanted = Wanted(copy.deepcopy(host.nics), copy.deepcopy(host.attachments))
    synchronised = _synchronised(action, host)
    made = [_bond(sent, host) for sent in action.modified_bonds or []]
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
        checks.check_addresses(world, host, each)
    gone = _removed(action, world, host, wanted)
    then = _attached(changed, wanted, gone)
    checks.check_new_bonds(world, made, wanted.nics, then)
    removed = checks.removed_bonds(world, action, wanted.nics, then)
    _bring_in(wanted, made, removed, changed, gone)
    wanted.fresh |= synchronised
    checks.check_all_attachments(world, wanted.nics, wanted.attachments)
    for each in changed:
        checks.check_properties(world, host, each)
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


def _bond(sent: Any, host: SimHost) -> SimNic:
    bonding = sent.bonding
    slaves = (bonding.slaves if bonding else None) or []
    options = {o.name: o.value for o in (bonding.options if bonding else None) or []}
    return SimNic(
        id=new_id(f"{host.id} {sent.name}"),
        name=sent.name or "",
        mac="",
        ports=tuple(one.name for one in slaves),
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
        if nic.name == named.name if named is not None else nic.id == found:
            return Asked(sent, network, before, nic)
    return Asked(sent, network, before, None)


def _network(world: World, host: SimHost, sent: Any) -> Optional[SimNetwork]:
    network = world.networks.get(sent.network.id or "") if sent.network else None
    there = network is not None and network.data_center == world.data_center_of(host)
    return network if there else None


def _as_asked(host: SimHost, asked: Asked) -> SimAttachment:
    """Return the attachment after the call; what the call does not name stays."""
    sent, network, nic = asked.sent, asked.network, asked.nic
    assert network is not None and nic is not None
    if asked.before is None:
        one = SimAttachment(new_id(f"{host.id} {network.id}"), network.id, nic.id)
        one.addresses = [SimAssignment("none")]
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
            bond.mac, bond.mtu = first.mac, first.mtu
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


# -- on the host

HOSTS_WORDS = behaviour(
    "NET-55",
    "What the host refuses of a set-up comes as 400 with the host's words, and nothing "
    "of it is kept.",
    f"{_SETUP}:350-359",
    "bll/CommandBase.java:1513-1517",
)
UNREACHABLE = behaviour(
    "NET-56",
    "A set-up or a commit on a host that the engine does not reach: 400.",
    f"{_SETUP}:350-359",
)


def _apply(
    world: World,
    nics: list[SimNic],
    wanted: list[SimAttachment],
    fresh: set[str],
    left: set[str],
) -> None:
    """Change ``nics`` as the attachments request, or raise as VDSM would.

    ``fresh`` are the ids of the attachments that the call is about, ``left`` of the
    nics that a network was taken from; everything else on the host stays as it is, also
    where it is out of sync.
    """
    careful = world.does(HOSTS_WORDS)
    for nic in nics:
        if nic.ports:
            _check_ports(nic, nics, careful)
    for nic in nics:
        mine = [one for one in wanted if one.nic == nic.id]
        about = [one for one in mine if one.id in fresh]
        for one in about:
            if careful:
                _check(world, nic, one)
        if about or nic.id in left:
            _give_addresses(world, nic, mine)
            untagged = [one for one in mine if world.networks[one.network].vlan is None]
            mtus = [mtu_of(world.networks[one.network]) for one in untagged or mine]
            nic.mtu = max(mtus, default=min(DEFAULT_MTU, nic.max_mtu))
    by_name = {nic.name: nic for nic in nics}
    for nic in nics:
        for port in nic.ports:
            by_name[port].mtu = nic.mtu


def _check_ports(bond: SimNic, nics: list[SimNic], careful: bool) -> None:
    ports = [nic for nic in nics if nic.name in bond.ports]
    infiniband = {port.infiniband for port in ports}
    if careful and len(bond.name) > 15:
        raise _nmstate(f"{bond.name} is longer than a netdev's name")
    if careful and len(infiniband) > 1:
        raise _nmstate(f"{bond.name} cannot have ports of different kinds")
    wrong_mode = (bond.bond_mode or "4") not in ACTIVE_BACKUP
    if careful and True in infiniband and wrong_mode:
        raise _nmstate(
            f"The bond interface {bond.name} with mode other than active-backup is "
            "not allowed to use infiniband port"
        )
    bond.infiniband = True in infiniband
    bond.max_mtu = min(port.max_mtu for port in ports)


def _check(world: World, nic: SimNic, one: SimAttachment) -> None:
    network = world.networks[one.network]
    if nic.infiniband and network.vm:
        raise _nmstate(f"bridge {network.name} cannot have infiniband port {nic.name}")
    if nic.infiniband and network.vlan is not None:
        raise _nmstate(f"no VLAN can be made on infiniband interface {nic.name}")
    if mtu_of(network) > nic.max_mtu:
        raise _nmstate(
            f"Desired MTU {mtu_of(network)} for interface {nic.name} is bigger than "
            f"maximum allowed MTU {nic.max_mtu}"
        )


def _give_addresses(world: World, nic: SimNic, mine: list[SimAttachment]) -> None:
    take_addresses(nic)
    for one in mine:
        if world.networks[one.network].vlan is not None:
            continue
        for each in one.addresses:
            give_address(nic, each)


def _check_reached(world: World, host: SimHost) -> None:
    if not host.reachable and world.does(UNREACHABLE):
        raise Refusal(400, "Network error during communication with the Host.")


def _nmstate(what: str) -> Refusal:
    return Refusal(400, f"Internal JSON-RPC error: {{'reason': '{what}'}}")
