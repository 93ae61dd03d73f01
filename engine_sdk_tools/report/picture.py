# SPDX-License-Identifier: GPL-2.0-or-later
"""Lay out the picture of the fabric, and the bars of benchmarks. Pure; the templates
draw them.

Lengths are SVG user units, 1 of which is 1 CSS pixel. The widths of texts are
estimated, because only a browser knows them: a character has 7 units at 13 px, a bold
one 8.

From left to right: groups of equal hosts with their devices and ports, the switches
that the ports are cabled to, the networks that the ports are on, and the NFS servers
with their domains. If no switch is known, lines lead from hosts to networks; otherwise
all lead through the column of switches, so that none passes behind a switch.

A switch is one by its id. What a port is cabled to is the other end's own word
(host/facts, Neighbour), so two that claim the same id are one here.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Optional

from ovirt_rdma.engine_sdk_tools.model import FAIL, worst_of
from ovirt_rdma.engine_sdk_tools.report.model import (
    SIGNS,
    HostBenchmark,
    HostGroup,
    Measured,
    Port,
    Report,
    ReportHost,
    counted,
    groups_of,
    in_order,
    transports_text,
)
from ovirt_rdma.host.facts.devices import SWITCH, Neighbour
from ovirt_rdma.host.system.text import printable
from ovirt_rdma.storage.benchmark.model import (
    SEQUENTIAL_READ,
    SEQUENTIAL_WRITE,
    Spread,
)

_LINE, _PAD, _GAP, _HEADING, _BETWEEN = 19, 9, 16, 30, 60
_CHARACTER, _BOLD, _TILE = 7, 8, 16
# More switches are drawn as one, those with the fewest ports.
MOST_SWITCHES = 16
# Of a box's lines, and of networks and servers.
_MOST = 40
# The transports that are drawn, in their order; others are drawn as the last.
_TRANSPORTS = ("rdma", "tcp", "unknown")

# A kind of box, and which: the number of a group, the id of a switch, or a name.
Key = tuple[str, object]
_MORE: Key = ("switch", None)
_NO_SWITCH: Key = ("no switch", None)
Content = tuple[str, list[tuple[str, str]], Sequence[ReportHost]]
"""The style of a box; its lines, each with its style, the first is the title; and the
hosts that have a sign each below them.
"""


@dataclass(frozen=True)
class Text:
    """A line of text; ``style`` has classes of the style sheet, ``title`` the whole of
    a shortened text, or the name of the host with this sign.
    """

    x: int
    y: int
    text: str
    style: str = ""
    title: str = ""


@dataclass(frozen=True)
class Box:
    """A frame with its texts."""

    x: int
    y: int
    width: int
    height: int
    style: str
    title: str
    texts: list[Text]


class Line(NamedTuple):
    """A line from box to box: an SVG path."""

    path: str
    style: str
    title: str


class Picture(NamedTuple):
    """The whole picture. ``switches``: it has some."""

    width: int
    height: int
    headings: list[Text]
    boxes: list[Box]
    lines: list[Line]
    switches: bool


class _Way(NamedTuple):
    """A port of a host of a group: what it is cabled to, and its networks. ``port`` is
    None for a way to a server by a network that no active RDMA port is on.
    """

    group: int
    host: str
    port: Optional[Port]
    neighbour: Optional[Neighbour]
    networks: tuple[str, ...]

    @property
    def switch(self) -> Optional[str]:
        """The switch's id, or its name without one; None for anything else."""
        if self.neighbour is None or self.neighbour.kind != SWITCH:
            return None
        return self.neighbour.id or self.neighbour.name


