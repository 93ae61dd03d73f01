# SPDX-License-Identifier: GPL-2.0-or-later
"""``POST /hosts/ID/setupnetworks`` and its like: all or nothing, and gone after a boot
unless it is committed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Optional

from engine_double import host_side, network_request
from engine_double import network_checks as checks
from engine_double.answers import Refusal, done
from engine_double.behaviours import behaviour
from engine_double.host_life import ON_REBOOT, complies
from engine_double.hosts_of_the_world import SimHost
from engine_double.network_request import Wanted
from engine_double.required_networks import set_operational
from engine_double.routing import Call, known, route
from engine_double.world import World

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
ONLY_SET_UP = behaviour(
    "NET-54",
    "A set-up determines again which required networks are operational, only of those "
    "that it attaches to the host, not of those that it removes.",
    f"{_SETUP}:938-949",
    f"{_SETUP}:969-970",
)

_ATTACHMENT = "modified_network_attachments.network_attachment"
_BOND = "modified_bonds.host_nic"
# host.more: nics and attachments as of the last commit, where later ones are not.
_COMMITTED = "committed_networks"


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
        f"{_ATTACHMENT}.network.name",
        f"{_ATTACHMENT}.host_nic.id",
        f"{_ATTACHMENT}.host_nic.name",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.assignment_method",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.ip.address",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.ip.netmask",
        f"{_ATTACHMENT}.ip_address_assignments.ip_address_assignment.ip.version",
        f"{_ATTACHMENT}.properties.property.name",
        f"{_ATTACHMENT}.properties.property.value",
        f"{_BOND}.id",
        f"{_BOND}.name",
        f"{_BOND}.bonding.options.option.name",
        f"{_BOND}.bonding.options.option.value",
        f"{_BOND}.bonding.slaves.host_nic.id",
        f"{_BOND}.bonding.slaves.host_nic.name",
        "removed_bonds.host_nic.id",
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
    wanted = network_request.read(action, world, host)
    _carry_out(
        world,
        host,
        wanted,
        check=action.check_connectivity is not False,
        commit=action.commit_on_success is True,
    )
    return done()


@route("POST", "/hosts/{host}/syncallnetworks", root="action")
def sync_all_networks(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    checks.check_host(call.world, host)
    synchronise(call.world, host, {one.id for one in host.attachments})
    call.world.log.record(
        10901,
        "normal",
        f"Managed to sync all host {host.name} networks.",
        host=host.id,
        correlation_id=call.correlation_id,
    )
    return done()


@route("POST", "/hosts/{host}/commitnetconfig", root="action")
def commit_net_config(call: Call) -> Any:
    host = known(call.world.hosts, call.ids["host"])
    host_side.check_reached(call.world, host)
    _commit(host)
    return done()


def synchronise(world: World, host: SimHost, attachments: set[str]) -> None:
    """Set these attachments up again, and commit (PersistentHostSetupNetworks)."""
    wanted = network_request.as_it_is(host)
    wanted.fresh = attachments
    _carry_out(world, host, wanted, check=True, commit=True)


def lose_uncommitted(world: World, host: SimHost) -> None:
    """Restore the networks as of the last commit, as a boot does."""
    before = host.more.pop(_COMMITTED, None)
    if before is not None:
        host.nics, host.attachments = before


ON_REBOOT.append(lose_uncommitted)


def _commit(host: SimHost) -> None:
    host.more.pop(_COMMITTED, None)
    for one in host.attachments:
        one.committed = True


def _carry_out(
    world: World, host: SimHost, wanted: Wanted, *, check: bool, commit: bool
) -> None:
    same = (wanted.nics, wanted.attachments) == (host.nics, host.attachments)
    if same and not wanted.fresh and not wanted.left:
        return
    host_side.check_reached(world, host)
    host_side.apply(world, wanted.nics, wanted.attachments, wanted.fresh, wanted.left)
    if host.cut_off and check and world.does(ROLLED_BACK):
        raise Refusal(400, host_side.ROLLED_BACK)
    host.more.setdefault(_COMMITTED, (host.nics, host.attachments))
    for one in wanted.attachments:
        one.committed = one.committed and one.id not in wanted.fresh
    host.nics, host.attachments = wanted.nics, wanted.attachments
    if host.cut_off:
        host.reachable, host.status = False, "non_responsive"
        if world.does(SILENT):
            raise Refusal(400)
        return
    if commit or not world.does(COMMITTED):
        _commit(host)
    if host.status != "maintenance":
        complies(world, host, None)
    about: Optional[Collection[str]] = None
    if world.does(ONLY_SET_UP):
        fresh = [one for one in wanted.attachments if one.id in wanted.fresh]
        about = {one.network for one in fresh}
    set_operational(world, world.clusters[host.cluster], about)


def free(world: World, host: SimHost, nic: str) -> None:
    """Remove from a NIC what the engine does not know, and commit."""
    wanted = network_request.as_it_is(host)
    wanted.left = {nic}
    _carry_out(world, host, wanted, check=True, commit=True)
