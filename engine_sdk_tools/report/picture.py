# SPDX-License-Identifier: GPL-2.0-or-later
"""Lay out the picture of the fabric and the charts of benchmarks: boxes, lines, bars.
Pure; the templates draw them.

All lengths are SVG user units, 1 of which is 1 CSS pixel. The widths of texts are
estimated, because only a browser knows them: a character has 7 units at 13 px, a bold
one 8.

From left to right: groups of equal hosts with their devices and ports, the switches
that the ports are cabled to, the networks that the ports are on, and the NFS servers
with their domains. A line leads from each port to its switch, from a switch to the
networks of the ports there, and from a network to each server that is reached by it. If
no switch is known there is no column of switches, and lines lead from ports to
networks; otherwise all lines lead through it, so that none passes behind a switch.

A bar is as long as the median of the repeats; a whisker reaches from the smallest to
the largest. Large blocks are drawn in MB/s, small ones in operations per second, each
with a scale of its own that begins at 0. Lengths are SVG user units, as in
:mod:`.shapes`.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from statistics import fmean
from typing import Callable, NamedTuple, Optional, TypeVar

from ovirt_rdma.engine_sdk_tools.model import FAIL, worst_of
from ovirt_rdma.engine_sdk_tools.report.model import (
    NO_SWITCH,
    SIGNS,
    HostBenchmark,
    HostGroup,
    Measured,
    Network,
    NetworkUse,
    Port,
    Report,
    ReportHost,
    Switches,
    SwitchKey,
    SwitchUse,
    counted,
    device_text,
    groups_of,
    in_order,
    names_of,
    neighbour_text,
    network_of,
    networks_of,
    other_ways,
    port_text,
    rate_text,
    transports_text,
)
from ovirt_rdma.host.export import RDMA, TCP
from ovirt_rdma.host.facts.devices import SWITCH
from ovirt_rdma.host.system.text import printable
from ovirt_rdma.storage.benchmark.model import (
    RANDOM_READ,
    RANDOM_WRITE,
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Load,
    Spread,
    apart,
)

Key = TypeVar("Key")

LINE, PAD, GAP, HEADING = 19, 9, 16, 30
_CHARACTER, _BOLD = 7, 8

Column = tuple[int, int]
"""The left edge and the width of a column."""
Content = tuple[list[tuple[str, str]], str]
"""The lines of a box, each with its style, and the title of the box."""


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

    @property
    def middle(self) -> int:
        """The height of its middle, where lines begin and end."""
        return self.y + self.height // 2


@dataclass(frozen=True)
class Line:
    """A line from box to box: an SVG path."""

    path: str
    style: str
    title: str


def stacked(
    column: Column, style: str, contents: Mapping[Key, Content], beside: int
) -> dict[Key, Box]:
    """Return boxes in the middle of a column of the height ``beside``, by their keys in
    ``contents``.
    """
    whole = sum(PAD * 2 + LINE * len(lines) + GAP for lines, _ in contents.values())
    # Not lower than what a reader of the first screen sees.
    y = min(max(HEADING, (beside - whole + GAP) // 2), 240)
    boxes = {}
    for key, content in contents.items():
        boxes[key] = _box(column, y, style, content)
        y += boxes[key].height + GAP
    return boxes


def _box(column: Column, y: int, style: str, content: Content) -> Box:
    lines, title = content
    texts = tuple(
        fitted(column, y + PAD + 13 + LINE * number, text, text_style)
        for number, (text, text_style) in enumerate(lines)
    )
    height = PAD * 2 + LINE * len(lines)
    return Box(column[0], y, column[1], height, style, title, texts)


def levelled(
    column: Column,
    style: str,
    contents: Mapping[Key, Content],
    middles: Sequence[float],
) -> dict[Key, Box]:
    """Return boxes in the order of ``contents``, all with as many lines; the middle of
    each is as near to its height in ``middles``, which rise, as the others allow.
    """
    lines = max((len(one) for one, _ in contents.values()), default=0)
    height = PAD * 2 + LINE * lines
    step = height + GAP
    # Isotonic regression: boxes that would lie on each other move as one block. A block
    # is the sum and the number of the tops that its boxes would have without it.
    blocks: list[tuple[float, int]] = []
    for number, middle in enumerate(middles):
        block = (middle - height // 2 - number * step, 1)
        while blocks and blocks[-1][0] / blocks[-1][1] > block[0] / block[1]:
            before = blocks.pop()
            block = (before[0] + block[0], before[1] + block[1])
        blocks.append(block)
    tops = [
        max(round(total / number), HEADING)
        for total, number in blocks
        for _ in range(number)
    ]
    return {
        key: _box(column, top + number * step, style, content)
        for number, (top, (key, content)) in enumerate(zip(tops, contents.items()))
    }


def most_name(column: Column) -> int:
    """Return how many bold characters fit into a box of ``column``."""
    return (column[1] - 2 * PAD) // _BOLD


def fitted(column: Column, y: int, text: str, style: str) -> Text:
    """Return a text that fits into a box of ``column``; a long one is shortened."""
    text = printable(text)
    own = (column[1] - 2 * PAD) // _CHARACTER
    most = most_name(column) if style == "name" else own
    if len(text) <= most:
        return Text(column[0] + PAD, y, text, style)
    return Text(column[0] + PAD, y, f"{text[: most - 1]}…", style, text)


def curve(x: int, y: int, to_x: int, to_y: int) -> str:
    """Return the path of a line that leaves and arrives horizontally."""
    half = (x + to_x) // 2
    return f"M{x} {y}C{half} {y} {half} {to_y} {to_x} {to_y}"


# Lay out the picture of the fabric: hosts, networks and servers in columns.


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
    style = f"hosts {worst_of(h.worst for h in group.hosts)}"
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
        way = _Way((network,), {NO_SWITCH: ""}) if network else None
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
            if way.networks or key != NO_SWITCH:
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


# Lay out the chart of a benchmark: RDMA beside TCP by load, with the spread.

WIDTH = 1060
# Left edges: of the names of transports, the bars, and the figures; and the bars' end.
_TRANSPORT, _BARS, _END, _FIGURES = 245, 292, 820, 846
_LINE, _BAR, _GAP, _HEADING, _AXIS = 19, 13, 12, 30, 34
# The length of a whisker's end, above and below the line.
_CAP = 4
# A rate below this is drawn as none, in units of the panel.
_NOTHING = 1e-9
# Of one panel; a result of ours has at most 4.
_MOST_LOADS = 8
# The port's limit is drawn if the scale need not be longer than this times the bars.
_STRETCH = 2.0
_LARGE, _SMALL = (SEQUENTIAL_READ, SEQUENTIAL_WRITE), (RANDOM_READ, RANDOM_WRITE)


@dataclass(frozen=True)
class Bar:
    """A median: a rectangle. ``style`` is ``rdma`` or ``tcp``."""

    x: int
    y: int
    width: int
    height: int
    style: str


@dataclass(frozen=True)
class Stroke:
    """A whisker, a line of the grid, or the port's limit: an SVG path."""

    path: str
    style: str


