# SPDX-License-Identifier: GPL-2.0-or-later
"""Draw the fabric of all hosts as data: groups of equal hosts, networks, switches and
cables. Pure.

Hosts are equal for the picture if their cluster, their devices and ports, and their
ways to storage are; for plans, if their steps are. What a port is cabled to is no
difference: each rack has switches of its own, so that 250 equal hosts would be as many
groups as there are racks, and most of those beyond MOST_GROUPS, where no port is drawn.
Lines from the group lead to all its switches instead.

A switch is one by its id. What a port is cabled to is the other end's own word
(host/facts, Neighbour), so two that claim the same id are one here.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, Optional

from ovirt_rdma.engine_sdk_tools.names import natural
from ovirt_rdma.engine_sdk_tools.report.model import (
    Attached,
    PlanStep,
    Port,
    Report,
    ReportHost,
    ServerPath,
)
from ovirt_rdma.host.facts.devices import SWITCH, Neighbour

# Up to this many hosts, each is drawn alone.
MOST_ALONE = 12
# More groups of one cluster are drawn as one, "other hosts".
MOST_GROUPS = 8


@dataclass(frozen=True)
class HostGroup:
    """Hosts that are equal; the first stands for all. ``others``: they are not equal,
    but too few of a kind to be drawn.
    """

    hosts: tuple[ReportHost, ...]
    others: bool = False

    @property
    def first(self) -> ReportHost:
        """The host that stands for all."""
        return self.hosts[0]


def groups_of(report: Report) -> tuple[HostGroup, ...]:
    """Return the groups of the picture, cluster by cluster, the largest first."""
    alone = len(report.hosts) <= MOST_ALONE
    clusters: dict[tuple[str, str], dict[object, list[ReportHost]]] = {}
    for host in report.hosts:
        cluster = clusters.setdefault((host.data_center or "", host.cluster or ""), {})
        cluster.setdefault(host.id or host.name if alone else _kind(host), []).append(
            host
        )
    found: list[HostGroup] = []
    for key in sorted(clusters, key=lambda key: tuple(map(natural, key))):
        groups = [tuple(sorted_hosts(hosts)) for hosts in clusters[key].values()]
        if alone:
            groups.sort(key=lambda hosts: natural(hosts[0].name))
        else:
            groups.sort(key=lambda hosts: (-len(hosts), natural(hosts[0].name)))
        most = len(groups)
        if not alone and most > MOST_GROUPS:
            most = MOST_GROUPS - 1
        found += [HostGroup(hosts) for hosts in groups[:most]]
        rest = [host for hosts in groups[most:] for host in hosts]
        if rest:
            found.append(HostGroup(tuple(sorted_hosts(rest)), others=True))
    return tuple(found)


def _kind(host: ReportHost) -> object:
    """Return what equal hosts have in common."""
    if host.devices is None:
        return "no report"
    devices = tuple(
        replace(
            device,
            firmware=None,
            ports=tuple(replace(port, neighbours=()) for port in device.ports),
        )
        for device in host.devices
    )
    return devices, host.paths


@dataclass(frozen=True)
class PlanGroup:
    """Hosts with the same plan."""

    hosts: tuple[ReportHost, ...]
    steps: tuple[PlanStep, ...]


def plans_of(report: Report) -> tuple[PlanGroup, ...]:
    """Return the plans that have steps, each once with its hosts; the one of the most
    hosts first.
    """
    plans: dict[tuple[PlanStep, ...], list[ReportHost]] = {}
    for host in report.hosts:
        if host.steps:
            plans.setdefault(host.steps, []).append(host)
    groups = [
        PlanGroup(tuple(sorted_hosts(hosts)), steps) for steps, hosts in plans.items()
    ]
    return tuple(
        sorted(groups, key=lambda one: (-len(one.hosts), natural(one.hosts[0].name)))
    )


def sorted_hosts(hosts: Sequence[ReportHost]) -> list[ReportHost]:
    """Return the hosts by name, with hv2 before hv10."""
    return sorted(hosts, key=lambda host: natural(host.name))


def names_of(hosts: Iterable[ReportHost], most: Optional[int] = None) -> str:
    """Return the names of hosts as :func:`in_order` does."""
    return in_order((host.name for host in hosts), most)


def in_order(names: Iterable[str], most: Optional[int] = None) -> str:
    """Return names in order: ``hv1 to hv4, hv6``.

    Names that differ by consecutive numbers are shown as first and last, from three on.
    Of more than ``most`` such parts, only the number of the remaining names is shown.
    """
    runs: list[list[str]] = []
    for name in sorted(names, key=natural):
        if runs and _follows(runs[-1][-1], name):
            runs[-1].append(name)
        else:
            runs.append([name])
    parts: list[tuple[str, int]] = []
    for run in runs:
        if len(run) > 2:
            parts.append((f"{run[0]} to {run[-1]}", len(run)))
        else:
            parts += [(name, 1) for name in run]
    shown = parts if most is None or len(parts) <= most else parts[:most]
    text = ", ".join(part for part, _ in shown)
    left = sum(map(len, runs)) - sum(number for _, number in shown)
    return f"{text} and {left} more" if left else text


def _follows(before: str, name: str) -> bool:
    """Whether ``name`` is ``before`` with the next number in one place."""
    one, other = re.split(r"([0-9]{1,18})", before), re.split(r"([0-9]{1,18})", name)
    if len(one) != len(other):
        return False
    differ = [(a, b) for a, b in zip(one, other) if a != b]
    if len(differ) != 1:
        return False
    ((a, b),) = differ
    number = a.isascii() and a.isdigit() and b.isascii() and b.isdigit()
    return number and int(b) == int(a) + 1 and (len(a) == len(b) or a[0] != "0")


# Reduce the hosts of a report to their fabric: networks, switches and cables.

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
