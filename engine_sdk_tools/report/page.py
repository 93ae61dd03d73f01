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
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
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
    OnHosts,
    group_by_sentence,
    key_of,
    listed,
    natural,
    worst_of,
)
from ovirt_rdma.engine_sdk_tools.report.model import (
    SIGNS,
    Report,
    ReportHost,
    cables_of,
    counted,
    device_text,
    groups_of,
    in_order,
    names_of,
    neighbour_text,
    network_of,
    plans_of,
    port_text,
    rate_text,
    verdict_text,
)
from ovirt_rdma.engine_sdk_tools.report.picture import chart_of, picture_of, spread_text
from ovirt_rdma.host.export import RDMA, TCP
from ovirt_rdma.host.system.text import printable
from ovirt_rdma.storage.benchmark.limits import mb

_TEMPLATES = Path(__file__).parent / "templates"
# More would make the page long, and hide the newest or the worst. -o json has all.
MOST_PROBLEMS, MOST_PROOFS, MOST_RUNS, MOST_PLANS = 200, 100, 300, 60
MOST_CABLES = 600
MOST_CHARTS, MOST_MEASURED, MOST_SHORT = 40, 48, 500
# A text of a file that another host may have written; a plain one is much shorter.
_MOST_TEXT = 300
# The words for the head of a problem.
_HEADS = {FAIL: "Failed", UNKNOWN: "Unknown", WARN: "Warning"}


def html_of(report: Report) -> bytes:
    """Return the page, in UTF-8."""
    style, script = (
        (_TEMPLATES / name).read_text("utf-8") for name in ("report.css", "report.js")
    )
    shown = (
        _environment()
        .get_template("report.html")
        .render(
            report=report,
            style=Markup(style),  # noqa: S704  (ours, as the next)
            script=Markup(script),  # noqa: S704
            style_digest=_digest(style),
            script_digest=_digest(script),
            verdict=verdict_text(report),
            worst=worst_of(h.worst for h in report.hosts),
            figures=_figures(report),
            picture=picture_of(report),
            problems=Problems(report),
            tables=(_table(report, report.checks), _table(report, report.transports)),
            groups=groups_of(report),
            cables=_cables(report),
            plans=plans_of(report),
            history=_history(report),
            unread=_unread(report),
            proofs=_proofs(report),
            charts=[(one, chart_of(one)) for one in report.benchmarks[:MOST_CHARTS]],
            most_measured=MOST_MEASURED,
            most_short=MOST_SHORT,
            most_problems=MOST_PROBLEMS,
            most_plans=MOST_PLANS,
        )
    )
    return shown.encode("utf-8", "backslashreplace")


@lru_cache(1)
def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(str(_TEMPLATES)),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalized,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(
        counted=counted,
        cut=_cut,
        device=device_text,
        firmwares=_firmwares,
        mb=mb,
        mb_spread=lambda values: spread_text(values, 1e6),
        names=names_of,
        nfs=nfs_text,
        port=port_text,
        rate=rate_text,
        spread=spread_text,
        time=_time,
        transport=_transport,
    )
    environment.globals.update(heads=_HEADS, signs=SIGNS)
    return environment


def _finalized(value: Any) -> Any:
    """Return a value of a template as it is shown; None as a dash."""
    if value is None:
        return "-"
    # Objects too: what str() makes of them may have a text of a host.
    return value if isinstance(value, Markup) else printable(str(value))


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return base64.b64encode(digest).decode("ascii")


def _time(text: str) -> str:
    """Return an ISO 8601 time for people, in UTC; another text unchanged, as one
    without a zone.
    """
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
        if at.tzinfo is None:
            return text
        return f"{at.astimezone(timezone.utc):%Y-%m-%d %H:%M} UTC"
    except (ValueError, OverflowError):
        return text


def _cut(text: Optional[str]) -> Optional[str]:
    """Return the beginning of a text that is too long."""
    most = _MOST_TEXT
    return text if text is None or len(text) <= most else f"{text[:most]}..."


def _transport(word: str) -> str:
    """Return a transport as it is written: ``RDMA``; another word unchanged."""
    return word.upper() if word in (RDMA, TCP) else word


def nfs_text(word: str) -> str:
    """Return an NFS version of the engine's API, ``v4_2``, for people: ``4.2``."""
    version = re.fullmatch(r"v([0-9])(?:_([0-9]))?", word)
    return ".".join(filter(None, version.groups())) if version else word


