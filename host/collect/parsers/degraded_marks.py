# SPDX-License-Identifier: GPL-2.0-or-later
"""Convert the marks of degraded mounts, which vdsmd writes to /run, to JSON and back.

Pure.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable

from ovirt_rdma.host.facts.model import DegradedMark
from ovirt_rdma.host.system.json_codec import Records
from ovirt_rdma.host.system.json_document import Envelope, WrongRecord, json_value

MARKS = Envelope("degraded-mounts")


def to_json(marks: Iterable[DegradedMark]) -> bytes:
    """Return the marks as ASCII JSON that ends in a newline."""
    mounts = [dataclasses.asdict(mark) for mark in marks]
    return MARKS.text({"mounts": mounts}).encode("ascii")


def from_json(data: bytes) -> tuple[DegradedMark, ...]:
    """Return the marks in ``data``.

    Raises ValueError with the reason if it is not a result of :func:`to_json`.
    """
    # vdsmd needs it only after a restart with marks.

    content = MARKS.content(json_value(data))
    if list(content) != ["mounts"] or not isinstance(content["mounts"], list):
        raise WrongRecord("it has no list of mounts, or other keys")
    records = Records("a mark")
    return tuple(records.read(DegradedMark, mount) for mount in content["mounts"])
