# SPDX-License-Identifier: GPL-2.0-or-later
"""Lay out the picture of the fabric: hosts, networks and servers in columns. Pure.

From left to right: groups of equal hosts with their devices and ports, the networks
that the ports are on, and the NFS servers with their domains. A line leads from each
port to its network, and from a network to each server that is reached by it. Hosts do
not know to which switch they are cabled, so none is drawn.

All lengths are SVG user units, 1 of which is 1 CSS pixel. The widths of texts are
estimated, because only a browser knows them: a character has 7 units at 13 px, a bold
one 8.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ovirt_rdma.engine_sdk_tools.matrix import FAIL
from ovirt_rdma.engine_sdk_tools.report.groups import HostGroup, groups_of, names_of
from ovirt_rdma.engine_sdk_tools.report.model import (
    Attached,
    Report,
    ReportHost,
)
from ovirt_rdma.engine_sdk_tools.report.words import (
    SIGNS,
    counted,
    device_text,
    port_text,
    rate_text,
    transports_text,
    worst,
)
from ovirt_rdma.host.system.printable import printable

WIDTH = 1180
# Left edge and width of each column.
_HOSTS, _NETWORKS, _SERVERS = (10, 440), (550, 250), (880, 290)
_LINE, _PAD, _GAP, _HEADING = 19, 9, 16, 30
_CHARACTER, _BOLD = 7, 8
# A square for each host of a group, with the sign of its worst verdict.
_TILE = 16
_PER_ROW = (_HOSTS[1] - 2 * _PAD) // _TILE
_MOST_PORTS, _MOST_DOMAINS, _MOST_NETWORKS, _MOST_SERVERS = 16, 24, 40, 40
_MOST_SUBNETS = 2
# The transports that are drawn, in their order; others are drawn as the last.
_TRANSPORTS = ("rdma", "tcp", "unknown")


@dataclass(frozen=True)
class Text:
    """A line of text; ``style`` is a class of the style sheet, ``title`` the whole of a
    shortened text.
    """

    x: int
    y: int
    text: str
    style: str = ""
    title: str = ""


@dataclass(frozen=True)
class Tile:
    """A host of a group: its verdict and sign; ``title`` is its name."""

    x: int
    y: int
    verdict: str
    sign: str
    title: str


@dataclass(frozen=True)
class Box:
    """A frame with its contents."""

    x: int
    y: int
    width: int
    height: int
    style: str
    title: str
    texts: tuple[Text, ...] = ()
    tiles: tuple[Tile, ...] = ()


@dataclass(frozen=True)
class Line:
    """A line from a port to a network, or from a network to a server: an SVG path."""

    path: str
    style: str
    title: str


@dataclass(frozen=True)
class Picture:
    """The whole picture; ``description`` says in words what it shows."""

    height: int
    boxes: tuple[Box, ...]
    lines: tuple[Line, ...]
    headings: tuple[Text, ...]
    description: str
    width: int = WIDTH


# A network is named by the logical network or, without one, by its subnets.
_Network = tuple[str, tuple[str, ...]]


@dataclass
class _Place:
    """Where lines begin or end: a height, and what is known there."""

    y: int = 0
    hosts: int = 0
    layers: Counter[str] = field(default_factory=Counter)
    rates: set[int] = field(default_factory=set)
    managers: set[int] = field(default_factory=set)


def picture_of(report: Report) -> Picture:
    """Return the picture of ``report``."""
    groups = groups_of(report)
    networks = _networks(report)
    boxes: list[Box] = []
    lines: list[tuple[int, _Network, str, str]] = []
    texts: list[Text] = []
    y, cluster = _HEADING, None
    for group in groups:
        its = (group.first.data_center, group.first.cluster)
        if its != cluster:
            cluster = its
            texts.append(Text(_HOSTS[0], y + 14, _cluster_name(group.first), "cluster"))
            y += _LINE + 4
        box, ports = _host_box(group, y)
        boxes.append(box)
        for at, network, title in ports:
            lines.append((at, network, "cable", title))
        y += box.height + _GAP
    hosts_end = y
    shown = list(networks)[:_MOST_NETWORKS]
    middle, height = _column(
        [_network_lines(network, networks[network]) for network in shown], hosts_end
    )
    for network, at, (content, title) in zip(
        shown, middle, [_network_lines(n, networks[n]) for n in shown]
    ):
        box = _box(_NETWORKS, at, content, "network", title)
        networks[network].y = at + box.height // 2
        boxes.append(box)
    servers = _servers(report)
    contents = [_server_lines(report, server) for server in servers]
    right, server_height = _column(contents, hosts_end)
    places = {}
    for server, at, (content, title) in zip(servers, right, contents):
        box = _box(_SERVERS, at, content, "server", title)
        places[server] = at + _PAD + _LINE // 2
        boxes.append(box)
    drawn = [
        Line(
            _curve(_HOSTS[0] + _HOSTS[1], at, _NETWORKS[0], networks[network].y),
            style,
            title,
        )
        for at, network, style, title in dict.fromkeys(lines)
        if network in shown
    ]
    drawn += _server_ways(report, networks, shown, places)
    total = max(hosts_end, height, server_height)
    headings = (
        Text(_HOSTS[0], 14, "Hosts, RDMA devices and ports", "heading"),
        Text(_NETWORKS[0], 14, "Networks", "heading"),
        Text(_SERVERS[0], 14, "NFS servers and domains", "heading"),
    )
    return Picture(
        total,
        tuple(boxes),
        tuple(drawn),
        (*headings, *texts),
        _description(report, groups, len(networks), len(servers)),
    )


def _network_of(attached: Attached) -> _Network:
    if attached.network:
        return (attached.network, ())
    return ("", attached.subnets)


def _networks(report: Report) -> dict[_Network, _Place]:
    """Return the networks of active ports, and those by which servers are reached."""
    found: dict[_Network, _Place] = {}
    for host in report.hosts:
        its: set[_Network] = set()
        for device in host.devices or ():
            for port in device.ports:
                for attached in port.attached if port.state == "ACTIVE" else ():
                    network = _network_of(attached)
                    place = found.setdefault(network, _Place())
                    its.add(network)
                    place.layers[port.link_layer] += 1
                    place.rates.add(port.rate_mbps or 0)
                    place.managers |= {port.sm_lid} - {None}  # type: ignore[arg-type]
        for path in host.paths or ():
            if path.attached is not None:
                network = _network_of(path.attached)
                found.setdefault(network, _Place())
                its.add(network)
        for network in its:
            found[network].hosts += 1
    order = sorted(found, key=lambda network: -found[network].hosts)
    return {network: found[network] for network in order}


def _cluster_name(host: ReportHost) -> str:
    names = [f"data center {host.data_center}"] if host.data_center else []
    names += [f"cluster {host.cluster}"] if host.cluster else []
    return ", ".join(names) or "no cluster"


def _host_box(group: HostGroup, y: int) -> tuple[Box, list[tuple[int, _Network, str]]]:
    """Return the box of a group at the height ``y``, and where its lines begin: height,
    network and title.
    """
    first, number = group.first, len(group.hosts)
    title = _group_title(group)
    at = y + _PAD + 13
    texts = [_text(_HOSTS, at, title, "name")]
    tiles: list[Tile] = []
    starts: list[tuple[int, _Network, str]] = []
    if number > 1:
        for index, host in enumerate(group.hosts):
            row, column = divmod(index, _PER_ROW)
            tiles.append(
                Tile(
                    _HOSTS[0] + _PAD + column * _TILE,
                    at + 8 + row * _TILE,
                    host.worst,
                    SIGNS[host.worst],
                    host.name,
                )
            )
        at += 6 + _TILE * (1 + (number - 1) // _PER_ROW)
    for text, style, networks in () if group.others else _host_lines(first):
        at += _LINE
        texts.append(_text(_HOSTS, at, text, style))
        starts += [(at - 4, network, f"{title}: {text}") for network in networks]
    if group.others:
        at += _LINE
        texts.append(_text(_HOSTS, at, "they differ from each other", "muted"))
    style = f"hosts {worst(group.hosts)}"
    height = at + _PAD - y
    return (
        Box(_HOSTS[0], y, _HOSTS[1], height, style, title, tuple(texts), tuple(tiles)),
        starts,
    )


def _group_title(group: HostGroup) -> str:
    first, number = group.first, len(group.hosts)
    if number == 1:
        status = "" if first.status == "up" else f", {first.status or 'unknown'}"
        return f"{SIGNS[first.worst]} {first.name}{status}"
    kind = "other hosts" if group.others else "hosts"
    # As many names as fit beside "and 44 more".
    titles = [f"{number} {kind}: {names_of(group.hosts, most)}" for most in (3, 2, 1)]
    return next((one for one in titles if len(one) <= _most_name(_HOSTS)), titles[-1])


def _host_lines(
    host: ReportHost,
) -> Iterator[tuple[str, str, tuple[_Network, ...]]]:
    """Yield the lines of a host's box: text, style, and the networks to lead to."""
    if host.devices is None:
        yield "no report from the host", "unknown", ()
        return
    if not host.devices:
        yield "no RDMA device", "fail", ()
    ports = 0
    led: set[_Network] = set()
    for device in host.devices:
        yield device_text(device), "", ()
        for port in device.ports:
            ports += 1
            if ports > _MOST_PORTS:
                continue
            active = port.state == "ACTIVE"
            networks = tuple(map(_network_of, port.attached)) if active else ()
            led.update(networks)
            text = port_text(port)
            sign = "●" if active else SIGNS[FAIL]
            yield f"   {sign} {text}", "" if active else "fail", networks
    if ports > _MOST_PORTS:
        yield f"   {ports - _MOST_PORTS} more ports", "muted", ()
    for path in host.paths or ():
        network = _network_of(path.attached) if path.attached else None
        if path.netdev and network not in led:
            leads = (network,) if network else ()
            led.update(leads)
            yield f"   ○ {path.netdev} leads to {path.server}", "muted", leads
    used: Counter[str] = Counter()
    for path in host.paths or ():
        used.update(dict(path.transports))
    if used:
        yield f"storage: {transports_text(used.items())}", "muted", ()