def _firmwares(hosts: Sequence[ReportHost], device: str) -> str:
    """Return the firmware versions of equal hosts' devices with this name."""
    found = {
        one.firmware or "unknown"
        for host in hosts
        for one in host.devices or ()
        if one.name == device
    }
    return listed(sorted(found, key=natural), 3)


class Figure(NamedTuple):
    """A number of the summary, with its noun and a verdict for its colour."""

    number: str
    noun: str
    verdict: str = ""


def _figures(report: Report) -> Iterator[Figure]:
    hosts = report.hosts
    well = sum(host.worst == OK for host in hosts)
    yield Figure(
        f"{well} of {len(hosts)}", "hosts are well", worst_of(h.worst for h in hosts)
    )
    silent = sum(host.devices is None for host in hosts)
    if silent:
        yield Figure(str(silent), "did not report", UNKNOWN)
    yield Figure(str(len(report.domains)), "NFS domains")
    used: Counter[str] = Counter()
    for domain in report.domains:
        used.update(dict(domain.used))
    for word, noun in _MOUNTS.items():
        if used[word] or word == "rdma":
            yield Figure(str(used[word]), noun)
    planned = sum(bool(host.steps) for host in hosts)
    if planned:
        yield Figure(str(planned), "hosts with a plan", WARN)


# What hosts use for domains, for people.
_MOUNTS = {
    "rdma": "mounts over RDMA",
    "tcp": "mounts over TCP",
    "not mounted": "not mounted",
    "unproven": "mounts not proven",
    "unknown": "mounts unknown",
}


class Problem(NamedTuple):
    """A sentence that needs attention, with its number from 1, and the hosts that it is
    true of. If it is true of several domains, ``domains`` has their names, and DOMAIN
    replaces them in the sentence. ``also`` are others about the same cause, numbered
    alike. ``hosts`` are the first for people, ``names`` all.
    """

    number: int
    verdict: str
    number_of_hosts: int
    hosts: str
    sentence: str
    fix: str
    domains: str = ""
    also: tuple[Problem, ...] = ()
    names: tuple[str, ...] = ()


# The checks of one cause, from the cause on; then the transports of domains.
_CHAIN = ("package", "hooks", "enabled", "running", "rdma ports", "rules")
# What a failed check of the add-on is about: hooks are files of the package, and all
# domains are mounted by stock VDSM if it is missing, disabled or not running.
_ADD_ON = {
    "package": ["package", "add-on"],
    "hooks": ["package"],
    "enabled": ["add-on"],
    "running": ["add-on"],
}


@dataclass
class _Sentence:
    """A sentence of the matrices with its hosts; it has several ``keys`` and
    ``columns`` if it differs only by the domain.
    """

    group: OnHosts
    keys: list[_Key]
    columns: list[int]


