# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a page of HTML of the report, complete in one file, with the picture of the
fabric and the bars of benchmarks, which the templates draw. Pure.

Nothing on it is loaded from elsewhere, and it can be read without scripts; the one that
it has filters tables. Every text may come from a hostile host: Jinja2 escapes each
value, :func:`printable` replaces what is invisible or changes the direction of text,
and no address, style or script is made from a value. Besides, its Content-Security-
Policy allows only its own style sheet and script, by their digests.

Lengths are SVG user units, 1 of which is 1 CSS pixel. The widths of texts are
estimated: a character has 7 units at 13 px, a bold one 8.

From left to right: groups of equal hosts with their devices and ports, the switches
that the ports are cabled to, the networks that the ports are on, and the NFS servers
with their domains. If a switch is known, all lines lead through the column of switches,
so that none passes behind one. A switch is one by its id, the other end's own word
(host/facts, Neighbour): two that claim the same id are one here.

The data of the administration portal's plugin (docs/portal.md) are for its service
alone. Those of 250 hosts and 8 domains have to be below 300 kB: most hosts say the
same, so each cell is the number of one of ``cells``, and each host's row that of one of
``rows``. Every text is printable, because the plugin shows it as it is.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Optional

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from ovirt_rdma.engine_sdk_tools.model import (
    ATTENTION,
    FAIL,
    OK,
    UNKNOWN,
    VERDICTS,
    WARN,
    Cell,
    Matrix,
    OnHost,
    counted,
    group_by_sentence,
    key_of,
    natural,
    nfs_text,
    sentences_of,
    worst_of,
)
from ovirt_rdma.engine_sdk_tools.report.model import (
    SIGNS,
    HostBenchmark,
    HostGroup,
    Measured,
    PlanStep,
    Port,
    Report,
    ReportDomain,
    ReportHost,
    groups_of,
    in_order,
    neighbour_text,
    rate_text,
    shortened,
    transports_text,
    verdict_text,
)
from ovirt_rdma.host.errors import Problem as Refusal
from ovirt_rdma.host.export import RDMA, TCP
from ovirt_rdma.host.facts.devices import SWITCH, Neighbour
from ovirt_rdma.host.system.text import printable
from ovirt_rdma.storage.benchmark.model import SEQUENTIAL_READ, SEQUENTIAL_WRITE, Spread
from ovirt_rdma.storage.benchmark.verdict import mb

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


_TEMPLATES = Path(__file__).parent / "templates"
# Of each list, of results of bench, and of the rows of one. More would make the page
# long, and hide the worst. -o json has all.
MOST_SHOWN, MOST_RESULTS, _MOST_ROWS = 200, 40, 48


def html_of(report: Report) -> bytes:
    """Return the page, in UTF-8."""
    parts: dict[str, Any] = {}
    for name, file in (("style", "report.css"), ("script", "report.js")):
        text = (_TEMPLATES / file).read_text("utf-8")
        digest = hashlib.sha256(text.encode("utf-8")).digest()
        parts[f"{name}_digest"] = base64.b64encode(digest).decode("ascii")
        parts[name] = Markup(text)  # noqa: S704  (ours)
    problems = problems_of(report)
    numbers = {
        cell: number
        for number, problem in enumerate(problems[:MOST_SHOWN], 1)
        for one in (problem, *problem.also)
        for cell in one.cells
    }
    shown = _ENVIRONMENT.get_template("report.html").render(
        **parts,
        report=report,
        verdict=verdict_text(report),
        worst=worst_of(host.worst for host in report.hosts),
        figures=list(_figures(report)),
        picture=picture_of(report),
        problems=problems,
        checks=_clusters(report, report.checks, numbers),
        transports=_clusters(report, report.transports, numbers),
        devices=_devices(report),
        cables=_cables(report),
        plans=_plans(report),
        proofs=group_by_sentence(sentences_of(report.transports, {OK})),
        most=MOST_SHOWN,
        most_results=MOST_RESULTS,
        most_rows=_MOST_ROWS,
    )
    return shown.encode("utf-8", "backslashreplace")


def _finalized(value: Any) -> Any:
    """Return a value of a template as it is shown; None as a dash."""
    if value is None:
        return "-"
    # Objects too: what str() makes of them may have a text of a host.
    return value if isinstance(value, Markup) else printable(str(value))


