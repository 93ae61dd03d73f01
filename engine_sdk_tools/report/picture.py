# SPDX-License-Identifier: GPL-2.0-or-later
"""Lay out the picture of the fabric: hosts, networks and servers in columns. Pure.

From left to right: groups of equal hosts with their devices and ports, the switches
that the ports are cabled to, the networks that the ports are on, and the NFS servers
with their domains. A line leads from each port to its switch, from a switch to the
networks of the ports there, and from a network to each server that is reached by it. If
no switch is known there is no column of switches, and lines lead from ports to
networks; otherwise all lines lead through it, so that none passes behind a switch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from statistics import fmean
from typing import NamedTuple, Optional

from ovirt_rdma.engine_sdk_tools.matrix import FAIL
from ovirt_rdma.engine_sdk_tools.report.fabric import (
    UNKNOWN,
    Network,
    NetworkUse,
    Switches,
    SwitchKey,
    SwitchUse,
    network_of,
    networks_of,
    other_ways,
)
from ovirt_rdma.engine_sdk_tools.report.groups import (
    HostGroup,
    groups_of,
    in_order,
    names_of,
)
from ovirt_rdma.engine_sdk_tools.report.model import Port, Report, ReportHost
from ovirt_rdma.engine_sdk_tools.report.shapes import (
    GAP,
    HEADING,
    LINE,
    PAD,
    Box,
    Column,
    Content,
    Line,
    Text,
    Tile,
    curve,
    fitted,
    levelled,
    most_name,
    stacked,
)
from ovirt_rdma.engine_sdk_tools.report.words import (
    SIGNS,
    counted,
    device_text,
    neighbour_text,
    port_text,
    rate_text,
    transports_text,
    worst,
)
from ovirt_rdma.host.facts.devices import SWITCH


class _Columns(NamedTuple):
    """The columns, and the width of the picture."""

    hosts: Column
    switches: Column
    networks: Column
    servers: Column
    width: int


_WITHOUT_SWITCHES = _Columns((10, 440), (0, 0), (550, 250), (880, 290), 1180)
_WITH_SWITCHES = _Columns((10, 390), (475, 185), (710, 205), (970, 250), 1230)
# A square for each host of a group, with the sign of its worst verdict.
_TILE = 16
_MOST_PORTS, _MOST_DOMAINS, _MOST_NETWORKS, _MOST_SERVERS = 16, 24, 40, 40
# The transports that are drawn, in their order; others are drawn as the last.
_TRANSPORTS = ("rdma", "tcp", "unknown")


@dataclass(frozen=True)
class Picture:
    """The whole picture; ``description`` says in words what it shows. ``switches``: it
    has some.
    """

    width: int
    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    headings: tuple[Text, ...]
    description: str
    switches: bool


class _Way(NamedTuple):
    """Where a line of a group's box leads to: its networks, and the switches, each with
    words for the ends there.
    """

    networks: tuple[Network, ...]
    switches: Mapping[SwitchKey, str]


def picture_of(report: Report) -> Picture:
    """Return the picture of ``report``."""
    groups, switches = groups_of(report), Switches(report.hosts)
    networks, servers = networks_of(report.hosts), _servers(report)
    shown = list(networks)[:_MOST_NETWORKS]
    columns = _WITH_SWITCHES if switches.all else _WITHOUT_SWITCHES
    boxes: list[Box] = []
    leads: list[tuple[int, _Way, str]] = []
    texts: list[Text] = []
    y, cluster = HEADING, None
    for group in groups:
        its = (group.first.data_center, group.first.cluster)
        if its != cluster:
            cluster = its
            name = _cluster_name(group.first)
            texts.append(Text(columns.hosts[0], y + 14, name, "cluster"))
            y += LINE + 4
        box, its_leads = _host_box(columns.hosts, group, switches, y)
        boxes.append(box)
        leads += its_leads
        y += box.height + GAP
    middles = {
        # The end of the hosts for a switch of hosts that are drawn without ports.
        key: fmean([at for at, way, _ in leads if key in way.switches] or [y])
        for key in switches.all
    }
    order = sorted(middles, key=middles.__getitem__)
    of_switches = levelled(
        columns.switches,
        "switch",
        {key: _switch_lines(switches.all[key]) for key in order},
        [middles[key] for key in order],
    )
    of_networks = stacked(
        columns.networks,
        "network",
        {one: _network_lines(one, networks[one]) for one in shown},
        y,
    )
    of_servers = stacked(
        columns.servers,
        "server",
        {server: _server_lines(report, server) for server in servers},
        y,
    )
    boxes += [*of_switches.values(), *of_networks.values(), *of_servers.values()]
    edge = columns.hosts[0] + columns.hosts[1]
    if switches.all:
        lines = [
            *_to_switches(leads, switches, of_switches, edge),
            *_from_switches(switches, of_switches, of_networks),
        ]
    else:
        lines = [
            Line(curve(edge, at, box.x, box.middle), "cable", title)
            for at, way, title in leads
            for network in way.networks
            for box in (of_networks.get(network),)
            if box
        ]
    lines += _to_servers(report, of_networks, of_servers)
    headings = [
        (columns.hosts, "Hosts, RDMA devices and ports"),
        (columns.networks, "Networks"),
        (columns.servers, "NFS servers and domains"),
    ]
    if switches.all:
        headings.insert(1, (columns.switches, "Switches"))
    return Picture(
        columns.width,
        max([y, *(box.y + box.height + GAP for box in boxes)]),
        tuple(boxes),
        tuple(dict.fromkeys(lines)),
        (*(Text(at[0], 14, text, "heading") for at, text in headings), *texts),
        _description(report, groups, switches, networks, servers),
        bool(switches.all),
    )


def _cluster_name(host: ReportHost) -> str:
    names = [f"data center {host.data_center}"] if host.data_center else []
    names += [f"cluster {host.cluster}"] if host.cluster else []
    return ", ".join(names) or "no cluster"


def _host_box(
    column: Column, group: HostGroup, switches: Switches, y: int
) -> tuple[Box, list[tuple[int, _Way, str]]]:
    """Return the box of a group at the height ``y``, and where its lines begin: height,
    way and title.
    """
    number = len(group.hosts)
    title = _group_title(column, group)
    at = y + PAD + 13
    texts = [fitted(column, at, title, "name")]
    tiles: list[Tile] = []
    leads: list[tuple[int, _Way, str]] = []
    if number > 1:
        per_row = (column[1] - 2 * PAD) // _TILE
        for index, host in enumerate(group.hosts):
            row, place = divmod(index, per_row)
            tiles.append(
                Tile(
                    column[0] + PAD + place * _TILE,
                    at + 8 + row * _TILE,
                    host.worst,
                    SIGNS[host.worst],
                    host.name,
                )
            )
        at += 6 + _TILE * (1 + (number - 1) // per_row)
    for text, style, way in () if group.others else _host_lines(group, switches):
        at += LINE
        texts.append(fitted(column, at, text, style))
        if way:
            leads.append((at - 4, way, f"{title}: {text.strip()}"))
    if group.others:
        at += LINE
        texts.append(fitted(column, at, "they differ from each other", "muted"))
    style = f"hosts {worst(group.hosts)}"
    height = at + PAD - y
    box = Box(column[0], y, column[1], height, style, title, tuple(texts), tuple(tiles))
    return box, leads


def _group_title(column: Column, group: HostGroup) -> str:
    first, number = group.first, len(group.hosts)
    if number == 1:
        status = "" if first.status == "up" else f", {first.status or 'unknown'}"
        return f"{SIGNS[first.worst]} {first.name}{status}"
    kind = "other hosts" if group.others else "hosts"
    # As many names as fit beside "and 44 more".
    titles = [f"{number} {kind}: {names_of(group.hosts, most)}" for most in (3, 2, 1)]
    return next((one for one in titles if len(one) <= most_name(column)), titles[-1])


def _host_lines(
    group: HostGroup, switches: Switches
) -> Iterator[tuple[str, str, Optional[_Way]]]:
    """Yield the lines of a group's box: text, style, and where it leads to."""
    host = group.first
    if host.devices is None:
        yield "no report from the host", "unknown", None
        return
    if not host.devices:
        yield "no RDMA device", "fail", None
    ports = 0
    for number, device in enumerate(host.devices):
        yield device_text(device), "", None
        for place, port in enumerate(device.ports):
            ports += 1
            if ports > _MOST_PORTS:
                continue
            if not port.is_active:
                yield f"   {SIGNS[FAIL]} {port_text(port)}", "fail", None
                continue
            # Equal hosts have this port at the same place.
            same = [
                one.devices[number].ports[place] for one in group.hosts if one.devices
            ]
            networks = tuple(map(network_of, port.attached))
            yield (
                f"   ● {port_text(port)}",
                "",
                _Way(networks, _at_switches(same, switches)),
            )
            back_to_back = _not_switches(same)
            if back_to_back:
                yield f"      cabled to {back_to_back}", "muted", None
    if ports > _MOST_PORTS:
        yield f"   {ports - _MOST_PORTS} more ports", "muted", None
    for path, network in other_ways(host):
        way = _Way((network,), {UNKNOWN: ""}) if network else None
        yield f"   ○ {path.netdev} leads to {path.server}", "muted", way
    used: Counter[str] = Counter()
    for path in host.paths or ():
        used.update(dict(path.transports))
    if used:
        yield f"storage: {transports_text(used.items())}", "muted", None


