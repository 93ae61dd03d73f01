# SPDX-License-Identifier: GPL-2.0-or-later
"""A record of the journal as a line of JSON with a checksum, and back, strictly. Pure.

The checksum is the line's first key, and the CRC-32 of the line without it.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from typing import Any, Optional, get_args

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
# At the front, and in this form only: anywhere else it is a key that nobody knows.
_CHECKED = re.compile(rb'\{"crc32":"([0-9a-f]{8})",')


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
    """Return ``record`` as a line: the checksum, then ``record``, which says the kind
    in small letters, then its fields. ASCII only.
    """
    data = {_KEY: type(record).__name__.lower(), **plain(record)}
    plainly = json.dumps(data, separators=(",", ":")).encode("ascii")
    return b'{"crc32":"%08x",%b\n' % (zlib.crc32(plainly), plainly[1:])


def is_whole(line: bytes) -> bool:
    """Whether ``line``, without its end, has a checksum and is as it was written."""
    checked, plainly = _without_checksum(line)
    return checked is not None and zlib.crc32(plainly) == int(checked[1], 16)


def _without_checksum(line: bytes) -> tuple[Optional[re.Match[bytes]], bytes]:
    """Return the checksum at the front of ``line``, if it has one, and the rest, which
    is an object again.
    """
    checked = _CHECKED.match(line)
    return checked, (b"{" + line[checked.end() :] if checked else line)


def record_in(line: bytes) -> Record:
    """Return the record of ``line``, which has a checksum unless an earlier version
    wrote it. Raises WrongLine.
    """
    line = line[:-1] if line.endswith(b"\n") else line
    checked, plainly = _without_checksum(line)
    if checked is not None and not is_whole(line):
        raise WrongLine(
            "is not as it was written (its checksum differs)",
            "nothing is changed as long as that is so; keep a copy of the journal, it "
            "says what this host had before, and put back that line from a backup; one "
            f"that you know to be right counts without {checked[0][1:].decode()}",
        )
    try:
        data = json.loads(plainly)
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