class Problems:
    """The causes in both matrices that need attention, the worst first.

    What follows from a failed check, on its hosts or some of them, is shown with it: a
    port that is down, a server behind it, and its domains; or no add-on on a host.
    """

    def __init__(self, report: Report) -> None:
        self._report = report
        self._names = [
            axis.name for axis in (*report.checks.columns, *report.transports.columns)
        ]
        self._by_host = {host.name: host for host in report.hosts}
        # Those of one cause, the cause first.
        causes: list[list[_Sentence]] = []
        of_subject: dict[tuple[str, str], list[list[_Sentence]]] = {}
        for one in sorted(self._sentences(), key=self._place):
            hosts, subjects = one.group.hosts, self._subjects(one)
            known = (c for s in subjects for c in of_subject.get((s, hosts[0]), ()))
            fit = (c for c in known if set(hosts) <= set(c[0].group.hosts))
            cause = next(fit, None)
            if cause is None:
                causes.append(cause := [])
            cause.append(one)
            if not self._is_domain(cause[0].columns[0]):
                for key in ((subject, host) for subject in subjects for host in hosts):
                    of_subject.setdefault(key, []).append(cause)
        causes.sort(
            key=lambda its: (
                min(ATTENTION.index(one.group.verdict) for one in its),
                -len(its[0].group.hosts),
            )
        )
        self._numbers: dict[_Key, int] = {}
        self.all: list[Problem] = []
        for number, its in enumerate(causes[:MOST_PROBLEMS], 1):
            self._numbers.update((key, number) for one in its for key in one.keys)
            first, *others = (self._problem(number, one) for one in its)
            worst = worst_of(one.group.verdict for one in its)
            self.all.append(first._replace(verdict=worst, also=tuple(others)))
        self.left = len(causes) - len(self.all)

    def _sentences(self) -> Iterable[_Sentence]:
        """Return each sentence once, in the order of hosts and columns."""
        sentences: list[OnHost] = []
        column_of: dict[_Key, int] = {}
        for number, host in enumerate(self._report.hosts):
            for column, cell in enumerate(self._report.cells(number)):
                if cell.verdict in ATTENTION and cell.sentence:
                    sentences.append(_on_host(host, cell))
                    column_of.setdefault(key_of(sentences[-1]), column)
        # What differs only by the domain, on the same hosts, is one.
        alike: dict[object, _Sentence] = {}
        for (key, column), group in zip(
            column_of.items(), group_by_sentence(sentences)
        ):
            its = self._names[column] if self._is_domain(column) else ""
            texts = [_without(its, text) for text in (group.sentence, group.fix)]
            whole = (group.verdict, group.hosts, *texts)
            one = alike.setdefault(whole, _Sentence(group, [], []))
            one.keys.append(key)
            one.columns.append(column)
        return alike.values()

    def _is_domain(self, column: int) -> bool:
        return column >= len(self._report.checks.columns)

    def _place(self, one: _Sentence) -> int:
        """Return where it is in the chain from a cause to what follows."""
        if self._is_domain(one.columns[0]):
            return len(_CHAIN) + 1
        name = self._names[one.columns[0]]
        return _CHAIN.index(name) if name in _CHAIN else len(_CHAIN)

    def _subjects(self, one: _Sentence) -> list[str]:
        """Return what it is about: ports that are down, servers, the add-on."""
        column = one.columns[0]
        subjects: list[str] = []
        if self._is_domain(column):
            first = len(self._report.checks.columns)
            servers = (self._report.domains[n - first].server for n in one.columns)
            subjects = ["add-on", *servers]
        elif one.group.verdict == FAIL or self._names[column] == "package":
            subjects = [*_ADD_ON.get(self._names[column], ())]
        ports = (
            f"{device.name}/{port.number}"
            for device in self._by_host[one.group.hosts[0]].devices or ()
            for port in device.ports
            if not port.is_active
        )
        known = (*ports, *(domain.server for domain in self._report.domains))
        sentence = one.group.sentence
        return [*subjects, *(n for n in known if n and _whole(n).search(sentence))]

    def _problem(self, number: int, one: _Sentence) -> Problem:
        group, names = one.group, [self._names[column] for column in one.columns]
        several = len(names) > 1
        return Problem(
            number,
            group.verdict,
            len(group.hosts),
            in_order(group.hosts, 6),
            _without(names[0] if several else "", group.sentence),
            _for_all(names, group.fix) if several else group.fix,
            in_order(names, 6) if several else "",
            names=group.hosts,
        )

    def number_of(self, host: ReportHost, cell: Cell) -> int:
        """Return the number of a cell's sentence, 0 for none."""
        if cell.verdict not in ATTENTION or not cell.sentence:
            return 0
        return self._numbers.get(key_of(_on_host(host, cell)), 0)


_Key = tuple[str, str, str]


def _without(domain: str, text: str) -> str:
    """Return ``text`` with DOMAIN in place of the name of a domain."""
    if not domain:
        return text
    return _whole(domain).sub("DOMAIN", text)


@lru_cache(1000)
def _whole(name: str) -> re.Pattern[str]:
    """Return the pattern of a name that is no part of another."""
    return re.compile(rf"(?<![\w.-]){re.escape(name)}(?![\w-]|\.\w)")


def _for_all(names: list[str], fix: str) -> str:
    """Return the fix for the first of the domains ``names`` for all of them: one
    command, or with DOMAIN in place of each name.
    """
    heal = f"domain heal {shlex.quote(names[0])}"
    if heal in fix:
        return fix.replace(heal, f"domain heal {shlex.join(names)}")
    return _without(names[0], fix)


def _on_host(host: ReportHost, cell: Cell) -> OnHost:
    return OnHost(host.name, host.address, cell.sentence, cell.fix, cell.verdict)


@dataclass(frozen=True)
class Table:
    """A matrix for the page; ``clusters`` have a name and its hosts with their cells,
    those that need attention first.
    """

    kind: str
    columns: tuple[str, ...]
    clusters: tuple[tuple[str, tuple[tuple[ReportHost, tuple[Cell, ...]], ...]], ...]


