# SPDX-License-Identifier: GPL-2.0-or-later
"""Print metrics in Prometheus' text format 0.0.4. Pure.

The format: prometheus.io/docs/instrumenting/exposition_formats. Tests give it to
promtool and to node_exporter. prometheus_client would do the same, but to import it
takes twice as long as a whole run.
"""

from __future__ import annotations

from collections.abc import Iterable

from ovirt_rdma.storage.metrics.families import FAMILIES
from ovirt_rdma.storage.metrics.samples import Row

_ESCAPES = str.maketrans({"\\": r"\\", '"': r"\"", "\n": r"\n"})


def render(rows: Iterable[Row]) -> str:
    """Return the text of ``rows``: each metric once, with HELP and TYPE, in the order
    of FAMILIES. Metrics without a value are left out. The text is valid UTF-8.
    """
    lines: dict[str, list[str]] = {}
    for row in rows:
        texts: dict[tuple[str, ...], str] = {}
        for family, value in row.values:
            text = texts.get(family.labels)
            if text is None:
                text = texts[family.labels] = _labels(family.labels, row.labels)
            line = f"{family.name}{text} {value!r}\n"
            lines.setdefault(family.name, []).append(line)
    parts: list[str] = []
    for family in FAMILIES:
        if family.name in lines:
            parts.append(f"# HELP {family.name} {family.help}\n")
            parts.append(f"# TYPE {family.name} {family.kind}\n")
            parts += lines[family.name]
    return "".join(parts)


def _labels(names: tuple[str, ...], values: tuple[str, ...]) -> str:
    if not names:
        return ""
    pairs = ",".join(
        f'{name}="{_escaped(value)}"' for name, value in zip(names, values)
    )
    return f"{{{pairs}}}"


def _escaped(value: str) -> str:
    r"""Return the value of a label; a byte that is not UTF-8 is written as ``\xff``."""
    if not value.isascii():
        data = value.encode("utf-8", "surrogateescape")
        value = data.decode("utf-8", "backslashreplace")
    if '"' in value or "\\" in value or "\n" in value:  # nearly none has one
        return value.translate(_ESCAPES)
    return value
