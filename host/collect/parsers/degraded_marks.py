# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert the marks of degraded mounts, which vdsmd writes to /run, to JSON and back.

Pure.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable
from typing import Any

from ovirt_rdma.host.facts.model import DegradedMark

SCHEMA_VERSION = 1
KIND = "degraded-mounts"

_OPTIONAL = {"since", "mounted_s"}


def to_json(marks: Iterable[DegradedMark]) -> bytes:
    """Return the marks as ASCII JSON that ends in a newline."""
    whole = {
        "schema_version": SCHEMA_VERSION,
        "kind": KIND,
        "mounts": [dataclasses.asdict(mark) for mark in marks],
    }
    return json.dumps(whole, indent=2).encode("ascii") + b"\n"


def from_json(data: bytes) -> tuple[DegradedMark, ...]:
    """Return the marks in ``data``.

    Raises ValueError with the reason if it is not a result of :func:`to_json`.
    """
    try:
        whole = json.loads(data.decode("utf-8"))
    except RecursionError:
        raise ValueError("it is nested too deeply") from None
    if not isinstance(whole, dict) or whole.get("kind") != KIND:
        raise ValueError("it does not have marks of mounts")
    version = whole.get("schema_version")
    if version != SCHEMA_VERSION:
        raise ValueError(
            f"its schema version is {version!r}, this program reads {SCHEMA_VERSION}"
        )
    mounts = whole.get("mounts")
    if not isinstance(mounts, list):
        raise ValueError("mounts is not a list")
    return tuple(_mark(entry, number) for number, entry in enumerate(mounts, 1))


def _mark(entry: Any, number: int) -> DegradedMark:
    names = {field.name for field in dataclasses.fields(DegradedMark)}
    if not isinstance(entry, dict) or set(entry) != names:
        raise ValueError(f"mark {number} does not have the keys of a mark")
    for name in names:
        value = entry[name]
        if value is None and name in _OPTIONAL:
            continue
        good = _is_finite(value) if name == "mounted_s" else isinstance(value, str)
        if not good:
            raise ValueError(f"mark {number} has a {name} of the wrong type")
    return DegradedMark(**entry)


def _is_finite(value: object) -> bool:
    # JSON has no limit for numbers, and Python reads NaN and Infinity too.
    is_number = isinstance(value, (int, float)) and not isinstance(value, bool)
    return is_number and abs(value) <= sys.float_info.max  # type: ignore[arg-type]