@dataclass(frozen=True)
class Chart:
    """The whole chart; ``description`` has the same in words."""

    title: str
    description: str
    height: int
    texts: tuple[Text, ...]
    bars: tuple[Bar, ...]
    strokes: tuple[Stroke, ...]
    width: int = WIDTH


@dataclass(frozen=True)
class _Pair:
    """One load, and the rows of RDMA and TCP, one of which may be missing."""

    load: Load
    rows: dict[str, Measured]


@dataclass(frozen=True)
class _Panel:
    """Loads on one scale. ``value`` is what is drawn, ``factor`` of its unit."""

    title: str
    unit: str
    pairs: tuple[_Pair, ...]
    value: Callable[[Measured], Spread]
    factor: float
    limit: Optional[float] = None

    def scaled(self, row: Measured) -> Spread:
        """Return the values of a row in the panel's unit."""
        its, factor = self.value(row), self.factor
        return Spread(
            its.middle / factor, its.least / factor, its.most / factor, its.repeats
        )


def chart_of(benchmark: HostBenchmark) -> Optional[Chart]:
    """Return the chart of the verdict's NFS version, with the fewest connections that
    were measured; None if there is nothing to draw.
    """
    shown = [panel for panel in _panels(benchmark) if panel.pairs]
    if not shown:
        return None
    texts: list[Text] = []
    bars: list[Bar] = []
    strokes: list[Stroke] = []
    y = 0
    for panel in shown:
        y = _draw(panel, y, texts, bars, strokes)
    return Chart(
        f"NFS {benchmark.nfs_version}: RDMA beside TCP",
        ". ".join(sentence for panel in shown for sentence in _sentences(panel)) + ".",
        y - _GAP,
        tuple(texts),
        tuple(bars),
        tuple(strokes),
    )


def _panels(benchmark: HostBenchmark) -> Iterator[_Panel]:
    limit = benchmark.link_limit_mbps
    yield _Panel(
        "Large blocks, MB/s",
        "MB/s",
        tuple(_pairs(benchmark, _LARGE)),
        lambda row: row.bytes_per_s,
        1e6,
        limit / 8 if limit else None,
    )
    yield _Panel(
        "Small blocks, operations per second",
        "per second",
        tuple(_pairs(benchmark, _SMALL)),
        lambda row: row.operations_per_s,
        1.0,
    )


def _pairs(benchmark: HostBenchmark, names: Sequence[str]) -> Iterator[_Pair]:
    rows = [
        row
        for row in benchmark.rows
        if row.load.name in names
        and row.setting.version == benchmark.nfs_version
        and row.setting.transport in (RDMA, TCP)
    ]
    fewest: dict[str, int] = {}
    for row in sorted(rows, key=lambda row: -row.setting.nconnect):
        fewest[row.setting.transport] = row.setting.nconnect
    loads: dict[Load, dict[str, Measured]] = {}
    for row in rows:
        if row.setting.nconnect == fewest[row.setting.transport]:
            loads.setdefault(row.load, {})[row.setting.transport] = row
    order = sorted(
        loads, key=lambda one: (names.index(one.name), one.block_bytes, one.depth)
    )
    return (_Pair(load, loads[load]) for load in order[:_MOST_LOADS])