def _at_switches(ports: Sequence[Port], switches: Switches) -> dict[SwitchKey, str]:
    """Return what a port of equal hosts is cabled to: of one host with the ports there,
    of several with the number of hosts.
    """
    ends: dict[SwitchKey, dict[int, Optional[str]]] = {}
    for number, port in enumerate(ports):
        for one in port.neighbours or (None,):
            title = one.port_title if one else None
            ends.setdefault(switches.key_of(one), {})[number] = title
    if len(ports) > 1:
        return {key: counted(len(hosts), "host") for key, hosts in ends.items()}
    return {key: f"port {its[0]}" if its[0] else "" for key, its in ends.items()}


def _not_switches(ports: Sequence[Port]) -> str:
    """Return what ``ports`` are cabled to besides switches, "" for nothing."""
    return in_order(
        {
            neighbour_text(one)
            for port in ports
            for one in port.neighbours
            if one.kind != SWITCH
        },
        1,
    )


def _switch_lines(use: SwitchUse) -> Content:
    """Return the lines of a switch's box, each with its style, and its title."""
    hosts = f"{counted(use.ports, 'port')} of {counted(len(use.hosts), 'host')}"
    return [(use.title, "name"), (hosts, "muted")], use.title


def _network_lines(network: Network, use: NetworkUse) -> Content:
    """Return the lines of a network's box, each with its style, and its title."""
    lines = [(network.title, "name")]
    if use.layers:
        layers = " and ".join(sorted(use.layers))
        rates = sorted(rate for rate in use.rates if rate)
        rate = ", ".join(map(rate_text, rates[:3]))
        lines.append((f"{layers} {rate}".strip(), ""))
    else:
        lines.append(("no RDMA port", "muted"))
    if use.managers:
        lids = ", ".join(map(str, sorted(use.managers)[:4]))
        lines.append((f"subnet manager: LID {lids}", "muted"))
    lines.append((counted(use.hosts, "host"), "muted"))
    return lines, network.title


