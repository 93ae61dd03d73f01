# SPDX-License-Identifier: GPL-2.0-or-later
"""Carry out a network set-up on a simulated host, as VDSM and nmstate do.

Their rules are not the engine's: an IPoIB NIC supports no bridge, no VLAN tag, and only
the bond mode active-backup; the device must support the MTU.
"""

from __future__ import annotations

from engine_double.answers import Refusal
from engine_double.behaviours import behaviour
from engine_double.host_nics import ACTIVE_BACKUP, DEFAULT_MTU, mtu_of
from engine_double.hosts_of_the_world import SimAttachment, SimHost, SimNic
from engine_double.world import World

HOSTS_WORDS = behaviour(
    "NET-55",
    "What the host refuses of a set-up comes as 400 with the host's words, and nothing "
    "of it is kept.",
    "bll/network/host/HostSetupNetworksCommand.java:350-359",
    "bll/CommandBase.java:1513-1517",
)
UNREACHABLE = behaviour(
    "NET-56",
    "A set-up or a commit on a host that the engine does not reach: 400.",
    "bll/network/host/HostSetupNetworksCommand.java:350-359",
)

ROLLED_BACK = "Reverting back to last known saved configuration."


def apply(
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
            one.actual = {}
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
    nic.address = nic.netmask = nic.address_v6 = nic.netmask_v6 = None
    nic.boot_protocol = nic.boot_protocol_v6 = "none"
    for one in mine:
        if world.networks[one.network].vlan is not None:
            continue
        for method, address, netmask in one.addresses:
            if address and ":" in address:
                nic.address_v6, nic.netmask_v6 = address, netmask
                nic.boot_protocol_v6 = method
            else:
                nic.address, nic.netmask = address, netmask
                nic.boot_protocol = method


def check_reached(world: World, host: SimHost) -> None:
    if not host.reachable and world.does(UNREACHABLE):
        raise Refusal(400, "Network error during communication with the Host.")


def _nmstate(what: str) -> Refusal:
    return Refusal(400, f"Internal JSON-RPC error: {{'reason': '{what}'}}")