def _draw(
    panel: _Panel,
    y: int,
    texts: list[Text],
    bars: list[Bar],
    strokes: list[Stroke],
) -> int:
    """Add a panel whose upper edge is ``y``; return its lower edge."""
    longest = max(
        panel.scaled(row).most for pair in panel.pairs for row in pair.rows.values()
    )
    limit = panel.limit
    if limit is not None and limit > _STRETCH * longest:
        limit = None
    step, ticks = _ticks(max(longest, limit or 0.0))
    scale = (_END - _BARS) / (step * ticks)
    texts.append(Text(0, y + 14, panel.title, "heading"))
    top = y + _HEADING - 6
    y += _HEADING
    grid = len(strokes)
    drawn: list[Stroke] = []
    for pair in panel.pairs:
        texts.append(Text(0, y + 13, str(pair.load)))
        texts.append(Text(0, y + 13 + _LINE, _ratio_text(panel, pair), "muted"))
        for transport in (RDMA, TCP):
            row = pair.rows.get(transport)
            texts.append(Text(_TRANSPORT, y + 13, transport.upper(), "muted"))
            texts.append(Text(_FIGURES, y + 13, _figures(panel, row)))
            if row is not None:
                its = panel.scaled(row)
                width = max(round(its.middle * scale), 1)
                bars.append(Bar(_BARS, y + 3, width, _BAR, transport))
                drawn += _whisker(its, scale, y + 3 + _BAR // 2, row.repeats)
            y += _LINE
        y += _GAP
    bottom = y - _GAP // 2
    for number in range(ticks + 1):
        x = _BARS + round(number * step * scale)
        strokes.insert(grid, Stroke(f"M{x} {top}V{bottom}", "grid"))
        texts.append(Text(x, bottom + 15, _number(number * step), "tick"))
    if limit is not None:
        x = _BARS + round(limit * scale)
        drawn.append(Stroke(f"M{x} {top}V{bottom}", "limit"))
    strokes += drawn
    return bottom + _AXIS


def _whisker(its: Spread, scale: float, y: int, repeats: int) -> Iterator[Stroke]:
    """Yield a whisker over its halo, which keeps it readable on the bar."""
    if repeats < 2:
        return
    low, high = (_BARS + round(value * scale) for value in (its.least, its.most))
    ends = "".join(f"M{x} {y - _CAP}V{y + _CAP}" for x in (low, high))
    for style in ("halo", "whisker"):
        yield Stroke(f"M{low} {y}H{high}{ends}", style)


def _ticks(longest: float) -> tuple[float, int]:
    """Return the step of a scale, 1, 2 or 5 times a power of ten, and how many steps
    reach ``longest``: at most 6.
    """
    # No transport is that slow, and a float has no scale for it.
    if longest < _NOTHING:
        return 1.0, 1
    power = 10.0 ** math.floor(math.log10(longest / 6))
    step = next(
        power * times for times in (1, 2, 5, 10) if power * times * 6 >= longest
    )
    return step, max(1, math.ceil(longest / step))


def _ratio_text(panel: _Panel, pair: _Pair) -> str:
    if len(pair.rows) < 2:
        return "measured with one transport"
    rdma, tcp = (panel.scaled(pair.rows[one]) for one in (RDMA, TCP))
    if not apart(rdma, tcp):
        return "no difference beyond spread"
    slow, quick = sorted((rdma.middle, tcp.middle))
    names = ("RDMA", "TCP") if quick == rdma.middle else ("TCP", "RDMA")
    if slow <= 0:
        return f"{names[1]} moved nothing"
    return f"{names[0]} {quick / slow:.1f} times {names[1]}"


def _figures(panel: _Panel, row: Optional[Measured]) -> str:
    if row is None:
        return "not measured"
    return spread_text(panel.scaled(row))


def spread_text(values: Spread, unit: float = 1.0) -> str:
    """Return a median and its spread in ``unit``: ``8,000 (7,920 to 8,080)``."""
    least, middle, most = (
        _number(value / unit) for value in (values.least, values.middle, values.most)
    )
    return middle if least == most else f"{middle} ({least} to {most})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"


def _sentences(panel: _Panel) -> Iterator[str]:
    for pair in panel.pairs:
        parts = [
            f"{transport.upper()} {_figures(panel, pair.rows.get(transport))}"
            for transport in (RDMA, TCP)
        ]
        yield f"{pair.load}, {panel.unit}: {', '.join(parts)}"
    if panel.limit is not None:
        yield f"The port can carry {_number(panel.limit)} MB/s"