def _network_lines(
    network: _Network, place: _Place
) -> tuple[list[tuple[str, str]], str]:
    """Return the lines of a network's box, each with its style, and its title."""
    name, subnets = network
    title = name or ", ".join(subnets) or "no logical network"
    lines = [(title, "name")]
    if place.layers:
        layers = " and ".join(sorted(place.layers))
        rates = sorted(rate for rate in place.rates if rate)
        rate = ", ".join(map(rate_text, rates[:3]))
        lines.append((f"{layers} {rate}".strip(), ""))
    else:
        lines.append(("no RDMA port", "muted"))
    if place.managers:
        lids = ", ".join(map(str, sorted(place.managers)[:4]))
        lines.append((f"subnet manager: LID {lids}", "muted"))
    lines.append((counted(place.hosts, "host"), "muted"))
    return lines, title


def _servers(report: Report) -> list[str]:
    return list(dict.fromkeys(d.server for d in report.domains))[:_MOST_SERVERS]


def _server_lines(report: Report, server: str) -> tuple[list[tuple[str, str]], str]:
    domains = [domain for domain in report.domains if domain.server == server]
    lines = [(server, "name")]
    for domain in domains[:_MOST_DOMAINS]:
        used = transports_text(domain.used) or "no host"
        lines.append((f"{domain.name}: {used}", ""))
    if len(domains) > _MOST_DOMAINS:
        lines.append((f"{len(domains) - _MOST_DOMAINS} more domains", "muted"))
    return lines, server