def _time(text: str) -> str:
    """Return an ISO 8601 time in UTC for people; another text unchanged."""
    digits = r"([0-9]{4}-[0-9]{2}-[0-9]{2})T([0-9]{2}:[0-9]{2})[0-9:.]*Z"
    return re.sub(rf"\A{digits}\Z", r"\1 \2 UTC", text)


_ENVIRONMENT = Environment(
    loader=FileSystemLoader(str(_TEMPLATES)),
    autoescape=True,
    undefined=StrictUndefined,
    finalize=_finalized,
    trim_blocks=True,
    lstrip_blocks=True,
)
_ENVIRONMENT.filters.update(
    bars=bars_of,
    counted=counted,
    mb=mb,
    names=in_order,
    nfs=nfs_text,
    rate=rate_text,
    time=_time,
    transports=transports_text,
)
_ENVIRONMENT.globals.update(
    signs=SIGNS, heads={FAIL: "Failed", UNKNOWN: "Unknown", WARN: "Warning"}
)


def _figures(report: Report) -> Iterator[tuple[str, str, str]]:
    """Yield the numbers of the summary: number, noun, and a verdict for its colour."""
    hosts, used = report.hosts, Counter[str]()
    for domain in report.domains:
        used.update(dict(domain.used))
    well = sum(host.worst == OK for host in hosts)
    worst = worst_of(host.worst for host in hosts)
    yield f"{well} of {len(hosts)}", "hosts are well", worst
    yield str(used[RDMA]), "mounts over RDMA", ""
    for number, noun, verdict in (
        (sum(host.devices is None for host in hosts), "did not report", UNKNOWN),
        (len(report.domains), "NFS domains", ""),
        (used[TCP], "mounts over TCP", ""),
        (used["not mounted"], "not mounted", ""),
        (used["unproven"], "mounts not proven", ""),
        (used["unknown"], "mounts unknown", ""),
        (sum(bool(host.steps) for host in hosts), "hosts with a plan", WARN),
    ):
        if number:
            yield str(number), noun, verdict


@dataclass
class Problem:
    """A sentence of the matrices that needs attention, its hosts, and its ``cells``:
    row and column. If it is true of several ``domains``, DOMAIN replaces their names.
    ``also`` are the others about the same hosts.
    """

    verdict: str
    hosts: tuple[str, ...]
    sentence: str
    fix: str
    cells: list[tuple[int, int]]
    domains: str = ""
    also: Sequence[Problem] = ()


# Of checks that fail together, the cause comes first.
_CAUSES = ("package", "hooks", "enabled", "running", "rdma ports", "rules")


def problems_of(report: Report) -> list[Problem]:
    """Return what needs attention in both matrices, the worst first, then what most
    hosts have. What the same hosts have is one: the cause before what follows from it,
    then domains, and warnings last.
    """
    ranks = {
        column: _CAUSES.index(axis.name) if axis.name in _CAUSES else len(_CAUSES)
        for column, axis in enumerate(report.checks.columns)
    }
    of_hosts: dict[tuple[str, ...], list[Problem]] = {}
    for one in _sentences(report):
        of_hosts.setdefault(one.hosts, []).append(one)
    for its in of_hosts.values():
        its.sort(
            key=lambda one: (
                one.verdict == WARN,
                ranks.get(one.cells[0][1], len(ranks)),
            )
        )
        its[0].also = its[1:]
        its[0].verdict = worst_of(one.verdict for one in its)
    found = [its[0] for its in of_hosts.values()]
    found.sort(key=lambda one: (ATTENTION.index(one.verdict), -len(one.hosts)))
    return found


def _sentences(report: Report) -> list[Problem]:
    """Return each sentence once, in the order of hosts and columns."""
    sentences: list[OnHost] = []
    cells_of: dict[tuple[str, str, str], list[tuple[int, int]]] = {}
    for row, host in enumerate(report.hosts):
        for column, cell in enumerate(report.cells(row)):
            if cell.verdict in ATTENTION and cell.sentence:
                words = (cell.sentence, cell.fix, cell.verdict)
                sentences.append(OnHost(host.name, host.address, *words))
                cells_of.setdefault(key_of(sentences[-1]), []).append((row, column))
    domains = [""] * len(report.checks.columns)
    domains += [axis.name for axis in report.transports.columns]
    # What differs only by the domain, on the same hosts, is one.
    alike: dict[object, tuple[Problem, list[str]]] = {}
    for cells, group in zip(cells_of.values(), group_by_sentence(sentences)):
        domain = domains[cells[0][1]]
        whole = [_without(domain, text) for text in (group.sentence, group.fix)]
        new = Problem(group.verdict, group.hosts, group.sentence, group.fix, [])
        one, names = alike.setdefault((group.verdict, group.hosts, *whole), (new, []))
        one.cells += cells
        names.append(domain)
    for one, names in alike.values():
        if len(names) > 1:
            one.domains = in_order(names, 6)
            one.sentence = _without(names[0], one.sentence)
            heal = f"domain heal {shlex.quote(names[0])}"
            for_all = one.fix.replace(heal, f"domain heal {shlex.join(names)}")
            one.fix = for_all if heal in one.fix else _without(names[0], one.fix)
    return [one for one, _ in alike.values()]


