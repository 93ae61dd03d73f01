# SPDX-License-Identifier: GPL-2.0-or-later
"""Who would notice if steps were taken back: the users of the netdevs whose link goes
down by that. Of a profile or child that goes for good also whoever has set something
up on it since: nmstate puts the engine's network into the profile that it finds, ours.
Pure.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Optional

from ovirt_rdma.host.effects.act import Act
from ovirt_rdma.host.effects.properties import (
    adapter_of,
    is_maker,
    made_netdev,
)
from ovirt_rdma.host.effects.targets import netdev_of
from ovirt_rdma.host.effects.undo_plan import UndoAct
from ovirt_rdma.host.facts import Facts
from ovirt_rdma.host.policy import Policy
from ovirt_rdma.host.rules.ipoib_settings import lasting_addresses
from ovirt_rdma.host.rules.reapply import needs_activation
from ovirt_rdma.host.rules.rule import LINK_DOWN, Change
from ovirt_rdma.host.rules.view import View


def who_is_cut_off(
    groups: Iterable[Sequence[UndoAct]], facts: Facts
) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield each step that takes links down with their users, in words, where there
    are any. Besides link-down steps those are the ones that made a profile or child,
    and those that changed what NetworkManager activates an active profile for: earlier
    versions called some of these live.
    """
    view = View(facts, Policy())
    for group in groups:
        acts = [one.act for one in group]
        if not any(
            act.effect == LINK_DOWN
            or is_maker(act)
            or any(needs_activation(change) for change in act.changes)
            for act in acts
        ):
            continue
        names = {name for act in acts for name in _netdevs(act, view)}
        above = {upper for name in names for upper in view.above(name)}
        users = [
            f"{use.purpose}: {use.what}"
            for use in facts.netdev_uses
            if use.netdev in above
        ]
        if any(is_maker(act) for act in acts):
            made = {on for name in names for on in view.carriers(name)}
            users += _set_up_on(made, facts)
        if users:
            yield acts[0].step, tuple(dict.fromkeys(users))


def _set_up_on(names: Collection[str], facts: Facts) -> Iterator[str]:
    """Yield the engine's networks on these netdevs, and the addresses of the others.
    There were none when we made the profile or child, and it brings none itself.
    """
    networks = [net for net in facts.ovirt_networks if net.southbound in names]
    for network in networks:
        yield f"engine: network {network.name} on {network.southbound}"
    carrying = {network.southbound for network in networks}
    for netdev in facts.netdevs:
        if netdev.name in names and netdev.name not in carrying:
            for address in lasting_addresses(netdev):
                yield f"address: {address} on {netdev.name}"


def _netdevs(act: Act, view: View) -> Iterator[str]:
    change = act.changes[0]
    address = adapter_of(change)
    if address:
        for one in view.interfaces:
            if one.adapter and one.adapter.pci.address == address:
                yield one.name
        return
    name = made_netdev(act) or netdev_of(change) or _active_on(change, view)
    if name:
        yield name


def _active_on(change: Change, view: View) -> Optional[str]:
    manager = view.facts.network_manager
    profiles = manager.profiles if manager else ()
    return next((p.active_on for p in profiles if p.uuid == change.target), None)