def _server_ways(
    report: Report,
    networks: dict[_Network, _Place],
    shown: Sequence[_Network],
    places: dict[str, int],
) -> Iterator[Line]:
    """Yield the lines from networks to servers, one for each transport in use."""
    mounts: Counter[tuple[_Network, str, str]] = Counter()
    for host in report.hosts:
        for path in host.paths or ():
            if path.attached is None or path.server not in places:
                continue
            for word, number in path.transports:
                known = word if word in _TRANSPORTS else _TRANSPORTS[-1]
                mounts[_network_of(path.attached), path.server, known] += number
    for (network, server, word), number in mounts.items():
        if network in shown:
            # Side by side, if there are several.
            shift = 7 * (_TRANSPORTS.index(word) - 1)
            yield Line(
                _curve(
                    _NETWORKS[0] + _NETWORKS[1],
                    networks[network].y + shift,
                    _SERVERS[0],
                    places[server] + shift,
                ),
                word,
                f"{server} over {word}: {counted(number, 'mount')}",
            )


def _column(
    contents: Sequence[tuple[list[tuple[str, str]], str]], beside: int
) -> tuple[list[int], int]:
    """Return the tops of boxes, in the middle of a column of the height ``beside``, and
    the lower end.
    """
    heights = [_PAD * 2 + _LINE * len(lines) for lines, _ in contents]
    whole = sum(heights) + _GAP * max(len(heights) - 1, 0)
    # Not lower than what a reader of the first screen sees.
    y = min(max(_HEADING, (beside - whole) // 2), 240)
    tops = []
    for height in heights:
        tops.append(y)
        y += height + _GAP
    return tops, y


def _box(
    column: tuple[int, int],
    y: int,
    lines: Sequence[tuple[str, str]],
    style: str,
    title: str,
) -> Box:
    texts = tuple(
        _text(column, y + _PAD + 13 + _LINE * number, text, text_style)
        for number, (text, text_style) in enumerate(lines)
    )
    height = _PAD * 2 + _LINE * len(lines)
    return Box(column[0], y, column[1], height, style, title, texts)


def _most_name(column: tuple[int, int]) -> int:
    """Return how many bold characters fit into a box of ``column``."""
    return (column[1] - 2 * _PAD) // _BOLD


def _text(column: tuple[int, int], y: int, text: str, style: str) -> Text:
    """Return a text that fits into a box of ``column``; a long one is shortened."""
    text = printable(text)
    own = (column[1] - 2 * _PAD) // _CHARACTER
    most = _most_name(column) if style == "name" else own
    if len(text) <= most:
        return Text(column[0] + _PAD, y, text, style)
    return Text(column[0] + _PAD, y, f"{text[: most - 1]}…", style, text)


def _curve(x: int, y: int, to_x: int, to_y: int) -> str:
    half = (x + to_x) // 2
    return f"M{x} {y}C{half} {y} {half} {to_y} {to_x} {to_y}"


def _description(
    report: Report, groups: Sequence[HostGroup], networks: int, servers: int
) -> str:
    hosts = counted(len(report.hosts), "host")
    if len(groups) < len(report.hosts):
        hosts += f" in {counted(len(groups), 'group')} of equal hosts"
    return (
        f"{hosts}, with their RDMA devices and ports, at the left; "
        f"{counted(networks, 'network')} in the middle; "
        f"{counted(servers, 'NFS server')} with "
        f"{counted(len(report.domains), 'domain')} at the right. A line shows which "
        "network a port is on, and over which transport a server is reached by it. "
        "The tables below have the same in words."
    )