def _without(domain: str, text: str) -> str:
    """Return ``text`` with DOMAIN in place of the name of a domain."""
    if domain not in text or not domain:
        return text
    # No part of another name.
    return re.sub(rf"(?<![\w.-]){re.escape(domain)}(?![\w-]|\.\w)", "DOMAIN", text)


def _clusters(
    report: Report, matrix: Matrix, numbers: dict[tuple[int, int], int]
) -> list[tuple[str, list[tuple[str, list[tuple[Cell, int]]]]]]:
    """Return the rows of a matrix by cluster: the name of a host, and its cells, each
    with the number of its problem or 0. Those that need attention come first.
    """
    first = 0 if matrix is report.checks else len(report.checks.columns)
    clusters: dict[str, list[tuple[str, list[tuple[Cell, int]]]]] = {}
    order = []
    for row, (host, cells) in enumerate(zip(report.hosts, matrix.cells)):
        worst = VERDICTS.index(worst_of(cell.verdict for cell in cells))
        # The others in the order of their names, whatever does not apply to them.
        well = min(worst, VERDICTS.index(OK))
        order.append((natural(host.place), well, natural(host.name), row))
    for *_, row in sorted(order):
        host, cells = report.hosts[row], matrix.cells[row]
        its = [(cell, numbers.get((row, first + n), 0)) for n, cell in enumerate(cells)]
        clusters.setdefault(host.place, []).append((host.name, its))
    return list(clusters.items())


def _devices(report: Report) -> list[tuple[str, ...]]:
    """Return hosts, device, firmware, ports and networks of each group."""
    rows: list[tuple[str, ...]] = []
    for group in groups_of(report):
        for hosts in zip(group.hosts) if group.others else (group.hosts,):
            names = in_order((host.name for host in hosts), 40)
            devices = hosts[0].devices
            if not devices:
                none = (
                    "no report from the host" if devices is None else "no RDMA device"
                )
                rows.append((names, none, "-", "-", "-"))
            for number, device in enumerate(devices or ()):
                # Equal hosts have it at the same place.
                same = [host.devices[number] for host in hosts if host.devices]
                firmware = in_order({one.firmware or "unknown" for one in same}, 3)
                ports = "; ".join(map(str, device.ports))
                ends = [one for port in device.ports for one in port.attached]
                networks = "; ".join(f"{one.netdev}: {one}" for one in ends)
                rows.append((names, str(device), firmware, ports, networks))
    return rows


def _cables(report: Report) -> tuple[list[Any], set[str]]:
    """Return the rows of known cables, by switch, and the hosts with unknown ones."""
    rows, unknown = [], set()
    for host in report.hosts:
        for device, port, its in host.cables:
            if its is None:
                unknown.add(host.name)
                continue
            end = f"{device}/{port.number}" + (f", {its.netdev}" if its.netdev else "")
            networks = ", ".join(dict.fromkeys(map(str, port.attached)))
            far = (neighbour_text(its), its.port_title or "-", its.id or "-")
            rows.append((*far, host.name, end, networks))
    rows.sort(key=lambda row: [natural(row[n]) for n in (0, 2, 1, 3, 4)])
    return rows, unknown


def _plans(report: Report) -> list[tuple[tuple[PlanStep, ...], list[str]]]:
    """Return the plans with their hosts, that of the most hosts first."""
    plans: dict[tuple[PlanStep, ...], list[str]] = {}
    for host in report.hosts:
        if host.steps:
            plans.setdefault(host.steps, []).append(host.name)
    return sorted(plans.items(), key=lambda plan: (-len(plan[1]), natural(plan[1][0])))


# Make the data of the portal's plugin.

