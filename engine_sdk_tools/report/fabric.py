# SPDX-License-Identifier: GPL-2.0-or-later
"""Reduce the hosts of a report to their fabric: networks, switches and cables. Pure.

A switch is one by its id. What a port is cabled to is the other end's own word
(host/facts, Neighbour), so two that claim the same id are one here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Optional

from ovirt_rdma.engine_sdk_tools.report.groups import natural
from ovirt_rdma.engine_sdk_tools.report.model import (
    Attached,
    Port,
    ReportHost,
    ServerPath,
)
from ovirt_rdma.host.facts.devices import SWITCH, Neighbour

# More switches are drawn as one, those with the fewest ports.
MOST_SWITCHES = 16


class Network(NamedTuple):
    """A network: the logical network or, without one, its subnets."""

    name: str
    subnets: tuple[str, ...] = ()

    @property
    def title(self) -> str:
        """The network for people."""
        return self.name or ", ".join(self.subnets) or "no logical network"


@dataclass
class NetworkUse:
    """What hosts report of a network; ``layers`` are link layers by number of ports,
    ``rates`` in Mb/s, ``managers`` the LIDs of subnet managers.
    """

    hosts: int = 0
    layers: Counter[str] = field(default_factory=Counter)
    rates: set[int] = field(default_factory=set)
    managers: set[int] = field(default_factory=set)


class Cable(NamedTuple):
    """A cable of an active port; ``neighbour`` is None if its other end is unknown."""

    host: str
    device: str
    port: Port
    neighbour: Optional[Neighbour]


@dataclass
class SwitchUse:
    """A switch: its ports that hosts are cabled to, their hosts, and ports by the
    network that they lead to.
    """

    title: str
    ports: int = 0
    hosts: set[str] = field(default_factory=set)
    networks: Counter[Network] = field(default_factory=Counter)

    def add(self, host: str, networks: Iterable[Network]) -> None:
        """Add a port of ``host``, which is on ``networks``."""
        self.ports += 1
        self.hosts.add(host)
        self.networks.update(set(networks))


SwitchKey = tuple[str, str]
"""``("switch", ID)``, MORE or UNKNOWN."""
MORE, UNKNOWN = ("more", ""), ("unknown", "")


class Switches:
    """The switches of a report. ``all`` has them by key, in the order of their names;
    last come, each as one, those beyond MOST_SWITCHES (MORE), and what is cabled to no
    switch that is known (UNKNOWN). It is empty if no switch is known.
    """

    def __init__(self, hosts: Sequence[ReportHost]) -> None:
        cables = [cable for host in hosts for cable in cables_of(host)]
        number: Counter[str] = Counter()
        names: dict[str, str] = {}
        for _, _, _, neighbour in cables:
            its = switch_of(neighbour)
            if its and neighbour:
                number[its] += 1
                if neighbour.name:
                    names.setdefault(its, neighbour.name)
        most = [its for its, _ in number.most_common(MOST_SWITCHES)]
        drawn = {its: names.get(its, its) for its in most}
        self.all: dict[SwitchKey, SwitchUse] = {
            ("switch", its): SwitchUse(drawn[its])
            for its in sorted(drawn, key=lambda its: natural(drawn[its]))
        }
        if not drawn:
            return
        self.all[MORE] = SwitchUse(f"{len(number) - len(drawn)} more switches")
        self.all[UNKNOWN] = SwitchUse("no switch known")
        for cable in cables:
            use = self.all[self.key_of(cable.neighbour)]
            use.add(cable.host, map(network_of, cable.port.attached))
        for host in hosts:
            for _, network in other_ways(host):
                self.all[UNKNOWN].add(host.name, (network,) if network else ())
        for key in (MORE, UNKNOWN):
            if not self.all[key].ports:
                del self.all[key]

    def key_of(self, neighbour: Optional[Neighbour]) -> SwitchKey:
        """Return the key of what a port is cabled to."""
        switch = switch_of(neighbour)
        if switch is None:
            return UNKNOWN
        return ("switch", switch) if ("switch", switch) in self.all else MORE


def switch_of(neighbour: Optional[Neighbour]) -> Optional[str]:
    """Return a switch's id, or its name without one; None for anything else."""
    if neighbour is None or neighbour.kind != SWITCH:
        return None
    return neighbour.id or neighbour.name


def cables_of(host: ReportHost) -> Iterator[Cable]:
    """Yield the cables of the active ports of ``host``; for a port of which nothing is
    known, one that leads nowhere.
    """
    for device in host.devices or ():
        for port in device.ports:
            for neighbour in port.neighbours or (None,) if port.is_active else ():
                yield Cable(host.name, device.name, port, neighbour)


def other_ways(
    host: ReportHost,
) -> Iterator[tuple[ServerPath, Optional[Network]]]:
    """Yield the ways of ``host`` to servers by netdevs whose network no active RDMA
    port is on, each network once.
    """
    led = {
        network_of(attached)
        for cable in cables_of(host)
        for attached in cable.port.attached
    }
    for path in host.paths or ():
        network = network_of(path.attached) if path.attached else None
        if path.netdev and network not in led:
            if network:
                led.add(network)
            yield path, network


def network_of(attached: Attached) -> Network:
    """Return the network that a netdev is on."""
    return Network(attached.network or "", () if attached.network else attached.subnets)


def networks_of(hosts: Iterable[ReportHost]) -> dict[Network, NetworkUse]:
    """Return the networks of active ports, and those by which servers are reached; that
    of the most hosts first.
    """
    found: dict[Network, NetworkUse] = {}
    for host in hosts:
        its: set[Network] = set()
        for device in host.devices or ():
            for port in device.ports:
                for attached in port.attached if port.is_active else ():
                    network = network_of(attached)
                    use = found.setdefault(network, NetworkUse())
                    its.add(network)
                    use.layers[port.link_layer] += 1
                    use.rates.add(port.rate_mbps or 0)
                    use.managers |= {port.sm_lid} - {None}  # type: ignore[arg-type]
        for path in host.paths or ():
            if path.attached is not None:
                network = network_of(path.attached)
                found.setdefault(network, NetworkUse())
                its.add(network)
        for network in its:
            found[network].hosts += 1
    order = sorted(found, key=lambda network: -found[network].hosts)
    return {network: found[network] for network in order}
