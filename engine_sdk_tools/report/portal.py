# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the data of the administration portal's plugin from the report. Pure.

The file lies on the engine machine, for :mod:`.portal_service` alone, which gives a
user what the engine's API lets that user see. docs/portal.md describes the plugin.

The file of 250 hosts and 8 domains has to be below 300 kB: most hosts say the same, so
each cell is the number of one of ``cells``, and each host's row is the number of one of
``rows``. Every text is printable, because the plugin shows it as it is.
"""

from __future__ import annotations

import json
import shlex
from typing import Any, Optional

from ovirt_rdma.engine_sdk_tools.model import ATTENTION, Cell, natural, nfs_text
from ovirt_rdma.engine_sdk_tools.report.model import (
    Report,
    ReportDomain,
    shortened,
    verdict_text,
)
from ovirt_rdma.engine_sdk_tools.report.page import (
    MOST_SHOWN,
    Problem,
    problems_of,
)
from ovirt_rdma.host.errors import Problem as Refusal
from ovirt_rdma.host.export import RDMA, TCP
from ovirt_rdma.host.system.text import printable

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