def _table(report: Report, matrix: Matrix) -> Table:
    clusters: dict[str, list[tuple[ReportHost, tuple[Cell, ...]]]] = {}
    for host, cells in zip(report.hosts, matrix.cells):
        name = " / ".join(filter(None, (host.data_center, host.cluster)))
        clusters.setdefault(name or "no cluster", []).append((host, cells))
    return Table(
        matrix.kind,
        tuple(column.name for column in matrix.columns),
        tuple(
            (name, tuple(sorted(clusters[name], key=_attention_first)))
            for name in sorted(clusters, key=natural)
        ),
    )


def _attention_first(row: tuple[ReportHost, tuple[Cell, ...]]) -> tuple[Any, ...]:
    worst = VERDICTS.index(worst_of(cell.verdict for cell in row[1]))
    # The others in the order of their names, whatever does not apply to them.
    return (min(worst, VERDICTS.index(OK)), natural(row[0].name))


class CableRow(NamedTuple):
    """A cable: what it leads to and its port there, and the host's end."""

    neighbour: str
    neighbour_id: Optional[str]
    neighbour_port: Optional[str]
    host: str
    port: str
    networks: str


def _cables(report: Report) -> tuple[list[CableRow], int, str]:
    """Return the cables whose other end is known, those of a switch together; the
    number of those left out; and the hosts with an active port whose cable is unknown.
    """
    rows: list[CableRow] = []
    unknown: set[str] = set()
    for host in report.hosts:
        for _, device, port, neighbour in cables_of(host):
            if neighbour is None:
                unknown.add(host.name)
                continue
            netdev = f", {neighbour.netdev}" if neighbour.netdev else ""
            networks = dict.fromkeys(network_of(one).title for one in port.attached)
            rows.append(
                CableRow(
                    neighbour_text(neighbour),
                    neighbour.id,
                    neighbour.port_title,
                    host.name,
                    f"{device}/{port.number}{netdev}",
                    ", ".join(networks),
                )
            )
    rows.sort(key=lambda row: tuple(natural(part or "") for part in row))
    return rows[:MOST_CABLES], max(len(rows) - MOST_CABLES, 0), in_order(unknown, 12)


class Entry(NamedTuple):
    """A line of the history: a time in ISO 8601, where, what, and its outcome."""

    at: str
    where: str
    what: str
    outcome: str = ""
    more: str = ""


def _history(report: Report) -> tuple[tuple[Entry, ...], int]:
    """Return the newest entries, the newest first, and the number of the others."""
    entries = [Entry(e.at, "engine", e.text, e.severity) for e in report.events or ()]
    for host in report.hosts:
        for run in host.runs or ():
            what = run.by
            steps = _shortened(run.steps)
            applied = f"{counted(len(run.steps), 'step')}: {steps}" if steps else ""
            more = "; ".join(filter(None, (applied, run.sentence)))
            entries.append(Entry(run.at, host.name, what, run.outcome, more))
        for fallen in host.fallen:
            entries.append(
                Entry(
                    fallen.since or "",
                    host.name,
                    f"{fallen.export} fell to {fallen.transport}, against rule "
                    f"'{fallen.rule}'",
                    "degraded",
                    fallen.reason,
                )
            )
    entries.sort(key=lambda entry: entry.at, reverse=True)
    return tuple(entries[:MOST_RUNS]), max(len(entries) - MOST_RUNS, 0)


def _shortened(steps: Sequence[str]) -> str:
    return ", ".join(steps[:6]) + (" and more" if len(steps) > 6 else "")


def _unread(report: Report) -> list[OnHosts]:
    """Return why the history of hosts is not known, each sentence once."""
    return group_by_sentence(
        OnHost(host.name, host.address, host.runs_problem)
        for host in report.hosts
        if host.runs_problem
    )


def _proofs(report: Report) -> list[tuple[str, str]]:
    """Return the sentences of mounts that are as requested, each with its hosts."""
    sentences: Iterable[OnHost] = (
        _on_host(host, cell)
        for host, cells in zip(report.hosts, report.transports.cells)
        for cell in cells
        if cell.verdict == OK and cell.sentence
    )
    by_name = {host.name: host for host in report.hosts}
    return [
        (names_of([by_name[name] for name in group.hosts], 6), group.sentence)
        for group in group_by_sentence(sentences)
    ][:MOST_PROOFS]