def _servers(report: Report) -> list[str]:
    return list(dict.fromkeys(d.server for d in report.domains))[:_MOST_SERVERS]


def _server_lines(report: Report, server: str) -> Content:
    domains = [domain for domain in report.domains if domain.server == server]
    lines = [(server, "name")]
    for domain in domains[:_MOST_DOMAINS]:
        used = transports_text(domain.used) or "no host"
        lines.append((f"{domain.name}: {used}", ""))
    if len(domains) > _MOST_DOMAINS:
        lines.append((f"{len(domains) - _MOST_DOMAINS} more domains", "muted"))
    return lines, server


def _to_switches(
    leads: Sequence[tuple[int, _Way, str]],
    switches: Switches,
    boxes: Mapping[SwitchKey, Box],
    edge: int,
) -> Iterator[Line]:
    """Yield the lines from ports, at the right edge of their boxes, to switches."""
    for y, way, title in leads:
        for key, ends in way.switches.items():
            # What is on no network would lead to the unknown, and end there.
            if way.networks or key != UNKNOWN:
                where = ", ".join(filter(None, (switches.all[key].title, ends)))
                path = curve(edge, y, boxes[key].x, boxes[key].middle)
                yield Line(path, "cable", f"{title}: {where}")


def _from_switches(
    switches: Switches,
    boxes: Mapping[SwitchKey, Box],
    networks: Mapping[Network, Box],
) -> Iterator[Line]:
    """Yield the lines from switches to the networks of the ports there."""
    for key, use in switches.all.items():
        box = boxes[key]
        for network, number in use.networks.items():
            to = networks.get(network)
            if to:
                path = curve(box.x + box.width, box.middle, to.x, to.middle)
                ports = counted(number, "port")
                yield Line(path, "cable", f"{use.title}: {ports} on {network.title}")


def _to_servers(
    report: Report, networks: Mapping[Network, Box], servers: Mapping[str, Box]
) -> Iterator[Line]:
    """Yield the lines from networks to servers, one for each transport in use."""
    mounts: Counter[tuple[Network, str, str]] = Counter()
    for host in report.hosts:
        for path in host.paths or ():
            if path.attached is None or path.server not in servers:
                continue
            for word, number in path.transports:
                known = word if word in _TRANSPORTS else _TRANSPORTS[-1]
                mounts[network_of(path.attached), path.server, known] += number
    for (network, server, word), number in mounts.items():
        box, to = networks.get(network), servers[server]
        if box:
            # Side by side, if there are several.
            shift = 7 * (_TRANSPORTS.index(word) - 1)
            name = to.y + PAD + LINE // 2
            yield Line(
                curve(box.x + box.width, box.middle + shift, to.x, name + shift),
                word,
                f"{server} over {word}: {counted(number, 'mount')}",
            )


def _description(
    report: Report,
    groups: Sequence[HostGroup],
    switches: Switches,
    networks: Sized,
    servers: Sized,
) -> str:
    hosts = counted(len(report.hosts), "host")
    if len(groups) < len(report.hosts):
        hosts += f" in {counted(len(groups), 'group')} of equal hosts"
    beside, what = "", "which network a port is on"
    if switches.all:
        beside = "; the switches that ports are cabled to beside them"
        what = "to which switch a port is cabled, which network it is on"
    return (
        f"{hosts}, with their RDMA devices and ports, at the left{beside}; "
        f"{counted(len(networks), 'network')} in the middle; "
        f"{counted(len(servers), 'NFS server')} with "
        f"{counted(len(report.domains), 'domain')} at the right. A line shows {what}, "
        "and over which transport a server is reached by it. The tables below have the "
        "same in words."
    )
