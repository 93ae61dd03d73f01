# SPDX-License-Identifier: GPL-2.0-or-later
"""Define the data of a matrix: rows, columns, and a verdict in each cell; and group
sentences about hosts: one that is true of several hosts is shown once. Pure.

Tables on a terminal and JSON are made from it alone; docs/matrix.md describes its JSON
form.

That includes sentences that differ only by the name or address of the host.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ovirt_rdma.engine_sdk_tools.names import listed

# The verdicts of a cell. UNKNOWN never counts as good, because there is no proof.
OK = "ok"
WARN = "warn"
FAIL = "fail"
UNKNOWN = "unknown"
# Not applicable: the host does not belong to the domain's data center.
NONE = "none"

# The worst first.
VERDICTS = (FAIL, UNKNOWN, WARN, OK, NONE)
# Those that need attention.
ATTENTION = VERDICTS[:3]
# What stands before a text, so that its verdict is readable without colour.
BEFORE = {WARN: "WARN", FAIL: "FAIL", UNKNOWN: "?"}


@dataclass(frozen=True)
class Cell:
    """A cell: ``verdict``, a short ``text`` for the table, a sentence, and a fix.

    ``source`` is the origin of the verdict: ``engine``, ``host`` or ``both``.
    """

    verdict: str
    text: str
    sentence: str = ""
    fix: str = ""
    source: str = "host"

    @property
    def shown(self) -> str:
        """The text, with the verdict before it unless that is OK or NONE."""
        if self.verdict == NONE:
            return self.text or "-"
        return " ".join(part for part in (BEFORE.get(self.verdict), self.text) if part)


@dataclass(frozen=True)
class Axis:
    """A row or column: the name shown, the engine's id, and the address of a host."""

    name: str
    id: str = ""
    address: str = ""


@dataclass(frozen=True)
class Matrix:
    """A matrix: ``cells[row][column]``; ``kind`` is ``hosts`` or ``domains``.

    ``notes`` are sentences to show below it.
    """

    kind: str
    rows: tuple[Axis, ...]
    columns: tuple[Axis, ...]
    cells: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()

    @property
    def worst(self) -> str:
        """The worst verdict; none for an empty matrix."""
        return worst_of(cell.verdict for row in self.cells for cell in row)


def worst_of(verdicts: Iterable[str]) -> str:
    """Return the worst of ``verdicts``: fail, unknown, warn, ok; none for nothing."""
    return min(verdicts, key=VERDICTS.index, default=NONE)


# Group sentences about hosts: one that is true of several hosts is shown once.

# Up to this many names are listed; of more, only their number is shown.
NAMES_SHOWN = 4
# These replace a host's name in a sentence about several hosts.
_AT_FIRST, _ELSEWHERE = "the host", "HOST"


class OnHost(NamedTuple):
    """A sentence about one host, and its fix; ``verdict`` separates equal sentences."""

    host: str
    address: str
    sentence: str
    fix: str = ""
    verdict: str = ""


class OnHosts(NamedTuple):
    """A sentence about several hosts, in which HOST replaces the name of each, and its
    fix: that of the first host, with all of them where it has ``--hosts``.
    """

    hosts: tuple[str, ...]
    sentence: str
    fix: str = ""
    verdict: str = ""

    @property
    def line(self) -> str:
        """The names of the hosts, then the sentence."""
        return f"{listed(self.hosts, NAMES_SHOWN)}: {self.sentence}"


def group_by_sentence(sentences: Iterable[OnHost]) -> list[OnHosts]:
    """Return each sentence once with all its hosts, in the order of occurrence."""
    groups: dict[tuple[str, str, str], dict[str, OnHost]] = {}
    for on_host in sentences:
        groups.setdefault(key_of(on_host), {}).setdefault(on_host.host, on_host)
    grouped = []
    for (verdict, sentence, _), hosts in groups.items():
        first = next(iter(hosts.values()))
        text = first.sentence if len(hosts) == 1 else sentence
        fix = _for_all(first, hosts)
        grouped.append(OnHosts(tuple(hosts), text, fix, verdict))
    return grouped


def _for_all(first: OnHost, names: Iterable[str]) -> str:
    own = rf"--hosts {re.escape(shlex.quote(first.host))}(?![\w.-])"
    together = f"--hosts {shlex.quote(','.join(names))}"
    return re.sub(own, lambda _: together, first.fix)


def key_of(on_host: OnHost) -> tuple[str, str, str]:
    """Return what sentences of one group have in common."""
    return (
        on_host.verdict,
        _without_name(on_host, on_host.sentence),
        _without_name(on_host, on_host.fix),
    )


def _without_name(on_host: OnHost, text: str) -> str:
    """Return ``text`` without the name and address of the host."""
    # The longer first, because the address may start with the name.
    own = sorted({on_host.host, on_host.address} - {""}, key=len, reverse=True)
    if not any(name in text for name in own):
        return text
    names = "|".join(re.escape(name) for name in own)
    # Whole names only, no part of host10, of host1-b or of host1.example.com.
    whole = re.compile(rf"(?<![\w.-])(?:{names})(?![\w-]|\.\w)")
    return whole.sub(lambda match: _ELSEWHERE if match.start() else _AT_FIRST, text)


def problems_of(matrix: Matrix) -> list[OnHosts]:
    """Return the sentences of cells that are not OK, the worst first."""
    return sorted(
        group_by_sentence(sentences_of(matrix, ATTENTION)),
        key=lambda problem: VERDICTS.index(problem.verdict),
    )


def sentences_of(matrix: Matrix, verdicts: Collection[str]) -> Iterator[OnHost]:
    """Yield the sentences of the cells with one of ``verdicts``, host by host."""
    for row, cells in zip(matrix.rows, matrix.cells):
        for cell in cells:
            if cell.verdict in verdicts and cell.sentence:
                yield OnHost(
                    row.name, row.address, cell.sentence, cell.fix, cell.verdict
                )
