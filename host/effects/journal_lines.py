# SPDX-License-Identifier: GPL-2.0-or-later
"""A record of the journal as a line of JSON, and back, strictly. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, get_args

from ovirt_rdma.host.effects.journal_records import (
    OUTCOMES,
    SCHEMA_VERSION,
    VERBS,
    Begin,
    End,
    Record,
)
from ovirt_rdma.host.json_records import Records, WrongRecord, kind, plain

_KEY = "record"
_KINDS: dict[str, Any] = {cls.__name__.lower(): cls for cls in get_args(Record)}
_NEWER = "use the version of ovirt-rdma-host that wrote it, or a newer one"


def _check(cls: Any, values: Mapping[str, Any]) -> tuple[str, str]:
    """Say which word is none of the journal's: what a run is told by it."""
    if cls is Begin and values["verb"] not in VERBS:
        return "verb", f"is {values['verb']!a}, which is no verb of a run"
    if cls is End and values["outcome"] not in OUTCOMES:
        return "outcome", f"is {values['outcome']!a}, which is no outcome of a run"
    return "", ""


_records = Records("the journal", _check)


class WrongLine(ValueError):
    """A line is no record; the text says why, as a clause, ``fix`` what to do where
    the line is right and this version too old.
    """

    def __init__(self, words: str, fix: str = "") -> None:
        super().__init__(words)
        self.fix = fix


def line_of(record: Record) -> bytes:
    """Return ``record`` as a line: ``record`` first, which says the kind in small
    letters, then its fields. ASCII only.
    """
    data = {_KEY: type(record).__name__.lower(), **plain(record)}
    return json.dumps(data, separators=(",", ":")).encode("ascii") + b"\n"


def record_in(line: bytes) -> Record:
    """Return the record of ``line``. Raises WrongLine."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):
        raise WrongLine("is no JSON") from None
    if not isinstance(data, dict):
        raise WrongLine(f"is {kind(data)}, not an object")
    name = data.pop(_KEY, None)
    version = data.get("schema_version", SCHEMA_VERSION)
    if type(version) is int and version > SCHEMA_VERSION:
        raise WrongLine(f"was written by a newer version (schema {version})", _NEWER)
    cls = _KINDS.get(name) if isinstance(name, str) else None
    if cls is None:
        raise WrongLine(f"has a record {name!a}, which this version does not know")
    try:
        record: Record = _records.read(cls, data)
    except WrongRecord as wrong:
        raise WrongLine(str(wrong)) from None
    if isinstance(record, Begin) and record.schema_version != SCHEMA_VERSION:
        raise WrongLine(f"schema_version is {version!a}, not {SCHEMA_VERSION}")
    return record