# systemd hands at most 1 MB to a service (CREDENTIALS_TOTAL_SIZE_MAX, systemd 252).
MOST_BYTES = 1_000_000
# Characters of a sentence; fewer where every host says something else.
_MOST_TEXT = (600, 100, 10)
_MOST_NAME, _MOST_ALSO = 255, 20


def portal_file(report: Report) -> bytes:
    """Return the file, JSON in UTF-8. Raises Problem if it would be too large."""
    for most in _MOST_TEXT:
        document = portal_document(report, most)
        text = json.dumps(document, ensure_ascii=False, separators=(",", ":"))
        data = text.encode("utf-8", "backslashreplace")
        if len(data) <= MOST_BYTES:
            return data
    raise Refusal(
        "portal-data-too-large",
        f"the data for the portal have {len(data)} bytes; {MOST_BYTES} are the most",
        "choose a data center with --datacenter",
    )


def portal_document(report: Report, most: int = _MOST_TEXT[0]) -> dict[str, Any]:
    """Return the document; ``rows[hosts[n].row]`` are the cells of a host, those of
    ``checks`` before those of ``domains``. A sentence has at most ``most`` characters.
    """
    cells: dict[tuple[str, ...], int] = {}
    rows: dict[tuple[int, ...], int] = {}
    hosts = []
    for number, host in enumerate(report.hosts):
        its = tuple(
            cells.setdefault(_cell(cell, most), len(cells))
            for cell in report.cells(number)
        )
        name = _text(host.name)
        hosts.append(
            {
                "id": host.id,
                "name": name,
                "cluster": _text(host.place),
                "status": host.status,
                "worst": host.worst,
                "problem": _text(host.problem),
                "fix": _text(host.fix),
                "row": rows.setdefault(its, len(rows)),
                "commands": [f"ovirt-rdma hosts check {shlex.quote(name)}"],
            }
        )
    problems = problems_of(report)
    return {
        "schema_version": 1,
        "kind": "portal",
        "made_at": report.made_at,
        "version": report.version,
        "engine_url": report.engine_url,
        "engine_version": report.engine_version,
        "sentence": verdict_text(report),
        "checks": [column.name for column in report.checks.columns],
        "domains": [_domain(domain) for domain in report.domains],
        "hosts": hosts,
        "cells": list(cells),
        "rows": list(rows),
        "findings": [_finding(one, most) for one in problems[:MOST_SHOWN]],
        "findings_left": max(len(problems) - MOST_SHOWN, 0),
        "notes": [_text(note, most) for note in report.notes[:_MOST_ALSO]],
    }


def _text(text: Optional[str], most: int = _MOST_NAME) -> str:
    return str(shortened(printable(text or ""), most))


def _cell(cell: Cell, most: int) -> tuple[str, ...]:
    """Return verdict and text, and for what needs attention sentence and fix: the proof
    of a mount that is well has the host's addresses in it.
    """
    short = (cell.verdict, _text(cell.text))
    if cell.verdict not in ATTENTION:
        return short
    return (*short, _text(cell.sentence, most), _text(cell.fix, most))


def _domain(domain: ReportDomain) -> dict[str, Any]:
    name, used = _text(domain.name), dict(domain.used)
    word = shlex.quote(name)
    is_rdma = domain.engine_asks == RDMA or (RDMA in used and TCP not in used)
    other = TCP if is_rdma else RDMA
    return {
        "id": domain.id,
        "name": name,
        "data_center": _text(domain.data_center),
        "status": domain.status,
        "export": _text(domain.export),
        "nfs_version": domain.nfs_version and nfs_text(domain.nfs_version),
        "engine_asks": domain.engine_asks,
        "used": used,
        "commands": [
            f"ovirt-rdma domain verify {word}",
            f"ovirt-rdma domain heal {word} --dry-run",
            f"ovirt-rdma domain convert {word} --to {other} --rolling --dry-run",
            f"ovirt-rdma domain revert {word} --dry-run",
        ],
    }


def _finding(problem: Problem, most: int) -> dict[str, Any]:
    return {
        "verdict": problem.verdict,
        "hosts": [_text(name) for name in sorted(problem.hosts, key=natural)],
        "sentence": _text(problem.sentence, most),
        "fix": _text(problem.fix, most),
        "domains": _text(problem.domains),
        "also": [_finding(one, most) for one in problem.also[:_MOST_ALSO]],
    }
