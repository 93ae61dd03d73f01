# SPDX-License-Identifier: GPL-2.0-or-later
"""Make the tables of docs/metrics.md from the metrics, and the texts of docs/alerts.md
that the alert rules have.

WRITE_GOLDEN=1 pytest tests/storage/metrics/test_metrics_docs.py writes them.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import yaml

from ovirt_rdma.host.facts import statistics
from ovirt_rdma.storage.metrics import exporter
from ovirt_rdma.storage.metrics.exporter import NAMED_OPERATIONS, OTHER, Family

TOP = Path(__file__).resolve().parents[1]
PAGE = TOP / "docs/metrics.md"
ALERTS = TOP / "docs/alerts.md"
RULES = TOP / "storage/metrics/prometheus/ovirt-rdma.rules.yml"
MARK = "<!-- {}: made from storage/metrics. -->\n"


def alerts() -> list[dict[str, Any]]:
    """Return the alert rules, in the order of their file."""
    groups = yaml.safe_load(RULES.read_text("utf-8"))["groups"]
    return [rule for group in groups for rule in group["rules"]]


def tables() -> dict[str, str]:
    """Return the tables of the page of metrics by name."""
    counted: dict[tuple[str, str], list[str]] = {}
    for name, (kind, text) in statistics.COUNTERS.items():
        meaning, _, drivers = text.partition(" (")
        of = f" ({drivers}" if drivers else ""
        counted.setdefault((kind, meaning), []).append(f"`{name}`{of}")
    counters = [
        (kind, ", ".join(names), meaning) for (kind, meaning), names in counted.items()
    ]
    return {
        "Metrics": _table(
            ("metric", "what it is"), [_row(family) for family in exporter.FAMILIES]
        ),
        "Counters of ports": _table(("counter", "what it counts"), counters),
        "Operations": ", ".join(f"`{name}`" for name in (*NAMED_OPERATIONS, OTHER))
        + "\n",
    }


def meanings() -> dict[str, str]:
    """Return by alert its severity, how long it waits, and what it means."""
    return {
        rule["alert"]: f"**{rule['labels']['severity']}**, "
        f"{'after ' + rule['for'] if 'for' in rule else 'at once'}: "
        f"{_plain(rule['annotations']['summary'])}. "
        f"{_plain(rule['annotations']['description'])}\n"
        for rule in alerts()
    }


def page(text: str, made: dict[str, str]) -> str:
    """Return a page with ``made`` in place of the paragraphs after the marks."""
    for name, new in made.items():
        mark = MARK.format(name)
        before, found, after = text.partition(mark)
        if not found:
            raise ValueError(f"no line {mark.strip()}")
        rest = after.partition("\n\n")[2]
        text = f"{before}{mark}{new}\n{rest}"
    return text


def _row(family: Family) -> tuple[str, str, str]:
    """Return the group of a metric, labels and source, its name and its meaning."""
    source, _, detail = family.source.partition(", ")
    if source.startswith("/sys/"):
        source, _, detail = source.rpartition("/")
    labels = ", ".join(f"`{label}`" for label in family.labels)
    detail = f" ({detail.removeprefix('xprt: ')})" if detail else ""
    group = f"{labels or 'no labels'}; from {source}"
    return group, f"`{family.name}`", family.help + detail


def _plain(text: str) -> str:
    """Return an annotation with words in place of its template actions."""
    text = re.sub(r"\{\{ *\$labels\.(\w+) *\}\}", r"*\1*", text)
    return re.sub(r"\{\{ *\$value[^}]*\}\}", "*N*", text)


def _table(head: tuple[str, str], rows: Sequence[tuple[str, str, str]]) -> str:
    """Return a table of ``rows``, with a line before the first of each group."""
    lines = [head, ("---", "---")]
    for group, found in itertools.groupby(rows, lambda row: row[0]):
        lines += [(f"**{group}**", ""), *(row[1:] for row in found)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)
