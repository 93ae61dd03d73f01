# SPDX-License-Identifier: GPL-2.0-or-later
"""Check the bonds in a setupnetworks call, as the engine does."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

from engine_double.answers import Refusal
from engine_double.behaviours import behaviour
from engine_double.hosts_of_the_world import SimAttachment, SimNic
from engine_double.world import World

_VALIDATOR = "bll/network/host/HostSetupNetworksValidator.java"
NAME = behaviour(
    "NET-41",
    "A bond's name is 'bond' and letters, digits or '_': 400; one of a nic that is no "
    "bond: 409.",
    f"{_VALIDATOR}:501-517",
    "common/businessentities/BusinessEntitiesDefinitions.java:52",
)
TWO_PORTS = behaviour(
    "NET-42", "A bond has two ports at least: 400.", f"{_VALIDATOR}:519-525"
)
PORTS = behaviour(
    "NET-43",
    "The port of a bond is there (400), is no bond, is in no other bond, and carries "
    "no network (409).",
    f"{_VALIDATOR}:536-587",
    f"{_VALIDATOR}:607-622",
)
DEFAULT_MODE = behaviour(
    "NET-44",
    "A bond without options gets mode 4, which InfiniBand cannot.",
    "bll/network/host/HostSetupNetworksCommand.java:116",
    "bll/network/host/HostSetupNetworksCommand.java:436-442",
)
IN_USE = behaviour(
    "NET-45",
    "A bond that carries a network is not removed: 409.",
    f"{_VALIDATOR}:388-400",
)
MODE_FOR_VMS = behaviour(
    "NET-46",
    "A network for virtual machines requires a bond of mode 1 to 4: 400.",
    f"{_VALIDATOR}:179-222",
    "common/businessentities/network/BondMode.java:1-90",
)
_NAME = re.compile(r"bond\w+\Z", re.ASCII)
_FOR_VMS = ("1", "2", "3", "4", "active-backup", "balance-xor", "broadcast", "802.3ad")


def _refused(status: int, what: str) -> Refusal:
    return Refusal(status, f"Cannot setup Networks. {what}")


def check_new(
    world: World,
    made: Sequence[SimNic],
    nics: Sequence[SimNic],
    attachments: Sequence[SimAttachment],
) -> None:
    """Check new and changed bonds; ``attachments`` are all those after the call."""
    used = Counter(port for bond in made for port in bond.ports)
    for bond in made:
        if not bond.bond_mode:
            bond.bond_mode = "4" if world.does(DEFAULT_MODE) else "1"
        _check_name(world, bond, nics)
        if len(bond.ports) < 2 and world.does(TWO_PORTS):
            raise _refused(
                400,
                "The following bonds consist of less than two Network Interfaces: "
                f"{bond.name}.",
            )
        for port in bond.ports if world.does(PORTS) else ():
            _check_port(port, bond, made, nics, attachments, used)


def _check_name(world: World, bond: SimNic, nics: Sequence[SimNic]) -> None:
    if not bond.name:
        raise Refusal(400, "Bond has neither an id nor a name.")
    if not world.does(NAME):
        return
    if not _NAME.match(bond.name) or len(bond.name) > 50:
        raise Refusal(400, f"Bond name '{bond.name}' does not follow naming criteria.")
    if any(nic.name == bond.name and not nic.ports for nic in nics):
        raise _refused(409, f"The network interface '{bond.name}' is not a bond.")


def _check_port(
    port: str,
    bond: SimNic,
    made: Sequence[SimNic],
    nics: Sequence[SimNic],
    attachments: Sequence[SimAttachment],
    used: Counter[str],
) -> None:
    found = next((nic for nic in nics if nic.name == port), None)
    if found is None:
        raise _refused(400, f"The host network interface (name {port}) does not exist.")
    if found.ports:
        raise _refused(409, f"Network Interface '{port}' cannot be slave.")
    changed = {each.name for each in made}
    for other in nics:
        if port in other.ports and other.name not in changed:
            raise Refusal(
                409, f"Network Interface '{port}' already belongs to the bond."
            )
    if any(one.nic == found.id for one in attachments):
        raise _refused(
            409,
            f"Network Interface '{port}' cannot become slave, there's a network "
            "attached to it.",
        )
    if used[port] > 1:
        raise _refused(409, f"Network interface '{port}' is used multiple times.")


def removed(
    world: World,
    action: Any,
    nics: Sequence[SimNic],
    attachments: Sequence[SimAttachment],
) -> list[SimNic]:
    """Return the bonds that a call removes, by their ids or names."""
    gone = []
    for sent in action.removed_bonds or []:
        found = next((n for n in nics if n.id == sent.id or n.name == sent.name), None)
        if found is None:
            raise Refusal(400, f"Following bonds do not exist: {sent.id or sent.name}.")
        if not found.ports:
            raise _refused(409, f"'{found.name}' is not a bond.")
        users = [one.id for one in attachments if one.nic == found.id]
        if users and world.does(IN_USE):
            raise _refused(
                409, f"{found.name} is used by attachment {', '.join(users)}."
            )
        gone.append(found)
    return gone


def check_modes(
    world: World, nics: Sequence[SimNic], attachments: Sequence[SimAttachment]
) -> None:
    """Check the modes of bonds with networks for virtual machines."""
    modes = {nic.id: nic.bond_mode or "4" for nic in nics if nic.ports}
    for one in attachments:
        network = world.networks[one.network]
        wrong = modes.get(one.nic, "1") not in _FOR_VMS
        if network.vm and wrong and world.does(MODE_FOR_VMS):
            raise Refusal(400, f"The bond's mode does not fit {network.name}.")
