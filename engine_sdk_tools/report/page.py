# SPDX-License-Identifier: GPL-2.0-or-later
"""Make a page of HTML of the report, complete in one file. Pure.

Nothing on it is loaded from elsewhere, and it can be read without scripts; the one that
it has filters tables. Every text may come from a hostile host: Jinja2 escapes each
value, :func:`printable` replaces what is invisible or changes the direction of text,
and no address, style or script is made from a value. The page's Content-Security-Policy
allows only its own style sheet and script, by their digests, so a browser would refuse
what nevertheless got in.
"""

from __future__ import annotations

import base64
import hashlib
import re
import shlex
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    group_by_sentence,
    key_of,
    natural,
    sentences_of,
    worst_of,
)
from ovirt_rdma.engine_sdk_tools.report.model import (
    SIGNS,
    PlanStep,
    Report,
    counted,
    groups_of,
    in_order,
    neighbour_text,
    rate_text,
    transports_text,
    verdict_text,
)
from ovirt_rdma.engine_sdk_tools.report.picture import bars_of, picture_of
from ovirt_rdma.host.export import RDMA, TCP
from ovirt_rdma.host.system.text import printable
from ovirt_rdma.storage.benchmark.limits import mb

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
        history=_history(report),
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


def nfs_text(word: str) -> str:
    """Return an NFS version of the engine's API, ``v4_2``, for people: ``4.2``."""
    version = re.fullmatch(r"v([0-9])(?:_([0-9]))?", word)
    return ".".join(filter(None, version.groups())) if version else word


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
    """Return the devices of each group of equal hosts: hosts, device, firmware, ports,
    and networks.
    """
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
    """Return the rows of cables whose other end is known, those of a switch together;
    and the hosts with an active port whose cable is unknown.
    """
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
    """Return the plans that have steps, each once with its hosts; that of the most
    hosts first.
    """
    plans: dict[tuple[PlanStep, ...], list[str]] = {}
    for host in report.hosts:
        if host.steps:
            plans.setdefault(host.steps, []).append(host.name)
    return sorted(plans.items(), key=lambda plan: (-len(plan[1]), natural(plan[1][0])))


def _history(report: Report) -> list[tuple[str, ...]]:
    """Return the lines of the history, the newest first: a time in ISO 8601, where,
    what, its outcome, and details.
    """
    rows = [(e.at, "engine", e.text, e.severity, "") for e in report.events or ()]
    for host in report.hosts:
        for run in host.runs or ():
            steps = ", ".join(run.steps[:6]) + (" and more" if run.steps[6:] else "")
            applied = f"{counted(len(run.steps), 'step')}: {steps}" if steps else ""
            more = "; ".join(filter(None, (applied, run.sentence)))
            rows.append((run.at, host.name, run.by, run.outcome, more))
        for one in host.fallen:
            what = f"{one.export} fell to {one.transport}, against rule '{one.rule}'"
            rows.append((one.since or "", host.name, what, "degraded", one.reason))
    rows.sort(key=lambda row: row[0], reverse=True)
    return [(_time(at) or "-", *others) for at, *others in rows]