def picture_of(report: Report) -> Picture:
    """Return the picture of ``report``."""
    groups = groups_of(report)
    ways = [way for number, group in enumerate(groups) for way in _ways(number, group)]
    ports = Counter(way.switch for way in ways if way.switch)
    drawn = {switch for switch, _ in ports.most_common(MOST_SWITCHES)}
    lines: Counter[tuple[Key, Key, str]] = Counter()
    at_switch: dict[Key, list[_Way]] = {}
    on_network: dict[Key, list[_Way]] = {}
    for way in ways:
        start: Key = ("host", way.group)
        if drawn:
            end = ("switch", way.switch) if way.switch in drawn else _MORE
            end = end if way.switch else _NO_SWITCH
            at_switch.setdefault(end, []).append(way)
            lines[start, end, "cable"] += 1
            start = end
        for name in way.networks:
            on_network.setdefault(("network", name), []).append(way)
            lines[start, ("network", name), "cable"] += 1
    for host in report.hosts:
        for path in host.paths or ():
            network: Key = ("network", str(path.attached))
            for word, number in path.transports if path.attached else ():
                style = word if word in _TRANSPORTS else _TRANSPORTS[-1]
                lines[network, ("server", path.server), style] += number
    columns = (
        ("Hosts, RDMA devices and ports", 390, _hosts(groups)),
        ("Switches", 185, _switches(at_switch)),
        ("Networks", 205, _networks(on_network)),
        ("NFS servers and domains", 250, _servers(report)),
    )
    headings, boxes, x, height = [], {}, _PAD, _HEADING
    for heading, width, contents in columns:
        if not contents:
            continue
        tall = sum(_box(0, 0, width, one).height + _GAP for one in contents.values())
        # In the middle, but not below what a reader of the first screen sees.
        y = _HEADING + min(max(0, (height - _HEADING - tall) // 2), 240)
        for key, content in contents.items():
            boxes[key] = _box(x, y, width, content)
            y += boxes[key].height + _GAP
        headings.append(Text(x, 14, heading, "heading"))
        x, height = x + width + _BETWEEN, max(height, y)
    return Picture(
        x - _BETWEEN + _PAD,
        height,
        headings,
        [*boxes.values()],
        [
            _line(boxes[start], boxes[end], style, number)
            for (start, end, style), number in lines.items()
            if start in boxes and end in boxes
        ],
        bool(drawn),
    )


def _ways(number: int, group: HostGroup) -> Iterator[_Way]:
    for host in group.hosts:
        led: set[str] = set()
        for _, port, neighbour in host.cables:
            names = tuple(dict.fromkeys(map(str, port.attached)))
            yield _Way(number, host.name, port, neighbour, names)
            led.update(names)
        for path in host.paths or ():
            if path.attached and str(path.attached) not in led:
                led.add(str(path.attached))
                yield _Way(number, host.name, None, None, (str(path.attached),))


def _line(start: Box, end: Box, style: str, number: int) -> Line:
    # Those of transports side by side.
    shift = 7 * (_TRANSPORTS.index(style) - 1) if style in _TRANSPORTS else 0
    y, to_y = (box.y + box.height // 2 + shift for box in (start, end))
    x, half = start.x + start.width, start.x + start.width + _BETWEEN // 2
    noun = counted(number, "port" if style == "cable" else "mount")
    over = "" if style == "cable" else f" over {style}"
    path = f"M{x} {y}C{half} {y} {half} {to_y} {end.x} {to_y}"
    return Line(path, style, f"{start.title} to {end.title}: {noun}{over}")


def _box(x: int, y: int, width: int, content: Content) -> Box:
    style, lines, hosts = content
    room = width - 2 * _PAD
    if len(lines) > _MOST:
        lines = [*lines[:_MOST], (f"{len(lines) - _MOST} more", "muted")]
    texts, at = [], y + _PAD + 13
    for line, kind in lines:
        text, most = printable(line), room // (_BOLD if kind == "name" else _CHARACTER)
        shown = text if len(text) <= most else f"{text[: most - 1]}…"
        texts.append(Text(x + _PAD, at, shown, kind, "" if shown == text else text))
        at += _LINE
    for number, host in enumerate(hosts):
        row, place = divmod(number, room // _TILE)
        tile, kind = (x + _PAD + place * _TILE, at + row * _TILE), f"tile {host.worst}"
        texts.append(Text(*tile, SIGNS[host.worst], kind, host.name))
    height = texts[-1].y + _PAD + 6 - y
    return Box(x, y, width, height, style, lines[0][0], texts)


def _hosts(groups: Sequence[HostGroup]) -> dict[Key, Content]:
    """Return the boxes of groups, and above those of a cluster its name."""
    contents: dict[Key, Content] = {}
    for number, group in enumerate(groups):
        first, signs = group.hosts[0], group.hosts if len(group.hosts) > 1 else ()
        if signs:
            names = in_order((host.name for host in group.hosts), 2)
            other = "other hosts" if group.others else "hosts"
            title = f"{len(signs)} {other}: {names}"
        else:
            status = "" if first.status == "up" else f", {first.status or 'unknown'}"
            title = f"{SIGNS[first.worst]} {first.name}{status}"
        contents.setdefault(
            ("cluster", first.place), ("cluster", [(first.place, "muted")], ())
        )
        style = f"hosts {worst_of(host.worst for host in group.hosts)}"
        lines = [(title, "name"), *_host_lines(group)]
        contents["host", number] = (style, lines, signs)
    return contents


def _host_lines(group: HostGroup) -> list[tuple[str, str]]:
    host = group.hosts[0]
    if group.others:
        return [("they differ from each other", "muted")]
    if host.devices is None:
        return [("no report from the host", "unknown")]
    lines = [] if host.devices else [("no RDMA device", "fail")]
    for device in host.devices:
        lines.append((str(device), ""))
        for port in device.ports:
            sign, style = ("●", "") if port.is_active else (SIGNS[FAIL], "fail")
            lines.append((f"   {sign} {port}", style))
    used: Counter[str] = Counter()
    for path in host.paths or ():
        used.update(dict(path.transports))
    if used:
        lines.append((f"storage: {transports_text(used.items())}", "muted"))
    return lines


def _switches(at_switch: dict[Key, list[_Way]]) -> dict[Key, Content]:
    """Return the boxes of switches, in the order of their hosts."""
    contents: dict[Key, Content] = {}
    for key, ways in at_switch.items():
        title = {_MORE: "other switches", _NO_SWITCH: "no switch known"}.get(key, "")
        if not title:
            names = (way.neighbour.name for way in ways if way.neighbour)
            title = next(filter(None, names), str(key[1]))
        hosts = counted(len({way.host for way in ways}), "host")
        lines = [(title, "name"), (f"{counted(len(ways), 'port')} of {hosts}", "muted")]
        contents[key] = ("switch", lines, ())
    return contents


def _networks(on_network: dict[Key, list[_Way]]) -> dict[Key, Content]:
    """Return the boxes of networks, that of the most hosts first."""
    contents: dict[Key, Content] = {}
    hosts = {key: len({way.host for way in ways}) for key, ways in on_network.items()}
    for key in sorted(hosts, key=lambda key: -hosts[key])[:_MOST]:
        ports = [way.port for way in on_network[key] if way.port]
        layers = " and ".join(sorted({port.link_layer for port in ports}))
        lines = [(str(key[1]), "name"), (layers or "no RDMA port", "")]
        lines.append((counted(hosts[key], "host"), "muted"))
        contents[key] = ("network", lines, ())
    return contents


def _servers(report: Report) -> dict[Key, Content]:
    contents: dict[Key, Content] = {}
    for one in report.domains:
        its = ("server", [(one.server, "name")], ())
        _, lines, _ = contents.setdefault(("server", one.server), its)
        used = transports_text(one.used) or "no host"
        lines.append((f"{one.name}: {used}", ""))
    return dict(list(contents.items())[:_MOST])


# Lay out the bars of a benchmark.

# The length of the longest; a rate below _NOTHING is drawn as none.
SCALE, _NOTHING = 1000, 1e-9
_LARGE = (SEQUENTIAL_READ, SEQUENTIAL_WRITE)


class Bar(NamedTuple):
    """A row with its median, its smallest and its largest repeat, and the port's limit,
    in parts of SCALE; None if the limit is not drawn. ``text`` has the same in words.
    """

    row: Measured
    text: str
    middle: int
    least: int
    most: int
    limit: Optional[int]


def bars_of(benchmark: HostBenchmark) -> list[Bar]:
    """Return the rows by load, those of large blocks first, in bytes per second, then
    those of small ones, in operations per second; each on a scale from 0.
    """
    bars = []
    for large in (True, False):
        rows = [row for row in benchmark.rows if (row.load.name in _LARGE) == large]
        rows.sort(
            key=lambda row: (str(row.load), row.setting.version, str(row.setting))
        )
        rates = [row.bytes_per_s if large else row.operations_per_s for row in rows]
        longest = max([_NOTHING, *(rate.most for rate in rates)])
        # Drawn if the scale need not be longer than twice the bars.
        limit = (benchmark.link_limit_mbps or 0) * 125_000 if large else 0
        limit = limit if limit <= 2 * longest else 0
        scale = SCALE / max(longest, limit)
        for row, rate in zip(rows, rates):
            text = (
                f"{spread_text(rate, 1e6)} MB/s"
                if large
                else f"{spread_text(rate)} per second"
            )
            middle = round(rate.middle * scale)
            least, most = round(rate.least * scale), round(rate.most * scale)
            bars.append(
                Bar(row, text, middle, least, most, round(limit * scale) or None)
            )
    return bars


def spread_text(values: Spread, unit: float = 1.0) -> str:
    """Return a median and its spread in ``unit``: ``8,000 (7,920 to 8,080)``."""
    least, middle, most = (
        f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.2g}"
        for value in (values.least / unit, values.middle / unit, values.most / unit)
    )
    return middle if least == most else f"{middle} ({least} to {most})"
